"""What a check reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong: in which episode and session (index from 0), which rule, and the fix."""

    severity: Severity
    episode: str
    session: int | None
    rule: str
    message: str
    fix: str


class Findings:
    """Collects the problems of one episode."""

    def __init__(self, episode: str) -> None:
        self.episode = episode
        self.problems: list[Problem] = []

    def error(self, rule: str, message: str, fix: str, session: int | None = None) -> None:
        """Something that breaks the protocol."""
        self.problems.append(Problem("error", self.episode, session, rule, message, fix))

    def warn(self, rule: str, message: str, fix: str, session: int | None = None) -> None:
        """A place to look."""
        self.problems.append(Problem("warning", self.episode, session, rule, message, fix))
