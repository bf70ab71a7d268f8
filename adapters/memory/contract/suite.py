"""Running the contract: every check on fresh stores, none of them hiding another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from adapters.memory.contract import content, modelled, persistence, retrieval, separation
from adapters.memory.contract.bench import Bench, CheckResult, Measured, NotApplicable, Violation
from adapters.memory.contract.models import ContractModels
from adapters.memory.contract.network import NetworkBlocked, NetworkGuard
from adapters.memory.registry import Lines, Registry, lacks
from memprobe.errors import BudgetExceeded, MissingPrerequisite
from memprobe.ports import Embedder, MemorySystem
from memprobe.systems import SystemCard
from memprobe.types import Protocol

Check = Callable[[Bench], Awaitable[None]]

# `empty_store` comes first: whatever a system keeps outside its objects is still empty then.
CHECKS: dict[str, Check] = {
    "empty_store": content.empty_store,
    "isolation": separation.isolation,
    "dump_complete": content.dump_complete,
    "whole_sessions": content.whole_sessions,
    "event_time": content.event_time,
    "k_honoured": retrieval.k_honoured,
    "duplicates": content.duplicates,
    "unicode": content.unicode_round_trip,
    "lone_surrogate": content.lone_surrogate,
    "long_message": content.long_message,
    "label_leak": separation.label_leak,
    "concurrent_stores": separation.concurrent_stores,
    "save_restore": persistence.save_and_restore,
    "errors_surface": persistence.errors_surface,
    "model_failures": modelled.model_failures,
    "cost": modelled.cost,
}
NO_NETWORK = "no_network"


def _blocked(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, NetworkBlocked):
            return True
        error = error.__cause__ or error.__context__
    return False


async def _run(name: str, check: Check, bench: Bench) -> CheckResult:
    started = time.perf_counter()
    passed, skipped = False, False
    figures = None
    detail = (check.__doc__ or name).partition("\n")[0]
    try:
        try:
            async with asyncio.timeout(bench.time_limit):
                await check(bench)
        finally:
            await bench.close_all()
        passed = True
    except BudgetExceeded:
        raise
    except Measured as found:
        passed, detail, figures = True, str(found), found.figures
    except NotApplicable as reason:
        passed, skipped, detail = True, True, f"does not apply: {reason}"
    except TimeoutError:
        detail = (
            f"expected an end within {bench.time_limit:.0f} s; came none; fix: see where it waits"
        )
    except Exception as error:
        if _blocked(error):
            # The network is the fault, and it has a check of its own.
            passed, skipped = True, True
            detail = f"could not run without the network, see the check {NO_NETWORK}"
        elif isinstance(error, Violation):
            detail = str(error)
        else:
            detail = (
                f"expected the check to run through; came {type(error).__name__}: {error}; "
                "fix: see the traceback by running the same calls in your own test"
            )
    return CheckResult(name, passed, detail, time.perf_counter() - started, skipped, figures)


async def check_system(
    factory: Callable[[], MemorySystem],
    card: SystemCard,
    *,
    workdir: Path,
    spec: str | None = None,
    ks: Sequence[int] = (1, 3, 5, 10),
    items: int = 500,
    protocol: Protocol = Protocol.STRICT,
    models: ContractModels | None = None,
    broken: Callable[[], MemorySystem] | None = None,
    options: Mapping[str, JsonValue] | None = None,
    time_limit: float = 900.0,
    on_result: Callable[[CheckResult], None] | None = None,
) -> list[CheckResult]:
    """Hold a system to the contract; one result a check, in a fixed order.

    `factory` makes an unopened store object; `spec` is the name by which a new
    process finds the system (without it the restore is checked in this one).
    `broken` makes one whose model never answers. `items` is how many facts the
    completeness check writes, `time_limit` the seconds one check may take. While it
    runs, the process reaches nothing beyond loopback, except what `network.trusted` covers.
    """
    bench = Bench(
        factory=factory,
        card=card,
        workdir=workdir,
        spec=spec,
        protocol=protocol,
        models=models,
        broken=broken,
        options=options or {},
        ks=tuple(sorted(ks)),
        items=items,
        time_limit=time_limit,
    )
    results: list[CheckResult] = []

    def note(result: CheckResult) -> None:
        bench.passed[result.name] = result.passed
        results.append(result)
        if on_result is not None:
            on_result(result)

    started = time.perf_counter()
    with NetworkGuard(lookups=models is None) as guard:
        for name, check in CHECKS.items():
            note(await _run(name, check, bench))
    attempts = sorted({*guard.attempts, *bench.attempts})
    detail = "nothing beyond loopback was reached for"
    if attempts:
        detail = (
            f"expected no connection beyond loopback; came {', '.join(attempts[:5])}; fix: switch "
            "telemetry off, bring models along, and call language models by `services.models`"
        )
    note(CheckResult(NO_NETWORK, not attempts, detail, time.perf_counter() - started))
    return results


async def check_spec(
    spec: str,
    embedder: Embedder,
    *,
    workdir: Path,
    protocol: Protocol = Protocol.STRICT,
    models: ContractModels | None = None,
    options: Mapping[str, Mapping[str, JsonValue]] | None = None,
    ks: Sequence[int] = (1, 3, 5, 10),
    items: int = 500,
    time_limit: float = 900.0,
    on_result: Callable[[CheckResult], None] | None = None,
) -> list[CheckResult]:
    """`check_system` for a name as the command line takes it, guarded as a run guards it.

    Raises `UsageError` or `AdapterError` when the system cannot be loaded, and
    `MissingPrerequisite` when it needs a package that is not installed, or a
    language model and `models` is None.
    """

    def registry(lines: Lines | None) -> Registry:
        return Registry(
            embedder, protocol, lines, names=[spec], options=options, guarded=models is not None
        )

    working = registry(models.lines if models else None)
    working.check_options()
    failing = registry(models.broken if models else None)
    card = working.card(spec)
    if card.capabilities.needs_llm and models is None:
        raise MissingPrerequisite(f"{card.name} needs a language model to be checked: --model M")
    missing = lacks(card, models is not None)
    if missing is not None:
        raise MissingPrerequisite(missing)
    try:
        return await check_system(
            lambda: working.create(spec, "contract", "check"),
            card,
            workdir=workdir,
            spec=spec,
            ks=ks,
            items=items,
            protocol=protocol,
            models=models,
            broken=lambda: failing.create(spec, "contract", "check"),
            options=(options or {}).get(card.name, {}),
            time_limit=time_limit,
            on_result=on_result,
        )
    finally:
        for each in (working, failing):
            await asyncio.to_thread(each.close)
