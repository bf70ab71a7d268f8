"""Filled sheets read back: what counts, what is refused and said, and the figures."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from memprobe.errors import UsageError
from storage.catalog import query
from storage.runs import RunStore
from tasks.audit import AuditResult, Sheet, read_answers
from tasks.audit.agreement import Agreement, figures
from tasks.report import build_report
from tests.audit.support import agreeing, change, fill, key_of, made, read_csv, save_csv
from tests.cli.conftest import Invoke
from tests.report.make_run import make_run
from tests.support.kappa import quadratic_kappa


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sheet]:
    folder = tmp_path_factory.mktemp("original")
    run = make_run(folder / "made", users=3)
    return folder / "made", made(run, folder / "out", sample=40)


@pytest.fixture
def run(original: tuple[Path, Sheet], tmp_path: Path) -> RunStore:
    shutil.copytree(original[0], tmp_path / "runs" / "made")
    return RunStore.open(tmp_path / "runs" / "made")


@pytest.fixture
def sheet(original: tuple[Path, Sheet]) -> Sheet:
    return original[1]


def found(result: AuditResult, rater: str, beside: str, scale: str = "score") -> Agreement:
    (sheet,) = result.sheets
    (one,) = [a for a in sheet.agreements if (a.rater, a.beside, a.scale) == (rater, beside, scale)]
    return one


def said(result: AuditResult) -> list[tuple[int, str, str]]:
    return [(p.row, p.kind, p.problem) for p in result.problems]


def test_a_rater_who_agrees(run: RunStore, sheet: Sheet, tmp_path: Path) -> None:
    result = read_answers(run, [fill(run, sheet, tmp_path / "ann.csv")])
    assert (result.problems, result.n_rows) == ((), 40)
    judge = found(result, "ann", "judge")
    assert (judge.n, judge.of, judge.users) == (40, 40, 3)
    assert judge.exact.value == judge.kappa.value == judge.weighted == 1.0
    assert judge.sensitivity is not None
    assert judge.specificity is not None
    high = sum(item["score"] >= 0.75 for item in key_of(run, sheet).values())
    assert (judge.sensitivity.n, judge.sensitivity.of) == (high, high)
    assert (judge.specificity.n, judge.specificity.of) == (40 - high, 40 - high)
    assert found(result, "ann", "attribution", "label").kappa.value == 1.0
    stored = query(run, "select count(*), count(human_label), min(rater) from audits").rows
    assert stored == [(40, 40, "ann")]


def test_figures_are_those_of_the_answers(run: RunStore, sheet: Sheet, tmp_path: Path) -> None:
    draw = random.Random(1)

    def noisy(item: dict[str, Any]) -> dict[str, str]:
        score = draw.choice((0.0, 0.25, 0.5, 0.75, 1.0))
        cause = draw.choice(("memory_failure", "task_design_failure")) if score < 0.75 else ""
        return {"score": str(score), "cause": cause}

    path = fill(run, sheet, tmp_path / "ann.csv", noisy)
    result = read_answers(run, [path])
    key = key_of(run, sheet)
    human = [float(row["score"]) for row in read_csv(path)]
    judge = [key[row["id"]]["score"] for row in read_csv(path)]
    one = found(result, "ann", "judge")
    pairs = list(zip(human, judge, strict=True))
    assert one.exact.n == sum(a == b for a, b in pairs)
    assert one.within_one is not None
    assert one.within_one.n == sum(abs(a - b) <= 0.25 for a, b in pairs)
    assert one.kappa.value == pytest.approx(quadratic_kappa(human, judge))
    assert one.bias == pytest.approx(sum(b - a for a, b in pairs) / 40)
    assert one.sensitivity is not None
    assert one.sensitivity.of == sum(a >= 0.75 for a in human)
    assert one.sensitivity.n == sum(a >= 0.75 and b >= 0.75 for a, b in pairs)
    assert one.confusion[0][4] == pairs.count((0.0, 1.0))
    assert one.confusion[4][0] == pairs.count((1.0, 0.0))
    assert sum(map(sum, one.confusion)) == 40
    weights = [key[row["id"]]["weight"] for row in read_csv(path)]
    agreed = sum(w for w, (a, b) in zip(weights, pairs, strict=True) if a == b)
    assert one.weighted == pytest.approx(agreed / sum(weights))
    for figure in (one.exact, one.kappa):
        assert figure.interval is not None
        assert figure.value is not None
        assert figure.interval.lo <= figure.value <= figure.interval.hi


def test_a_kappa_of_labels_by_hand() -> None:
    # Two labels, four users: agreement 3/4, by chance 1/2, so kappa is 1/2.
    labels = [("ok", "ok"), ("ok", "memory_failure"), *[("memory_failure", "memory_failure")] * 2]
    rows = [
        {"user_id": f"u{n}", "rater": "a", "item_id": str(n), "weight": 1.0, "human_score": None,
         "judge_score": 0.0, "human_label": human, "judge_label": judge}
        for n, (human, judge) in enumerate(labels)
    ]  # fmt: skip
    label = figures("s", "base", 4, rows).agreements[1]
    assert (label.exact.value, label.kappa.value) == (0.75, 0.5)
    score = figures("s", "base", 4, rows).agreements[0]
    assert (score.n, score.of, score.exact.value, score.kappa.value) == (0, 4, None, None)


def test_several_raters(run: RunStore, sheet: Sheet, tmp_path: Path) -> None:
    ann = fill(run, sheet, tmp_path / "x1.csv", lambda i: {**agreeing(i), "rater": "Ann"})
    ben = fill(run, sheet, tmp_path / "ben.csv", lambda i: {"score": "0", "cause": "unclassified"})
    result = read_answers(run, [ann, ben])
    assert result.sheets[0].raters == ("Ann", "ben")
    both = found(result, "Ann", "ben")
    key = key_of(run, sheet)
    zero = sum(item["score"] == 0 for item in key.values())
    assert (both.exact.n, both.n, both.of) == (zero, 40, 40)
    pooled = found(result, "all raters", "judge")
    assert (pooled.n, pooled.of, pooled.exact.n) == (80, 80, 40 + zero)
    # The files of a sheet replace what was read before.
    read_answers(run, [ben])
    assert {row["rater"] for row in run.read("audits")} == {"ben"}


def test_the_form_s_file_counts_like_a_sheet(run: RunStore, sheet: Sheet, tmp_path: Path) -> None:
    key = key_of(run, sheet)
    answers = [{"id": i, **agreeing(item), "note": "=1"} for i, item in key.items()]
    saved = {
        "format": "memprobe-audit-answers", "version": 1, "sheet": sheet.sheet, "rater": "Cem",
        "answers": answers,
    }  # fmt: skip
    path = tmp_path / "any.json"
    path.write_text(json.dumps(saved), encoding="utf-8")
    result = read_answers(run, [path])
    assert found(result, "Cem", "judge").exact.n == 40
    assert {row["note"] for row in run.read("audits")} == {"=1"}
    saved["version"] = 2
    path.write_text(json.dumps(saved), encoding="utf-8")
    with pytest.raises(UsageError, match="version 2"):
        read_answers(run, [path])


@pytest.mark.parametrize(
    ("cells", "kind", "problem"),
    [
        ({"score": "0.6"}, "refused", "score '0.6' is not on the scale"),
        ({"score": "1.5"}, "refused", "is not on the scale"),
        ({"score": "75%"}, "refused", "is not on the scale"),
        ({"score": "0.75/1"}, "refused", "is not on the scale"),
        ({"score": "nan"}, "refused", "is not on the scale"),
        ({"score": "0", "cause": "the memory"}, "refused", "'the memory' is none of the labels"),
        ({"score": "1", "cause": "memory_failure"}, "refused", "contradicts cause memory_failure"),
        ({"score": "0.5", "cause": "ok"}, "refused", "contradicts cause ok"),
        ({"task": "another task"}, "refused", "the text of task was changed"),
        ({"recovered": "better"}, "refused", "the text of recovered was changed"),
        ({"id": "deadbeef-001"}, "refused", "not an item of a sheet of this run"),
        ({"id": "../../x-001"}, "refused", "not an item of a sheet of this run"),
        ({"id": ""}, "refused", "no id"),
        ({"score": "", "cause": ""}, "incomplete", "no answer"),
        ({"score": "unsure", "cause": ""}, "incomplete", "score: unsure"),
        ({"score": "0.25", "cause": ""}, "incomplete", "no cause"),
        ({"score": "0.25", "cause": "unsure"}, "incomplete", "cause: unsure"),
        ({"score": "", "cause": "memory_failure"}, "incomplete", "no score"),
    ],
)
def test_a_row_that_does_not_count_is_named_and_the_rest_counts(
    run: RunStore, sheet: Sheet, tmp_path: Path, cells: dict[str, str], kind: str, problem: str
) -> None:
    path = fill(run, sheet, tmp_path / "ann.csv")
    change(path, 6, **cells)
    result = read_answers(run, [path])
    ((row, how, what),) = said(result)
    assert (row, how) == (8, kind)
    assert problem in what
    scored = cells.get("score") == "0.25"
    assert found(result, "ann", "judge").n == 39 + scored
    assert found(result, "ann", "attribution", "label").n == 39
    assert result.refused == (kind == "refused")
    stored = query(run, "select row, kind, problem from audit_problems").rows
    assert stored == [(8, kind, what)]


def test_other_ways_to_write_an_answer_are_no_guess(
    run: RunStore, sheet: Sheet, tmp_path: Path
) -> None:
    def local(item: dict[str, Any]) -> dict[str, str]:
        given = agreeing(item)
        comma = f"{item['score']:.2f}".replace(".", ",")
        return {"score": f" {comma} ", "cause": given["cause"].upper()}

    path = fill(run, sheet, tmp_path / "ann.csv", local)
    rows = [dict(row) for row in reversed(read_csv(path))]
    save_csv(path, rows, separator=";")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    result = read_answers(run, [path])
    assert result.problems == ()
    assert found(result, "ann", "judge").exact.n == 40
    path.write_bytes(path.read_text(encoding="utf-8-sig").encode("utf-16"))
    assert read_answers(run, [path]).problems == ()


def test_the_same_row_twice(run: RunStore, sheet: Sheet, tmp_path: Path) -> None:
    path = fill(run, sheet, tmp_path / "ann.csv")
    rows = [dict(row) for row in read_csv(path)]
    other = {**rows[1], "score": "0.25", "cause": "unclassified"}
    save_csv(path, [*rows, rows[0], other, rows[1]])
    result = read_answers(run, [path])
    assert said(result) == [
        (42, "incomplete", "the same answer is in ann.csv row 2; it counts once"),
        (43, "refused", "answered differently in ann.csv row 3; none counts"),
        (44, "refused", "answered differently in ann.csv row 3; none counts"),
        (3, "refused", "answered differently in another row; none counts"),
    ]
    assert found(result, "ann", "judge").n == 39


def test_a_judgement_that_changed_since_is_not_compared(
    run: RunStore, sheet: Sheet, tmp_path: Path
) -> None:
    path = fill(run, sheet, tmp_path / "ann.csv")
    item = next(iter(key_of(run, sheet).values()))
    at = {"system": item["system"], "user": item["user_id"]}
    (state,) = [
        s for s in run.units()
        if (s.unit.stage, s.unit.system, s.unit.user) == ("recover", *at.values())
    ]  # fmt: skip
    tables = {t: run.read(t, **at) for t in ("slot_fills", "verdicts", "retrievals", "operations")}
    tables["operations"] = [r for r in tables["operations"] if r["phase"] == "search"]
    for row in tables["verdicts"]:
        names = ("dimension", "access_mode", "k")
        if all(row[n] == item[n] for n in names):
            row["score"] = 0.25
    run.commit(state.unit, "again", tables)
    result = read_answers(run, [path])
    assert [p.item_id for p in result.problems] == [item["id"]]
    assert "no longer the one that was drawn" in result.problems[0].problem


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a,b\n1,2\n", "no column id, score, cause"),
        (b"id,score,cause,score\n", "column score twice"),
        (b'id,score,cause\n"x', "no CSV file"),
        (b"{}", "not saved by an audit form"),
        (b'{"a": ', "not valid JSON"),
        (b"id,score,cause\n\xff\xfe,1,\n", "not UTF-8"),
        (b"id,score,cause\nabcdef12-001,1,\n", "no row of"),
        (b"", "no column id"),
    ],
)
def test_a_file_that_is_no_sheet(
    run: RunStore, sheet: Sheet, tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=problem.replace("no CSV", "not a CSV")):
        read_answers(run, [path])
    assert run.read("audits") == []


def test_the_report_shows_it(run: RunStore, sheet: Sheet, tmp_path: Path) -> None:
    assert "Human audit" not in build_report(run).read_text(encoding="utf-8")
    read_answers(run, [fill(run, sheet, tmp_path / "<b>ann.csv")])
    page = build_report(run)
    text = page.read_text(encoding="utf-8")
    assert "Human audit" in text
    assert "&lt;b&gt;ann" in text
    assert "<b>ann" not in text.partition('id="page-data"')[0]
    table = (page.parent / "tables" / "audit.csv").read_text(encoding="utf-8")
    assert "40/40" in table
    assert (page.parent / "tables" / f"audit-{sheet.sheet}-judge.csv").exists()


def test_the_commands(invoke: Invoke, run: RunStore, tmp_path: Path) -> None:
    where = str(run.path)
    result = invoke("audit", "sheet", where, "--sample", "30", "--out", "blind", "--json")
    facts = json.loads(result.stdout)
    assert (facts["items"], facts["stratify"], facts["allocation"]) == (30, "attribution", "equal")
    assert (tmp_path / "blind" / "sheet.csv").exists()
    sheet = Sheet(**{**facts, "strata": ()})
    path = fill(run, sheet, tmp_path / "ann.csv")
    assert invoke("audit", "read", where, str(path)).exit_code == 0
    change(path, 0, score="7")
    result = invoke("audit", "read", where, str(path))
    assert result.exit_code == 1
    assert "refused: ann.csv row 2" in result.stderr
    assert "29/30" in result.stdout
    parsed = json.loads(invoke("audit", "read", where, str(path), "--json").stdout)
    assert parsed["problems"][0]["row"] == 2
    assert parsed["sheets"][0]["agreements"][0]["exact"]["n"] == 29
    assert invoke("audit", "read", where, "nothing.csv").exit_code == 2
