"""Corrections of published figures, on runs whose faults are made by hand."""

from __future__ import annotations

import csv
import io
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memprobe import metrics
from storage.runs import RunStore
from tasks.corrections import APPLIES, IDLE, UNTOLD, Corrections, Note, corrections
from tasks.corrections_evidence import Labelled
from tasks.corrections_figures import rate_difference, rates
from tasks.corrections_output import facts, to_csv, to_latex, to_text
from tasks.report.corrected import all_tables
from tasks.report.tables import Table
from tests.report.make_run import Row, make_run

SYSTEMS = ("longctx_full", "rag")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("corrections ask nobody")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def note(found: Corrections, name: str) -> Note:
    (one,) = [n for n in found.notes if n.id == name]
    return one


def table(found: Corrections, name: str) -> Table:
    (one,) = [t for t in all_tables(found) if t.id == f"strict-{name}"]
    return one


def line(found: Corrections, name: str, **where: str) -> dict[str, Any]:
    """The one row of a table with these texts."""
    (row,) = [
        r for r in table(found, name).rows if all(r[key] == text for key, text in where.items())
    ]
    return dict(row)


def number(row: Row) -> int:
    """A target's place, from 1, in the order of its task."""
    return int(row["episode"])


def by_hand(evidence: Callable[[Row], str | None]) -> Callable[[str, list[Row]], list[Row]]:
    """Attributions of 31 targets: recovered, disclosed, silent, the task's; whole and top-5.

    Whole store: 1-10 recovered, 11-20 disclosed, 21-28 silent, 29-31 the task's.
    Top-5: 1-5 recovered, 6-15 silent, 16-28 disclosed, 29-31 the task's.
    """

    def edit(name: str, rows: list[Row]) -> list[Row]:
        if name != "attributions":
            return rows
        out = []
        for row in rows:
            whole, n = row["access_mode"] == "dump_all", number(row)
            ok, first, second = (10, 20, 28) if whole else (5, 15, 28)
            one, two = (True, False) if whole else (False, True)
            shown = one if n <= first else two
            label = "memory_failure" if shown else "agent_elicitation_failure"
            row = {**row, "label": label, "disclosed": shown, "evidence": None}
            if n <= ok or n > second:
                label = "ok" if n <= ok else "task_design_failure"
                row |= {"label": label, "disclosed": None}
            elif shown:
                quoted = f'"user turn 2 on {row["dimension"]}"'
                row["evidence"] = quoted if whole else evidence(row)
            out.append(row)
        return out

    return edit


def of_the_task(row: Row) -> str:
    return f'"task about {row["dimension"]}" and more that nobody said'


def test_top_k_rows_of_empty_transcripts_get_an_estimate(tmp_path: Path) -> None:
    found = corrections(
        make_run(tmp_path / "run", users=2, systems=SYSTEMS, edit=by_hand(of_the_task))
    )
    why = note(found, "transcripts")
    assert why.state == APPLIES
    # 13 disclosed targets of 2 users and 2 systems by top-5; 10 from the whole store.
    assert '0 of 52 "disclosed" verdicts quote the transcript, 40 of 40 do' in why.says
    assert "124 targets of 2 users, 0 of them left out" in why.n
    top = line(found, "attribution", system="rag", read="top-5")
    assert (top["ok"], top["memory"], top["agent"], top["task"]) == (10, 26, 20, 6)
    assert top["rate"] == pytest.approx(100 * 10 / 36)
    # Not recovered by top-5 and not the task's: 6-10 came out of the whole store and 11-20
    # were disclosed there, so 15 were disclosed; 21-28 were not.
    assert (top["ok_strict"], top["memory_strict"], top["silent_strict"]) == (10, 30, 16)
    assert top["rate_strict"] == 25.0
    assert top["n"] == "40/62"
    assert top["interval"] == (25.0, 25.0)
    assert top["why"] == "empty transcripts: an estimate"
    whole = line(found, "attribution", system="rag", read="full store")
    assert whole["rate"] == whole["rate_strict"] == 50.0
    assert whole["why"] == ""


def test_evidence_from_the_transcripts_needs_no_estimate(tmp_path: Path) -> None:
    def said(row: Row) -> str:
        return f"User turn 1, on {row['dimension'].upper()}"

    found = corrections(make_run(tmp_path / "run", users=2, systems=SYSTEMS, edit=by_hand(said)))
    assert note(found, "transcripts").state == IDLE
    top = line(found, "attribution", system="rag", read="top-5")
    assert (top["memory_strict"], top["silent_strict"]) == (26, 20)
    assert top["rate_strict"] == top["rate"]


def test_few_verdicts_tell_nothing_but_their_own_mark_does(tmp_path: Path) -> None:
    def few(mark: bool) -> Callable[[str, list[Row]], list[Row]]:
        full = by_hand(of_the_task)

        def edit(name: str, rows: list[Row]) -> list[Row]:
            rows = full(name, rows)
            if name != "attributions":
                return rows
            kept = [r for r in rows if r["k"] is None or number(r) in (1, 16, 17)]
            said = "judged on an empty transcript" if mark else None
            return [{**r, "detail": said if r["k"] else None} for r in kept]

        return edit

    unmarked = corrections(make_run(tmp_path / "a", users=1, systems=SYSTEMS, edit=few(False)))
    assert note(unmarked, "transcripts").state == UNTOLD
    assert "0 of 4 quote it" in note(unmarked, "transcripts").says
    assert line(unmarked, "attribution", system="rag", read="top-5")["memory_strict"] == 2
    marked = corrections(make_run(tmp_path / "b", users=1, systems=SYSTEMS, edit=few(True)))
    assert note(marked, "transcripts").state == APPLIES
    # 16 and 17 are known as disclosed from the whole store.
    assert line(marked, "attribution", system="rag", read="top-5")["memory_strict"] == 2


def test_without_whole_store_rows_there_is_no_estimate(tmp_path: Path) -> None:
    full = by_hand(of_the_task)

    def edit(name: str, rows: list[Row]) -> list[Row]:
        rows = full(name, rows)
        return [r for r in rows if r["k"]] if name == "attributions" else rows

    found = corrections(make_run(tmp_path / "run", users=2, systems=SYSTEMS, edit=edit))
    top = line(found, "attribution", system="rag", read="top-5")
    assert (top["rate_strict"], top["interval"]) == (None, None)
    assert top["why"] == "empty transcripts: no estimate"
    assert "no estimate" in line(found, "pairs", figure="Rate %, top-5")["result"]


def overflown(scored: bool) -> Callable[[str, list[Row]], list[Row]]:
    """The stores of user_000 and user_001 in rag never fit, scored 0 or left unscored."""

    def edit(name: str, rows: list[Row]) -> list[Row]:
        if name not in ("verdicts", "slot_fills"):
            return rows
        score = 0.0 if scored else None
        gone: Row = {"status": "scored" if scored else "unscored", "reason": "store_overflow"}
        gone |= {"label": "unknown" if scored else None}
        gone |= {"score": score} if name == "verdicts" else {"label_reason": ""}
        return [
            {**r, **gone}
            if r["system"] == "rag" and r["k"] is None and r["user_id"] in ("user_000", "user_001")
            else r
            for r in rows
        ]

    return edit


def recovery(store: RunStore, system: str, user: str) -> float:
    """B of one user from the whole store, counted here."""
    own: dict[str, list[float]] = {}
    for row in store.read("verdicts", system=system, user=user):
        if row["k"] is None:
            own.setdefault(row["category"], []).append(row["score"])
    return float(np.mean([np.mean(scores) for scores in own.values()]))


@pytest.mark.parametrize("scored", [True, False])
def test_users_whose_store_did_not_fit_are_left_out(tmp_path: Path, scored: bool) -> None:
    store = make_run(tmp_path / "run", users=4, systems=SYSTEMS, edit=overflown(scored))
    found = corrections(store)
    row = line(found, "scores", system="rag", figure="B, full store")
    fits = [recovery(store, "rag", user) for user in ("user_002", "user_003")]
    assert row["corrected"] == pytest.approx(np.mean(fits))
    assert (row["corrected_n"], row["published_n"]) == ("2/4", "4/4" if scored else "2/4")
    assert row["published"] == pytest.approx(sum(fits) / (4 if scored else 2))
    why = note(found, "overflow")
    assert why.state == APPLIES
    assert "62 verdicts of 2 users" in why.says
    assert ("62 of them scored 0 all the same" in why.says) is scored
    assert ("already unscored" in why.says) is not scored
    others = np.mean([recovery(store, "longctx_full", u) for u in ("user_002", "user_003")])
    assert f"fit: {np.mean(fits):.3f} (on the same users longctx_full {others:.3f})" in why.says
    covered = line(found, "coverage", system="rag", read="full store")
    assert (covered["measured"], covered["coverage"]) == ("62/124", 50.0)
    assert covered["zero"] == (62 if scored else 0)
    assert covered["reasons"] == "62 store_overflow"
    assert note(found, "coverage").state == APPLIES
    pair = line(found, "pairs", figure="B, full store")
    assert pair["result"] == "not ranked (rag: 62/124 targets measured)"
    assert pair["users"] == 2
    labels = line(found, "attribution", system="rag", read="full store")
    assert labels["left_out"] == 62
    gap = line(found, "scores", system="rag", figure="Gap, top-5")
    assert gap["corrected_n"] == "2/4"


def test_the_sizes_on_either_side_of_the_window(tmp_path: Path) -> None:
    import json

    store = make_run(tmp_path / "run", users=4, systems=SYSTEMS, edit=overflown(True))

    def size(user: str) -> int:
        rows = sorted(store.read("memory_items", system="rag", user=user), key=lambda r: r["seq"])
        items = [{"id": r["item_id"], "content": r["content"]} for r in rows]
        return len(json.dumps(items, ensure_ascii=False, indent=2))

    says = note(corrections(store), "overflow").says
    assert f"fits {max(size('user_002'), size('user_003')):,} characters" in says
    assert f"fails {min(size('user_000'), size('user_001')):,} (" in says


def test_other_failures_scored_0_are_left_out(tmp_path: Path) -> None:
    def edit(name: str, rows: list[Row]) -> list[Row]:
        return [
            {**r, "score": 0.0, "reason": "provider_error"}
            if name == "verdicts" and r["system"] == "rag" and r["dimension"] == "self_model_0"
            else r
            for r in rows
        ]

    found = corrections(make_run(tmp_path / "run", users=2, systems=SYSTEMS, edit=edit))
    why = note(found, "errors")
    assert (why.state, why.n) == (APPLIES, "4 verdicts")
    assert "rag full store 2 provider_error, rag top-5 2 provider_error" in why.says
    assert line(found, "coverage", system="rag", read="top-5")["measured"] == "60/62"


def test_refused_targets_that_were_recovered(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=3, systems=SYSTEMS)
    refused = {
        (r["user_id"], r["dimension"]) for r in store.read("oracle_verdicts") if not r["can_invite"]
    }
    assert len(refused) == 9
    found = corrections(store)
    for system in SYSTEMS:
        expected = sum(
            r["score"] >= 0.75 and (r["user_id"], r["dimension"]) in refused
            for r in store.read("verdicts", system=system)
            if r["k"] is None
        )
        row = line(found, "oracle", system=system, read="full store")
        assert (row["recovered"], row["refused"]) == (expected, 9)
    assert "9 of 93 targets" in note(found, "oracle").says


def test_a_store_without_the_last_replies_is_found(tmp_path: Path) -> None:
    said: dict[tuple[str, int], str] = {}

    def edit(name: str, rows: list[Row]) -> list[Row]:
        if name == "turns":
            said.clear()
            said.update({(r["episode"], r["turn"]): r["assistant_text"] for r in rows})
        if name != "memory_items" or not rows or rows[0]["system"] != "longctx_full":
            return rows
        # Two items an episode: the first reply, and what the user said at the end.
        return [
            {**r, "content": f"Agent: {said[r['seq'] // 2 + 1, 1]}"} if r["seq"] % 2 == 0 else r
            for r in rows
        ]

    found = corrections(make_run(tmp_path / "run", users=2, systems=SYSTEMS, edit=edit))
    assert note(found, "replies").state == APPLIES
    row = line(found, "replies", system="longctx_full")
    assert (row["last"], row["earlier"], row["lost"]) == ("0/62", "62/62", 62)
    assert line(found, "replies", system="rag")["lost"] is None
    plain = corrections(make_run(tmp_path / "b", users=1, systems=SYSTEMS))
    assert note(plain, "replies").state == IDLE


def test_scores_that_run_the_other_way_or_are_missing(tmp_path: Path) -> None:
    def edit(name: str, rows: list[Row]) -> list[Row]:
        if name != "retrievals":
            return rows
        return [
            {**r, "score": 0.1 * r["rank"] if r["system"] == "rag" else None}
            for r in rows
            if not (r["system"] == "rag" and r["dimension"] == "self_model_1" and r["rank"] > 3)
        ]

    found = corrections(make_run(tmp_path / "run", users=1, systems=SYSTEMS, edit=edit))
    assert note(found, "scores").state == APPLIES
    rag = line(found, "retrieval", system="rag")
    assert (rag["kind"], rag["scored"], rag["short"]) == ("ascending", "153/153", "1/31")
    assert (rag["low"], rag["high"]) == (pytest.approx(0.1), pytest.approx(0.5))
    none = line(found, "retrieval", system="longctx_full")
    assert (none["kind"], none["scored"]) == ("none", "0/155")
    same = corrections(make_run(tmp_path / "b", users=1, systems=SYSTEMS))
    assert (note(same, "scores").state) == IDLE
    assert "descend" in note(same, "scores").says


def test_which_published_orders_survive(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=10, systems=("nomem", *SYSTEMS))
    found = corrections(store)
    users = [f"user_{n:03d}" for n in range(10)]
    b: dict[str, dict[str, float | None]] = {
        s: {u: recovery(store, s, u) for u in users} for s in ("nomem", *SYSTEMS)
    }
    own = metrics.paired_difference(b["longctx_full"], b["rag"], seed=7)
    row = line(found, "pairs", figure="B, full store", first="longctx_full", second="rag")
    assert row["difference"] == pytest.approx(own.difference)
    assert own.interval is not None
    assert row["interval"] == pytest.approx((own.interval.lo, own.interval.hi))
    assert row["result"] == "shown"
    order = line(found, "rankings", figure="B, full store")
    assert (order["order"], order["shown"]) == ("longctx_full > rag > nomem", "3/3")
    # Every system plays the same turns here.
    turns = line(found, "rankings", figure="C")
    assert (turns["order"], turns["shown"]) == ("longctx_full = nomem = rag", "0/3")
    pairs = table(found, "pairs").rows
    shown = sum(r["result"] == "shown" for r in pairs)
    unshown = sum(r["result"] == "no difference shown" for r in pairs)
    says = note(found, "rankings").says
    assert f"of {len(pairs)} published orders" in says
    assert f"{shown} shown, {unshown} no difference shown, 0 the other way round" in says


def test_a_difference_of_rates_agrees_with_that_of_means_when_users_weigh_the_same() -> None:
    draw = np.random.default_rng(3)
    first = {f"u{n}": (int(k), 20 - int(k)) for n, k in enumerate(draw.integers(5, 15, 12))}
    second = {f"u{n}": (int(k), 20 - int(k)) for n, k in enumerate(draw.integers(3, 13, 12))}
    rates = rate_difference(first, second, 5)
    means = metrics.paired_difference(
        {u: 5.0 * a for u, (a, _) in first.items()}, {u: 5.0 * a for u, (a, _) in second.items()},
        seed=5,
    )  # fmt: skip
    assert rates.difference == pytest.approx(means.difference)
    assert rates.interval is not None
    assert means.interval is not None
    assert (rates.interval.lo, rates.interval.hi) == pytest.approx(
        (means.interval.lo, means.interval.hi)
    )
    assert rates.p_value == pytest.approx(means.p_value)


def test_every_format_has_every_correction_and_hostile_names_are_text(tmp_path: Path) -> None:
    system = "=x<b>|y&\\z_"
    found = corrections(
        make_run(tmp_path / "run", users=2, systems=(system, "rag"), edit=by_hand(of_the_task))
    )
    text, latex, rows = to_text(found), to_latex(found), to_csv(found)
    for one in found.notes:
        assert one.line in text
        assert rf"\textbf{{{one.id}}}" in latex
    for made in all_tables(found):
        assert made.title in text
        assert f"tab:{made.id}" in latex
    assert r"=x\textless{}b\textgreater{}\textbar{}y\&" in latex
    assert system not in latex
    parsed = list(csv.reader(io.StringIO(rows, newline="")))
    assert {len(row) for row in parsed} == {7}
    assert not any(cell.startswith("=") for row in parsed for cell in row)
    rate = [r for r in parsed if r[:3] == ["strict-attribution", "rag top-5", "rate_strict"]]
    assert [r[3] for r in rate] == ["25.0"]
    plain = facts(found)
    (top,) = [
        r
        for r in plain["tables"]["strict-attribution"]
        if (r["system"], r["read"]) == ("rag", "top-5")
    ]
    assert (top["rate_strict"], top["memory_strict"]) == (25.0, 30)


def test_a_run_without_records_says_that_nothing_applies(tmp_path: Path) -> None:
    found = corrections(make_run(tmp_path / "run", users=1, edit=lambda name, rows: []))
    assert {one.state for one in found.notes} == {IDLE}
    assert all(not made.rows for made in all_tables(found))
    assert "no attributions" in to_text(found)


def test_the_same_run_gives_the_same_corrections(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=3, systems=SYSTEMS)
    assert facts(corrections(store)) == facts(corrections(store))


def test_a_user_with_nothing_measured_has_no_rate() -> None:
    mode = ("memt", "dump_all", None)
    labelled = [
        Labelled(mode, "u1", "ok", 3, 0),
        Labelled(mode, "u1", "memory_failure", 1, 0),
        Labelled(mode, "u2", "memory_failure", 4, 4),
    ]
    (rate,) = rates(labelled, [], [])
    assert set(rate.printed) == {"u1", "u2"}
    assert rate.corrected == {"u1": (3, 1)}
    assert rate.left_out == 4
