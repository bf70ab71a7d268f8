from __future__ import annotations

import asyncio

from adapters.models.limits import AdaptiveLimit, Urgency


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


async def test_a_dialogue_goes_before_measurements_and_those_before_what_nobody_waits_for() -> None:
    limit = AdaptiveLimit(1)
    await limit.acquire()
    order: list[Urgency] = []

    async def call(urgency: Urgency) -> None:
        await limit.acquire(urgency)
        order.append(urgency)
        limit.release(urgency)

    asked = [Urgency.BESIDE, Urgency.NORMAL, Urgency.DIALOGUE, Urgency.NORMAL, Urgency.DIALOGUE]
    calls = [asyncio.create_task(call(urgency)) for urgency in asked]
    await asyncio.sleep(0)
    limit.release()
    await asyncio.gather(*calls)
    assert order == sorted(asked)
    assert limit.active == 0


async def test_what_nobody_waits_for_has_a_quarter_beside_others_and_all_when_alone() -> None:
    limit = AdaptiveLimit(8)
    await limit.acquire(Urgency.DIALOGUE)
    beside = [asyncio.create_task(limit.acquire(Urgency.BESIDE)) for _ in range(12)]
    await asyncio.sleep(0)
    assert limit.active == 3
    await limit.acquire(Urgency.NORMAL)
    limit.release(Urgency.NORMAL)
    assert limit.active == 3
    limit.release(Urgency.DIALOGUE)
    assert limit.active == 8
    for _ in range(12):
        await asyncio.sleep(0)
        limit.release(Urgency.BESIDE)
    await asyncio.gather(*beside)
    assert limit.active == 0
