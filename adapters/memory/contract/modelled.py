"""Checks of how a system uses its language model: that failures are heard, and what it costs."""

from __future__ import annotations

import time

from adapters.memory.contract.bench import (
    Bench,
    Measured,
    NotApplicable,
    Violation,
    marker,
    message,
)
from memprobe.errors import MemProbeError
from memprobe.types import Protocol

TURNS = 30
REMARKS = (
    "I moved the {thing} to the {place} last week, and it has worked better since",
    "My sister keeps her {thing} near the {place}; I would rather not",
    "Could you help me plan around the {thing}? I am never at the {place} before nine",
    "I tried the {thing} from the {place} again and I still find it too loud",
    "For the {thing} I always ask first, then I walk over to the {place} myself",
)
THINGS = ("bicycle", "notebook", "old radio", "sewing box", "telescope", "kettle", "guitar")
PLACES = ("workshop", "library", "harbour", "garden shed", "station", "market hall")


def remark(number: int) -> str:
    """A sentence of a dialogue, of ordinary length; no two of the thirty are alike."""
    text = REMARKS[number % len(REMARKS)]
    return text.format(thing=THINGS[number % len(THINGS)], place=PLACES[number % len(PLACES)])


async def model_failures(bench: Bench) -> None:
    """While its model is down a system says so; it never goes on with an empty memory."""
    bench.needs_stores()
    if not bench.asks or bench.broken is None:
        without = "goes without a model here" if bench.can.uses_llm else "declares needs_llm=False"
        raise NotApplicable(without)
    if bench.protocol is Protocol.PAPER:
        raise NotApplicable("under the published protocol what a system swallows stays swallowed")
    store = await bench.open("outage", make=bench.broken)
    folder = bench.folder("outage")
    try:
        # A system may gather messages before it asks anything.
        for number in range(1, TURNS + 1):
            text = f"My loft {number} has the code {marker('loft', number)}."
            await store.write(message(text, number=number))
        await store.dump()
        await store.save(folder)
    except MemProbeError:
        return
    except Exception as error:
        raise Violation(
            "a MemProbe error for a failed model call",
            f"{type(error).__name__}: {error}",
            "raise `CallFailed`, or let the error of the OpenAI client through to the run",
        ) from error
    raise Violation(
        "an error while the model is down",
        "silence: an outage would be measured as a bad memory",
        "let failed model calls raise out of `write`, `dump` or `save`",
    )


async def cost(bench: Bench) -> None:
    """What it takes to remember thirty turns: calls, tokens, money and seconds."""
    store = await bench.open("cost")
    before = bench.models.usage() if bench.models else None
    started = time.perf_counter()
    for number in range(TURNS):
        await store.write(message(f"{remark(number)}.", number=number))
        await store.write(message("Noted, thank you.", number=number, role="assistant"))
    seconds = time.perf_counter() - started
    items = await store.dump() if bench.can.full_dump else []
    after = bench.models.usage() if bench.models else None
    used = [b - a for a, b in zip(before[:4], after[:4], strict=True)] if before and after else []
    calls, replayed, prompt, completion = used or (0, 0, 0, 0)
    dollars = None
    if before and after and before[4] is not None and after[4] is not None:
        dollars = after[4] - before[4]
    figures: dict[str, float | None] = {
        "turns": TURNS,
        "calls": calls + replayed,
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "cost_usd": dollars if bench.asks else 0.0,
        "seconds": seconds,
        "items": len(items) if bench.can.full_dump else None,
        "characters": sum(len(i.content) for i in items) if bench.can.full_dump else None,
    }
    money = "price unknown" if figures["cost_usd"] is None else f"{figures['cost_usd']:.4f} USD"
    held = f"{len(items)} items kept" if bench.can.full_dump else "no full dump"
    raise Measured(
        f"{TURNS} turns took {figures['calls']} calls, {prompt:,} + {completion:,} tokens, "
        f"{money}, {seconds:.2f} s; {held}",
        figures,
    )
