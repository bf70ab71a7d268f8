"""One episode in the making: its sessions are asked for one by one, checked, and asked again.

A session sees how the episode's earlier ones began, so that no two begin alike;
that makes an episode a chain of calls, while episodes run side by side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import JsonValue

from memprobe.outcomes import Reason
from memprobe.paradigms.checks import SIMILAR_OPENINGS, Problem, check_session, check_suite
from memprobe.paradigms.expand import Blueprint, DomainConfig
from memprobe.paradigms.mentions import opening, similar_pairs
from memprobe.paradigms.spec import Episode, Session, Turn
from memprobe.types import Role
from prompts.answers import SessionAnswer
from tasks.generate.asking import Questioner, UserFailed
from tasks.suite.sessions import PROMPTS, variables

ROUNDS = 3
"""How often sessions that spoil an episode or a suite are written again."""
_SHOWN = 12
"""Words of an opening that a later writer sees."""

Tell = Callable[[str, int, int], None]


def finding(problem: Problem) -> str:
    """A problem as a writer is told of it."""
    return f"{problem.message}; {problem.fix}"


def badness(problems: Sequence[Problem]) -> tuple[int, int]:
    """Errors, then warnings: what a new version is compared by."""
    errors = sum(p.severity == "error" for p in problems)
    return errors, len(problems) - errors


@dataclass(slots=True)
class EpisodeWriter:
    """Writes one episode; `tell` hears of the step, the sessions done, and all of them."""

    blueprint: Blueprint
    domain: DomainConfig
    times: Sequence[datetime]
    questioner: Questioner
    tell: Tell
    sessions: list[Session] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The episode's id."""
        return self.blueprint.spec.episode_id

    def episode(self, sessions: Sequence[Session] | None = None) -> Episode:
        """The episode of these sessions, of its own by default."""
        return Episode(
            spec=self.blueprint.spec,
            sessions=tuple(self.sessions if sessions is None else sessions),
            probes=self.blueprint.probes,
        )

    async def write(self) -> Episode:
        """Write all sessions and mend what the episode's checks find.

        Raises `UserFailed` naming the session whose answers never passed, or with
        the errors that three rounds did not mend.
        """
        total = len(self.blueprint.sessions)
        for i in range(total):
            self.sessions.append(await self._ask(i))
            self.tell(self._item(i), i + 1, total)
        for turn in range(1, ROUNDS + 1):
            problems = check_suite(self.id, [self.episode()])
            if turn > 1:
                problems = [p for p in problems if p.severity == "error"]
            where = by_session(problems)
            if not where:
                break
            self.tell(f"round {turn}: {len(where)} sessions again", total, total)
            await self._mend(where, turn)
        problems = check_suite(self.id, [self.episode()])
        errors = [p for p in problems if p.severity == "error"]
        if errors:
            said = "; ".join(f"{_at(p)}{p.rule}: {finding(p)}" for p in errors)
            raise UserFailed("checks", Reason.INVALID_OUTPUT, said)
        return self.episode()

    async def _mend(self, where: dict[int, list[Problem]], turn: int) -> None:
        for i, found in where.items():
            before = badness(check_suite(self.id, [self.episode()]))
            trial = list(self.sessions)
            trial[i] = await self.again(i, found, turn)
            if badness(check_suite(self.id, [self.episode(trial)])) < before:
                self.sessions = trial

    async def again(self, i: int, found: Sequence[Problem], turn: int) -> Session:
        """Another version of a session, told what was wrong with this one."""
        refused: JsonValue = {
            "answer": _dialogue(self.sessions[i]),
            "findings": [finding(p) for p in found],
        }
        return await self._ask(i, refused=refused, series=turn)

    def _item(self, i: int) -> str:
        return f"{i:02d}:{self.blueprint.sessions[i].session_type}"

    async def _ask(self, i: int, *, refused: JsonValue = None, series: int = 0) -> Session:
        planned = self.blueprint.sessions[i]
        others = [s for k, s in enumerate(self.sessions) if k != i]
        begun = [opening(s.dialogue[0].content) for s in others]
        usable: list[tuple[int, Session]] = []

        def session_of(answer: SessionAnswer) -> Session:
            turns = [Turn(role=t.role, content=t.content) for t in answer.dialogue]
            return Session(
                session_type=planned.session_type, time=self.times[i], dialogue=tuple(turns)
            )

        def check(answer: SessionAnswer) -> list[str]:
            session = session_of(answer)
            problems = check_session(self.blueprint.spec, i, session)
            found = [finding(p) for p in problems]
            mine = opening(session.dialogue[0].content)
            for _, place, ratio in similar_pairs([*begun, mine], SIMILAR_OPENINGS):
                if place == len(begun):
                    found.append(f"it opens like an earlier conversation ({ratio:.2f} alike)")
                    break
            if all(p.severity == "warning" for p in problems):
                usable.append((len(found), session))
            return found

        filled = variables(
            self.blueprint,
            planned,
            self.domain,
            self.times[i],
            [" ".join(s.dialogue[0].content.split()[:_SHOWN]) for s in others],
        )
        try:
            answer = await self.questioner.ask(
                PROMPTS[planned.session_type],
                Role.GENERATOR,
                SessionAnswer,
                self._item(i) if not series else f"{self._item(i)}:again{series}",
                filled,
                check,
                series=series,
                refused=refused,
            )
        except UserFailed as failure:
            # What is only a place to look does not fail an episode; its author is told of it.
            if failure.resumable or not usable:
                raise
            return min(usable, key=lambda one: one[0])[1]
        return session_of(answer)


def by_session(problems: Sequence[Problem]) -> dict[int, list[Problem]]:
    """Problems that another version of a session may mend, by session."""
    where: dict[int, list[Problem]] = defaultdict(list)
    for problem in problems:
        if problem.session is not None and problem.rule not in ("time", "count", "order"):
            where[problem.session].append(problem)
    return dict(sorted(where.items()))


def _at(problem: Problem) -> str:
    return "" if problem.session is None else f"session {problem.session}: "


def _dialogue(session: Session) -> JsonValue:
    return {"dialogue": [{"role": t.role, "content": t.content} for t in session.dialogue]}
