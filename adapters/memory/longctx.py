"""The long-context baseline: the whole transcript is the memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from adapters.memory.notes import NoteLog
from memprobe.ports import Capabilities
from memprobe.systems import SystemCard
from memprobe.types import Protocol


class LongContext(NoteLog):
    """Every message is kept and all of it is put before the assistant.

    Under `Protocol.PAPER` the last assistant reply of each episode cannot be
    seen, in a dump or a search, as in the published baseline: there a reply
    became part of the history only with the turn after it. `strict` keeps it.
    """

    name = "longctx_full"
    capabilities = Capabilities(needs_embedder=True, documents=True)
    card = SystemCard(
        name=name,
        title="Long context (full transcript)",
        summary="Keeps every message in order; the assistant reads all of them.",
        licence="Apache-2.0",
        capabilities=capabilities,
        score_scale="cosine of all-MiniLM-L6-v2 vectors, -1 to 1",
        reply_access="dump_all",
    )

    def visible(self) -> list[int]:
        """All notes; under `paper` without the last reply of each episode."""
        positions = super().visible()
        if self.services.protocol is not Protocol.PAPER:
            return positions
        lost = {
            note.task_index: position
            for position, note in enumerate(self._notes)
            if note.kind == "agent_reply"
        }
        return [position for position in positions if position not in lost.values()]

    async def rank(self, query: str, positions: Sequence[int]) -> npt.NDArray[np.float64]:
        """Cosine of query and note."""
        return await self.cosine(query, positions)
