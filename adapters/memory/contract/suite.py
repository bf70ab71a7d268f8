"""Running the contract: every check on fresh stores, none of them hiding another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from adapters.memory.contract import content, persistence, retrieval, separation
from adapters.memory.contract.bench import Bench, CheckResult, NotApplicable, Violation
from adapters.memory.contract.network import NetworkBlocked, NetworkGuard
from adapters.memory.registry import Registry
from memprobe.errors import MissingPrerequisite
from memprobe.ports import Embedder, MemorySystem
from memprobe.systems import ModelAccess, SystemCard
from memprobe.types import Protocol

Check = Callable[[Bench], Awaitable[None]]

# `empty_store` comes first: whatever a system keeps outside its objects is still empty then.
CHECKS: dict[str, Check] = {
    "empty_store": content.empty_store,
    "isolation": separation.isolation,
    "dump_complete": content.dump_complete,
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
    detail = (check.__doc__ or name).partition("\n")[0]
    try:
        try:
            async with asyncio.timeout(bench.time_limit):
                await check(bench)
        finally:
            await bench.close_all()
        passed = True
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
    return CheckResult(name, passed, detail, time.perf_counter() - started, skipped)


async def check_system(
    factory: Callable[[], MemorySystem],
    card: SystemCard,
    *,
    workdir: Path,
    spec: str | None = None,
    ks: Sequence[int] = (1, 3, 5, 10),
    items: int = 500,
    protocol: Protocol = Protocol.STRICT,
    models: ModelAccess | None = None,
    time_limit: float = 900.0,
    on_result: Callable[[CheckResult], None] | None = None,
) -> list[CheckResult]:
    """Hold a system to the contract; one result a check, in a fixed order.

    `factory` makes an unopened store object; `spec` is the name by which a new
    process finds the system (without it the restore is checked in this one).
    `items` is how many facts the completeness check writes, `time_limit` the
    seconds one check may take. While it runs, the process reaches nothing beyond
    loopback, except what `network.trusted` covers.
    """
    bench = Bench(
        factory=factory,
        card=card,
        workdir=workdir,
        spec=spec,
        protocol=protocol,
        models=models,
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
    models: ModelAccess | None = None,
    ks: Sequence[int] = (1, 3, 5, 10),
    items: int = 500,
    time_limit: float = 900.0,
    on_result: Callable[[CheckResult], None] | None = None,
) -> list[CheckResult]:
    """`check_system` for a name as the command line takes it.

    Raises `UsageError` or `AdapterError` when the system cannot be loaded, and
    `MissingPrerequisite` when it needs a language model and `models` is None.
    """
    registry = Registry(
        embedder, protocol, (lambda system, user: models) if models is not None else None
    )
    card = registry.card(spec)
    if card.capabilities.needs_llm and models is None:
        raise MissingPrerequisite(f"{card.name} needs a language model to be checked: --model M")
    return await check_system(
        lambda: registry.create(spec, "contract"),
        card,
        workdir=workdir,
        spec=spec,
        ks=ks,
        items=items,
        protocol=protocol,
        models=models,
        time_limit=time_limit,
        on_result=on_result,
    )
