"""What a memory system hands back, held to the port before anything is measured on it."""

from __future__ import annotations

from memprobe.errors import AdapterContractError
from memprobe.types import MemoryItem


def checked(system: str, found: object, limit: int | None = None) -> list[MemoryItem]:
    """The items of a dump or a search; raises `AdapterContractError` for any other shape.

    More items than `limit` are refused and not cut: figures at k would silently
    be those of an adapter that chooses its own k.
    """
    if not isinstance(found, list) or not all(isinstance(item, MemoryItem) for item in found):
        raise AdapterContractError(
            f"{system}: a list of MemoryItem is wanted, not {type(found).__name__}"
        )
    if limit is not None and len(found) > limit:
        raise AdapterContractError(f"{system}: {len(found)} items for k={limit}")
    return found
