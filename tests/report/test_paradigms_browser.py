"""The paradigms page in a real browser: offline, browsable, and inert to hostile text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from memprobe.paradigms.spec import Episode, ProbeType
from memprobe.paradigms.suite import make_suite
from memprobe.types import MemoryItem, Role
from tasks.report import build_report
from tests.report.make_probe_run import bench, play
from tests.report.test_browser import CHROMIUM, FLAGS, Visit
from tests.support.paradigms_bench import KNOWN, small_suite

pytestmark = pytest.mark.heavy

HOSTILE = (
    "<script>window.__pwned=1</script>",
    "</script><script>window.__pwned=2</script>",
    "<img src=x onerror=window.__pwned=3>",
    '"><svg onload=window.__pwned=4>',
    '<a href="javascript:window.__pwned=5">click</a>',
    "{{ 7*7 }}{% raw %}",
    "<!--<script>",
    "w" * 3000,
)
ALL = " ".join(HOSTILE)
FIRST = small_suite(2).episodes[0].id
"""An episode of both runs."""


def address(*parts: str) -> str:
    return "#" + "/".join(quote(part, safe="") for part in parts)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_report(play(bench(tmp_path_factory.mktemp("probes") / "run")))


def spoilt(episode: Episode) -> Episode:
    """An episode whose questions, gold answers, fact and last session are hostile."""
    probes = tuple(
        probe.model_copy(
            update={"question": f"{probe.question} {ALL}", "gold_answer": f"{probe.gold_answer}"}
        )
        for probe in episode.probes
    )
    last = episode.sessions[-1]
    turns = (last.dialogue[0].model_copy(update={"content": ALL}), *last.dialogue[1:])
    sessions = (*episode.sessions[:-1], last.model_copy(update={"dialogue": turns}))
    spec = episode.spec.model_copy(update={"fact_type": ALL})
    return episode.model_copy(update={"probes": probes, "sessions": sessions, "spec": spec})


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    suite = small_suite(2)
    suite = make_suite(suite.name, [spoilt(episode) for episode in suite.episodes])
    b = bench(tmp_path_factory.mktemp("hostile") / "run", suite, ("full_context", "naive_rag"))

    def twist(name: str, answer: Any) -> Any:
        if name not in ("search", "dump"):
            return answer
        return [
            MemoryItem(
                id=item.id + HOSTILE[2],
                content=f"{item.content}\n{ALL}",
                event_time=item.event_time,
                score=item.score,
                fields={**item.fields, ALL: ALL},
            )
            for item in answer
        ]

    def answer(request: Any) -> Any:
        kind = str(request.variables["probe_type"])
        blank = KNOWN[kind]
        assert isinstance(blank, dict)
        main = {
            ProbeType.CHANGE.value: "current_value",
            ProbeType.TEMPORAL.value: "trigger",
            ProbeType.SOURCE.value: "source_description",
            ProbeType.CONFLICT.value: "source",
        }.get(kind, "answer")
        return {**blank, main: ALL}

    b.systems.twist = twist
    b.chat.answer(Role.READER, answer)
    return build_report(play(b))


def test_it_opens_from_disk_without_a_network_and_draws_its_charts(
    chromium: Any, report: Path
) -> None:
    visit = Visit(chromium, report)
    drawn = visit.page.eval_on_selector_all(
        "[data-chart]",
        "all => all.filter(e => e.querySelector('svg.main-svg')).map(e => e.dataset.chart)",
    )
    expected = {"accuracy", "plane", "types", "paradigms", "conditions", "axes", "failures"}
    expected |= {"sides", "price", "ingestion-seconds", "latency"}
    assert set(drawn) == expected
    for place in visit.page.locator("[data-chart]").all():
        described = place.get_attribute("aria-describedby")
        assert visit.page.locator(f"#{described} tbody tr").count()
    plane = visit.page.locator("[data-chart=plane]")
    texts = " ".join(plane.locator("svg text").all_text_contents())
    assert "over-plastic" in texts
    assert "over-stable" in texts
    assert "always_update (reference)" in texts
    coverage = visit.page.locator("#coverage").text_content()
    assert coverage.startswith("Coverage: 64/64 probes scored")
    visit.check_quiet(report)
    visit.context.close()


def test_a_linked_case_goes_from_spec_to_both_verdicts(chromium: Any, report: Path) -> None:
    suite = small_suite(4)
    episode = next(e for e in suite.episodes if not e.spec.updates)
    anchor = address(episode.id, "current_value", "naive_rag", "retrieve@5")
    visit = Visit(chromium, report, anchor)
    text = visit.text()
    probe = next(p for p in episode.probes if p.probe_type is ProbeType.CURRENT)
    for part in (
        probe.question,
        f"{episode.spec.initial_value} or {episode.spec.new_value}",
        "strict: partial",
        "paper: correct",
        episode.spec.condition.value,
        "Sessions in order (gold side)",
        f"1. {episode.sessions[0].time.isoformat()} · encoding",
        episode.sessions[0].dialogue[0].content,
        f"{len(episode.sessions)} sessions written",
        f"Query: {probe.question}",
        "memprobe sql p1",
    ):
        assert part in text, part
    assert visit.page.locator("#case h3", has_text="Retrieved").count() == 1
    retrieved = visit.page.locator("#case section", has_text="Query:").first
    assert retrieved.locator("ol.items > li").count() == 5
    visit.page.evaluate(f"location.hash = '{address(FIRST, 'change', 'full_context')}'")
    visit.page.locator("#case", has_text=f"{FIRST} · Change · full_context").wait_for()
    visit.page.evaluate("location.hash = '#nobody/change'")
    visit.page.locator("#case", has_text="Episode nobody is not in this file").wait_for()
    visit.check_quiet(report)
    visit.context.close()


def test_filters_narrow_the_list(chromium: Any, report: Path) -> None:
    visit = Visit(chromium, report)
    page = visit.page
    assert page.locator("#count").text_content() == "64 of 64 cases"
    page.get_by_role("combobox", name="System").select_option(label="naive_rag")
    page.get_by_role("combobox", name="Scorers").select_option(label="they differ")
    listed = page.locator("#case-list a").all_text_contents()
    assert listed
    assert all("naive_rag" in entry and "partial" in entry for entry in listed)
    page.get_by_role("combobox", name="Scorers").select_option(label="any")
    page.get_by_role("combobox", name="Verdict").select_option(label="incorrect")
    page.get_by_role("combobox", name="Failure").select_option(label="missed update, retrieval")
    listed = page.locator("#case-list a").all_text_contents()
    assert listed
    assert all("missed update, retrieval" in entry for entry in listed)
    page.get_by_role("button", name="Clear").click()
    page.locator("#count", has_text="64 of 64").wait_for()
    visit.context.close()


def test_a_failure_leads_into_the_case_browser(chromium: Any, report: Path) -> None:
    visit = Visit(chromium, report, "#failures")
    page = visit.page
    page.locator("#failures details summary").click()
    link = page.locator("#table-failure-cases a").first
    episode = (link.text_content() or "").split(",")[0]
    link.click()
    assert visit.text().startswith(f"{episode} · ")
    assert "Why it failed" in visit.text()
    visit.check_quiet(report)
    visit.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_nothing_sticks_out_at_any_width(
    chromium: Any, hostile: Path, report: Path, theme: str, width: int
) -> None:
    for path in (report, hostile):
        anchor = address(FIRST, "current_value", "naive_rag", "retrieve@5")
        view = {"width": width, "height": 800}
        visit = Visit(chromium, path, anchor, viewport=view, color_scheme=theme)
        visit.text()
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        visit.check_quiet(path)
        visit.context.close()


def test_hostile_text_is_shown_and_does_nothing(chromium: Any, hostile: Path) -> None:
    for probe in ("current_value", "change"):
        anchor = address(FIRST, probe, "naive_rag", "retrieve@5")
        visit = Visit(chromium, hostile, anchor)
        page = visit.page
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        page.locator("#case input[type=search]").first.fill("<img")
        text = visit.text()
        for part in HOSTILE:
            assert part in text
        answer = page.locator(
            "#case section", has=page.get_by_role("heading", name="Answer", exact=True)
        )
        shown = answer.first.locator("pre").text_content() or ""
        assert HOSTILE[1] in shown
        assert page.evaluate("window.__pwned") is None
        added = "img, iframe, object, embed, form:not(#filters), link, base"
        assert page.locator(added).count() == 0
        assert page.locator("a[href^='javascript']").count() == 0
        assert page.evaluate("document.scripts.length") == 4 + 2
        visit.check_quiet(hostile)
        visit.context.close()
