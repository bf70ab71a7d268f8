"""`paper` against verdicts that were published (the file lies outside the repository)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from memprobe.paradigms.scoring import Key, Match, paper, strict
from memprobe.paradigms.scoring.results import ConflictKey, TemporalKey
from memprobe.paradigms.spec import Condition, ProbeType

FOLDER = Path(os.environ.get("MEMPROBE_CASES") or Path(__file__).parents[3] / "shared" / "cases")
FILE = FOLDER / "paradigm_scoring.jsonl"
CASES: list[dict[str, Any]] = (
    [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines() if line.strip()]
    if FILE.is_file()
    else []
)
pytestmark = pytest.mark.skipif(not CASES, reason="no paradigm_scoring.jsonl in MEMPROBE_CASES")


def key(case: dict[str, Any]) -> Key:
    spec = case["spec"]
    conflict, temporal = spec.get("conflict_gold"), spec.get("temporal_gold")
    name = case["probe_type"]
    return Key(
        ProbeType("change" if name == "change_detection" else name),
        case["gold"],
        Condition(spec["condition"]),
        spec["canonical_initial"],
        spec["canonical_new"],
        conflict
        and ConflictKey(
            conflict["conflict_value"],
            conflict["source"],
            conflict["status"],
            conflict["target_remains"],
            conflict["applies_to_target"],
        ),
        temporal
        and TemporalKey(
            temporal["old_value"], temporal["new_value"], temporal["trigger"], temporal["reason"]
        ),
    )


@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_paper_gives_the_published_verdict(case: dict[str, Any]) -> None:
    assert paper.score(key(case), case["predicted"]).match == case["match"]


def test_strict_says_why_where_it_differs() -> None:
    changed = []
    for case in CASES:
        found = strict.score(key(case), case["predicted"])
        assert found.reason
        if found.match != case["match"]:
            changed.append((case["id"], case["match"], found.match, found.reason))
    assert changed, "the corrections change no verdict"
    for name, was, now, why in changed:
        print(f"{name}: {was} -> {now}: {why}")
    assert all(now is not Match.SKIP for _, _, now, _ in changed)
