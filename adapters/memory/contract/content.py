"""Checks of what is kept: all of it, unchanged, with its time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from adapters.memory.contract.bench import (
    EVENT_TIME,
    Bench,
    NotApplicable,
    Violation,
    marker,
    message,
    shown,
)
from memprobe.errors import MemProbeError, UnsupportedEvent
from memprobe.ports import MemorySystem
from memprobe.types import SessionEvent, SessionMessage

SAMPLES = {
    "emoji": "my family \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1f5\U0001f1f9 says hi",
    "right-to-left": "שלום עולם / مرحبا بالعالم",
    "CJK": "東京の天気は晴れ、很好",
    "combining": "cafe\u0301 is not caf\u00e9",
    "markup and templates": "<b>{name}</b> %s \\n {{ x }} 'q' \"d\"",
    "line breaks": "first line\n\tsecond line",
}
NUL = "before\x00after"
LONE = "broken \ud83d tail"


async def empty_store(bench: Bench) -> None:
    """A fresh store has nothing in it and can be asked before anything was written."""
    store = await bench.open("empty")
    dump = await store.dump() if bench.can.full_dump else []
    found = await store.search("anything at all", 5) if bench.can.top_k else []
    if dump or found:
        first = (dump or found)[0]
        raise Violation(
            "[] from dump() and search() of a store that was just opened",
            f"{len(dump)} and {len(found)} items, the first {shown(first.content)}",
            "start `open` with an empty store",
        )


async def dump_complete(bench: Bench) -> None:
    """Everything that was written is in the dump, whatever a library's default page is."""
    bench.needs_stores()
    if not bench.can.full_dump:
        raise NotApplicable("declares full_dump=False")
    store = await bench.open("complete")
    words = [marker("item", i) for i in range(bench.items)]
    for i, word in enumerate(words):
        await store.write(message(f"My locker number {i} has the code {word}.", number=i))
    items = await store.dump()
    text = "\n".join(item.content for item in items)
    missing = [i for i, word in enumerate(words) if word not in text]
    if missing:
        raise Violation(
            f"all {bench.items} written facts in the dump",
            f"{len(items)} items that lack {len(missing)} of them (first missing: number "
            f"{missing[0]})",
            "ask the library for every page, or pass a limit above what is stored",
        )
    again = await store.dump()
    if [i.id for i in again] != [i.id for i in items]:
        raise Violation("the same order in two dumps", "another order", "sort the dump")
    if len({i.id for i in items}) != len(items):
        raise Violation("distinct item ids", "repeated ids", "give each item an id of its own")


async def whole_sessions(bench: Bench) -> None:
    """A session is taken in whole, a tool's output in it, too, and the user's words are kept."""
    bench.needs_stores()
    if not bench.can.sessions:
        raise NotApplicable("declares sessions=False: it gets messages one by one")
    store = await bench.open("session")
    said = marker("session", 1)
    spoken = (
        ("user", f"From now on my bicycle lock opens with {said}."),
        ("assistant", "Shall I look up what the shop has noted?"),
        ("tool_output", "shop: one lock on file"),
        ("user", "Yes, please do."),
    )
    session = SessionEvent(
        messages=tuple(SessionMessage(role=role, text=text) for role, text in spoken),
        event_time=EVENT_TIME,
        session_id="s0001",
    )
    try:
        await store.write(session)
    except MemProbeError:
        raise
    except Exception as error:
        raise Violation(
            "a SessionEvent to be taken in, as sessions=True says",
            f"{type(error).__name__}: {error}",
            "handle `event.messages` in `write`, or leave sessions at false",
        ) from error
    found = await store.dump() if bench.can.full_dump else await store.search(said, max(bench.ks))
    if not found:
        raise Violation("something kept of a session", "an empty store", "store its messages")
    if bench.can.verbatim and not any(said in item.content for item in found):
        raise Violation(
            "the user's words of a session among the items",
            f"{len(found)} items without them",
            "keep every message of `event.messages`",
        )


async def event_time(bench: Bench) -> None:
    """An item carries the moment of its event, never the moment it was stored."""
    bench.needs_stores()
    store = await bench.open("time")
    zone = timezone(timedelta(hours=5, minutes=30))
    moments = {
        marker("time", 1): datetime(2023, 5, 7, 18, 30, 1, tzinfo=UTC),
        marker("time", 2): datetime(2024, 2, 29, 23, 59, 59, tzinfo=zone),
    }
    for number, (word, moment) in enumerate(moments.items(), 1):
        # A session each: where a session is one item, its messages have one time.
        text = f"The code of my bike is {word}."
        await store.write(message(text, number=number, at=moment, session=f"s{number:04d}"))
    for word, moment in moments.items():
        items = await bench.find(store, word)
        if not items:
            raise Violation(f"an item with {word}", "none", "keep every event")
        if bench.can.derives and moment in {item.event_time for item in items}:
            # What is made of both messages has the time of either.
            items = [item for item in items if item.event_time not in moments.values()]
        for item in items:
            if item.event_time is None and not bench.can.event_time:
                continue
            if item.event_time != moment:
                raise Violation(
                    f"event_time {moment.isoformat()}",
                    item.event_time.isoformat() if item.event_time else "None",
                    "store `event.event_time` (aware, to the second) and return it; a system "
                    "that cannot declares event_time=False and returns None",
                )
    if not bench.can.event_time:
        raise NotApplicable("declares event_time=False, and gives no other time instead")


async def duplicates(bench: Bench) -> None:
    """A message that comes three times is there three times, unless declared otherwise."""
    bench.needs_stores()
    store = await bench.open("duplicates")
    word = marker("twin")
    for number in range(1, 4):
        text = f"My gate code is {word}."
        await store.write(message(text, number=number, session=f"s{number:04d}"))
    items = await bench.find(store, word)
    wanted: tuple[int, ...] = (1,) if bench.can.deduplicates else (3,)
    if not bench.can.verbatim:
        wanted = (1, 2, 3)
    if bench.can.derives and len(items) > wanted[0]:
        wanted = (len(items),)
    if len(items) not in wanted:
        raise Violation(
            f"{wanted[0]} items of a message written three times "
            f"(deduplicates={bench.can.deduplicates})",
            str(len(items)),
            "keep each, or declare deduplicates=True and keep one",
        )
    if len({item.id for item in items}) != len(items):
        raise Violation("distinct ids", "one id twice", "give each item an id of its own")


async def _contains(bench: Bench, store: MemorySystem, name: str, sample: str, word: str) -> None:
    items = await bench.find(store, word)
    if not any(sample in item.content for item in items):
        came = shown(items[0].content) if items else "no item with its marker"
        raise Violation(
            f"{name} text {shown(sample)} unchanged", came, "keep the text as it is, in UTF-8"
        )


async def unicode_round_trip(bench: Bench) -> None:
    """Text of any script comes back code point by code point; NUL may be refused."""
    bench.needs_verbatim()
    store = await bench.open("unicode")
    for number, sample in enumerate(SAMPLES.values(), 1):
        await store.write(message(f"{marker('uni', number)} {sample}", number=number))
    for number, (name, sample) in enumerate(SAMPLES.items(), 1):
        await _contains(bench, store, name, sample, marker("uni", number))
    try:
        await store.write(message(f"{marker('nul')} {NUL}", number=99))
    except UnsupportedEvent:
        return
    await _contains(bench, store, "NUL", NUL, marker("nul"))


async def lone_surrogate(bench: Bench) -> None:
    """Text that is not valid Unicode is refused by a MemProbe error, or kept as U+FFFD."""
    bench.needs_stores()
    store = await bench.open("surrogate")
    word = marker("lone")
    fix = "raise `memprobe.UnsupportedEvent` when `event.text.encode()` fails"
    refused = False
    try:
        await store.write(message(f"{word} {LONE}"))
    except MemProbeError:
        refused = True
    except Exception as error:
        raise Violation("UnsupportedEvent", f"{type(error).__name__}: {error}", fix) from error
    after = marker("after")
    await store.write(message(f"The code after it is {after}.", number=2))
    if not await bench.find(store, after):
        raise Violation("a store that goes on working after the refusal", "a lost message", fix)
    items = await bench.find(store, word)
    if refused:
        if items:
            raise Violation("nothing kept of a refused message", shown(items[0].content), fix)
        return
    if not items:
        raise Violation("a refusal or the text with U+FFFD", "silence: the message is gone", fix)
    for item in items:
        try:
            item.content.encode("utf-8")
        except UnicodeEncodeError as error:
            raise Violation("valid Unicode in the dump", shown(item.content), fix) from error


async def long_message(bench: Bench) -> None:
    """A message of 100,000 characters is kept whole."""
    bench.needs_verbatim()
    if not bench.can.full_dump:
        raise NotApplicable("declares full_dump=False")
    store = await bench.open("long")
    words = [marker("long", i) for i in range(1000)]
    text = " ".join(f"{word}{'x' * (99 - len(word))}" for word in words)
    await store.write(message(text))
    kept = "\n".join(item.content for item in await store.dump())
    missing = sum(word not in kept for word in words)
    if missing or len(kept) < len(text) - len(words):
        raise Violation(
            f"all {len(text)} characters of a long message",
            f"{len(kept)} characters, {missing} of {len(words)} parts missing",
            "store the text uncut; cut only what you hand to an encoder",
        )
