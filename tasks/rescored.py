"""Verdicts on probes made again from the stored answers, by the rules of their scorer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from memprobe.paradigms.scoring.results import Match, key_of, score
from memprobe.types import Protocol
from tasks.paradigms.inputs import stored_episodes

Row = dict[str, Any]
_KEY = ("system", "user_id", "epoch", "access_mode", "k", "probe_type")


class Rescored:
    """The probes of a run with their keys; raises `ValueError` for tables that are no suite."""

    def __init__(self, specs: list[Row], sessions: list[Row], probes: list[Row]) -> None:
        self._keys = {
            (episode.id, probe.probe_type.value): key_of(episode, probe)
            for episode in stored_episodes(specs, sessions, probes)
            for probe in episode.probes
        }

    def problems(
        self, answers: Iterable[Row], verdicts: Iterable[Row]
    ) -> Iterator[tuple[Row, str]]:
        """Each verdict that the rules do not make of its answer, and what they make."""
        said = {(row["layer"], *(row[name] for name in _KEY)): row for row in answers}
        for row in verdicts:
            answer = said.get((row["layer"], *(row[name] for name in _KEY)))
            if answer is None:
                yield row, "it has no answer"
                continue
            made = self._made(answer, row["scorer"])
            if made != row["match"]:
                yield row, f"{row['match']} is stored, the answer gives {made}"

    def _made(self, answer: Row, scorer: str) -> str | None:
        """The match of an answer; None where there is no verdict."""
        if answer["status"] != "scored" or answer["answer_json"] is None:
            return None
        key = self._keys.get((answer["user_id"], answer["probe_type"]))
        if key is None:
            return None
        match: Match = score(key, answer["answer_json"], Protocol(scorer)).match
        return None if match is Match.EXECUTION_ERROR else match.value
