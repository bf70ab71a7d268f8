"""Rollout: a user brings one task after another; the memory persists over all of them.

Order of a turn (recovery benchmark, section 5 of its protocol): read from the
memory, reply, then write the message that was answered. The write and the
preference judge run beside the simulated user's reaction, which depends on
neither. The last user message of an episode is written once, after it.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from memprobe.calendar import episode_start, message_time
from memprobe.dataset import User
from memprobe.errors import AdapterError, BudgetExceeded, CallFailed
from memprobe.ids import slug
from memprobe.outcomes import Reason
from memprobe.ports import MemorySystem
from memprobe.types import (
    EndReason,
    FeedbackType,
    MemoryItem,
    MessageEvent,
    Role,
    Scope,
)
from prompts.answers import Feedback
from storage.runs import Unit
from tasks.checkpoint import Checkpoints
from tasks.commit import commit, to_retry
from tasks.context import RunContext, fingerprint
from tasks.items import checked
from tasks.simulate import Episode, Exchange, assistant_reply, preference_rows, user_feedback
from tasks.watched import Watched, memory_rows

VERSION = 1
REPLY_K = 5
Rows = list[dict[str, Any]]


def rollout_unit(system: str, user: str, epoch: int = 1) -> Unit:
    """The unit of one user's rollout with one system."""
    return Unit("rollout", system, user, "" if epoch == 1 else f"e{epoch}")


def rollout_fingerprint(context: RunContext, system: str, user: str, epoch: int = 1) -> str:
    """What a rollout depends on."""
    card = context.systems.card(system)
    return fingerprint(
        "rollout",
        VERSION,
        context,
        prompt_names=("assistant", "simulator", "preference"),
        roles=(Role.ASSISTANT, Role.SIMULATOR, Role.PREFERENCE, Role.MEMORY),
        inputs={
            "system": system,
            "code": card.code,
            "package": card.package_version,
            "options": card.options,
            "user": user,
            "epoch": epoch,
            "max_turns": context.config.max_turns,
        },
    )


class _Rollout:
    def __init__(self, context: RunContext, system: str, user: User, epoch: int) -> None:
        self.context = context
        self.name = system
        self.user = user
        self.epoch = epoch
        self.card = context.systems.card(system)
        self.memory: MemorySystem = context.systems.create(system, user.user_id, "rollout", epoch)
        self.watched = Watched(self.base())
        self.timed = self.watched.timed
        self.episodes: Rows = []
        self.turns: Rows = []
        self.preferences: dict[tuple[int, int], asyncio.Task[Rows]] = {}
        self.done = 0

    def base(self) -> dict[str, Any]:
        return {"system": self.name, "user_id": self.user.user_id, "epoch": self.epoch}

    async def open(self, checkpoints: Checkpoints) -> None:
        """A fresh store, or the one of the last checkpoint."""
        key = slug(f"{self.context.config.name}/{self.name}/{self.user.user_id}/{self.epoch}")
        scope = Scope(
            run=self.context.config.name, system=self.name, user=self.user.user_id, key=key
        )
        await self.memory.open(scope)
        checkpoint = checkpoints.load()
        if checkpoint is None or to_retry(checkpoint.state["episodes"]):
            # Episodes are written to the memory in their order, so one that failed for a
            # passing reason is played again with all that followed: finished calls are replayed.
            return
        self.episodes = list(checkpoint.state["episodes"])
        self.turns = list(checkpoint.state["turns"])
        self.watched.operations = list(checkpoint.state["operations"])
        self.done = checkpoint.episode
        await self.timed("restore", self.done, self.memory.restore(checkpoint.store))
        for row in self.turns:
            self._judge_preferences(self._episode(row["episode"]), row["turn"], row)

    def state(self) -> dict[str, Any]:
        return {
            "episodes": self.episodes,
            "turns": self.turns,
            "operations": self.watched.operations,
        }

    def _episode(self, number: int) -> Episode:
        return Episode(self.name, self.user, self.user.tasks[number - 1], number, self.epoch)

    def _judge_preferences(self, episode: Episode, turn: int, row: dict[str, Any]) -> None:
        self.preferences[(episode.number, turn)] = asyncio.create_task(
            preference_rows(self.context, episode, turn, row["assistant_text"])
        )

    async def _read(self, episode: Episode, query: str) -> list[MemoryItem]:
        match self.card.reply_access:
            case "none":
                return []
            case "dump_all":
                found = await self.timed("dump", episode.number, self.memory.dump())
                return checked(self.name, found)
            case _:
                found = await self.timed(
                    "search", episode.number, self.memory.search(query, REPLY_K)
                )
                return checked(self.name, found, REPLY_K)

    async def _write(self, episode: Episode, turn: int, role: str, text: str) -> None:
        start = episode_start(self.context.config.seed, self.user.user_id, episode.number)
        event = MessageEvent(
            role=role,
            text=text,
            event_time=message_time(start, turn, role),
            session_id=f"s{episode.number:04d}",
            episode=episode.number,
            turn=turn,
        )
        await self.timed("write", episode.number, self.memory.write(event))

    async def _write_exchange(self, episode: Episode, turn: int, message: str, reply: str) -> None:
        await self._write(episode, turn, "user", message)
        await self._write(episode, turn, "assistant", reply)

    async def _turn(self, episode: Episode, history: list[Exchange], message: str) -> Feedback:
        turn = len(history) + 1
        items = await self._read(episode, message)
        reply = await assistant_reply(self.context, episode, history, [i.content for i in items])
        start = episode_start(self.context.config.seed, self.user.user_id, episode.number)
        row = {
            **self.base(),
            "episode": episode.number,
            "turn": turn,
            "event_time": message_time(start, turn, "assistant").isoformat(),
            "assistant_text": reply.text,
            "assistant_call": reply.call_id,
            "retrieved_json": json.dumps(
                [
                    {"id": i.id, "score": i.score, "content": i.content}
                    for i in (items if self.card.reply_access == "retrieve" else [])
                ],
                ensure_ascii=False,
            ),
        }
        self._judge_preferences(episode, turn, row)
        writing = asyncio.create_task(self._write_exchange(episode, turn, message, reply.text))
        try:
            feedback, call_id = await user_feedback(self.context, episode, history, reply.text)
        finally:
            # A write that is under way is never abandoned: a store cut off in the
            # middle of a message would be neither the old one nor the new one.
            await asyncio.wait([writing])
        await writing
        row |= {
            "feedback_type": feedback.feedback_type.value,
            "user_text": feedback.text,
            "simulator_call": call_id,
        }
        self.turns.append(row)
        history.append(Exchange(reply.text, feedback.text))
        return feedback

    async def play(self, number: int) -> None:
        """One episode; a failure is recorded as its reason and the user goes on to the next."""
        episode = self._episode(number)
        start = episode_start(self.context.config.seed, self.user.user_id, number)
        history: list[Exchange] = []
        message = episode.task.task
        end: EndReason | None = None
        reason: Reason | None = None
        detail: str | None = None
        try:
            while end is None:
                feedback = await self._turn(episode, history, message)
                message = feedback.text
                if feedback.feedback_type is FeedbackType.SATISFIED:
                    end = EndReason.SATISFIED
                elif len(history) >= self.context.config.max_turns:
                    end = EndReason.MAX_TURNS
            turn = len(history) + 1
            await self._write(episode, turn, "user", message)
        except BudgetExceeded:
            raise
        except CallFailed as error:
            end, reason, detail = None, error.reason, error.detail
        except AdapterError as error:
            end, reason, detail = None, Reason.ADAPTER_ERROR, str(error)
        await self._forget_unfinished(number)
        self.episodes.append(
            {
                **self.base(),
                "episode": number,
                "category": episode.task.target_category.value,
                "dimension": episode.task.target_dimension,
                "task": episode.task.task,
                "event_time": start.isoformat(),
                "end_reason": end.value if end else None,
                "n_turns": len(history),
                "status": "scored" if reason is None else "unscored",
                "reason": reason.value if reason else None,
                "detail": detail,
            }
        )
        self.done = number

    async def _forget_unfinished(self, number: int) -> None:
        """Drop the judgement of a turn that is in no table, as a resumed rollout has none."""
        kept = {(row["episode"], row["turn"]) for row in self.turns}
        for key in [k for k in self.preferences if k[0] == number and k not in kept]:
            task = self.preferences.pop(key)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def preference_table(self) -> Rows:
        """The rows of all preference judgements, in the order of the turns."""
        keys = sorted(self.preferences)
        tables = await asyncio.gather(*(self.preferences[key] for key in keys))
        return [row for table in tables for row in table]

    async def close(self) -> None:
        for task in self.preferences.values():
            task.cancel()
        await asyncio.gather(*self.preferences.values(), return_exceptions=True)
        await self.memory.close()


async def rollout_user(context: RunContext, system: str, user_id: str, epoch: int = 1) -> str:
    """Roll one user out with one system, resuming from the last checkpoint.

    Commits `episodes`, `turns`, `preference_scores`, `memory_items` and
    `operations`; the store's last snapshot stays for recovery. Returns the
    unit's slug. Raises `BudgetExceeded` with everything up to the last episode
    saved, and `SnapshotError` when a checkpoint cannot be trusted.
    """
    unit = rollout_unit(system, user_id, epoch)
    mark = rollout_fingerprint(context, system, user_id, epoch)
    if context.store.is_complete(unit, mark):
        return unit.slug
    user = context.user(user_id)
    checkpoints = Checkpoints(context.store.work_dir(unit), mark)
    run = _Rollout(context, system, user, epoch)
    try:
        await run.open(checkpoints)
        for number in range(run.done + 1, len(user.tasks) + 1):
            await run.play(number)
            saving = checkpoints.commit(run.memory, number, run.state())
            await run.timed("save", number, saving)
        items = checked(system, await run.timed("dump", run.done, run.memory.dump()))
        preferences = await run.preference_table()
        await asyncio.to_thread(
            commit,
            context.store,
            unit,
            mark,
            {
                "episodes": _with_preference_means(run.episodes, preferences),
                "turns": run.turns,
                "preference_scores": preferences,
                "memory_items": memory_rows(run.base(), items),
                "operations": run.watched.operations,
            },
        )
    finally:
        # After the commit: a system that cannot be closed has been measured all the same.
        await run.close()
    return unit.slug


def _with_preference_means(episodes: Rows, preferences: Rows) -> Rows:
    turns: dict[tuple[int, int], list[int]] = {}
    for row in preferences:
        if row["score"] is not None:
            turns.setdefault((row["episode"], row["turn"]), []).append(row["score"])
    out: Rows = []
    for row in episodes:
        means = [sum(s) / len(s) for (e, _), s in sorted(turns.items()) if e == row["episode"]]
        out.append({**row, "pref_mean": sum(means) / len(means) if means else None})
    return out
