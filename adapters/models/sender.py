"""Getting one completion out of a provider: limits, retries, rejected parameters, price."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from adapters.models.budget import Budget
from adapters.models.limits import AdaptiveLimit, Slot, urgency_of
from adapters.models.prices import Price
from adapters.models.provider import (
    Completion,
    CompletionCall,
    FaultKind,
    Provider,
    ProviderFault,
)
from adapters.models.questions import Question, raw_messages, schema_of, with_schema_text
from adapters.models.redaction import redact, without_keys
from adapters.models.retry import RetryPolicy
from memprobe.config import RunConfig
from memprobe.errors import CallFailed
from memprobe.outcomes import Reason
from memprobe.text import sanitize
from memprobe.types import Message, Role
from storage.ledger import Ask, Ledger, LedgerEntry

RENAMED = {"max_tokens": "max_completion_tokens"}
SCHEMA = "response_format"
MAX_DETAIL = 500

PriceOf = Callable[[str], Price | None]


@dataclass(slots=True)
class _Flight:
    """Where a call stands: when it began, what it waited, what went wrong."""

    started: float
    wait_s: float = 0.0
    queue_s: float = 0.0
    retries: int = 0
    failures: int = 0
    last: ProviderFault | None = None


@dataclass(slots=True)
class Ticket:
    """Whether anybody still waits for an answer, and whether its request is on the wire.

    What is on the wire is paid for: it lands and is stored, wanted or not.
    """

    wanted: bool = True
    sent: bool = False


class Sender:
    """Sends questions and stores what comes back before anybody uses it."""

    def __init__(
        self, config: RunConfig, ledger: Ledger, policy: RetryPolicy, prices: PriceOf
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._policy = policy
        self._prices = prices
        self._budget = Budget(config.max_cost, lambda: ledger.spent(config.name))
        self.limits: dict[str, AdaptiveLimit] = {}
        self.dropped: dict[str, dict[str, str | None]] = {}
        self.new_calls = 0

    def share_budget(self) -> None:
        """See `Gateway.share_budget`."""
        self._budget.shared = True

    async def send(
        self,
        question: Question,
        provider: Provider,
        asking: Callable[[LedgerEntry], Ask],
        ticket: Ticket | None = None,
    ) -> LedgerEntry:
        """The stored completion; raises `CallFailed` when there is none to be had.

        `asking` tells who asked and how it ended for them; that row is committed
        together with the completion, so a killed run still knows what it paid for.
        """
        price = self._prices(question.model)
        with self._budget.reserve(
            question.model,
            price,
            lambda: sum(
                provider.count_tokens(question.model, m.content) for m in question.messages
            ),
            question.params.get("max_tokens"),
        ):
            flight = _Flight(self._policy.clock())
            if question.model.startswith("embedded/"):
                # Nothing is sent anywhere: no limit, no deadline, no second try.
                call = self._call(question)
                begun = self._policy.clock()
                try:
                    completion = await provider.complete(call)
                except ProviderFault as fault:
                    raise self._failed(question, flight, fault) from fault
                latency = self._policy.clock() - begun
            else:
                call, completion, latency = await self._remote(
                    question, provider, flight, ticket or Ticket()
                )
            self.new_calls += 1
            entry = self._entry(question, call, completion, price, flight, latency)
            self._budget.pay(entry.cost_usd)
            if not await self._ledger.put(entry, asking(entry)):
                # Another process was first; both go on with the same answer.
                first = self._ledger.get(question.key, messages=False)
                return first if first is not None else entry
            return entry

    async def _remote(
        self, question: Question, provider: Provider, flight: _Flight, ticket: Ticket
    ) -> tuple[CompletionCall, Completion, float]:
        policy = self._policy
        prefix = question.model.partition("/")[0]
        limit = self.limits.get(prefix)
        if limit is None:
            limit = self.limits[prefix] = AdaptiveLimit(self._config.max_connections)
        timeout = self._config.call_timeout
        while True:
            queued = policy.clock()
            async with Slot(limit, urgency_of(question.role)) as slot:
                if not ticket.wanted:
                    raise asyncio.CancelledError
                begun = policy.clock()
                # Time spent queueing for a slot is our own doing and has no deadline.
                flight.queue_s += begun - queued
                flight.wait_s += begun - queued
                call = self._call(question)
                ticket.sent = True
                try:
                    async with asyncio.timeout(timeout):
                        completion = await provider.complete(call)
                    limit.succeeded()
                    return call, completion, policy.clock() - begun
                except TimeoutError:
                    fault = ProviderFault(FaultKind.TIMEOUT, f"no answer in {timeout:g} s")
                except ProviderFault as error:
                    fault = error
                # An answer stays on the wire until it is stored; a failed attempt is over.
                ticket.sent = False
                if fault.kind is FaultKind.RATE_LIMIT:
                    limit.overloaded(slot.generation)
            flight.last = fault
            if fault.kind is FaultKind.REJECTED_PARAM and self._drop(question, call, fault.param):
                continue
            flight.retries += 1
            if fault.kind is not FaultKind.RATE_LIMIT:
                flight.failures += 1
            if policy.gives_up(fault, flight.failures):
                raise self._failed(question, flight, fault) from fault
            delay = policy.delay(fault, flight.retries)
            active = policy.clock() - flight.started - flight.queue_s
            if active + delay > timeout * policy.deadline_factor:
                late = ProviderFault(
                    FaultKind.TIMEOUT,
                    f"given up after {active:.1f} s and {flight.retries} attempts; "
                    f"last: {fault.kind.value}: {fault.detail}",
                )
                raise self._failed(question, flight, late) from fault
            await policy.sleep(delay)
            flight.wait_s += delay

    def _call(self, question: Question) -> CompletionCall:
        """The call as this model takes it, by what it has rejected so far."""
        dropped = self.dropped.get(question.model, {})
        params: dict[str, Any] = {}
        for name, value in question.params.items():
            known = dropped.get(name, name)
            if known is not None and dropped.get(known, known) is not None:
                params[known] = value
        plain = SCHEMA in dropped
        schema = schema_of(question.answer)[0] if question.answer and not plain else None
        raw = None
        if question.raw is not None:
            raw = raw_messages(question, plain)
        return CompletionCall(
            model=question.model,
            messages=with_schema_text(question) if plain else question.messages,
            params=params,
            json_schema=schema,
            timeout_s=self._config.call_timeout,
            role=question.role,
            variables=question.variables,
            replicate=question.replicate,
            raw_messages=raw,
        )

    def _drop(self, question: Question, call: CompletionCall, param: str | None) -> bool:
        """Remember a rejected parameter; False when it was not in the call that was rejected."""
        sent = set(call.params) | ({SCHEMA} if call.json_schema is not None else set())
        if param not in sent:
            return False
        known = self.dropped.setdefault(question.model, {})
        known[param] = RENAMED.get(param)
        return True

    def _entry(
        self,
        question: Question,
        call: CompletionCall,
        completion: Completion,
        price: Price | None,
        flight: _Flight,
        latency: float,
    ) -> LedgerEntry:
        flags = list(completion.flags)
        text, refusal = completion.text, completion.refusal
        if completion.tool_calls:
            import json

            message = {"content": text, "tool_calls": [dict(t) for t in completion.tool_calls]}
            text = json.dumps(message, ensure_ascii=False)
            flags.append("tool_calls")
        replaced = question.sanitized
        if text is not None:
            text, changed = sanitize(without_keys(text))
            replaced = replaced or changed
        if refusal is not None:
            refusal = sanitize(without_keys(refusal))[0]
        if replaced:
            flags.append("sanitized")
        params = dict(call.params)
        if question.answer is not None:
            params[SCHEMA] = "json_schema" if call.json_schema is not None else "instruction"
        return LedgerEntry(
            key=question.key,
            model=question.model,
            messages=tuple(Message(role=m.role, content=m.content) for m in call.messages),
            params=params,
            text=text,
            finish_reason=completion.finish_reason,
            refusal=refusal,
            usage=completion.usage,
            cost_usd=price.cost(completion.usage) if price is not None else None,
            price_date=price.date if price is not None else None,
            latency_s=latency,
            wait_s=flight.wait_s,
            retries=flight.retries,
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            flags=tuple(dict.fromkeys(flags)),
        )

    def _failed(self, question: Question, flight: _Flight, fault: ProviderFault) -> CallFailed:
        reasons = {
            FaultKind.TIMEOUT: Reason.TIMEOUT,
            FaultKind.CONTENT_POLICY: Reason.REFUSAL,
            FaultKind.NOT_JUDGED: Reason.NOT_JUDGED,
            FaultKind.DATASET: Reason.DATASET_ERROR,
        }
        reason = reasons.get(fault.kind, Reason.PROVIDER_ERROR)
        if fault.kind is FaultKind.CONTEXT_WINDOW and question.role in (
            Role.SLOT_FILL,
            Role.READER,
            # A memory that asks its model more than fits does so again on every resume.
            Role.MEMORY,
        ):
            reason = Reason.STORE_OVERFLOW
        tries = f" (after {flight.retries} attempts)" if flight.retries > 1 else ""
        detail = sanitize(redact(fault.detail))[0][:MAX_DETAIL]
        return CallFailed(reason, f"{question.model}: {fault.kind.value}: {detail}{tries}")
