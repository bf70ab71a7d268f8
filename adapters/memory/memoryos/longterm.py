"""The long memory: a profile that is rewritten, and knowledge of which the oldest is forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.memory.memoryos.parsing import Learnt
from adapters.memory.memoryos.records import Knowledge, Page, Profile, Store
from adapters.memory.vectors import Vectors


def rewrite(store: Store, text: str | None, pages: Sequence[Page], marks: Sequence[str]) -> None:
    """Put a new profile in the place of the old one; None changes nothing."""
    if text is None:
        return
    store.profile = Profile(
        text=text,
        event_time=max(page.pair.event_time for page in pages),
        updates=store.profile.updates + 1 if store.profile else 1,
        defaulted=tuple(marks),
    )


def learn(
    store: Store, learnt: Learnt, rows: Sequence[Vectors], pages: Sequence[Page], capacity: int
) -> None:
    """Append what was learnt, as it stands, and drop the oldest lines above the capacity.

    `rows` are the vectors of the user's lines, then of the assistant's. Equal
    lines are kept as often as they come.
    """
    when = max(page.pair.event_time for page in pages)
    drawn = tuple(page.id for page in pages)
    left = iter(rows)
    for kind, lines, kept in (
        ("user_knowledge", learnt.user, store.user_knowledge),
        ("assistant_knowledge", learnt.assistant, store.assistant_knowledge),
    ):
        for line in lines:
            store.knowledge_count += 1
            one = Knowledge(
                id=f"{kind}_{store.knowledge_count:05d}", text=line, event_time=when, pages=drawn
            )
            store.index.put(one.id, one.text, next(left))
            kept.append(one)
        while len(kept) > capacity:
            store.index.delete(kept.pop(0).id)
