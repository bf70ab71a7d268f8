"""Mem-T through the model door: what was answered once is not asked again."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.memory.memt import MemT, Options
from adapters.models.door import Door
from adapters.models.litellm_provider import LitellmProvider
from memprobe.systems import ModelAccess, Services
from memprobe.types import Asker, MemoryItem
from storage.ledger import Ledger
from tests.adapters.support import WordEmbedder, event, scope
from tests.support.fake_server import FakeServer
from tests.support.gateways import gateway, ledger_at

SAID = [f"My locker {n} has the code mk{n}; I like lockers" for n in range(6)]


async def once(ledger: Ledger, run: str) -> tuple[list[MemoryItem], list[MemoryItem], int]:
    """The dump, what a search found, and how many calls were sent."""
    asking = gateway(ledger, LitellmProvider(), model="hosted_vllm/Mem-T-4B")
    asker = Asker(run=run, suite="recovery", stage="rollout", system="memt", user="user_001")
    async with Door(asking, WordEmbedder()) as door:
        access = ModelAccess(door.url, door.token(asker), "memory", "words")
        memory = MemT(Services(WordEmbedder(), models=access, options=Options()))
        await memory.open(scope(run))
        for number, text in enumerate(SAID, 1):
            await memory.write(event(text, turn=number))
        found = await memory.search("the code of my locker 3", 5)
        dumped = await memory.dump()
        await memory.close()
    await asking.close()
    return dumped, found, asking.new_calls


async def test_a_replay_makes_no_new_call_and_the_same_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeServer() as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.url)
        ledger = ledger_at(tmp_path)
        first = await once(ledger, "first")
        sent = len(server.chats)
        again = await once(ledger, "again")
        ledger.close()
        assert sent == first[2] >= 2 * len(SAID)
        assert again[2] == 0
        assert len(server.chats) == sent
    assert again[:2] == first[:2]
    assert len(first[1]) == 5
