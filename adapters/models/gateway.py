"""The model gateway: every question to every model goes through here, once.

A question has a key. A finished completion of that key is in the ledger and is
replayed; the same question asked twice at the same time is sent once; anything
else is sent through `Sender`. Reading the answer is a pure function over the
stored completion, so a replay ends as the first time did. An object belongs to
one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from adapters.models import questions, structured
from adapters.models.prices import price_of
from adapters.models.provider import FaultKind, Provider, ProviderFault
from adapters.models.questions import Question, Salt
from adapters.models.retry import RetryPolicy
from adapters.models.sender import Sender, Ticket
from memprobe.chat import ChatReply, ChatRequest
from memprobe.config import RunConfig
from memprobe.errors import BudgetExceeded, CallFailed
from memprobe.outcomes import Reason
from memprobe.text import sanitize
from memprobe.types import Asker, Role
from storage.ledger import Ask, Ledger, LedgerEntry

LANDING_S = 30.0
"""How long a gateway that closes waits for answers that are on the wire."""


def _seen(task: asyncio.Task[LedgerEntry]) -> None:
    """Take note of how a flight ended that nobody waits for, so that asyncio does not complain."""
    if not task.cancelled():
        task.exception()


@dataclass(frozen=True, slots=True)
class Reading:
    """What a stored completion says: an answer, or the reason why there is none."""

    text: str = ""
    value: BaseModel | None = None
    repaired: bool = False
    sanitized: bool = False
    reason: Reason | None = None
    detail: str = ""


def read(entry: LedgerEntry, kind: type[BaseModel] | None) -> Reading:
    """The answer in a completion. Never an empty one, and never one that was cut off."""
    usage = entry.usage
    if entry.refusal:
        return Reading(reason=Reason.REFUSAL, detail=entry.refusal[:400])
    if entry.finish_reason == "content_filter":
        return Reading(reason=Reason.REFUSAL, detail="stopped by the provider's content filter")
    if entry.finish_reason == "length":
        thought = f", {usage.reasoning_tokens} of them reasoning" if usage.reasoning_tokens else ""
        detail = f"cut off after {usage.completion_tokens} completion tokens{thought}"
        return Reading(reason=Reason.TRUNCATED, detail=detail)
    text = entry.text or ""
    if not text.strip():
        return Reading(reason=Reason.INVALID_OUTPUT, detail="the answer is empty")
    if kind is None:
        return Reading(text=text)
    try:
        parsed = structured.parse(text, kind)
    except structured.InvalidAnswer as error:
        return Reading(text=text, reason=Reason.INVALID_OUTPUT, detail=sanitize(str(error))[0])
    return Reading(text, parsed.value, parsed.repaired, parsed.sanitized)


def _refused(failed: CallFailed) -> bool:
    """The provider turned the request itself down."""
    error: BaseException | None = failed
    while error is not None and not isinstance(error, ProviderFault):
        error = error.__cause__
    return error is not None and error.kind in (FaultKind.BAD_REQUEST, FaultKind.REJECTED_PARAM)


@dataclass(frozen=True, slots=True)
class _Asks:
    """One asker's interest in one question."""

    question: Question
    asker: Asker
    prompt: str
    attempt: int

    def reading(self, entry: LedgerEntry) -> Reading:
        """How the completion reads for them; a library reads its own calls itself."""
        if self.question.raw is not None:
            return Reading(text=entry.text or "")
        return read(entry, self.question.answer)

    def ended(self, reading: Reading, hit: bool) -> Ask:
        """The row for a call that was finished."""
        outcome = reading.reason.value if reading.reason else "ok"
        return self._row(hit, outcome, reading.detail, reading.repaired)

    def failed(self, failure: CallFailed) -> Ask:
        """The row for a call that brought no completion."""
        return self._row(False, failure.reason.value, failure.detail, False)

    def _row(self, hit: bool, outcome: str, detail: str, repaired: bool) -> Ask:
        question = self.question
        return Ask(
            key=question.key,
            asker=self.asker,
            role=question.role,
            model=question.model,
            prompt=self.prompt,
            attempt=self.attempt,
            ledger_hit=hit,
            outcome=outcome,
            detail=detail,
            repaired=repaired,
        )


@dataclass(slots=True)
class _Flight:
    """A question on its way, and how many wait for it."""

    task: asyncio.Task[LedgerEntry]
    ticket: Ticket
    waiting: int = 0

    def give_up(self) -> bool:
        """Nobody wants the answer any more: no further attempt, but what was sent lands.

        Tells whether the flight ended by it, so that nobody may join it.
        """
        self.ticket.wanted = False
        return not self.ticket.sent and self.task.cancel()


@dataclass(slots=True)
class Tally:
    """What this process used."""

    hits: int = 0
    prompt: int = 0
    completion: int = 0
    cost: float = 0.0
    priced: bool = True

    def add(self, entry: LedgerEntry, replayed: bool) -> None:
        """Count an answer; what was replayed cost nothing."""
        if replayed:
            self.hits += 1
            return
        self.prompt += entry.usage.prompt_tokens or 0
        self.completion += entry.usage.completion_tokens or 0
        self.cost += entry.cost_usd or 0.0
        self.priced = self.priced and entry.cost_usd is not None


class Gateway:
    """`ChatModel` over a ledger and providers.

    `providers` maps a model string's prefix (`embedded`) to a provider; `"*"`
    answers for all others and is litellm when absent. `prices` is replaceable
    for tests.
    """

    def __init__(
        self,
        config: RunConfig,
        ledger: Ledger,
        providers: Mapping[str, Provider],
        *,
        policy: RetryPolicy | None = None,
        prices: Any = price_of,
    ) -> None:
        self.config = config
        self.ledger = ledger
        self._providers = {name.rstrip("/"): provider for name, provider in providers.items()}
        self._sender = Sender(config, ledger, policy or RetryPolicy(), prices)
        self._tally = Tally()
        self._flights: dict[str, _Flight] = {}

    @property
    def new_calls(self) -> int:
        """Completions that this process got from a provider, not from the ledger."""
        return self._sender.new_calls

    def share_budget(self) -> None:
        """Keep `max_cost` over all processes that work on the run.

        Each reads the ledger's sum about once a second; the limit can be passed
        by what the others have in flight, and by no more.
        """
        self._sender.share_budget()

    def usage(self) -> tuple[int, int, int, int, float | None]:
        """Sent calls, answers from the ledger, prompt and completion tokens, and dollars.

        Of this process; dollars are None as soon as one call's price is unknown.
        """
        t = self._tally
        return self.new_calls, t.hits, t.prompt, t.completion, t.cost if t.priced else None

    @property
    def dropped_params(self) -> dict[str, dict[str, str | None]]:
        """Parameters a model rejected: model -> parameter -> what it is called instead, or None."""
        return self._sender.dropped

    @property
    def limits(self) -> dict[str, float]:
        """The connection limit of each remote provider as it stands."""
        return {name: limit.limit for name, limit in self._sender.limits.items()}

    def model_for(self, role: Role) -> str:
        """The model string that answers this role."""
        return self.config.model_of(role)

    def window_for(self, role: Role) -> int | None:
        """The role's context window in tokens; None when unknown or without limit.

        One that is set holds for an embedded reader, too, which has none of its own.
        """
        model = self.model_for(role)
        if self.config.context_window is not None:
            return self.config.context_window
        return self.provider_of(model).window(model)

    def count_tokens(self, role: Role, text: str) -> int:
        """Tokens of a text as the role's model counts them."""
        model = self.model_for(role)
        return self.provider_of(model).count_tokens(model, text)

    def provider_of(self, model: str) -> Provider:
        """The provider that answers a model string."""
        prefix = model.partition("/")[0]
        provider = self._providers.get(prefix) or self._providers.get("*")
        if provider is None:
            from adapters.models.litellm_provider import LitellmProvider

            provider = self._providers["*"] = LitellmProvider()
        return provider

    async def ask(self, request: ChatRequest) -> ChatReply:
        """One answer, after at most one retry with more room and one corrective retry.

        Raises `CallFailed` with the reason; `UsageError` when a cost limit is set
        and the model's price is unknown.
        """
        model = self.model_for(request.role)
        provider = self.provider_of(model)
        salt = Salt(provider.salt, request.asker.system if self.config.independent else "")
        question = questions.from_request(request, model, salt)
        # An embedded model gives the same answer again, whatever it is told about it.
        may_enlarge = may_correct = not model.startswith("embedded/")
        attempt = 1
        cut = ""
        while True:
            asks = _Asks(question, request.asker, request.prompt, attempt)
            try:
                entry, hit = await self._completion(question, asks)
            except CallFailed as failed:
                if cut and _refused(failed):
                    # More room than the model has was no outage: the answer stays cut off.
                    raise CallFailed(Reason.TRUNCATED, cut, question.key) from failed
                raise
            reading = read(entry, request.answer)
            if hit:
                self.ledger.note_nowait(asks.ended(reading, hit))
            if reading.reason is None:
                return ChatReply(
                    call_id=question.key,
                    model=model,
                    text=reading.text,
                    value=reading.value,
                    usage=entry.usage,
                    repaired=reading.repaired,
                    sanitized=reading.sanitized or question.sanitized or "sanitized" in entry.flags,
                    replayed=hit,
                )
            if reading.reason is Reason.TRUNCATED and may_enlarge:
                may_enlarge, cut = False, reading.detail
                question = questions.enlarged(question, entry.usage.completion_tokens, salt)
            elif reading.reason is Reason.INVALID_OUTPUT and may_correct:
                may_correct = False
                question = questions.corrected(question, reading.text, reading.detail, salt)
            else:
                raise CallFailed(reading.reason, reading.detail, question.key)
            attempt += 1

    async def complete_raw(self, question: Question, asker: Asker, prompt: str) -> LedgerEntry:
        """A library's own call, as it stands: priced, limited, recorded and replayed, not read."""
        asks = _Asks(question, asker, prompt, 1)
        entry, hit = await self._completion(question, asks)
        if hit:
            self.ledger.note_nowait(asks.ended(asks.reading(entry), hit))
        return entry

    def salt_for(self, model: str, asker: Asker) -> Salt:
        """What else is part of this asker's keys."""
        system = asker.system if self.config.independent else ""
        return Salt(self.provider_of(model).salt, system)

    async def _completion(self, question: Question, asks: _Asks) -> tuple[LedgerEntry, bool]:
        """The finished completion of a question, and whether it was there already."""
        stored = self.ledger.get(question.key, messages=False)
        if stored is not None:
            self._tally.add(stored, replayed=True)
            return stored, True
        flight = self._flights.get(question.key)
        joined = flight is not None
        if flight is None:
            ticket = Ticket()
            task = asyncio.create_task(self._fly(question, asks, ticket))
            flight = self._flights[question.key] = _Flight(task, ticket)
        flight.waiting += 1
        flight.ticket.wanted = True
        try:
            entry = await asyncio.shield(flight.task)
            self._tally.add(entry, joined)
            return entry, joined
        except BudgetExceeded:
            raise
        except CallFailed as failure:
            self.ledger.note_nowait(asks.failed(failure))
            raise CallFailed(failure.reason, failure.detail, question.key) from failure
        finally:
            flight.waiting -= 1
            if flight.waiting == 0 and not flight.task.done():
                flight.task.add_done_callback(_seen)
                if flight.give_up() and self._flights.get(question.key) is flight:
                    del self._flights[question.key]

    async def _fly(self, question: Question, asks: _Asks, ticket: Ticket) -> LedgerEntry:
        provider = self.provider_of(question.model)
        try:
            return await self._sender.send(
                question, provider, lambda entry: asks.ended(asks.reading(entry), False), ticket
            )
        finally:
            flight = self._flights.get(question.key)
            if flight is not None and flight.ticket is ticket:
                del self._flights[question.key]

    async def close(self) -> None:
        """Let what was sent land, for a while; then release the providers.

        The ledger is the caller's and is closed after this.
        """
        flights = list(self._flights.values())
        for flight in flights:
            flight.give_up()
        tasks = [flight.task for flight in flights]
        if tasks:
            await asyncio.wait(tasks, timeout=min(LANDING_S, self.config.call_timeout))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for provider in self._providers.values():
            await provider.close()
