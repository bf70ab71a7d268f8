"""The checks of an evolution suite: every rule of the design that a text can be held to.

Rules give problems instead of raising, so that an author sees all that is wrong
at once. `error` breaks the design; `warning` is a place to look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from memprobe.errors import DatasetError
from memprobe.evolution import claim_checks, design_checks, leak_checks, text_checks
from memprobe.evolution.problems import Findings, Problem
from memprobe.evolution.protocol import NOISE_DOCUMENTS, PLAN, Planned
from memprobe.evolution.spec import Category, Document, Trajectory
from memprobe.evolution.suite import load_trajectory, trajectory_files
from memprobe.evolution.wording import body, plain, sentences
from memprobe.paradigms.mentions import opening, similar_pairs
from memprobe.paradigms.problems import Severity

PLANS: dict[str, dict[str, Planned]] = {"evolution": PLAN}
"""Compositions by the name of the folder that holds them."""
SIMILAR_OPENINGS = 0.65
_LONG = 60
__all__ = ["PLANS", "Problem", "Severity", "Validation", "check_suite", "check_trajectory"]


def check_trajectory(
    trajectory: Trajectory, common: Collection[str] | None = None
) -> list[Problem]:
    """All rules of one trajectory: design, claims, texts, forward leakage.

    `common` are the stems that are no rare words (`leak_checks.common_stems`).
    """
    return [
        *design_checks.check(trajectory),
        *claim_checks.check(trajectory),
        *text_checks.check(trajectory),
        *leak_checks.check(trajectory, common),
    ]


def _documents(trajectories: Sequence[Trajectory]) -> list[tuple[Trajectory, int | None, Document]]:
    return [(t, i, document) for t in trajectories for i, _, document in text_checks.documents(t)]


def _openings(trajectories: Sequence[Trajectory], out: list[Problem]) -> None:
    where = _documents(trajectories)
    texts = [opening(body(document.text)) for _, _, document in where]
    for j, i, ratio in similar_pairs(texts, SIMILAR_OPENINGS):
        (_, _, other), (t, state, document) = where[j], where[i]
        message = (
            f"{document.id} opens like {other.id} (similarity {ratio:.2f}): "
            f"{' '.join(texts[i][:8])!r}"
        )
        fix = "open one of the two in other words, on another thought"
        out.append(Problem("warning", t.id, state, "opening", message, fix))


def _repeated(trajectories: Sequence[Trajectory], out: list[Problem]) -> None:
    first: dict[str, Document] = {}
    owner: dict[str, str] = {}
    for t, state, document in _documents(trajectories):
        for sentence in sentences(document.text):
            text = plain(sentence)
            if len(text) < _LONG:
                continue
            if text in first and owner[text] != t.id:
                message = f"a sentence of {first[text].id} again: {sentence[:60]!r}"
                out.append(Problem("error", t.id, state, "repeated", message, "write it anew"))
            first.setdefault(text, document)
            owner.setdefault(text, t.id)


def _customers(trajectories: Sequence[Trajectory], out: list[Problem]) -> None:
    first: dict[str, str] = {}
    for t in trajectories:
        name = t.customer.casefold()
        if name in first:
            message = f"{t.customer} is the customer of {first[name]}, too"
            fix = "each trajectory has a firm of its own"
            out.append(Problem("error", t.id, None, "customer", message, fix))
        first.setdefault(name, t.id)


def planned_name(trajectory_id: str) -> str:
    """The part of an id that a plan knows: `c1_a` of `c1_a_database_choice`."""
    return "_".join(trajectory_id.split("_")[:2])


def _planned(
    name: str, plan: dict[str, Planned], trajectories: Sequence[Trajectory], out: list[Problem]
) -> None:
    have: dict[str, Trajectory] = {}
    for t in trajectories:
        own = Findings(t.id)
        wanted = plan.get(planned_name(t.id))
        if wanted is None:
            own.error("plan", "no trajectory of the plan", "take it out or give it a planned id")
        elif planned_name(t.id) in have:
            message = f"{have[planned_name(t.id)].id} is {planned_name(t.id)}, too"
            own.error("plan", message, "one trajectory for each entry of the plan")
        else:
            have[planned_name(t.id)] = t
            for field, is_, should in (
                ("level", t.level, wanted.level),
                ("domain", t.domain, wanted.domain),
                ("trajectory_type", t.trajectory_type, wanted.trajectory_type),
                ("states", len(t.states), wanted.states),
            ):
                if is_ != should:
                    own.error("plan", f"{field}: {is_}, the plan has {should}", "follow the plan")
        out += own.problems
    whole = Findings(name)
    if lacking := [entry for entry in plan if entry not in have]:
        message = f"{len(lacking)} of {len(plan)} trajectories are missing: {', '.join(lacking)}"
        whole.warn("composition", message, "write them")
    else:
        _whole_plan(plan, list(have.values()), whole)
    out += whole.problems


def _whole_plan(
    plan: dict[str, Planned], trajectories: Sequence[Trajectory], out: Findings
) -> None:
    retrieval = sum(entry.startswith("c2") for entry in plan)
    for what, is_, should in (
        ("trajectories", len(trajectories), len(plan)),
        (
            "documents of states",
            sum(len(t.states) for t in trajectories),
            sum(entry.documents for entry in plan.values()),
        ),
        (
            "noise documents",
            sum(len(t.noise_documents) for t in trajectories),
            retrieval * NOISE_DOCUMENTS,
        ),
    ):
        if is_ != should:
            out.error("composition", f"{is_} {what}, the plan has {should}", "follow the plan")
    late = [t for t in trajectories if t.category is Category.SYNTHESIS and arrives_late(t)]
    if not late:
        message = "no trajectory of C4 has an older document that arrives late"
        out.error("composition", message, "let one arrive out of order")


def arrives_late(trajectory: Trajectory) -> bool:
    """Whether a state's document is older than the one before it."""
    times = [s.document.time for s in trajectory.states]
    return any(time < before for before, time in pairwise(times))


def check_suite(
    name: str, trajectories: Sequence[Trajectory], plan: dict[str, Planned] | None = None
) -> list[Problem]:
    """The rules of each trajectory, then those across them; `plan` asks for a composition.

    A plan's trajectories that are missing are one warning, so that a suite can be
    checked while it grows; the counts are held to the plan once all are there.
    """
    common = leak_checks.common_stems(trajectories)
    found = [p for t in trajectories for p in check_trajectory(t, common)]
    for trajectory, n in Counter(t.id for t in trajectories).items():
        if n > 1:
            message = f"{n} files have this id"
            found.append(Problem("error", trajectory, None, "id", message, "give each its own id"))
    _openings(trajectories, found)
    _repeated(trajectories, found)
    _customers(trajectories, found)
    if plan is not None:
        _planned(name, plan, trajectories, found)
    return found


@dataclass(frozen=True, slots=True)
class Validation:
    """A folder's problems, the trajectories that could be read, and the plan they were held to."""

    problems: tuple[Problem, ...]
    trajectories: tuple[Trajectory, ...]
    plan: str | None

    def count(self, severity: Severity) -> int:
        """Problems of a severity."""
        return sum(p.severity == severity for p in self.problems)


def inspect_suite(folder: Path, plan: str | Literal["auto"] | None = "auto") -> Validation:
    """Check a folder's `*.json`. A file that cannot be read is a problem, not an exception.

    `plan` names the composition to hold it to (`PLANS`); `auto` takes the plan of the
    folder's own name, when there is one. Raises `DatasetError` for a folder without
    files and for an unknown plan.
    """
    if plan == "auto":
        plan = folder.name if folder.name in PLANS else None
    if plan is not None and plan not in PLANS:
        raise DatasetError(f"no plan {plan!r}; there are {', '.join(PLANS)}")
    problems: list[Problem] = []
    trajectories: list[Trajectory] = []
    for path in trajectory_files(folder):
        try:
            trajectory = load_trajectory(path)
        except DatasetError as error:
            message = str(error).removeprefix(f"{path}: ")
            fix = "correct the named fields"
            problems.append(Problem("error", path.stem, None, "file", message, fix))
            continue
        trajectories.append(trajectory)
        if trajectory.id != path.stem:
            message = f"the file {path.name} holds trajectory {trajectory.id}"
            fix = "name the file after its trajectory"
            problems.append(Problem("error", trajectory.id, None, "id", message, fix))
    problems += check_suite(folder.name, trajectories, PLANS[plan] if plan else None)
    return Validation(tuple(problems), tuple(trajectories), plan)
