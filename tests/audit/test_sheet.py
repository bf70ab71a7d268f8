"""What raters are given: drawn as documented, blind, safe to open."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memprobe.errors import UsageError
from storage.runs import RunStore
from tasks.audit.sampling import allocate, candidates
from tasks.audit.sheet import text_hash
from tasks.audit.words import ASKED, CELL, CUT, cell, guard, settled, unguard
from tests.audit.support import key_of, made, read_csv
from tests.report.make_run import Row, make_run

ODD = st.text(st.characters(blacklist_categories=("Cs",)), max_size=60)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    return make_run(tmp_path_factory.mktemp("audit") / "made", users=3)


@given(
    st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 60), min_size=1, max_size=8),
    st.integers(1, 200),
    st.sampled_from(["equal", "proportional"]),
)
def test_shares_fill_the_sample_and_never_exceed_a_stratum(
    sizes: dict[str, int], sample: int, how: str
) -> None:
    shares = allocate(sizes, sample, how)  # type: ignore[arg-type]
    assert shares.keys() == sizes.keys()
    assert all(0 <= shares[name] <= sizes[name] for name in sizes)
    assert sum(shares.values()) == min(sample, sum(sizes.values()))
    if sample >= len(sizes):
        assert all(shares.values())
    if how == "equal":
        short = [name for name in sizes if shares[name] < sizes[name]]
        assert (
            max((shares[n] for n in short), default=0) - min((shares[n] for n in short), default=0)
            <= 1
        )


def test_proportional_shares_are_the_sizes() -> None:
    assert allocate({"a": 600, "b": 300, "c": 100}, 10, "proportional") == {"a": 6, "b": 3, "c": 1}
    assert allocate({"a": 998, "b": 1, "c": 1}, 10, "proportional") == {"a": 8, "b": 1, "c": 1}
    assert allocate({"a": 600, "b": 300, "c": 2}, 12, "equal") == {"c": 2, "a": 5, "b": 5}


def test_the_sample_is_what_the_key_says(run: RunStore, tmp_path: Path) -> None:
    sheet = made(run, tmp_path, sample=40)
    key = key_of(run, sheet)
    assert len(key) == sheet.items == 40
    assert Counter(item["stratum"] for item in key.values()) == {
        s.name: s.sampled for s in sheet.strata
    }
    assert len({s.sampled for s in sheet.strata}) == 1
    found, left_out = candidates(run, "base")
    assert sum(s.population for s in sheet.strata) == len(found)
    assert left_out == sheet.left_out == 0
    for item in key.values():
        assert item["stratum"] == item["attribution"]
        of = next(s for s in sheet.strata if s.name == item["stratum"])
        assert item["weight"] == of.population / of.sampled
    # Shuffled: the strata do not stand in blocks.
    order = [item["stratum"] for item in key.values()]
    assert sum(a != b for a, b in itertools.pairwise(order)) > 10


def test_the_same_seed_gives_the_same_bytes_and_another_one_another_sheet(
    run: RunStore, tmp_path: Path
) -> None:
    first, again = made(run, tmp_path / "a"), made(run, tmp_path / "b")
    other = made(run, tmp_path / "c", seed=99)
    for name in ("sheet.csv", "form.html"):
        one = (tmp_path / "a" / name).read_bytes()
        assert one == (tmp_path / "b" / name).read_bytes()
        assert one != (tmp_path / "c" / name).read_bytes()
    assert first.sheet == again.sheet != other.sheet


@pytest.mark.parametrize("by", ["attribution", "category", "system", "score"])
def test_raters_learn_nothing_of_system_verdict_and_attribution(by: str, tmp_path: Path) -> None:
    systems = ("zebrastore", "quaggamem")
    run = make_run(tmp_path / "made", users=2, systems=systems)
    sheet = made(run, tmp_path / "out", by=by)
    page = Path(sheet.form).read_text(encoding="utf-8")
    rows = read_csv(Path(sheet.csv))
    for text in (page, Path(sheet.csv).read_text(encoding="utf-8")):
        assert not re.search("zebrastore|quaggamem|because |dump_all|retrieve", text)
    assert all(row["score"] == row["cause"] == row["note"] == row["rater"] == "" for row in rows)
    # Beside the question, no row holds a label; the form's only ones are the choices.
    shown = json.loads(re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)[0])
    for item in shown["items"]:
        assert item.keys() == {"id", *ASKED}
        assert "failure" not in json.dumps({k: v for k, v in item.items() if k != "question"})
    # The key is with the run, and the ids say nothing without it.
    assert not list((tmp_path / "out").rglob("*key*"))
    assert [row["id"] for row in rows] == [f"{sheet.sheet}-{n:03d}" for n in range(1, 41)]


def test_a_row_holds_the_evidence_of_its_item(run: RunStore, tmp_path: Path) -> None:
    sheet = made(run, tmp_path)
    key = key_of(run, sheet)
    for row in read_csv(Path(sheet.csv)):
        item = key[row["id"]]
        name = item["dimension"]
        assert row["true_in_short"] == f"short of {name} for {item['user_id']}"
        assert row["task"] == f"task about {name}"
        assert [line.split(":")[0] for line in row["transcript"].split("\n\n")] == [
            "Assistant", "User", "Assistant", "User",
        ]  # fmt: skip
        assert f"reply 2 on {name}" in row["transcript"]
        assert row["recovered"] in (f"answer on {name}", "unknown")


def test_what_was_never_measured_is_not_drawn(tmp_path: Path) -> None:
    def edit(table: str, rows: list[Row]) -> list[Row]:
        if table == "verdicts":
            rows[0].update(status="unscored", score=None, reason="timeout")
            rows[1].update(reason="store_overflow", score=0.0)
        if table == "attributions":
            rows[2].update(label="harness_failure", status="unscored", reason="timeout")
        return rows

    run = make_run(tmp_path / "made", users=1, systems=("rag",), edit=edit, protocol="paper")
    sheet = made(run, tmp_path / "out", sample=1000)
    key = key_of(run, sheet)
    assert sheet.items == 62 - 3
    assert sheet.left_out == 2
    assert "harness_failure" not in {item["stratum"] for item in key.values()}
    by_score = made(run, tmp_path / "out2", sample=1000, by="score")
    assert by_score.items == 62 - 2


def test_a_sheet_that_may_be_filled_in_is_not_written_over(run: RunStore, tmp_path: Path) -> None:
    sheet = made(run, tmp_path)
    assert made(run, tmp_path).sheet == sheet.sheet
    with Path(sheet.csv).open("a", encoding="utf-8") as file:
        file.write("x\r\n")
    before = Path(sheet.form).read_bytes()
    with pytest.raises(UsageError, match="choose another --out"):
        made(run, tmp_path, seed=4)
    assert Path(sheet.form).read_bytes() == before


def test_what_cannot_be_drawn_is_said(run: RunStore, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="layers there are: base"):
        made(run, tmp_path, layer="second")
    with pytest.raises(UsageError, match="at least 1"):
        made(run, tmp_path, sample=0)
    bare = make_run(
        tmp_path / "bare",
        users=1,
        edit=lambda table, rows: [] if table == "attributions" else rows,
    )
    with pytest.raises(UsageError, match="no attribution to stratify by"):
        made(bare, tmp_path / "x")


HOSTILE = (
    '=HYPERLINK("http://x.example","y")', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1",
    " =1", "'=1", "|calc", "%0A=1", "＝1",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_no_cell_begins_a_formula(text: str) -> None:
    assert cell(text).startswith("'")
    assert unguard(guard(text)) == text


@given(ODD)
def test_a_guard_can_be_taken_off_and_changes_no_comparison(text: str) -> None:
    assert unguard(guard(text)) == text
    assert guard(text).lstrip(" ")[:1] not in set("=+-@\t\r\n") or not text
    assert settled(guard(cell(text))) == settled(cell(text)) == settled(unguard(cell(text)))


@settings(max_examples=200)
@given(st.lists(ODD, min_size=len(ASKED), max_size=len(ASKED)), st.sampled_from(",;\t"))
def test_texts_survive_a_csv_file_and_a_spreadsheet_program(
    texts: list[str], separator: str
) -> None:
    cells = {name: cell(text) for name, text in zip(ASKED, texts, strict=True)}
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=separator, quoting=csv.QUOTE_ALL).writerow(cells.values())
    (back,) = csv.reader(io.StringIO(buffer.getvalue(), newline=""), delimiter=separator)
    assert back == list(cells.values())
    # Saved by a program that drops the guard, rewrites line ends, or trims them.
    for program in (unguard, lambda t: t.replace("\n", "\r\n"), lambda t: t + "  "):
        saved = dict(zip(ASKED, map(program, back), strict=True))
        assert text_hash(saved) == text_hash(cells)


@given(ODD, ODD)
def test_an_edit_is_seen(text: str, other: str) -> None:
    same = settled(cell(text)) == settled(cell(other))
    hashes = [text_hash({"task": cell(t)})["task"] for t in (text, other)]
    assert (hashes[0] == hashes[1]) == same


def test_a_long_transcript_is_cut_in_the_csv_and_whole_in_the_form(tmp_path: Path) -> None:
    def edit(table: str, rows: list[Row]) -> list[Row]:
        if table == "turns":
            for row in rows:
                row["assistant_text"] = "x" * 20_000
        return rows

    run = make_run(tmp_path / "made", users=1, systems=("rag",), edit=edit)
    sheet = made(run, tmp_path / "out", sample=3)
    for row in read_csv(Path(sheet.csv)):
        assert len(row["transcript"]) == CELL
        assert row["transcript"].endswith(CUT)
    assert "x" * 20_000 in Path(sheet.form).read_text(encoding="utf-8")


def test_hostile_texts_are_data_in_both_files(tmp_path: Path) -> None:
    bad = "=cmd|' /C calc'!A0 </script><script>window.__pwned=1</script> \ud83d {{ 7*7 }}"

    def edit(table: str, rows: list[Row]) -> list[Row]:
        for row in rows:
            if table == "targets":
                row.update(short=bad, explanation=bad)
            if table == "verdicts":
                row["label"] = bad
        return rows

    run = make_run(tmp_path / "made", users=1, systems=("rag",), edit=edit)
    sheet = made(run, tmp_path / "out", sample=5)
    page = Path(sheet.form).read_text(encoding="utf-8")
    assert page.count("<script") == page.count("</script>") == 2
    assert "{{ 7*7 }}" in page
    assert "49" not in re.findall(r'"recovered":"(.*?)"', page)[0]
    assert "default-src &#39;none&#39;" in page
    assert not re.search(r"(src|href)\s*=\s*[\"']?https?:", page)
    assert all(row["recovered"].startswith("'=cmd") for row in read_csv(Path(sheet.csv)))
