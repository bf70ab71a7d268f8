"""Reading a suite from its folder, its digest, and what it is made of."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memprobe.dataset import content_digest, explain
from memprobe.errors import DatasetError
from memprobe.paradigms.spec import (
    Condition,
    Domain,
    Episode,
    Paradigm,
    ProbeType,
    SessionType,
    in_order,
)
from memprobe.types import Frozen


class Suite(Frozen):
    """Episodes in the order of their ids; `digest` identifies the exact content."""

    name: str
    episodes: tuple[Episode, ...]
    digest: str

    def episode(self, episode_id: str) -> Episode:
        """The episode of that id; raises `DatasetError` when there is none."""
        for episode in self.episodes:
            if episode.id == episode_id:
                return episode
        raise DatasetError(f"no episode {episode_id!r} in suite {self.name!r}")


def parse_json(path: Path) -> Any:
    """What a JSON file holds; raises `DatasetError` naming the file that cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: not valid JSON ({error})") from error


def load_episode(path: Path) -> Episode:
    """Read one episode; raises `DatasetError` naming the file and each wrong field."""
    parsed = parse_json(path)
    try:
        return Episode.model_validate(parsed)
    except ValidationError as error:
        raise DatasetError(f"{path}: {explain(error)}") from error


CARD = "card.json"
"""The one file of a suite's folder that may end in .json and hold no episode."""


def episode_files(folder: Path) -> list[Path]:
    """The episode files of a folder, sorted; raises `DatasetError` when there is none."""
    paths = sorted(path for path in folder.glob("*.json") if path.name != CARD)
    if not paths:
        raise DatasetError(f"{folder}: no *.json; is this the folder of a paradigms suite?")
    return paths


def suite_digest(episodes: tuple[Episode, ...]) -> str:
    """sha256 of the episodes in id order: file names and layout do not count, words do."""
    ordered = sorted(episodes, key=lambda e: e.id)
    return content_digest(*(e.model_dump_json().encode() for e in ordered))


def make_suite(name: str, episodes: list[Episode]) -> Suite:
    """Episodes as a suite; raises `DatasetError` when two share an id."""
    twice = sorted(i for i, n in Counter(e.id for e in episodes).items() if n > 1)
    if twice:
        raise DatasetError(f"suite {name}: more than one episode {', '.join(twice)}")
    ordered = tuple(sorted(episodes, key=lambda e: e.id))
    return Suite(name=name, episodes=ordered, digest=suite_digest(ordered))


def spread(episodes: tuple[Episode, ...]) -> list[Episode]:
    """Episodes in an order whose every beginning is spread over paradigms and directions."""
    groups: dict[tuple[Paradigm, bool], list[Episode]] = {}
    for episode in sorted(episodes, key=lambda e: e.id):
        groups.setdefault((episode.spec.paradigm, episode.spec.updates), []).append(episode)
    paradigms = list(Paradigm)
    # Two episodes already are one of each direction, four one of each paradigm.
    turns = [(p, (i + n) % 2 == 0) for n in (0, 1) for i, p in enumerate(paradigms)]
    longest = max((len(group) for group in groups.values()), default=0)
    rows = [[groups.get(turn, [])[i : i + 1] for turn in turns] for i in range(longest)]
    return [episode for row in rows for cell in row for episode in cell]


def load_suite(folder: Path) -> Suite:
    """Read `folder/*.json`; raises `DatasetError` for the first file that cannot be used."""
    return make_suite(folder.name, [load_episode(path) for path in episode_files(folder)])


@dataclass(frozen=True, slots=True)
class CompositionRow:
    """Episodes of one condition, by domain."""

    paradigm: Paradigm
    condition: Condition
    domains: dict[Domain, int]
    split: int

    @property
    def n(self) -> int:
        """All episodes of the condition."""
        return sum(self.domains.values())


@dataclass(frozen=True, slots=True)
class Composition:
    """What a suite is made of."""

    rows: tuple[CompositionRow, ...]
    probes: dict[ProbeType, int]
    sessions: dict[SessionType, int]
    update: int
    preserve: int

    @property
    def episodes(self) -> int:
        """All episodes."""
        return self.update + self.preserve


def composition(episodes: tuple[Episode, ...]) -> Composition:
    """Counts by paradigm, condition and domain; probes and sessions by type."""
    cells = Counter((e.spec.paradigm, e.spec.condition, e.spec.domain) for e in episodes)
    split = Counter((e.spec.paradigm, e.spec.condition) for e in episodes if e.spec.split)
    domains = in_order(e.spec.domain for e in episodes)
    rows = tuple(
        CompositionRow(p, c, {d: cells[p, c, d] for d in domains}, split[p, c])
        for p in Paradigm
        for c in Condition
        if any(cells[p, c, d] for d in domains)
    )
    probes = Counter(p.probe_type for e in episodes for p in e.probes)
    sessions = Counter(s.session_type for e in episodes for s in e.sessions)
    update = sum(e.spec.updates for e in episodes)
    return Composition(
        rows,
        {t: probes[t] for t in ProbeType},
        {t: sessions[t] for t in SessionType},
        update,
        len(episodes) - update,
    )
