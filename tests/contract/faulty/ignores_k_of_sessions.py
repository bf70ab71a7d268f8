"""Every session is found, whatever `k` is."""

from adapters.memory.sessions import FullContext
from memprobe import MemoryItem


class IgnoresKOfSessions(FullContext):
    """Keeps sessions and cuts nothing off."""

    card = FullContext.card.model_copy(update={"name": "ignores_k_of_sessions"})

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        return await super().search(query, 1000)
