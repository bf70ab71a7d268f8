"""The paradigms report: its figures are those of the views, its files are whole."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from markupsafe import escape

from memprobe.paradigms.suite import load_suite, make_suite
from storage.bundled import paradigms_dir
from storage.runs import RunStore
from tasks.paradigms.inputs import stored_suite
from tasks.report import build_report, summary
from tasks.report.packing import Parts, pack, unpack
from tasks.report.paradigms.build import build_paradigms_report
from tasks.report.paradigms.cases import TABLES, collect, episode_payload
from tasks.report.paradigms.charts import isoline
from tests.report.make_probe_run import Row, bench, play, view


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    return play(bench(tmp_path_factory.mktemp("probes") / "run"))


@pytest.fixture(scope="module")
def page(store: RunStore) -> Path:
    return build_report(store)


def table(page: Path, name: str) -> list[dict[str, str]]:
    path = page.parent / "tables" / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def number(text: str) -> float | None:
    return float(text) if text else None


def read_of(row: Row) -> str:
    return str(row["access_mode"]) + ("" if row["k"] is None else f"@{row['k']}")


def test_the_headline_is_the_summary_view(store: RunStore, page: Path) -> None:
    rows = {(r["system"], r["read"]): r for r in table(page, "headline")}
    found = view(store, "select * from probe_summary where scorer = 'strict'")
    assert len(rows) == len(found) == 4
    assert any(row["partial"] for row in found)
    for row in found:
        line = rows[row["system"], read_of(row)]
        for name, column in (
            ("accuracy", "accuracy"),
            ("accuracy_lo", "interval_lo"),
            ("accuracy_hi", "interval_hi"),
            ("partial", "partial"),
            ("plasticity", "plasticity"),
            ("stability", "stability"),
            ("sp_balance", "balance"),
            ("n_memories", "memories"),
        ):
            assert number(line[column]) == pytest.approx(row[name]), name
        assert line["scored"] == f"{row['n']}/{row['n_total']}"
        assert int(line["errors"]) == row["n_errors"]
        shown = f'<td dir="auto" class="num">{row["accuracy"]:.3f}</td>'
        assert shown in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "source", "key"),
    [("types", "probe_by_type", "probe_type"), ("paradigms", "probe_by_paradigm", "paradigm")],
)
def test_grids_are_their_views(
    store: RunStore, page: Path, name: str, source: str, key: str
) -> None:
    rows = {(r["system"], r["read"]): r for r in table(page, name)}
    found = view(store, f"select * from {source} where scorer = 'strict'")
    assert found
    for row in found:
        line = rows[row["system"], read_of(row)]
        assert number(line[row[key]]) == pytest.approx(row["accuracy"])
        assert line[f"{row[key]}_n"] == f"{row['n']}/{row['n'] + row['n_errors']}"


def test_split_episodes_stand_beside_whole_ones_that_update(tmp_path: Path) -> None:
    named = {"con_03a", "con_17a", "int_10a", "int_01b"}
    suite = load_suite(paradigms_dir())
    chosen = make_suite(suite.name, [e for e in suite.episodes if e.id in named])
    assert sum(e.spec.split for e in chosen.episodes) == 2
    run = play(bench(tmp_path / "run", chosen, ("full_context",)))
    row = table(build_report(run), "split")[0]
    found = view(
        run,
        "select split, expected, avg(correct::int) as accuracy, count(*) as n from probe_results "
        "where scorer = 'strict' group by all",
    )
    by = {(r["split"], r["expected"]): r for r in found}
    assert number(row["split"]) == by[True, "should_update"]["accuracy"]
    assert number(row["updates"]) == by[False, "should_update"]["accuracy"]
    assert (row["split_n"], row["non_split_n"], row["updates_n"]) == ("8", "8", "4")
    keep, update = by[False, "should_preserve"], by[False, "should_update"]
    assert number(row["non_split"]) == (keep["accuracy"] + update["accuracy"]) / 2


def test_failures_are_their_view_and_each_has_a_case(store: RunStore, page: Path) -> None:
    found = view(store, "select * from probe_failures_summary where scorer = 'strict'")
    by_side = {
        (r["system"], read_of(r), r["failure"].replace("_", " "), r["side"]): r["n"] for r in found
    }
    told = {
        (r["system"], r["read"], r["failure"], side): int(r[side])
        for r in table(page, "failures")
        for side in ("storage", "retrieval", "readout")
        if int(r[side])
    }
    assert by_side
    assert told == by_side
    assert len(table(page, "failure-cases")) == sum(by_side.values())
    html = page.read_text(encoding="utf-8")
    part = html[html.index('id="table-failure-cases"') : html.index('id="profiles"')]
    index = unpack(re.search(r'id="case-index">([^<]+)<', html)[1])  # type: ignore[index]
    cases = {
        "#"
        + "/".join(
            quote(names[index[column][i]], safe="")
            for names, column in (
                (index["users"], "u"),
                (index["targets"], "t"),
                (index["systems"], "s"),
                (index["variants"], "v"),
            )
        )
        for i in range(len(index["u"]))
    }
    links = re.findall(r'<a href="(#[^"]+)"', part)
    assert links
    assert set(links) <= cases


def test_verdicts_that_differ_have_both_reasons(store: RunStore, page: Path) -> None:
    found = view(store, "select * from probe_changed_verdicts where layer = 'base'")
    rows = table(page, "changed-verdicts")
    assert found
    assert [(r["system"], r["strict_match"], r["paper_match"]) for r in rows] == [
        (r["system"], r["strict_match"], r["paper_match"]) for r in found
    ]
    html = page.read_text(encoding="utf-8")
    for row in found:
        for why in (row["strict_why"], row["paper_why"]):
            assert str(escape(why)) in html


def test_a_payload_holds_a_case_from_spec_to_verdicts(store: RunStore) -> None:
    episode = stored_suite(store).episodes[0]
    payload = unpack(
        pack(episode_payload(Parts(store, TABLES), ["naive_rag", "full_context"], episode.id))
    )
    texts = payload["texts"]
    assert payload["spec"]["initial_value"] == episode.spec.initial_value
    assert [s["type"] for s in payload["sessions"]] == [
        s.session_type.value for s in episode.sessions
    ]
    assert [texts[t["text"]] for t in payload["sessions"][0]["turns"]] == [
        turn.content for turn in episode.sessions[0].dialogue
    ]
    case = next(
        c for c in payload["cases"] if (c["system"], c["target"]) == ("naive_rag", "current_value")
    )
    rows = [
        r
        for r in store.read("probe_verdicts", system="naive_rag", user=episode.id)
        if r["probe_type"] == "current_value"
    ]
    assert {name: v["match"] for name, v in case["verdicts"].items()} == {
        r["scorer"]: r["match"] for r in rows
    }
    memory = payload["stores"]["naive_rag"]["1"]
    stored = store.read("memory_items", system="naive_rag", user=episode.id)
    assert {texts[i["text"]] for i in memory["items"]} == {r["content"] for r in stored}
    assert len(memory["retrieved"]["current_value"]["hits"]) == 5
    assert memory["written"] == len(episode.sessions)
    answers = store.read("answers", system="naive_rag", user=episode.id)
    told = next(r for r in answers if r["probe_type"] == "current_value")
    assert case["answer"]["json"] == told["answer_json"]
    assert case["answer"]["call"] == told["call_id"]


def test_a_cap_keeps_the_first_episodes_and_the_page_says_so(store: RunStore) -> None:
    episodes = sorted({row["user_id"] for row in store.read("probes")})
    systems = store.manifest.system_names
    whole = collect(store, episodes, systems, "strict")
    assert whole.complete
    cap = sum(map(len, whole.packed[:2])) + 10
    assert collect(store, episodes, systems, "strict", cap).users == episodes[:2]
    html = build_paradigms_report(store, cap=cap).read_text(encoding="utf-8")
    assert "the cases of the first 2 of 4 episodes" in html


def test_all_formats_of_every_table_are_written(page: Path, store: RunStore) -> None:
    build_report(store)
    names = {p.name for p in (page.parent / "tables").iterdir()}
    stems = {name.rsplit(".", 1)[0] for name in names}
    assert names == {f"{stem}.{kind}" for stem in stems for kind in ("csv", "tex", "md")}
    linked = re.findall(r'href="(tables/[^"]+)"', page.read_text(encoding="utf-8"))
    assert set(linked) <= {f"tables/{name}" for name in names}
    assert {"headline", "comparisons", "split", "axes", "failures", "scorers"} <= stems
    written = (page.parent / "summary.md").read_text(encoding="utf-8")
    assert written == summary(store)
    assert written.startswith("# p1")


def test_the_same_run_gives_the_same_bytes(store: RunStore) -> None:
    first = build_report(store).read_bytes()
    assert build_report(store).read_bytes() == first


def test_the_policy_lets_in_exactly_the_scripts_of_the_page(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
    assert policy is not None
    said = policy[1].replace("&#39;", "'")
    assert "default-src 'none'" in said
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    hashes = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts}
    assert set(re.findall(r"'sha256-([^']+)'", said)) == hashes


def test_comparisons_say_what_they_show_and_no_more(store: RunStore, page: Path) -> None:
    rows = table(page, "comparisons")
    found = view(store, "select * from probe_comparisons where scorer = 'strict' "
                        "and group_kind = '' and metric = 'accuracy'")  # fmt: skip
    assert len(rows) == len(found)
    shown = sum(row["shown"] for row in found)
    assert sum(row["result"] == "no difference shown" for row in rows) == len(found) - shown
    assert "no difference shown" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("balance", [0.2, 0.8])
def test_an_isoline_has_one_balance_within_the_plane(balance: float) -> None:
    for x, y in zip(*isoline(balance), strict=True):
        assert 2 * x * y / (x + y) == pytest.approx(balance)
        assert 0 <= y <= 1 + 1e-9
