"""Taking in one message: formation, then one update for each candidate."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue

from adapters.memory.memt import tools
from adapters.memory.memt.parsing import ToolCall, tool_calls
from adapters.memory.memt.policy import Policy
from adapters.memory.memt.promptset import FORMATION, UPDATE
from adapters.memory.memt.store import (
    EXPERIENCES,
    FACTS,
    PERSONAS,
    SUMMARY,
    TURNS,
    Row,
    State,
    split_document,
)

SESSION = "hmb_session"
"""The one id under which the released adapter keeps a user's whole life's summary."""

NAMESPACE = uuid.UUID("6f0e1d0e-6a43-5d0c-9d7c-3a1f6f2f7a10")


def union(old: Iterable[str], new: Iterable[str], *, paper: bool) -> tuple[str, ...]:
    """The source messages of an updated item, each once, in order of first appearance.

    The published union goes through a set and so loses their order, to another
    one in each process; sorting stands for that here, as any fixed order may.
    """
    found = dict.fromkeys([*old, *new])
    return tuple(sorted(found) if paper else found)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fact or an experience that formation proposed."""

    kind: str
    text: str
    start_time: str = ""
    end_time: str = ""

    @property
    def collection(self) -> str:
        return FACTS if self.kind == "fact" else EXPERIENCES


@dataclass(frozen=True, slots=True)
class Formed:
    """What formation found in one message; of several summaries the last counts."""

    candidates: tuple[Candidate, ...] = ()
    personas: tuple[tuple[str, str], ...] = ()
    summary: str = ""


def formed(calls: Iterable[ToolCall]) -> Formed:
    """Calls as results; unknown tools and empty main arguments are passed over."""
    candidates: list[Candidate] = []
    personas: dict[str, str] = {}
    summary = ""
    for call in calls:
        match call.name:
            case "create_fact" | "create_experience":
                kind = call.name.removeprefix("create_")
                text = call.text(kind)
                if text:
                    times = call.text("start_time"), call.text("end_time")
                    candidates.append(Candidate(kind, text, *times))
            case "update_persona":
                profile = call.text("profile")
                if profile:
                    personas[call.text("name") or "User"] = profile
            case "update_summary":
                summary = call.text("content") or summary
    return Formed(tuple(candidates), tuple(personas.items()), summary)


class Writer:
    """One message on its way into a copy of the state."""

    def __init__(
        self, policy: Policy, state: State, sample: str, session: str, moment: datetime
    ) -> None:
        self._policy = policy
        self._state = state
        self._sample = sample
        self._session = session
        self._moment = moment
        self._time = moment.isoformat(timespec="seconds")
        self._raw = ""
        self._turn = ""
        self._formation = ""

    def _id(self, kind: str) -> str:
        """Published ids are random; these are the same in a replay."""
        name = f"{self._sample}/{kind}/{self._state.next_ordinal()}"
        return str(uuid.uuid5(NAMESPACE, name))

    def _column(self, collection: str) -> str:
        return f"{self._sample}_{collection}"

    async def take(self, raw: str) -> None:
        """Store a message and what the policy makes of it. Raises `CallFailed`."""
        state = self._state
        state.turns += 1
        self._raw, self._turn = raw, f"t{state.turns:04d}"
        sources: list[JsonValue] = [[self._turn]]
        metadata: dict[str, JsonValue] = {
            "id": self._turn,
            "col_name": self._column(TURNS),
            "session_id": self._session,
            "turn_time": self._time,
            "source_turn_ids": sources,
        }
        state[TURNS].upsert(Row(self._turn, raw, self._moment, metadata=metadata))
        answer = await self._policy.ask(
            self._policy.prompts.messages(
                FORMATION,
                tools=list(tools.FORMATION),
                summary=state.summary,
                personas=state.personas,
                turn=raw,
            )
        )
        result = formed(tool_calls(answer))
        self._formation = self._id("op")
        if result.summary:
            state.summary = result.summary
            self._rewrite(SUMMARY, SESSION, result.summary, {"session_id": SESSION})
        for name, profile in result.personas:
            state.personas[name] = profile
            self._rewrite(PERSONAS, name, profile, {"name": name})
        for candidate in result.candidates:
            await self._settle(candidate)

    def _rewrite(
        self, collection: str, row_id: str, text: str, own: Mapping[str, JsonValue]
    ) -> None:
        """Replace a summary or a persona; its sources go on growing."""
        rows = self._state[collection]
        old = rows.get(row_id)
        turns = union(old.sources if old else (), [self._raw], paper=False)
        metadata: dict[str, JsonValue] = {
            "id": row_id,
            "col_name": self._column(collection),
            **own,
            "turn_time": self._time,
            "source_turn_ids": [*(old.list("source_turn_ids") if old else []), [self._turn]],
            "op_ids": [*(old.list("op_ids") if old else []), {"formation": self._formation}],
            "updated_time": self._time,
            "original_turns": list(turns),
            "memory_content": text,
        }
        rows.upsert(Row(row_id, text, self._moment, turns, metadata))

    async def _settle(self, candidate: Candidate) -> None:
        """Ask what a candidate changes, and do all of it."""
        if self._policy.paper:
            candidate = Candidate(candidate.kind, candidate.text)
        rows = self._state[candidate.collection]
        related = await rows.nearest(candidate.text, self._policy.options.update_topk)
        answer = await self._policy.ask(
            self._policy.prompts.messages(
                UPDATE,
                tools=list(tools.UPDATE),
                candidate={
                    "type": candidate.kind,
                    "document": candidate.text,
                    "turn_time": self._time,
                    "start_time": candidate.start_time,
                    "end_time": candidate.end_time,
                },
                related=[
                    {
                        "id": row.id,
                        "document": self._memory_part(row),
                        "turn_time": row.text("turn_time"),
                        "start_time": row.text("start_time"),
                        "end_time": row.text("end_time"),
                    }
                    for row in related
                ],
            )
        )
        operation: dict[str, JsonValue] = {"formation": self._formation, "update": self._id("op")}
        for call in tool_calls(answer):
            self._execute(call, candidate, operation)

    def _memory_part(self, row: Row) -> str:
        """What a neighbour says; the published one splits its document, whatever is inside."""
        return split_document(row.document)[0] if self._policy.paper else row.memory

    def _execute(
        self, call: ToolCall, candidate: Candidate, operation: dict[str, JsonValue]
    ) -> None:
        rows = self._state[candidate.collection]
        text, row_id = call.text("document"), call.text("id")
        match call.name:
            case "add_item" if text:
                self._put(self._id(candidate.collection), text, None, call, candidate, operation)
            case "update_item" if text and row_id:
                # An id that is not there makes a new row, as the published upsert does.
                self._put(row_id, text, rows.get(row_id), call, candidate, operation)
            case "delete_item" if row_id:
                rows.delete(row_id)

    def _put(
        self,
        row_id: str,
        text: str,
        old: Row | None,
        call: ToolCall,
        candidate: Candidate,
        operation: dict[str, JsonValue],
    ) -> None:
        paper = self._policy.paper
        start = "" if paper else call.text("start_time") or candidate.start_time
        end = "" if paper else call.text("end_time") or candidate.end_time
        turns = union(old.sources if old else (), [self._raw], paper=paper and old is not None)
        metadata: dict[str, JsonValue] = {
            "turn_time": self._time,
            "start_time": start,
            "end_time": end,
            "original_turns": list(turns),
            "memory_content": text,
            "source_turn_ids": [*(old.list("source_turn_ids") if old else []), [self._turn]],
            "op_ids": [*(old.list("op_ids") if old else []), operation],
            "id": row_id,
            "col_name": self._column(candidate.collection),
        }
        row = Row(row_id, text, self._moment, turns, metadata)
        self._state[candidate.collection].upsert(row)
