"""The form in a real browser: offline, by keyboard, remembered, saved, and read back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.runs import RunStore
from tasks.audit import Sheet, read_answers
from tests.audit.support import made
from tests.report.make_run import Row, make_run
from tests.report.test_browser import ALL, CHROMIUM, FLAGS

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    def spoil(table: str, rows: list[Row]) -> list[Row]:
        texts = {
            "targets": ("short", "explanation"),
            "episodes": ("task",),
            "turns": ("assistant_text", "user_text"),
            "verdicts": ("label",),
        }
        return [{**row, **dict.fromkeys(texts.get(table, ()), ALL)} for row in rows]

    return make_run(tmp_path_factory.mktemp("form") / "made", users=1, systems=("rag",), edit=spoil)


@pytest.fixture(scope="module")
def sheet(run: RunStore, tmp_path_factory: pytest.TempPathFactory) -> Sheet:
    return made(run, tmp_path_factory.mktemp("out"), sample=6)


class Visit:
    """The form opened from disk without a network, and everything that went wrong on it."""

    def __init__(self, browser: Any, form: str, **context: Any) -> None:
        self.trouble: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(offline=True, accept_downloads=True, **context)
        self.page = self.context.new_page()
        self.page.on("dialog", lambda d: (self.trouble.append(d.message), d.dismiss()))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("console", lambda m: self.trouble.append(m.text))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.form = Path(form)
        self.open()

    def open(self) -> None:
        self.page.goto(self.form.as_uri())
        self.page.wait_for_selector("html[data-form=ready]")

    def save(self, button: str, folder: Path) -> Path:
        with self.page.expect_download() as waiting:
            self.page.click(button)
        download = waiting.value
        target = folder / download.suggested_filename
        download.save_as(target)
        return target

    def close(self) -> None:
        """Nothing was fetched beyond the file, and nothing failed."""
        assert self.trouble == []
        fetched = {u for u in self.requests if not u.startswith(("blob:", "data:"))}
        assert fetched == {self.form.as_uri()}
        assert self.page.evaluate("window.__pwned") is None
        self.context.close()


def test_by_keyboard_to_the_end_saved_and_read_back(
    chromium: Any, run: RunStore, sheet: Sheet, tmp_path: Path
) -> None:
    visit = Visit(chromium, sheet.form)
    page = visit.page
    assert page.locator("#count").text_content() == "0 of 6 answered"
    assert page.locator("input[name=cause]").first.is_disabled()
    keys = [("5", ""), ("1", "m"), ("2", "a"), ("0", ""), ("4", ""), ("3", "x")]
    for score, cause in keys:
        page.keyboard.press(score)
        if cause:
            assert page.locator("input[name=cause]").first.is_enabled()
            page.keyboard.press(cause)
        else:
            assert page.locator("input[name=cause]").first.is_disabled()
        page.keyboard.press("ArrowRight")
    assert page.locator("#count").text_content() == "6 of 6 answered"
    # Letters in a text field are text, not answers.
    page.fill("#rater", "")
    page.focus("#rater")
    page.keyboard.type("=Ann 1m")
    page.fill("#note", "=1+1")
    assert page.locator("#count").text_content() == "6 of 6 answered"
    as_json = visit.save("#save-json", tmp_path)
    as_csv = visit.save("#save-csv", tmp_path)
    saved = json.loads(as_json.read_text(encoding="utf-8"))
    assert (saved["sheet"], saved["rater"]) == (sheet.sheet, "=Ann 1m")
    assert [a["score"] for a in saved["answers"]] == ["1", "0", "0.25", "unsure", "0.75", "0.5"]
    assert [a["cause"] for a in saved["answers"]] == [
        "", "memory_failure", "agent_elicitation_failure", "", "", "unsure",
    ]  # fmt: skip
    text = as_csv.read_bytes()
    assert text.startswith(b"\xef\xbb\xbf")
    assert b'"\'=1+1"' in text
    assert b'"\'=Ann 1m"' in text
    first = read_answers(run, [as_json])
    stored = run.read("audits")
    assert read_answers(run, [as_csv]).sheets == first.sheets
    assert run.read("audits") == stored
    assert {row["rater"] for row in stored} == {"=Ann 1m"}
    assert [row["human_score"] for row in stored] == [1.0, 0.0, 0.25, None, 0.75, 0.5]
    assert len(first.problems) == 2
    visit.close()


def test_answers_are_remembered_and_a_changed_score_drops_its_cause(
    chromium: Any, sheet: Sheet
) -> None:
    visit = Visit(chromium, sheet.form)
    page = visit.page
    page.keyboard.press("2")
    page.keyboard.press("s")
    visit.open()
    assert page.locator("input[name=score][value='0.25']").is_checked()
    assert page.locator("input[name=cause][value=simulator_too_strict]").is_checked()
    page.keyboard.press("5")
    assert page.locator("input[name=cause]:checked").count() == 0
    page.keyboard.press("o")
    assert page.locator("#number").input_value() == "2"
    page.locator("label", has=page.locator("input[name=score][value='1']")).click()
    assert page.locator("#count").text_content() == "2 of 6 answered"
    visit.close()


def test_without_storage_it_works_and_says_so(chromium: Any, sheet: Sheet, tmp_path: Path) -> None:
    visit = Visit(chromium, sheet.form)
    page = visit.page
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('no'); }})"
    )
    visit.open()
    assert "keeps nothing" in (page.locator("#kept").text_content() or "")
    page.keyboard.press("5")
    saved = visit.save("#save-json", tmp_path)
    # Loaded again on another machine.
    visit.open()
    assert page.locator("#count").text_content() == "0 of 6 answered"
    page.set_input_files("#load", saved)
    page.locator("#kept", has_text="1 answers loaded").wait_for()
    assert page.locator("#count").text_content() == "1 of 6 answered"
    value = json.loads(saved.read_text(encoding="utf-8"))
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**value, "sheet": "00000000"}), encoding="utf-8")
    page.set_input_files("#load", other)
    page.locator("#kept", has_text="another sheet").wait_for()
    visit.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1300])
def test_texts_are_shown_as_they_are_and_nothing_sticks_out(
    chromium: Any, sheet: Sheet, theme: str, width: int
) -> None:
    view = {"width": width, "height": 800}
    visit = Visit(chromium, sheet.form, viewport=view, color_scheme=theme)
    page = visit.page
    for name in ("true_in_short", "true_in_full", "task", "recovered"):
        assert "<img src=x onerror=window.__pwned=3>" in (page.text_content(f"#{name}") or "")
    assert "{{ 7*7 }}" in (page.text_content("#transcript") or "")
    assert page.locator("img, iframe, form, a, base").count() == 0
    assert page.evaluate("document.scripts.length") == 2
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(251, 251, 250)" if theme == "light" else "rgb(20, 23, 28)")
    visit.close()
