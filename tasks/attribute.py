"""Attribution: who lost a target that was not recovered.

Stage 0 asks whether the task could invite the target, stage 1 whether the user
let it show in the episode written for it, stage 2 why not. A target that showed
and was not recovered was lost by the memory. What could not be measured is
`harness_failure`, never anybody's fault.
"""

from __future__ import annotations

import asyncio
from typing import Any

import prompts
from memprobe.chat import ChatReply
from memprobe.dataset import BankEntry, TaskEntry, User
from memprobe.errors import BudgetExceeded, CallFailed
from memprobe.outcomes import Reason
from memprobe.types import AccessMode, AttributionLabel, Category, Protocol, Role
from prompts.answers import DisclosureAnswer, SubclassAnswer
from storage.runs import Unit
from tasks.commit import FAILED, commit, is_partial
from tasks.context import RunContext, fingerprint
from tasks.oracle import oracle_fingerprint, oracle_unit, targeted_task
from tasks.recover import recover_fingerprint, recover_unit
from tasks.rollout import rollout_unit

VERSION = 1
OK_SCORE = 0.75
Rows = list[dict[str, Any]]


def attribute_unit(system: str, user: str, epoch: int = 1) -> Unit:
    """The unit of one user's attributions with one system."""
    return Unit("attribute", system, user, "" if epoch == 1 else f"e{epoch}")


def attribute_fingerprint(context: RunContext, system: str, user: str, epoch: int = 1) -> str:
    """What attributions depend on, verdicts and oracle included."""
    return fingerprint(
        "attribute",
        VERSION,
        context,
        prompt_names=("disclosure", "subclass"),
        roles=(Role.DISCLOSURE, Role.SUBCLASS),
        inputs={
            "recover": recover_fingerprint(context, system, user, epoch),
            "oracle": oracle_fingerprint(context, user),
        },
    )


class Attribution:
    """One user's verdicts with one system, and all that their attribution looks at."""

    layer = ""
    """Named in the items of its calls; "" for the run's own attribution."""

    def __init__(self, context: RunContext, system: str, user: User, epoch: int) -> None:
        self.context = context
        self.name = system
        self.user = user
        self.epoch = epoch
        store = context.store
        variant = recover_unit(system, user.user_id, epoch).variant
        self.verdicts = store.read("verdicts", system=system, user=user.user_id, variant=variant)
        self.oracle = {
            row["dimension"]: row
            for row in store.read(
                "oracle_verdicts",
                user=user.user_id,
                variant=oracle_unit(user.user_id).variant,
            )
        }
        roll = rollout_unit(system, user.user_id, epoch).variant
        self.episodes = {
            row["episode"]: row
            for row in store.read("episodes", system=system, user=user.user_id, variant=roll)
        }
        self.turns: dict[int, list[dict[str, str]]] = {}
        rows = store.read("turns", system=system, user=user.user_id, variant=roll)
        for row in sorted(rows, key=lambda r: (r["episode"], r["turn"])):
            turn = {"assistant": row["assistant_text"], "user": row["user_text"]}
            self.turns.setdefault(row["episode"], []).append(turn)

    def transcript(self, mode: str, episode: int) -> list[dict[str, str]]:
        """The episode's turns. The published retrieve rows were judged on empty transcripts."""
        paper = self.context.config.protocol is Protocol.PAPER
        if paper and mode == AccessMode.RETRIEVE.value:
            return []
        return self.turns.get(episode, [])

    async def ask(
        self,
        name: str,
        role: Role,
        category: Category,
        entry: BankEntry,
        task: TaskEntry,
        transcript: list[dict[str, str]],
    ) -> ChatReply:
        request = prompts.load(name).request(
            role,
            self.context.asker(
                "attribute",
                self.name,
                self.user.user_id,
                f"e{self.epoch}/{self.layer}{entry.dimension}/{len(transcript)}",
            ),
            {
                "category": category.value,
                "dimension": entry.dimension,
                "short": entry.short,
                "explanation": entry.explanation,
                "task": task.task,
                "transcript": transcript,
            },
        )
        return await self.context.chat.ask(request)

    async def row(self, verdict: dict[str, Any]) -> dict[str, Any]:
        """The attribution of one verdict."""
        row: dict[str, Any] = {
            **{
                key: verdict[key]
                for key in (
                    "system",
                    "user_id",
                    "epoch",
                    "layer",
                    "access_mode",
                    "k",
                    "category",
                    "dimension",
                    "score",
                )
            },
            "label": None,
            "episode": None,
            "can_invite": None,
            "disclosed": None,
            "evidence": None,
            "cause_reason": None,
            "status": "scored",
            "reason": None,
            "detail": None,
            "oracle_call": None,
            "disclosure_call": None,
            "subclass_call": None,
        }
        try:
            return row | await self._stages(verdict)
        except BudgetExceeded:
            raise
        except CallFailed as error:
            return row | unmeasured(error.reason.value, error.detail)

    async def oracle_row(
        self, category: Category, entry: BankEntry, task: TaskEntry
    ) -> dict[str, Any] | None:
        """What the oracle said of the target's task; None when it was not asked."""
        return self.oracle.get(entry.dimension)

    async def _stages(self, verdict: dict[str, Any]) -> dict[str, Any]:
        if verdict["status"] == "unscored":
            return unmeasured(verdict["reason"], verdict["detail"])
        if verdict["score"] >= OK_SCORE:
            return {"label": AttributionLabel.OK.value}
        category = Category(verdict["category"])
        entry = next(
            e
            for c, e in self.user.targets()
            if c is category and e.dimension == verdict["dimension"]
        )
        found = targeted_task(self.user, category, entry)
        if found is None:
            return {"label": AttributionLabel.NO_TARGETED_TASK.value}
        number, task = found
        oracle = await self.oracle_row(category, entry, task)
        if oracle is None:
            return unmeasured(Reason.DATASET_ERROR.value, "no oracle verdict for this target")
        out: dict[str, Any] = {
            "episode": number,
            "can_invite": oracle["can_invite"],
            "oracle_call": oracle["call_id"],
            "cause_reason": oracle["oracle_reason"],
        }
        if oracle["status"] == "unscored":
            return out | unmeasured(oracle["reason"], oracle["detail"])
        if not oracle["can_invite"]:
            return out | {"label": AttributionLabel.TASK_DESIGN_FAILURE.value}
        return out | await self._dialogue(verdict["access_mode"], category, entry, number, task)

    async def _dialogue(
        self, mode: str, category: Category, entry: BankEntry, number: int, task: TaskEntry
    ) -> dict[str, Any]:
        transcript = self.transcript(mode, number)
        shown = await self.ask("disclosure", Role.DISCLOSURE, category, entry, task, transcript)
        disclosure = shown.parsed(DisclosureAnswer)
        out: dict[str, Any] = {
            "disclosed": disclosure.disclosed,
            "evidence": disclosure.evidence or None,
            "disclosure_call": shown.call_id,
        }
        if disclosure.disclosed:
            return out | {"label": AttributionLabel.MEMORY_FAILURE.value}
        why = await self.ask("subclass", Role.SUBCLASS, category, entry, task, transcript)
        answer = why.parsed(SubclassAnswer)
        return out | {
            "label": AttributionLabel(answer.cause).value,
            "cause_reason": answer.reason,
            "subclass_call": why.call_id,
        }


def unmeasured(reason: str, detail: str | None) -> dict[str, Any]:
    """The outcome columns of a row that nothing can be said of."""
    return {
        "label": AttributionLabel.HARNESS_FAILURE.value,
        "status": "unscored",
        "reason": reason,
        "detail": detail,
    }


async def attribute_user(
    context: RunContext, system: str, user_id: str, epoch: int = 1, *, failed: bool = False
) -> str:
    """Attribute all verdicts of one user with one system; commits `attributions`.

    `failed`: the verdicts are those of a chain that broke off, so nothing is there yet.
    """
    unit = attribute_unit(system, user_id, epoch)
    mark = attribute_fingerprint(context, system, user_id, epoch)
    if context.store.is_complete(unit, mark):
        return unit.slug
    attribution = Attribution(context, system, context.user(user_id), epoch)
    rows = await asyncio.gather(*(attribution.row(v) for v in attribution.verdicts))
    recovered = (
        recover_unit(system, user_id, epoch),
        recover_fingerprint(context, system, user_id, epoch),
    )
    tables = {"attributions": list(rows)}
    if failed:
        context.store.commit(unit, mark + FAILED, tables)
        return unit.slug
    partial = is_partial(context.store, *recovered)
    await asyncio.to_thread(commit, context.store, unit, mark, tables, partial=partial)
    return unit.slug
