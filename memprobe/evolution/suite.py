"""Reading trajectories from a folder, their digest, their order, and what a suite is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from memprobe.dataset import content_digest, explain
from memprobe.errors import DatasetError
from memprobe.evolution.spec import (
    Action,
    Category,
    Domain,
    Level,
    Trajectory,
    TrajectoryType,
)
from memprobe.paradigms.suite import CARD, parse_json
from memprobe.types import Frozen


class Suite(Frozen):
    """Trajectories in the order of their ids; `digest` identifies the exact content."""

    name: str
    trajectories: tuple[Trajectory, ...]
    digest: str

    def trajectory(self, trajectory_id: str) -> Trajectory:
        """The trajectory of that id; raises `DatasetError` when there is none."""
        for trajectory in self.trajectories:
            if trajectory.id == trajectory_id:
                return trajectory
        raise DatasetError(f"no trajectory {trajectory_id!r} in suite {self.name!r}")


def load_trajectory(path: Path) -> Trajectory:
    """Read one trajectory; raises `DatasetError` naming the file and each wrong field."""
    parsed = parse_json(path)
    try:
        return Trajectory.model_validate(parsed)
    except ValidationError as error:
        raise DatasetError(f"{path}: {explain(error)}") from error


def trajectory_files(folder: Path) -> list[Path]:
    """The trajectory files of a folder, sorted; raises `DatasetError` when there is none."""
    paths = sorted(path for path in folder.glob("*.json") if path.name != CARD)
    if not paths:
        raise DatasetError(f"{folder}: no *.json; is this the folder of an evolution suite?")
    return paths


def holds_trajectories(folder: Path) -> bool:
    """Whether a folder is an evolution suite's, by its first file that tells.

    A file with `states` is a trajectory; one with `sessions` or `spec` is an episode
    of the paradigms suite. False when no file tells, and for a folder that is not there.
    """
    for path in sorted(folder.glob("*.json")):
        try:
            parsed = parse_json(path)
        except DatasetError:
            continue
        if path.name != CARD and isinstance(parsed, dict):
            if "states" in parsed:
                return True
            if "sessions" in parsed or "spec" in parsed:
                return False
    return False


def suite_digest(trajectories: Sequence[Trajectory]) -> str:
    """sha256 of the trajectories in id order: file names and layout do not count, words do."""
    ordered = sorted(trajectories, key=lambda t: t.id)
    return content_digest(*(t.model_dump_json().encode() for t in ordered))


def make_suite(name: str, trajectories: Sequence[Trajectory]) -> Suite:
    """Trajectories as a suite; raises `DatasetError` when two share an id."""
    twice = sorted(i for i, n in Counter(t.id for t in trajectories).items() if n > 1)
    if twice:
        raise DatasetError(f"suite {name}: more than one trajectory {', '.join(twice)}")
    ordered = tuple(sorted(trajectories, key=lambda t: t.id))
    return Suite(name=name, trajectories=ordered, digest=suite_digest(ordered))


def load_suite(folder: Path) -> Suite:
    """Read `folder/*.json`; raises `DatasetError` for the first file that cannot be used."""
    return make_suite(folder.name, [load_trajectory(path) for path in trajectory_files(folder)])


def spread(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Trajectories in an order whose every beginning is spread over categories and levels.

    Each round takes one trajectory of every category; a category's turn in a round
    asks for the next level, and takes its first other trajectory when it has none.
    """
    waiting: dict[Category, list[Trajectory]] = {category: [] for category in Category}
    for trajectory in sorted(trajectories, key=lambda t: t.id):
        waiting[trajectory.category].append(trajectory)
    levels = list(Level)
    ordered: list[Trajectory] = []
    turn = 0
    while any(waiting.values()):
        for place, own in enumerate(waiting.values()):
            if own:
                wanted = levels[(turn + place) % len(levels)]
                ordered.append(next((t for t in own if t.level is wanted), own[0]))
                own.remove(ordered[-1])
        turn += 1
    return ordered


@dataclass(frozen=True, slots=True)
class CompositionRow:
    """One category: trajectories by level, documents of states and noise documents."""

    category: Category
    levels: dict[Level, int]
    state_documents: int
    noise_documents: int

    @property
    def n(self) -> int:
        """All trajectories of the category."""
        return sum(self.levels.values())


@dataclass(frozen=True, slots=True)
class Composition:
    """What a suite is made of."""

    rows: tuple[CompositionRow, ...]
    domains: dict[Domain, int]
    types: dict[TrajectoryType, int]
    actions: dict[Action, int]
    final_claims: int
    questions: int

    @property
    def trajectories(self) -> int:
        """All trajectories."""
        return sum(row.n for row in self.rows)

    @property
    def state_documents(self) -> int:
        """All documents of states."""
        return sum(row.state_documents for row in self.rows)

    @property
    def noise_documents(self) -> int:
        """All noise documents."""
        return sum(row.noise_documents for row in self.rows)


def composition(trajectories: Sequence[Trajectory]) -> Composition:
    """Counts by category and level; domains, trajectory types and expected actions."""
    rows = []
    for category in Category:
        own = [t for t in trajectories if t.category is category]
        if own:
            levels = Counter(t.level for t in own)
            rows.append(
                CompositionRow(
                    category,
                    {level: levels[level] for level in Level},
                    sum(len(t.states) for t in own),
                    sum(len(t.noise_documents) for t in own),
                )
            )
    domains = Counter(t.domain for t in trajectories)
    types = Counter(t.trajectory_type for t in trajectories)
    actions = Counter(s.action for t in trajectories for s in t.states)
    return Composition(
        tuple(rows),
        {d: domains[d] for d in Domain},
        {t: types[t] for t in TrajectoryType},
        {a: actions[a] for a in Action},
        sum(len(t.states[-1].claims) for t in trajectories),
        sum(len(t.questions) for t in trajectories),
    )
