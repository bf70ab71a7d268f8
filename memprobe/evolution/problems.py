"""What a check of a trajectory reports."""

from __future__ import annotations

from dataclasses import dataclass

from memprobe.paradigms.problems import Severity


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong: in which trajectory and state (index from 0), which rule, and the fix.

    `state` is None for what no single state is to blame for; a message about a noise
    document begins with the document's id.
    """

    severity: Severity
    trajectory: str
    state: int | None
    rule: str
    message: str
    fix: str


class Findings:
    """Collects the problems of one trajectory."""

    def __init__(self, trajectory: str) -> None:
        self.trajectory = trajectory
        self.problems: list[Problem] = []

    def error(self, rule: str, message: str, fix: str, state: int | None = None) -> None:
        """Something that breaks the design."""
        self.add("error", rule, message, fix, state)

    def warn(self, rule: str, message: str, fix: str, state: int | None = None) -> None:
        """A place to look."""
        self.add("warning", rule, message, fix, state)

    def add(
        self, severity: Severity, rule: str, message: str, fix: str, state: int | None = None
    ) -> None:
        """A problem of a severity that the check found out."""
        self.problems.append(Problem(severity, self.trajectory, state, rule, message, fix))
