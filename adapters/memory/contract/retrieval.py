"""Checks of `search`."""

from __future__ import annotations

import math

from adapters.memory.contract.bench import Bench, NotApplicable, Violation, marker, message


async def k_honoured(bench: Bench) -> None:
    """A search gives at most `k` items, the nearest first, and never nothing from a full store."""
    bench.needs_stores()
    if not bench.can.top_k:
        raise NotApplicable("declares top_k=False")
    store = await bench.open("k")
    total = max(bench.ks) + 5
    for i in range(total):
        # Where a session may be one item, one of them would hold all.
        session = f"s{i:04d}" if bench.can.sessions else "s0001"
        text = f"My box {i} has the code {marker('box', i)}."
        await store.write(message(text, number=i, session=session))
    for k in bench.ks:
        items = await store.search("the code of my box", k)
        if len(items) > k:
            raise Violation(
                f"at most {k} items for k={k}",
                f"{len(items)}",
                "pass k on to the library and cut its answer to k",
            )
        if not items:
            raise Violation(
                f"some items for k={k} from a store of {total}", "none", "return the nearest"
            )
        scores = [item.score for item in items if item.score is not None]
        if len(scores) not in (0, len(items)) or any(not math.isfinite(s) for s in scores):
            raise Violation(
                "a finite score on every item or on none",
                str([item.score for item in items]),
                "set `score` on all items",
            )
        if scores != sorted(scores, reverse=True):
            raise Violation(
                "scores that fall (higher is nearer)",
                str([round(s, 4) for s in scores]),
                "sort by score, best first; turn a distance into a score by its negative",
            )
