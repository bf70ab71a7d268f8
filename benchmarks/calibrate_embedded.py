"""The thresholds of the embedded oracle, disclosure, invitation and reader from the bundled users.

    python -m benchmarks.calibrate_embedded [--write] [--ledger sqlite:///PATH]

Oracle: sound tasks against those that are poor on purpose; the threshold of the highest
balanced accuracy that calls at most a tenth of the sound tasks poor. Disclosure: the
written disclosures against the evasions (Youden's index). Invitation: the
assistant's questions about the target against those of the user's other tasks
(at most a tenth of the latter pass: the simulator is blamed only on good grounds).
Reader: disclosed statements against those of the user's other tasks (at most a twentieth
of the former is given up). Each is chosen again with one user left out and tried on
that user. Prints JSON; `--write` puts thresholds and provenance into the data file.
The judge's constants come from public judgements: see `benchmarks/calibrate_judge.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adapters.models.embedded.reader import ExtractiveReader, statements
from adapters.models.embedded.similarity import nearest, sentences
from adapters.models.embedded.thresholds import thresholds
from adapters.models.minilm import NAME, MiniLM
from memprobe.dataset import BankEntry, Dataset, TaskEntry, User, load_dataset
from storage.bundled import data_dir, recovery_dir
from storage.ledger import Ledger

FALSE_ALARMS = 0.10
READER_LOSS = 0.05
GRID = 0.01
"""Thresholds are told to two digits: more would be fitted to the noise of some hundred texts."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A similarity that was measured, and whether it should pass the threshold."""

    user: str
    cosine: float
    positive: bool


Rule = Callable[[Sequence[Sample]], float]


def rates(samples: Sequence[Sample], cut: float) -> tuple[int, int, int, int]:
    """True and false positives, false and true negatives at a threshold (passes from it on)."""
    passed = [(s.cosine >= cut, s.positive) for s in samples]
    return (
        passed.count((True, True)),
        passed.count((True, False)),
        passed.count((False, True)),
        passed.count((False, False)),
    )


def _share(part: int, rest: int) -> float:
    return part / (part + rest) if part + rest else 1.0


def balanced(samples: Sequence[Sample], cut: float) -> float:
    """Mean of sensitivity and specificity; Youden's index is twice that, less one."""
    tp, fp, fn, tn = rates(samples, cut)
    return (_share(tp, fn) + _share(tn, fp)) / 2


def grid(samples: Sequence[Sample]) -> list[float]:
    """The thresholds that are tried."""
    low, high = (f(s.cosine for s in samples) for f in (min, max))
    steps = range(int(np.floor(low / GRID)), int(np.ceil(high / GRID)) + 1)
    return [round(step * GRID, 2) for step in steps]


def best(samples: Sequence[Sample], max_lost: float = 1.0, max_passed: float = 1.0) -> float:
    """The threshold of the highest balanced accuracy under two bounds.

    At most `max_lost` of the positives may be lost and `max_passed` of the negatives
    pass. Between equals it is the one in the middle of the longest run of them.
    """
    allowed = []
    for cut in grid(samples):
        tp, fp, fn, tn = rates(samples, cut)
        if 1 - _share(tp, fn) <= max_lost and 1 - _share(tn, fp) <= max_passed:
            allowed.append((balanced(samples, cut), cut))
    top = max(value for value, _ in allowed)
    runs: list[list[float]] = []
    for value, cut in allowed:
        if value < top:
            continue
        if runs and cut - runs[-1][-1] < 1.5 * GRID:
            runs[-1].append(cut)
        else:
            runs.append([cut])
    longest = max(runs, key=len)
    return longest[len(longest) // 2]


def figures(samples: Sequence[Sample], rule: Rule, present: float) -> dict[str, Any]:
    """The chosen threshold with its confusion, the present one, and leave-one-user-out."""
    cut = rule(samples)
    held: list[tuple[bool, bool]] = []
    cuts = []
    for user in sorted({s.user for s in samples}):
        chosen = rule([s for s in samples if s.user != user])
        cuts.append(chosen)
        held += [(s.cosine >= chosen, s.positive) for s in samples if s.user == user]
    tp, fp, fn, tn = rates(samples, cut)
    sensitivity = _share(held.count((True, True)), held.count((False, True)))
    specificity = _share(held.count((False, False)), held.count((True, False)))
    return {
        "threshold": cut,
        "present": present,
        "n_positive": tp + fn,
        "n_negative": fp + tn,
        "true_positive": tp,
        "false_positive": fp,
        "false_negative": fn,
        "true_negative": tn,
        "accuracy": round((tp + tn) / len(samples), 3),
        "balanced_accuracy": round(balanced(samples, cut), 3),
        "balanced_accuracy_present": round(balanced(samples, present), 3),
        "held_out_accuracy": round(sum(a == b for a, b in held) / len(held), 3),
        "held_out_balanced_accuracy": round((sensitivity + specificity) / 2, 3),
        "held_out_thresholds": [min(cuts), max(cuts)],
    }


def scenes(user: User) -> list[tuple[BankEntry, TaskEntry]]:
    """A user's scripted tasks with the targets they were written for."""
    targets = {(c, e.dimension): e for c, e in user.targets()}
    return [
        (targets[task.target_category, task.target_dimension], task)
        for task in user.tasks
        if task.script is not None and (task.target_category, task.target_dimension) in targets
    ]


class Corpus:
    """The samples of each threshold, measured as the embedded players measure."""

    def __init__(self, dataset: Dataset, embedder: MiniLM) -> None:
        self.dataset = dataset
        self.embedder = embedder
        self.reader = ExtractiveReader(embedder, dataset.pool, thresholds())

    async def cosine(self, texts: Sequence[str], target: BankEntry) -> float:
        return (await nearest(self.embedder, texts, [target.short, target.explanation]))[0]

    async def oracle(self, user: User) -> list[Sample]:
        return [
            Sample(
                user.user_id, await self.cosine([task.task], target), task.planted != "poor_task"
            )
            for target, task in scenes(user)
        ]

    async def disclosure(self, user: User) -> list[Sample]:
        found = []
        for target, task in scenes(user):
            assert task.script is not None
            for text, shows in (
                *((t, True) for t in task.script.disclosures),
                (task.script.evasion, False),
            ):
                texts = list(dict.fromkeys([text, *sentences(text)]))
                found.append(Sample(user.user_id, await self.cosine(texts, target), shows))
        return found

    async def invitation(self, user: User) -> list[Sample]:
        asked = []
        for target, task in scenes(user):
            assert task.script is not None
            spoken = (task.script.reply, task.script.followup)
            questions = [s for text in spoken for s in sentences(text) if s.endswith("?")]
            if questions and task.planted is None:
                asked.append((target, questions))
        found = []
        for place, (target, questions) in enumerate(asked):
            found.append(Sample(user.user_id, await self.cosine(questions, target), True))
            # The questions of some other task; its distance is fixed, so nothing is drawn.
            other = asked[(place + len(asked) // 2) % len(asked)][1]
            found.append(Sample(user.user_id, await self.cosine(other, target), False))
        return found

    async def read(self, user: User) -> list[Sample]:
        found = []
        everything = scenes(user)
        for place, (target, task) in enumerate(everything):
            assert task.script is not None
            other = everything[(place + len(everything) // 2) % len(everything)][1].script
            assert other is not None
            for script, mine in ((task.script, True), (other, False)):
                told = statements([f"User: {script.disclosures[0]}"])
                texts = [t for _, s in told for t in dict.fromkeys([s, *sentences(s)])]
                near = await nearest(self.embedder, texts, self.reader.queries(target.dimension))
                found.append(Sample(user.user_id, near[0], mine))
        return found


async def calibrate(ledger_url: str) -> dict[str, Any]:
    """Figures of all four thresholds."""
    dataset = load_dataset(recovery_dir())
    ledger = Ledger.open(ledger_url)
    embedder = MiniLM(ledger)
    corpus = Corpus(dataset, embedder)
    present = thresholds()
    rules: dict[str, tuple[Any, Rule, float]] = {
        "oracle": (corpus.oracle, lambda s: best(s, FALSE_ALARMS), present.oracle),
        "disclosure": (corpus.disclosure, best, present.disclosure),
        "invitation": (
            corpus.invitation,
            lambda s: best(s, max_passed=FALSE_ALARMS),
            present.invitation,
        ),
        "reader": (corpus.read, lambda s: best(s, READER_LOSS), present.reader),
    }
    found: dict[str, Any] = {}
    try:
        for name, (measure, rule, value) in rules.items():
            per_user = await asyncio.gather(*(measure(user) for user in dataset.users))
            found[name] = figures([s for samples in per_user for s in samples], rule, value)
    finally:
        await embedder.close()
        ledger.close()
    return {
        "embedder": NAME,
        "dataset_digest": dataset.digest,
        "users": len(dataset.users),
        "thresholds": found,
    }


RULES = {
    "oracle": "highest balanced accuracy, sound tasks against tasks poor on purpose, "
    "with at most 10 % of the sound ones called poor",
    "disclosure": "Youden's index, written disclosures against evasions",
    "invitation": "highest balanced accuracy, questions of a task against those of another task of "
    "the user, with at most 10 % of the latter taken for an invitation",
    "reader": "highest balanced accuracy, statements about a dimension against those of another "
    "task of the user, with at most 5 % of the former given up",
}


def provenance(report: dict[str, Any]) -> dict[str, str]:
    """What the data file says of each threshold."""
    said = {"embedder": report["embedder"], "dataset": report["dataset_digest"]}
    for name, f in report["thresholds"].items():
        said[name] = (
            f"{RULES[name]}; {f['n_positive']} against {f['n_negative']} texts of "
            f"{report['users']} bundled users; balanced accuracy {f['balanced_accuracy']:.2f} "
            f"({f['held_out_balanced_accuracy']:.2f} on users held out)"
        )
    return said


def write(report: dict[str, Any]) -> Path:
    """Put thresholds and provenance into the data file."""
    path = data_dir() / "embedded" / "thresholds.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    chosen = {name: f["threshold"] for name, f in report["thresholds"].items()}
    if any(stored[name] != value for name, value in chosen.items()):
        # The version is part of every embedded answer's key: old answers must not be replayed.
        stored["version"] += 1
    stored |= chosen | {"provenance": provenance(report)}
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="update the data file")
    parser.add_argument("--ledger", help="keep the vectors in this ledger and use them again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.ledger or f"sqlite:///{folder}/ledger.db"
        report = asyncio.run(calibrate(url))
    print(json.dumps(report, indent=1))
    if given.write:
        print(f"wrote {write(report)}")


if __name__ == "__main__":
    main()
