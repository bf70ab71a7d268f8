"""Attribute stored verdicts again, on the transcripts that there are, into a layer of its own.

The published top-k rows were judged on empty transcripts; an imported run has the
episodes, so their attribution can be made good. The layer holds the verdicts it stands
on beside the attributions, and is measured as under `strict`: what the published
procedure scored 0 without a measurement is unscored here, and nobody's failure. What
the run's oracle said of a task stands; it never saw a transcript.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import prompts
from memprobe.dataset import BankEntry, TaskEntry, User
from memprobe.outcomes import Reason
from memprobe.types import AccessMode, Category, Role
from storage.catalog import connect
from storage.runs import RunStore, Unit
from tasks import plan_assumptions as assumed
from tasks.attribute import OK_SCORE, Attribution, unmeasured
from tasks.commit import check_unchanged, commit
from tasks.context import RunContext, fingerprint
from tasks.oracle import oracle_verdict, targeted_task
from tasks.score import BASE

VERSION = 1
STAGE = "reattribute"
ROLES = (Role.ORACLE, Role.DISCLOSURE, Role.SUBCLASS)
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reattribution:
    """Which verdicts are attributed again, and into which layer.

    `made` are the fingerprints of what the layer holds already, by unit; other work under
    its name is refused.
    """

    layer: str
    source: str = BASE
    access: tuple[AccessMode, ...] = tuple(AccessMode)
    made: Mapping[str, str] = field(default_factory=dict)


def reattribute_unit(system: str, user: str, layer: str, epoch: int = 1) -> Unit:
    """The unit of one user's attributions in a layer."""
    return Unit(STAGE, system, user, layer if epoch == 1 else f"{layer}_e{epoch}")


def measured(verdict: Row) -> Row:
    """A verdict as `strict` has it: a 0 that stands for a failure is no score."""
    if verdict["reason"] is None or verdict["status"] == "unscored":
        return verdict
    return {**verdict, "status": "unscored", "score": None, "judge_reason": None}


class _Again(Attribution):
    """Reads the real transcripts; asks the oracle only where the run has no verdict of it."""

    def __init__(
        self, context: RunContext, system: str, user: User, epoch: int, what: Reattribution
    ) -> None:
        super().__init__(context, system, user, epoch)
        self.layer = f"{what.layer}/"
        modes = {mode.value for mode in what.access}
        stored = context.store.read("verdicts", system=system, user=user.user_id)
        self.verdicts = [
            measured({**row, "layer": what.layer})
            for row in stored
            if row["layer"] == what.source and row["epoch"] == epoch and row["access_mode"] in modes
        ]
        self._asked: dict[str, asyncio.Task[Row]] = {}

    def transcript(self, mode: str, episode: int) -> list[dict[str, str]]:
        return self.turns.get(episode, [])

    async def _dialogue(
        self, mode: str, category: Category, entry: BankEntry, number: int, task: TaskEntry
    ) -> Row:
        if not self.transcript(mode, number):
            # A dialogue that the run does not have is no dialogue without a disclosure.
            detail = f"the run has no dialogue of episode {number}"
            return unmeasured(Reason.DATASET_ERROR.value, detail)
        return await super()._dialogue(mode, category, entry, number, task)

    def known(self, dimension: str) -> Row | None:
        """The run's own oracle verdict, when it came to one."""
        row = self.oracle.get(dimension)
        return row if row is not None and row["status"] == "scored" else None

    async def oracle_row(self, category: Category, entry: BankEntry, task: TaskEntry) -> Row | None:
        known = self.known(entry.dimension)
        if known is not None:
            return known
        if entry.dimension not in self._asked:
            asking = oracle_verdict(self.context, self.user, category, entry, task)
            self._asked[entry.dimension] = asyncio.create_task(asking)
        return await self._asked[entry.dimension]

    def failures(self) -> Iterator[tuple[Category, BankEntry, int, TaskEntry]]:
        """The targets of unrecovered, scored verdicts that have a task of their own, once each."""
        entries = {(c.value, e.dimension): (c, e) for c, e in self.user.targets()}
        lost = {
            (v["category"], v["dimension"])
            for v in self.verdicts
            if v["status"] == "scored" and v["score"] < OK_SCORE
        }
        for key in sorted(lost):
            category, entry = entries[key]
            found = targeted_task(self.user, category, entry)
            if found is not None:
                yield category, entry, *found

    @property
    def digest(self) -> str:
        """Changes with anything that an attribution stands on."""
        names = ("access_mode", "k", "category", "dimension", "label", "score", "status", "reason")
        facts = [
            [[row[name] for name in names] for row in self.verdicts],
            sorted([d, row["can_invite"], row["status"]] for d, row in self.oracle.items()),
            sorted(self.turns.items()),
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _mark(context: RunContext, what: Reattribution, again: _Again) -> str:
    return fingerprint(
        STAGE,
        VERSION,
        context,
        prompt_names=("oracle", "disclosure", "subclass"),
        roles=ROLES,
        inputs={
            "layer": what.layer,
            "source": what.source,
            "access": [mode.value for mode in what.access],
            "stored": again.digest,
        },
    )


async def reattribute_user(
    context: RunContext, system: str, user_id: str, what: Reattribution, epoch: int = 1
) -> str:
    """Attribute one user's verdicts again; commits `attributions` and `verdicts` of the layer.

    Rows of one target share their calls whatever the access mode: the transcript is the
    same. An episode that is not in the run is an error of the data, never an empty
    dialogue. Returns the unit's slug.
    """
    unit = reattribute_unit(system, user_id, what.layer, epoch)
    again = _Again(context, system, context.user(user_id), epoch, what)
    mark = _mark(context, what, again)
    check_unchanged(what.made, unit, mark)
    if context.store.is_complete(unit, mark):
        return unit.slug
    rows = await asyncio.gather(*(again.row(verdict) for verdict in again.verdicts))
    tables = {"attributions": list(rows), "verdicts": again.verdicts}
    await asyncio.to_thread(commit, context.store, unit, mark, tables)
    return unit.slug


@dataclass(frozen=True, slots=True)
class Estimate:
    """Calls of one role that are still to be made, at most, with their tokens.

    Answers that the ledger holds already are counted too; they cost nothing.
    """

    role: str
    model: str
    calls: int
    prompt_tokens: int
    completion_tokens: int

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.role,
            self.model,
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


def estimate_user(
    context: RunContext, system: str, user_id: str, what: Reattribution, epoch: int = 1
) -> list[Estimate]:
    """What attributing one user's verdicts again would ask, a line for each role.

    The second stage is counted for every target; who disclosed it needs none.
    """
    again = _Again(context, system, context.user(user_id), epoch, what)
    unit = reattribute_unit(system, user_id, what.layer, epoch)
    found = {role: Estimate(role.value, context.chat.model_for(role), 0, 0, 0) for role in ROLES}
    if context.store.is_complete(unit, _mark(context, what, again)):
        return list(found.values())
    for category, entry, number, task in again.failures():
        about = {
            "category": category.value,
            "dimension": entry.dimension,
            "short": entry.short,
            "explanation": entry.explanation,
            "task": task.task,
        }
        known = again.known(entry.dimension)
        if known is None:
            found[Role.ORACLE] += _one(context, Role.ORACLE, "oracle", about)
        elif not known["can_invite"]:
            continue
        spoken = {**about, "transcript": again.transcript("", number)}
        for role, name in ((Role.DISCLOSURE, "disclosure"), (Role.SUBCLASS, "subclass")):
            found[role] += _one(context, role, name, spoken)
    return list(found.values())


def _one(context: RunContext, role: Role, name: str, variables: Row) -> Estimate:
    text = "\n".join(m.content for m in prompts.load(name).render(**variables))
    tokens = context.chat.count_tokens(role, text)
    model = context.chat.model_for(role)
    return Estimate(role.value, model, 1, tokens, assumed.ANSWER_TOKENS[role])


@dataclass(frozen=True, slots=True)
class Share:
    """How many rows of one system and mode a label has in two layers of attributions."""

    system: str
    access_mode: str
    k: int | None
    label: str
    before: int
    after: int


_SHARES = """
SELECT system, access_mode, k, label,
       count(*) FILTER (layer = $before), count(*) FILTER (layer = $after)
FROM attributions
SEMI JOIN (SELECT DISTINCT system, user_id, epoch, access_mode, k, category, dimension
           FROM attributions WHERE layer = $after) made
ON attributions.system = made.system AND attributions.user_id = made.user_id
   AND attributions.epoch = made.epoch AND attributions.access_mode = made.access_mode
   AND attributions.k IS NOT DISTINCT FROM made.k AND attributions.category = made.category
   AND attributions.dimension = made.dimension
WHERE layer IN ($before, $after)
GROUP BY ALL ORDER BY system, access_mode, k NULLS FIRST, label
"""


def shares(store: RunStore, before: str, after: str) -> Sequence[Share]:
    """Labels of two layers over the rows that the second one has."""
    with connect(store, ("attributions",)) as connection:
        rows = connection.execute(_SHARES, {"before": before, "after": after}).fetchall()
    return [Share(*row) for row in rows]
