from __future__ import annotations

import asyncio

from adapters.models.limits import AdaptiveLimit


async def test_slots_survive_callers_that_give_up_while_queueing() -> None:
    limit = AdaptiveLimit(2)
    await limit.acquire()
    await limit.acquire()
    queued = [asyncio.create_task(limit.acquire()) for _ in range(4)]
    await asyncio.sleep(0)
    # One leaves just as a slot comes free for it, one while it is still far back.
    queued[0].cancel()
    queued[2].cancel()
    limit.release()
    results = await asyncio.gather(queued[0], queued[1], queued[2], return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1] == 0
    assert limit.active == 2
    limit.release()
    await queued[3]
    limit.release()
    limit.release()
    assert limit.active == 0


async def test_a_slot_handed_to_someone_who_was_cancelled_is_given_back() -> None:
    limit = AdaptiveLimit(1)
    await limit.acquire()
    queued = asyncio.create_task(limit.acquire())
    await asyncio.sleep(0)
    limit.release()
    queued.cancel()
    await asyncio.gather(queued, return_exceptions=True)
    assert limit.active == 0


async def test_one_overload_is_one_step_down() -> None:
    limit = AdaptiveLimit(10)
    generations = [await limit.acquire() for _ in range(10)]
    for generation in generations:
        limit.overloaded(generation)
    assert limit.limit == 7
    for _ in range(100):
        limit.succeeded()
    assert limit.limit == 10
    for _ in range(100):
        limit.overloaded(limit._generation)
    assert limit.limit == 1
