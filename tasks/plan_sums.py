"""The sums behind an estimate: calls and tokens by stage, system and role, and their price."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from memprobe.config import RunConfig
from memprobe.systems import ModelWork, SystemCard
from memprobe.types import Role
from tasks import plan_assumptions as assumed
from tasks.prompt_sizes import CHARS_PER_TOKEN


class Priced(Protocol):
    """US dollars a token, as `adapters.models.prices.Price` has them."""

    @property
    def prompt(self) -> float: ...
    @property
    def cached(self) -> float: ...
    @property
    def completion(self) -> float: ...
    @property
    def date(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PlanRow:
    """Calls of one role in one stage with one system; `cost_usd` None = unknown price."""

    stage: str
    system: str
    role: str
    model: str
    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The estimate. `critical_path_s` is the longest user's chain of dependent calls,
    `wall_s` the larger of that and what the connections let through.
    """

    suite: str
    users: int
    users_measured: int
    systems: tuple[str, ...]
    rows: tuple[PlanRow, ...]
    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: float | None
    unknown_prices: tuple[str, ...]
    critical_path_s: float
    wall_s: float
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


@dataclass(slots=True)
class Sums:
    calls: float = 0.0
    prompt: float = 0.0
    cached: float = 0.0
    completion: float = 0.0
    seconds: float = 0.0


@dataclass
class Tally:
    """What a run will ask for; `chains` are the seconds of each chain of dependent calls."""

    config: RunConfig
    sums: dict[tuple[str, str, Role], Sums] = field(default_factory=dict)
    chains: list[float] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)

    def seconds(self, role: Role, completion: float) -> float:
        """Assumed latency of one call."""
        if self.config.model_of(role).startswith("embedded/"):
            return assumed.EMBEDDED_LATENCY_S
        return assumed.LATENCY_S + completion / assumed.TOKENS_PER_S

    def add(
        self,
        stage: str,
        system: str,
        role: Role,
        calls: float,
        prompt: float,
        completion: float,
        cached: float = 0.0,
    ) -> float:
        """Count calls with total prompt tokens and completion tokens a call; returns a latency."""
        sums = self.sums.setdefault((stage, system, role), Sums())
        latency = self.seconds(role, completion)
        sums.calls += calls
        sums.prompt += prompt
        sums.cached += cached
        sums.completion += calls * completion
        sums.seconds += calls * latency
        return latency

    def asks(self, card: SystemCard) -> bool:
        """Whether a system asks a language model on its own in this run."""
        if card.capabilities.needs_llm:
            return True
        given = not self.config.model_of(Role.MEMORY).startswith("embedded/")
        return card.capabilities.uses_llm and given

    def memory_work(
        self, stage: str, card: SystemCard, work: ModelWork | None, times: float
    ) -> float:
        """A system's own calls for so many messages or searches; returns the seconds of one."""
        if work is None or not times or not self.asks(card):
            return 0.0
        if self.config.model_of(Role.MEMORY).startswith("embedded/"):
            self.notes[
                f"{card.name} needs a language model: pass --model; a run without one is refused"
            ] = None
            return 0.0
        calls = times * work.calls
        latency = self.add(
            stage,
            card.name,
            Role.MEMORY,
            calls,
            calls * work.prompt_tokens,
            work.completion_tokens,
        )
        return work.calls * latency

    def unknown_work(self, card: SystemCard) -> None:
        """Note a system that asks a model on its own, as often as nobody knows."""
        if card.per_message is None and self.asks(card):
            self.notes[
                f"{card.name} asks a model on its own ({self.config.model_of(Role.MEMORY)}) for "
                "every message; those calls are not in the estimate"
            ] = None


def plan_of(
    work: Tally,
    systems: Sequence[str],
    measured: int,
    total: int,
    price: Callable[[str], Priced | None],
    notes: Sequence[str],
) -> Plan:
    """The sums as a plan; of `total` users `measured` were looked at."""
    config = work.config
    rows = []
    prices: dict[str, Priced | None] = {}
    for (stage, system, role), sums in work.sums.items():
        model = config.model_of(role)
        if model not in prices:
            prices[model] = price(model)
        rows.append(_row(stage, system, role, model, sums, prices[model]))
    unknown = tuple(sorted(model for model, found in prices.items() if found is None))
    cost = None if unknown else sum(row.cost_usd or 0.0 for row in rows)
    critical = max(work.chains, default=0.0)
    chains = sum(work.chains) * total / measured * config.epochs / assumed.MAX_CHAINS
    wall = max(critical, chains, *_through(work).values())
    return Plan(
        suite=config.suite,
        users=total,
        users_measured=measured,
        systems=tuple(systems),
        rows=tuple(rows),
        calls=sum(row.calls for row in rows),
        prompt_tokens=sum(row.prompt_tokens for row in rows),
        cached_tokens=sum(row.cached_tokens for row in rows),
        completion_tokens=sum(row.completion_tokens for row in rows),
        cost_usd=cost,
        unknown_prices=unknown,
        critical_path_s=critical,
        wall_s=wall,
        notes=(*notes, *_notes(work, prices), *work.notes),
    )


def _row(
    stage: str, system: str, role: Role, model: str, sums: Sums, price: Priced | None
) -> PlanRow:
    cost = None
    if price is not None:
        fresh = sums.prompt - sums.cached
        cost = (
            fresh * price.prompt + sums.cached * price.cached + sums.completion * price.completion
        )
    return PlanRow(
        stage=stage,
        system=system,
        role=role.value,
        model=model,
        calls=round(sums.calls),
        prompt_tokens=round(sums.prompt),
        cached_tokens=round(sums.cached),
        completion_tokens=round(sums.completion),
        cost_usd=cost,
    )


def _through(work: Tally) -> dict[str, float]:
    """Seconds that each provider needs for all its calls; the embedded one has one worker."""
    out: dict[str, float] = {"": 0.0}
    for (_, _, role), sums in work.sums.items():
        provider = work.config.model_of(role).partition("/")[0]
        width = 1 if provider == "embedded" else work.config.max_connections
        out[provider] = out.get(provider, 0.0) + sums.seconds / width
    return out


def _notes(work: Tally, prices: Mapping[str, Priced | None]) -> list[str]:
    notes = []
    if any(sums.cached for sums in work.sums.values()):
        notes.append(
            "cached tokens are the memory that a store's prompts share; whether they are "
            "billed as cached is up to the provider"
        )
    for model, found in sorted(prices.items()):
        if found is None:
            notes.append(f"the price of {model} is unknown, and so is the sum")
        elif not model.startswith("embedded/"):
            notes.append(
                f"{model}: ${found.prompt * 1e6:g} in, ${found.cached * 1e6:g} cached, "
                f"${found.completion * 1e6:g} out a million tokens ({found.date})"
            )
    return notes


def estimated(what: str) -> str:
    """The first note of every plan: what it assumes."""
    return (
        f"an estimate: {what}{CHARS_PER_TOKEN} characters a token, "
        f"{assumed.LATENCY_S:g} s and {assumed.TOKENS_PER_S:g} tokens/s a call; reasoning tokens "
        "and retries come on top, calls that the ledger knows are free"
    )
