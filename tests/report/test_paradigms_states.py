"""The paradigms report of runs that are empty, broken off, unscored or read in many ways."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from memprobe.config import RunConfig
from memprobe.errors import AdapterError
from memprobe.outcomes import Reason
from memprobe.types import Role, SessionEvent
from storage.manifest import Manifest, RunStatus
from storage.runs import RunStore, Unit
from tasks.paradigms.reread import Rereading, reread_episode
from tasks.paradigms.score import score_paradigms
from tasks.report import build_report, summary
from tasks.report.packing import Parts, unpack
from tasks.report.paradigms.cases import TABLES, episode_payload
from tasks.report.paradigms.data import load, notice
from tests.report.make_probe_run import bench, measure, play


def html_of(store: RunStore) -> str:
    return build_report(store).read_text(encoding="utf-8")


def head(html: str) -> str:
    """The page down to its first section, without tags."""
    return re.sub(r"<[^>]+>", " ", html[html.index("<header>") : html.index("</header>")])


def index_of(html: str) -> dict[str, Any]:
    found = re.search(r'id="case-index">([^<]+)<', html)
    assert found is not None
    made: dict[str, Any] = unpack(found[1])
    return made


def test_a_run_without_anything_has_a_page(tmp_path: Path) -> None:
    config = RunConfig(name="p1", suite="paradigms", systems=("rag",), model="openai/double")
    manifest = Manifest.start(config, dataset_name="none", dataset_digest="0")
    html = html_of(RunStore.create(tmp_path / "run", manifest))
    assert "Coverage: no scored samples." in head(html)
    assert "The run is created" in head(html)
    assert "data-chart" not in html[: html.index("<script")]
    assert index_of(html)["u"] == []


def test_a_run_that_broke_off_says_so_and_counts_what_is_missing(tmp_path: Path) -> None:
    b = bench(tmp_path / "run", 2, ("full_context", "naive_rag"))
    first = b.context.suite.episodes[0].id
    asyncio.run(measure(b, "full_context", first))
    score_paradigms(b.context.store)
    b.context.store.update_manifest(status=RunStatus.INTERRUPTED)
    html = html_of(b.context.store)
    said = head(html)
    assert "The run is interrupted; figures cover what is stored so far." in said
    assert "Coverage: 4/8 probes scored (50.0%), 4 errors" in said
    assert "No answers are stored of naive_rag." in said
    assert "Not ranked: full_context has 4/8 probes scored" in said
    unscored = (tmp_path / "run/report/tables/unscored.csv").read_text()
    assert "no answer,4,8" in unscored


def test_a_system_without_a_readable_answer_is_no_zero(tmp_path: Path) -> None:
    b = bench(tmp_path / "run", 2, ("full_context", "naive_rag"))
    b.chat.fail(lambda r: r.role is Role.READER and r.asker.system == "naive_rag", Reason.TIMEOUT)
    store = play(b)
    html = html_of(store)
    assert "Not ranked: naive_rag has 0/8 probes scored" in head(html)
    data = load(store)
    broken = next(row for row in data.summary if row["system"] == "naive_rag")
    assert (broken["accuracy"], broken["n"], broken["n_errors"]) == (None, 0, 8)
    line = next(
        line
        for line in (tmp_path / "run/report/tables/headline.csv").read_text().splitlines()
        if line.startswith("naive_rag")
    )
    assert ",0/8," in line
    assert ",0.0,0.0," not in line.split("0/8")[0]
    results = (tmp_path / "run/report/tables/comparisons.csv").read_text()
    assert "timeout" in (tmp_path / "run/report/tables/unscored.csv").read_text()
    assert results.count("not ranked") == len(results.splitlines()) - 1
    assert not [s for s in summary(store).splitlines() if "above naive" in s]


def test_verdicts_without_metrics_still_have_their_figures(tmp_path: Path) -> None:
    store = play(bench(tmp_path / "run", 2, ("full_context",)), score=False)
    html = html_of(store)
    data = load(store)
    accuracy = data.summary[0]["accuracy"]
    assert accuracy is not None
    assert data.summary[0]["accuracy_lo"] is None
    assert f">{accuracy:.3f}</td>" in html
    assert "No profile is stored" in html


def test_every_k_and_epoch_is_a_way_of_its_own(tmp_path: Path) -> None:
    b = bench(
        tmp_path / "run",
        2,
        ("naive_rag",),
        access=("dump_all", "retrieve"),
        k=(1, 3),
        epochs=2,
    )
    store = play(b)
    html = html_of(store)
    data = load(store)
    assert {mode[1:] for mode in data.modes} == {
        ("dump_all", None),
        ("retrieve", 1),
        ("retrieve", 3),
    }
    assert {row["n_total"] for row in data.summary} == {16}
    assert len(data.ranked) == 1
    index = index_of(html)
    assert set(index["variants"]) == {
        "dump_all",
        "retrieve@1",
        "retrieve@3",
        "dump_all;e2",
        "retrieve@1;e2",
        "retrieve@3;e2",
    }
    assert len(index["u"]) == 2 * 4 * 3 * 2
    assert "Other ways of reading" in html


@pytest.mark.parametrize("hide", [False, True])
def test_paper_names_its_leaks_and_strict_has_none(tmp_path: Path, hide: bool) -> None:
    systems = ("full_context", "time_aware_rag", "oracle_rag")
    store = play(bench(tmp_path / "run", 2, systems, protocol="paper", hide_session_type=hide))
    said = head(html_of(store))
    assert "protocol paper" in said
    assert ("Its leak of session types is reproduced" in said) is not hide
    assert ("closed (hide_session_type)" in said) is hide
    assert "search of time_aware_rag is for words of the true, the contested" in said
    assert "oracle_rag (gold sessions)" in said
    assert load(store).scorer == "paper"
    strict = play(bench(tmp_path / "strict", 2, systems))
    assert "leak" not in head(html_of(strict))


def test_the_first_line_names_the_reader(tmp_path: Path) -> None:
    b = bench(tmp_path / "run", 2, ("full_context",))
    html = html_of(play(b))
    first = re.search(r'<p class="notice"[^>]*>([^<]+)<', html)
    assert first is not None
    assert first[1].startswith("Answers by the reader model openai/double")
    manifest = b.context.store.manifest
    config = manifest.config.model_copy(update={"model": "embedded/default"})
    said = notice(manifest.model_copy(update={"config": config}))
    assert "deterministic and extractive" in said
    assert "not comparable with published figures" in said


def test_sessions_that_could_not_be_written_are_told_by_reason(tmp_path: Path) -> None:
    b = bench(tmp_path / "run", 2, ("full_context", "naive_rag"))
    first = b.context.suite.episodes[0]

    def fault(name: str, detail: Any) -> None:
        if (
            name == "write"
            and isinstance(detail, SessionEvent)
            and (detail.event_time == first.sessions[2].time)
        ):
            raise AdapterError("full_context", "the disk is <b>full</b>")

    b.systems.fault = fault
    html = html_of(play(b))
    text = (tmp_path / "run/report/tables/ingest-errors.csv").read_text()
    assert "adapter_error,1," in text
    assert "&lt;b&gt;full&lt;/b&gt;" in html
    assert "<b>full</b>" not in html[: html.index("<script")]
    sessions = sum(len(e.sessions) for e in b.context.suite.episodes)
    assert f"2 of {2 * sessions} sessions could not be written" in head(html)
    assert re.search(r"1 session of \d+: adapter_error", re.sub(r"<[^>]+>", "", html))


def test_another_reader_has_a_table_and_its_cases(tmp_path: Path) -> None:
    b = bench(tmp_path / "run", 4, ("full_context", "naive_rag", "recency"))
    store = play(b)

    async def again() -> None:
        for episode in b.context.suite.episodes:
            for system in b.context.config.systems:
                await reread_episode(b.context, system, episode.id, Rereading("other"))

    asyncio.run(again())
    score_paradigms(store, "other")
    html = html_of(store)
    assert 'id="table-readers"' in html
    layers = (tmp_path / "run/report/tables/scorers.csv").read_text()
    assert layers.count("other,") == 6
    assert "retrieve@5;other" in index_of(html)["variants"]
    correlated = (tmp_path / "run/report/tables/readers.csv").read_text()
    assert len(correlated.splitlines()) == 2


def test_published_verdicts_stand_beside_the_answers_they_are_about(tmp_path: Path) -> None:
    b = bench(tmp_path / "run", 2, ("full_context",))
    store = play(b)
    episode = b.context.suite.episodes[0].id
    rows = [
        {**row, "layer": "published", "match": "correct", "why": "as it was printed"}
        for row in store.read("probe_verdicts", system="full_context", user=episode)
        if row["scorer"] == "paper"
    ]
    unit = Unit("import", "full_context", episode, "published")
    store.commit(unit, "f", {"probe_verdicts": rows})
    html = html_of(store)
    assert "dump_all;published" in index_of(html)["variants"]
    lines = (tmp_path / "run/report/tables/scorers.csv").read_text().splitlines()
    assert sum(line.startswith("published,full_context") for line in lines) == 1
    payload = episode_payload(Parts(store, TABLES), ["full_context"], episode)
    case = next(c for c in payload["cases"] if c["layer"] == "published")
    own = next(c for c in payload["cases"] if (c["layer"], c["target"]) == ("base", case["target"]))
    assert case["verdicts"]["paper"]["why"] == "as it was printed"
    assert case["answer"] == own["answer"]
