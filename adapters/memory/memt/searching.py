"""The policy's own search: thought, call, observation, for at most `max_steps` rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from adapters.memory.memt import tools
from adapters.memory.memt.parsing import CLOSE, ToolCall, closed, first_call
from adapters.memory.memt.policy import Policy
from adapters.memory.memt.promptset import ANSWER, OBSERVATION, REMINDER, RETRIEVAL
from adapters.memory.memt.store import (
    EXPERIENCES,
    FACTS,
    PERSONAS,
    SUMMARY,
    TURNS,
    Row,
    State,
)

NEW_SOURCES = "----- NEW SOURCE CONTEXT -----"
NO_EXPERIENCES = "No experience was found."
NO_NEW_TURNS = "There are no new turns."
KNOWN = tools.names(tools.RETRIEVAL)

Found = tuple[str, Row]
"""Collection and row."""


def inert(text: str) -> str:
    """A memory's text inside observation tags: it closes none that we opened."""
    return text.replace("</", "<\\/")


@dataclass(slots=True)
class Trace:
    """What one search came to. `finished` is None when the rounds ran out first."""

    collected: list[Found] = field(default_factory=list)
    finished: str | None = None
    steps: int = 0


def _validity(row: Row) -> str:
    start, end, told = row.text("start_time"), row.text("end_time"), row.text("turn_time")
    held = f"{start} to {end}, " if start or end else ""
    return f"({held}extracted {told})" if told else f"({held.removesuffix(', ')})"


class Search:
    """One query over one state. Reads only, but for the published dummies of the caller."""

    def __init__(self, policy: Policy, state: State) -> None:
        self._policy = policy
        self._state = state
        self._k = policy.options.retrieval_topk
        self._seen: set[str] = set()

    async def run(self, query: str) -> Trace:
        """All rows that the rounds brought, in the order of first appearance."""
        prompts, trace = self._policy.prompts, Trace()
        keys: set[tuple[str, str]] = set()
        messages = prompts.messages(
            RETRIEVAL,
            tools=list(tools.RETRIEVAL),
            query=query,
            max_steps=self._policy.options.max_steps,
            # The published format selector never takes the branch that allows "unknown".
            must_answer=self._policy.paper,
        )
        while trace.steps < self._policy.options.max_steps:
            trace.steps += 1
            text = closed(await self._policy.ask(messages, stop=CLOSE))
            call = first_call(text)
            if call is not None and call.name == "finish":
                trace.finished = call.text("answer")
                return trace
            if call is None or call.name not in KNOWN:
                said = prompts.messages(REMINDER, query=query)
            else:
                found, observation = await self._observe(call)
                for name, row in found:
                    if (name, row.id) not in keys:
                        keys.add((name, row.id))
                        trace.collected.append((name, row))
                said = prompts.messages(OBSERVATION, observation=observation, query=query)
            messages = [*messages, {"role": "assistant", "content": text}, *said]
        if self._policy.options.answer_call:
            await self._answer(query, trace)
        return trace

    async def _answer(self, query: str, trace: Trace) -> None:
        """The published reply path pays for an answer that nobody reads."""
        memories = [row.memory for _, row in trace.collected]
        await self._policy.ask(
            self._policy.prompts.messages(
                ANSWER, query=query, memories=memories, must_answer=self._policy.paper
            )
        )

    async def _observe(self, call: ToolCall) -> tuple[list[Found], str]:
        query = call.text("query")
        match call.name:
            case "search_facts":
                rows = await self._state[FACTS].nearest(query, self._k)
                return self._memories(FACTS, rows, "Found Memories:", "")
            case "search_experiences":
                rows = await self._state[EXPERIENCES].nearest(query, self._k)
                return self._memories(EXPERIENCES, rows, "Found Experiences:", NO_EXPERIENCES)
            case "search_summary":
                return self._whole(SUMMARY, await self._summary(query))
            case "search_personas":
                return self._whole(PERSONAS, await self._persona(query, call.text("name")))
            case _:
                wanted = min(max(call.number("top_k", tools.TURNS_K), 1), tools.TURNS_CAP)
                return self._turns(await self._state[TURNS].nearest(query, wanted))

    async def _summary(self, query: str) -> list[Row]:
        if query:
            return await self._state[SUMMARY].nearest(query, 1)
        rows = self._state[SUMMARY].rows()
        return [max(rows, key=lambda row: row.text("updated_time"))] if rows else []

    async def _persona(self, query: str, name: str) -> list[Row]:
        exact = self._state[PERSONAS].get(name) if name else None
        return [exact] if exact else await self._state[PERSONAS].nearest(query, 1)

    def _memories(
        self, name: str, rows: Sequence[Row], heading: str, empty: str
    ) -> tuple[list[Found], str]:
        if not rows:
            return [], empty
        lines = [heading, *(f"{_validity(row)} {inert(row.memory)}" for row in rows)]
        return _of(name, rows), "\n".join([*lines, *self._sources(rows)])

    def _whole(self, name: str, rows: Sequence[Row]) -> tuple[list[Found], str]:
        lines = [inert(row.memory) for row in rows]
        return _of(name, rows), "\n".join([*lines, *self._sources(rows)])

    def _turns(self, rows: Sequence[Row]) -> tuple[list[Found], str]:
        fresh = self._unseen(row.memory for row in rows)
        # Published turns have no `memory_content`, and what has none is not collected.
        found = [] if self._policy.paper else _of(TURNS, rows)
        if not fresh:
            return found, NO_NEW_TURNS
        return found, "\n".join(["Relevant Turns:", *map(inert, fresh)])

    def _sources(self, rows: Sequence[Row]) -> list[str]:
        fresh = self._unseen(turn for row in rows for turn in row.sources)
        return ["", NEW_SOURCES, *map(inert, fresh)] if fresh else []

    def _unseen(self, turns: Iterable[str]) -> list[str]:
        """Messages that this query has not shown yet; they count as shown from now on."""
        fresh = [turn for turn in dict.fromkeys(turns) if turn not in self._seen]
        self._seen.update(fresh)
        return fresh


def _of(name: str, rows: Sequence[Row]) -> list[Found]:
    return [(name, row) for row in rows if not row.is_dummy]
