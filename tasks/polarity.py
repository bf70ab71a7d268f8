"""Polarity: does a label say the opposite of its target, on dimensions with two ends?

Label and target are each read against the axis, and the two readings compared. The
embedded profile does it by similarity with rules for denial; a model is asked twice for
each text, with the ends in either order, and what it says of one order only speaks for
no end. The result is a table beside the verdicts and never changes a score.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import prompts
from adapters.models.embedded.polarity import MARGIN, positions
from adapters.models.embedded.rubric import axes
from adapters.models.minilm import MiniLM
from memprobe.dataset import BankEntry, User
from memprobe.errors import BudgetExceeded, CallFailed
from memprobe.ids import slug
from memprobe.outcomes import Unscored
from memprobe.polarity import Axis, Pole, polarity_of
from memprobe.types import Asker, Role
from prompts.answers import PolarityAnswer
from storage.runs import Unit
from tasks.commit import commit
from tasks.context import RunContext, fingerprint
from tasks.reading import is_unknown, status
from tasks.recover import recover_unit
from tasks.score import BASE

VERSION = 1
EMBEDDED = "embedded"
Row = dict[str, Any]
Rows = list[Row]
_KEY = ("access_mode", "k", "category", "dimension", "label")


@dataclass(frozen=True, slots=True)
class Stand:
    """Which end a text speaks for and why, or why that is not known."""

    pole: Pole | None
    said: str | None = None
    call_id: str | None = None
    failure: Unscored | None = None


def method_of(model: str) -> str:
    """The method's name in the tables: `embedded`, or the model."""
    return EMBEDDED if model.startswith("embedded/") else model


def polarity_unit(system: str, user: str, method: str, epoch: int = 1) -> Unit:
    """The unit of one user's polarity by one method."""
    name = slug(method)[:40].rstrip("_")
    return Unit("polarity", system, user, name if epoch == 1 else f"{name}_e{epoch}")


def directional(verdicts: Rows) -> Rows:
    """The labels that can be read against an axis: known ones of directional dimensions.

    Of the whole reading only; other layers that judge the same labels share its rows.
    """
    return [
        row
        for row in verdicts
        if row["layer"] == BASE
        and row["label"] is not None
        and not is_unknown(row["label"])
        and axes().find(row["dimension"]) is not None
    ]


def _fingerprint(context: RunContext, method: str, rows: Rows) -> str:
    facts = [[row[name] for name in _KEY] for row in rows]
    return fingerprint(
        "polarity",
        VERSION,
        context,
        prompt_names=() if method == EMBEDDED else ("polarity",),
        roles=(Role.JUDGE,),
        inputs={
            "method": method,
            "axes": hashlib.sha256(axes().model_dump_json().encode()).hexdigest(),
            "labels": hashlib.sha256(json.dumps(facts).encode()).hexdigest(),
        },
    )


async def polarity_user(
    context: RunContext, embedder: MiniLM, system: str, user_id: str, epoch: int = 1
) -> str:
    """Read one user's labels against their axes; commits `polarity`, returns the unit's slug.

    The judge's model of `context` decides the method.
    """
    method = method_of(context.chat.model_for(Role.JUDGE))
    unit = polarity_unit(system, user_id, method, epoch)
    source = recover_unit(system, user_id, epoch).variant
    stored = context.store.read("verdicts", system=system, user=user_id, variant=source)
    rows = directional(stored)
    mark = _fingerprint(context, method, rows)
    if context.store.is_complete(unit, mark):
        return unit.slug
    reader = _Reader(context, embedder, method, system, context.dataset.user(user_id))
    found = await asyncio.gather(*(reader.row(row) for row in rows))
    commit(context.store, unit, mark, {"polarity": list(found)})
    return unit.slug


class _Reader:
    """Reads texts of one user against axes by one method."""

    def __init__(
        self, context: RunContext, embedder: MiniLM, method: str, system: str, user: User
    ) -> None:
        self.context = context
        self.embedder = embedder
        self.method = method
        self.system = system
        self.targets: dict[tuple[str, str], BankEntry] = {
            (category.value, entry.dimension): entry for category, entry in user.targets()
        }
        self.user = user

    async def row(self, row: Row) -> Row:
        """The polarity of one label."""
        axis = axes().find(row["dimension"])
        assert axis is not None
        entry = self.targets[row["category"], row["dimension"]]
        target, label = await self._stands(axis, entry, row)
        failure = target.failure or label.failure
        found: Row = {
            name: row[name]
            for name in ("system", "user_id", "epoch", "access_mode", "k", "category", "dimension")
        }
        found |= {
            "label": row["label"],
            "method": self.method,
            "polarity": None,
            "target_pole": target.pole,
            "label_pole": label.pole,
            "target_said": target.said,
            "label_said": label.said,
            "call_id": label.call_id or target.call_id,
            **status(failure),
        }
        if target.pole is not None and label.pole is not None:
            found["polarity"] = polarity_of(target.pole, label.pole)
        return found

    async def _stands(self, axis: Axis, entry: BankEntry, row: Row) -> tuple[Stand, Stand]:
        if self.method == EMBEDDED:
            at = await positions(self.embedder, [entry.short, row["label"]], axis)
            return _near(at[0]), _near(at[1])
        view = row["access_mode"] if row["k"] is None else f"{row['access_mode']}@{row['k']}"
        item = f"e{row['epoch']}/polarity/{view}/{entry.dimension}"
        asker = self.context.asker("polarity", self.system, self.user.user_id, item)
        truth = f"{entry.short}. {entry.explanation}"
        target, label = await asyncio.gather(
            self._asked(asker, axis, entry.dimension, truth),
            self._asked(asker, axis, entry.dimension, row["label"]),
        )
        return target, label

    async def _asked(self, asker: Asker, axis: Axis, dimension: str, text: str) -> Stand:
        """Both orders of the ends; only an exhausted budget raises."""
        orders = ((axis.first, axis.second), (axis.second, axis.first))
        return both_ways(
            *await asyncio.gather(
                *(self._once(asker, dimension, first, second, text) for first, second in orders)
            )
        )

    async def _once(
        self, asker: Asker, dimension: str, first: str, second: str, text: str
    ) -> Stand:
        variables = {"dimension": dimension, "first": first, "second": second, "text": text}
        request = prompts.load("polarity").request(Role.JUDGE, asker, variables)
        try:
            reply = await self.context.chat.ask(request)
        except BudgetExceeded:
            raise
        except CallFailed as error:
            return Stand(None, None, error.call_id, Unscored(error.reason, error.detail))
        answer = reply.parsed(PolarityAnswer)
        return Stand(Pole(answer.pole), answer.reason or None, reply.call_id)


def _near(position: float) -> Stand:
    said = f"{position:+.2f} along the axis"
    if abs(position) < MARGIN:
        return Stand(Pole.NEITHER, said)
    return Stand(Pole.FIRST if position > 0 else Pole.SECOND, said)


_TURNED = {Pole.FIRST: Pole.SECOND, Pole.SECOND: Pole.FIRST, Pole.NEITHER: Pole.NEITHER}


def both_ways(straight: Stand, turned: Stand) -> Stand:
    """One stand of two readings, the second of which had the ends exchanged.

    Readings that contradict each other follow the order of the ends and not the
    text: it speaks for neither then.
    """
    if straight.pole is None or turned.pole is None:
        return straight if straight.pole is None else turned
    back = _TURNED[turned.pole]
    if back is straight.pole:
        return straight
    said = f"{straight.pole.value} end, and with the ends exchanged the {back.value}"
    return Stand(Pole.NEITHER, said, straight.call_id)
