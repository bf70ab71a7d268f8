"""Corrections and gallery on the public release itself, where it is at hand."""

from __future__ import annotations

import time

import pytest

from storage.runs import RunStore
from tasks.corrections import Corrections, corrections
from tasks.report import cases
from tasks.report.corrected import all_tables
from tasks.report.gallery import Gallery
from tests.importers.support import imported
from tests.importers.test_real_release import FOLDER, unpacked
from tests.report.make_run import Row

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(900),
    pytest.mark.skipif(FOLDER is None, reason="the public release is not at hand"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    home = tmp_path_factory.mktemp("corrections")
    return imported(unpacked("release_users_001_040.tar.zst", home / "forty"), home / "pub")[0]


@pytest.fixture(scope="module")
def found(run: RunStore) -> Corrections:
    begun = time.perf_counter()
    made = corrections(run)
    print(f"corrections: {time.perf_counter() - begun:.2f} s")
    return made


def says(found: Corrections, name: str) -> str:
    return next(note.line for note in found.notes if note.id == name)


def lines(found: Corrections, name: str) -> list[Row]:
    return [dict(r) for t in all_tables(found) if t.id == f"strict-{name}" for r in t.rows]


def test_no_top_k_verdict_quotes_a_transcript(found: Corrections) -> None:
    assert '0 of 2,116 "disclosed" verdicts quote the transcript, 3,007 of 3,308 do' in says(
        found, "transcripts"
    )
    rates = {
        r["system"]: (round(r["rate"], 1), round(r["rate_strict"], 1), r["n"])
        for r in lines(found, "attribution")
        if r["read"] == "top-5"
    }
    assert rates == {
        "amem": (57.4, 53.3, "1,159/1,240"),
        "longctx_full": (51.2, 47.7, "1,158/1,240"),
        "mem0": (47.1, 42.8, "1,160/1,240"),
        "memt": (46.3, 43.0, "1,148/1,240"),
    }


def test_the_users_whose_stores_fit(found: Corrections) -> None:
    why = says(found, "overflow")
    assert "memt: 992 verdicts of 32 users" in why
    assert "992 with the label unknown and no reason" in why
    assert "909 of them were labelled memory_failure" in why
    assert "B on the 8 users whose stores fit: 0.584" in why
    assert "Largest store that fits 907,549 characters, smallest that fails 1,008,110" in why
    (row,) = (
        r for r in lines(found, "scores") if (r["system"], r["figure"]) == ("memt", "B, full store")
    )
    assert (round(row["published"], 3), row["published_n"]) == (0.117, "40/40")
    assert (round(row["corrected"], 3), row["corrected_n"]) == (0.584, "8/40")


def test_the_other_facts(found: Corrections) -> None:
    recovered = {r["system"]: r["recovered"] for r in lines(found, "oracle")
                 if r["read"] == "full store"}  # fmt: skip
    assert recovered == {"nomem": 0, "amem": 24, "longctx_full": 25, "mem0": 24, "memt": 3}
    assert "61 of 1,240 targets" in says(found, "oracle")
    assert "longctx_full misses the last reply of 1,240 of 1,240 episodes" in says(found, "replies")
    kinds = {r["system"]: (r["kind"], r["short"]) for r in lines(found, "retrieval")}
    assert kinds == {
        "amem": ("ascending", "0/1,240"),
        "longctx_full": ("descending", "0/1,240"),
        "mem0": ("none", "0/1,240"),
        "memt": ("none", "131/1,240"),
    }


def test_which_orders_survive(found: Corrections) -> None:
    orders = {r["figure"]: (r["order"], r["shown"]) for r in lines(found, "rankings")}
    assert orders["B, top-5"] == ("amem > longctx_full > mem0 > memt", "5/6")
    assert orders["B, full store"] == ("longctx_full > mem0 > amem > memt > nomem", "3/10")
    memt = [r for r in lines(found, "pairs") if r["figure"] == "B, full store"
            and "memt" in (r["first"], r["second"])]  # fmt: skip
    assert {r["users"] for r in memt} == {8}
    assert {r["result"] for r in memt} == {"not ranked (memt: 248/1,240 targets measured)"}


def test_the_gallery_has_cases_of_every_rule(run: RunStore) -> None:
    made = Gallery()
    users = tuple(row["user_id"] for row in run.read("users"))
    cases.collect(run, users, run.manifest.system_names, cap=1, look=made.add)
    rooms = {room.rule.id: room for room in made.rooms()}
    assert all(room.cases for room in rooms.values())
    assert (rooms["overflow"].n, rooms["overflow"].total) == (992, 6200)
    assert (rooms["refused"].n, rooms["refused"].total) == (24 + 25 + 24 + 3, 4 * 61 + 8)
    assert rooms["turn-budget"].total == 6


def test_the_corrections_come_within_seconds(run: RunStore, found: Corrections) -> None:
    begun = time.process_time()
    corrections(run)
    # All threads of the process; on two cores the wait is about half of it.
    assert time.process_time() - begun < 15
