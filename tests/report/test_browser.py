"""The page in a real browser: offline, with a working case browser, and inert to hostile text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tasks.report import build_report
from tests.report.make_run import Row, make_run

pytestmark = pytest.mark.heavy

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HOSTILE = (
    "<script>window.__pwned=1</script>",
    "</script><script>window.__pwned=2</script>",
    "<img src=x onerror=window.__pwned=3>",
    '"><svg onload=window.__pwned=4>',
    '<a href="javascript:window.__pwned=5">click</a>',
    "javascript:window.__pwned=6",
    "\u202egnp.exe \u2066mixed\u2069 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "w" * 5000,
    "{{ 7*7 }}{% raw %}{# x #}${1+1}`",
    "' or 1=1 --\" \\",
    "\u6f22\u5b57\u4eee\u540d\U0001f9e0",
    "<!--<script>",
    "\u2028\u2029\x00\x1b",
    "lone \ud83d half",
)
ALL = " ".join(HOSTILE)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


class Visit:
    """A page opened from disk without a network, and everything that went wrong on it."""

    def __init__(self, browser: Any, report: Path, anchor: str = "", **context: Any) -> None:
        self.trouble: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(offline=True, **context)
        self.page = self.context.new_page()
        self.page.on("dialog", self._dialog)
        self.page.on("pageerror", lambda error: self.trouble.append(f"error {error}"))
        self.page.on("console", self._console)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(report.as_uri() + anchor)
        self.page.wait_for_selector("html[data-cases=ready]", timeout=60_000)

    def _dialog(self, dialog: Any) -> None:
        self.trouble.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.trouble.append(f"{message.type} {message.text}")

    def text(self) -> str:
        """The opened case's text."""
        self.page.wait_for_selector("#case h3", timeout=30_000)
        return str(self.page.locator("#case").text_content())

    def check_quiet(self, report: Path) -> None:
        """Nothing was fetched beyond the file, and nothing failed."""
        assert self.trouble == []
        fetched = [u for u in self.requests if not u.startswith(("data:", "blob:"))]
        assert {url.split("#")[0] for url in fetched} == {report.as_uri()}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_report(make_run(tmp_path_factory.mktemp("plain") / "run", users=3, ks=(1, 5)))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_report(make_run(tmp_path_factory.mktemp("hostile") / "run", users=1, edit=_spoil))


def _spoil(table: str, rows: list[Row]) -> list[Row]:
    texts = {
        "targets": ("short", "explanation"),
        "tasks": ("task", "rationale"),
        "oracle_verdicts": ("oracle_reason",),
        "episodes": ("task", "detail"),
        "turns": ("assistant_text", "user_text"),
        "memory_items": ("content", "item_id"),
        "retrievals": ("content", "item_id", "query"),
        "slot_fills": ("label", "label_reason", "call_id"),
        "verdicts": ("label", "judge_reason", "judge_model", "call_id"),
        "attributions": ("evidence", "cause_reason", "label"),
        "calls": ("model", "role", "stage", "detail"),
        "operations": ("phase",),
    }
    out = []
    for row in rows:
        spoilt = {**row, **dict.fromkeys(texts.get(table, ()), ALL)}
        if table == "users":
            spoilt["profile_json"] = json.dumps({ALL: [ALL]})
        if table == "memory_items":
            spoilt["fields_json"] = json.dumps({ALL: ALL})
        if table == "turns":
            hit = {"id": ALL, "content": ALL, "score": 1.0}
            spoilt["retrieved_json"] = json.dumps([hit])
        out.append(spoilt)
    return out


def test_it_opens_from_disk_without_a_network_and_draws_its_charts(
    chromium: Any, report: Path
) -> None:
    visit = Visit(chromium, report)
    expected = {"scores", "slope", "sweep", "budget", "heat", "attribution", "footprint"}
    expected |= {"windows", "ingestion-seconds", "latency"}
    drawn = visit.page.eval_on_selector_all(
        "[data-chart]",
        "all => all.filter(e => e.querySelector('svg.main-svg')).map(e => e.dataset.chart)",
    )
    assert set(drawn) == expected
    for place in visit.page.locator("[data-chart]").all():
        box = place.locator("svg.main-svg").first.bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert box["height"] > 100
        assert visit.page.locator(f"#{place.get_attribute('aria-describedby')} tbody tr").count()
    assert visit.page.locator("body > header > p").first.text_content().startswith("Embedded")
    visit.check_quiet(report)
    visit.context.close()


def test_a_linked_case_shows_its_own_texts(chromium: Any, report: Path) -> None:
    visit = Visit(chromium, report, "#user_001/knowledge_memory_2/rag/retrieve%405")
    text = visit.text()
    for part in (
        "short of knowledge_memory_2 for user_001",
        "task about knowledge_memory_2",
        "user turn 1 on knowledge_memory_2",
        "reply 2 on knowledge_memory_2",
        "what is knowledge_memory_2",
        "judge-user_001-10",
        "oracle-user_001-10",
        "assistant-user_001-10-1",
    ):
        assert part in text
    assert "short of knowledge_memory_3" not in text
    assert "for user_002" not in text
    assert visit.page.locator("#case ol.items").first.locator("li").count() == 5
    visit.page.evaluate("location.hash = '#user_002/self_model_1/nomem/dump_all'")
    visit.page.locator("#case", has_text="for user_002").wait_for()
    assert "The store is empty" in visit.text()
    visit.page.evaluate("location.hash = '#nobody/self_model_1'")
    visit.page.locator("#case", has_text="nobody is not in this file").wait_for()
    visit.check_quiet(report)
    visit.context.close()


def test_filters_narrow_the_list_and_the_keyboard_walks_it(chromium: Any, report: Path) -> None:
    visit = Visit(chromium, report)
    page = visit.page
    total = 3 * 31 * (1 + 3 + 3)
    assert page.locator("#count").text_content() == f"{total} of {total} cases"
    page.get_by_role("combobox", name="System").select_option(label="rag")
    page.get_by_role("combobox", name="Read").select_option(label="dump_all")
    assert page.locator("#count").text_content() == f"93 of {total} cases"
    page.get_by_role("combobox", name="Attribution").select_option(label="lost by the memory")
    page.get_by_role("combobox", name="Score").select_option(label="under 0.75")
    listed = page.locator("#case-list a").all_text_contents()
    assert 0 < len(listed) < 93
    assert all("lost by the memory" in entry and "rag · dump_all" in entry for entry in listed)
    page.get_by_role("combobox", name="Score").select_option(label="0.75 or more")
    assert page.locator("#count").text_content() == f"0 of {total} cases"
    page.get_by_role("button", name="Clear").click()
    page.locator("#count", has_text=f"{total} of {total}").wait_for()
    page.locator("#case-list a").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    second = page.locator("#case-list a").nth(1)
    page.wait_for_selector("#case h3")
    assert second.get_attribute("aria-current") == "true"
    assert page.evaluate("document.activeElement.id") == "case"
    visit.check_quiet(report)
    visit.context.close()


def test_a_linked_case_is_in_view_in_the_list(chromium: Any, report: Path) -> None:
    visit = Visit(chromium, report, "#user_002/assistance_preference_4/rag/retrieve%405")
    visit.text()
    in_view = """() => {
      const box = document.querySelector(".list").getBoundingClientRect();
      const entry = document.querySelector("#case-list a[aria-current]").getBoundingClientRect();
      return entry.top >= box.top && entry.bottom <= box.bottom;
    }"""
    assert visit.page.locator("#case-list a").count() > 100
    assert visit.page.evaluate(in_view)
    visit.page.evaluate("location.hash = '#user_000/skill_memory_1/rag/retrieve%405'")
    visit.page.locator("#case", has_text="for user_000").wait_for()
    assert visit.page.evaluate(in_view)
    visit.context.close()


@pytest.mark.parametrize("anchor", ["#cases", "#trust", "#user_001/skill_memory_1/rag/dump_all"])
def test_an_address_lands_on_its_section_after_the_charts_are_drawn(
    chromium: Any, report: Path, anchor: str
) -> None:
    visit = Visit(chromium, report, anchor)
    place = "cases" if "/" in anchor else anchor[1:]
    top = f"document.getElementById('{place}').getBoundingClientRect().top"
    assert abs(visit.page.evaluate(top)) < 20
    visit.context.close()


def test_the_toolbar_covers_no_label_and_the_heat_map_fills_its_place(
    chromium: Any, report: Path
) -> None:
    visit = Visit(chromium, report)
    heat = visit.page.locator("[data-chart=heat]")
    bar = heat.locator(".modebar").bounding_box()
    labels = [tick.bounding_box() for tick in heat.locator(".xtick text").all()]
    assert bar is not None
    assert len(labels) == 5
    for box in labels:
        assert box is not None
        assert box["y"] >= bar["y"] + bar["height"]
    whole, cells = heat.bounding_box(), heat.locator(".heatmaplayer image").bounding_box()
    assert whole is not None
    assert cells is not None
    assert whole["y"] + whole["height"] - cells["y"] - cells["height"] < 30
    visit.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_nothing_sticks_out_at_any_width(
    chromium: Any, hostile: Path, report: Path, theme: str, width: int
) -> None:
    for path in (report, hostile):
        anchor = "#user_000/skill_memory_1/rag/retrieve%405"
        view = {"width": width, "height": 800}
        visit = Visit(chromium, path, anchor, viewport=view, color_scheme=theme)
        visit.text()
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        visit.check_quiet(path)
        visit.context.close()


def test_hostile_text_is_shown_and_does_nothing(chromium: Any, hostile: Path) -> None:
    visit = Visit(chromium, hostile, "#user_000/skill_memory_1/rag/retrieve%405")
    text = visit.text()
    for part in HOSTILE[:8]:
        assert part in text
    page = visit.page
    page.locator("#case details").evaluate_all("all => all.forEach(d => { d.open = true; })")
    page.locator("#case input[type=search]").fill("<img")
    for link in page.locator("#case a").all():
        assert (link.get_attribute("href") or "").startswith("#user_000/")
    page.mouse.move(300, 300)
    assert page.evaluate("window.__pwned") is None
    added = "img, iframe, object, embed, form:not(#filters), a[href^='javascript'], link, base"
    assert page.locator(added).count() == 0
    assert page.evaluate("document.scripts.length") == 5
    assert "49" not in (page.locator("#case .text").first.text_content() or "")
    visit.check_quiet(hostile)
    visit.context.close()


def test_hostile_ids_keep_their_addresses(
    chromium: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    user, system = '../<img src=x onerror="window.__pwned=7">/ü %2F', "sys<script>&/'\""
    path = build_report(
        make_run(
            tmp_path_factory.mktemp("ids") / "run",
            users=[user],
            systems=(system, "rag"),
            name="run<script>window.__pwned=8</script>",
        )
    )
    anchor = "#" + "/".join(quote(p, safe="") for p in (user, "self_model_1", system, "dump_all"))
    visit = Visit(chromium, path, anchor)
    assert f"{user} · self_model/self_model_1 · {system}" in visit.text()
    assert system in visit.page.locator("#headline table").first.text_content()
    assert any(system in t for t in visit.page.locator(".ytick").all_text_contents())
    assert visit.page.evaluate("window.__pwned") is None
    assert visit.page.locator("img").count() == 0
    visit.check_quiet(path)
    visit.context.close()


def test_print_shows_every_table_and_no_controls(chromium: Any, report: Path) -> None:
    visit = Visit(chromium, report, "#user_000/skill_memory_1/rag/retrieve%405")
    visit.text()
    visit.page.emulate_media(media="print")
    assert not visit.page.locator("#filters").is_visible()
    assert not visit.page.locator("nav").is_visible()
    assert visit.page.locator("#table-headline").is_visible()
    assert visit.page.locator("#case h3").first.is_visible()
    visit.context.close()


def test_the_gallery_leads_into_the_case_browser(chromium: Any, report: Path) -> None:
    visit = Visit(chromium, report, "#gallery")
    exhibit = visit.page.locator("#gallery-drowned ~ details.exhibit").first
    name = exhibit.locator("summary").text_content()
    assert name is not None
    exhibit.locator("summary").click()
    link = exhibit.locator("a")
    assert link.is_visible()
    assert exhibit.locator("dl").inner_text().count("Target") == 1
    link.click()
    user, dimension, system, variant = name.split(" \u00b7 ")
    shown = visit.text()
    assert shown.startswith(user)
    for part in (dimension, system, variant):
        assert part in shown
    visit.check_quiet(report)


def test_a_hostile_gallery_is_inert(chromium: Any, tmp_path: Path) -> None:
    def edit(table: str, rows: list[Row]) -> list[Row]:
        rows = _spoil(table, rows)
        if table in ("verdicts", "slot_fills"):
            return [{**r, "reason": "store_overflow"} if r["k"] is None else r for r in rows]
        return rows

    page = build_report(make_run(tmp_path / "run", users=1, edit=edit, protocol="paper"))
    visit = Visit(chromium, page)
    cases = visit.page.locator("details.exhibit")
    assert cases.count()
    visit.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert "<script>window.__pwned=1</script>" in (cases.first.text_content() or "")
    assert visit.page.evaluate("window.__pwned") is None
    assert visit.page.locator("#gallery script, #gallery img, #corrections script").count() == 0
    visit.check_quiet(page)
