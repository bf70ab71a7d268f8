"""What a store's own process and the run say to each other: framed JSON over two pipes.

A frame is four bytes of length, big-endian, and a JSON object. Events, items,
errors and vectors keep their types, their time to the microsecond and their
floats to the bit.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from array import array
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import IO, Any

from adapters.models.redaction import redact
from memprobe import errors
from memprobe.errors import AdapterError, BudgetExceeded, CallFailed, MemProbeError
from memprobe.outcomes import Reason
from memprobe.types import DocumentEvent, Event, MemoryItem, MessageEvent, SessionEvent

HELLO = b"\n\x1ememprobe-store 1\n"
"""What the child says first: before it, its libraries may have printed on the same pipe."""

_HEAD = struct.Struct(">I")
_EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind for kind in (MessageEvent, SessionEvent, DocumentEvent)
}


def packed(value: Mapping[str, Any]) -> bytes:
    """One frame. Lone surrogates pass as escapes, as a system may be told of them."""
    body = json.dumps(value).encode("ascii")
    return _HEAD.pack(len(body)) + body


def read_frame(pipe: IO[bytes]) -> dict[str, Any] | None:
    """The next frame; None at the end of the pipe, also in the middle of a frame."""
    head = _exactly(pipe, _HEAD.size)
    if head is None:
        return None
    body = _exactly(pipe, _HEAD.unpack(head)[0])
    return None if body is None else dict(json.loads(body))


def _exactly(pipe: IO[bytes], size: int) -> bytes | None:
    parts = []
    while size:
        part = pipe.read(size)
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_hello(pipe: IO[bytes]) -> bool:
    """Skip what was printed before the child took its pipe over; False at the end of the pipe."""
    seen = b""
    while not seen.endswith(HELLO):
        byte = pipe.read(1)
        if not byte:
            return False
        seen = (seen + byte)[-len(HELLO) :]
    return True


def write_all(fd: int, data: bytes) -> None:
    """Write to a file descriptor whatever it takes at once."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def event_out(event: Event) -> dict[str, Any]:
    """An event as JSON."""
    fields = event.model_dump()
    return {**fields, "event_time": event.event_time.isoformat(), "kind": type(event).__name__}


def event_in(given: Mapping[str, Any]) -> Event:
    """The event again."""
    fields = dict(given)
    kind = _EVENTS[fields.pop("kind")]
    return kind.model_validate(
        {**fields, "event_time": datetime.fromisoformat(fields["event_time"])}
    )


def item_out(item: MemoryItem) -> dict[str, Any]:
    """An item as JSON; it is a checked one (`guard.clean_items`)."""
    when = item.event_time
    return {**item.model_dump(), "event_time": when.isoformat() if when else None}


def item_in(given: Mapping[str, Any]) -> MemoryItem:
    """The item again."""
    when = given["event_time"]
    fields = {**given, "event_time": datetime.fromisoformat(when) if when else None}
    return MemoryItem.model_validate(fields)


def vectors_out(rows: Sequence[Sequence[float]]) -> list[str]:
    """Vectors as base64 of doubles."""
    return [base64.b64encode(array("d", row).tobytes()).decode("ascii") for row in rows]


def vectors_in(rows: Sequence[str]) -> list[list[float]]:
    """The vectors again."""
    return [array("d", base64.b64decode(row)).tolist() for row in rows]


def error_out(error: BaseException, blocked: str | None) -> dict[str, Any]:
    """An error as JSON. What is none of MemProbe's becomes an AdapterError that names its type.

    `blocked` is the network guard's message, where that is what it comes from.
    """
    found: dict[str, Any] = {"blocked": blocked}
    match error:
        case BudgetExceeded():
            return {**found, "type": "BudgetExceeded", "detail": error.detail}
        case CallFailed():
            return {
                **found,
                "type": "CallFailed",
                "reason": error.reason.value,
                "detail": error.detail,
                "call_id": error.call_id,
            }
        case MemProbeError():
            known = [
                kind.__name__
                for kind in type(error).__mro__
                if getattr(errors, kind.__name__, None) is kind
            ]
            return {**found, "type": known[0], "detail": str(error)}
        case SystemExit():
            said = f"tried to end the process (exit code {error.code})"
        case _:
            said = redact(f"{type(error).__name__}: {error}")
    return {**found, "type": "", "detail": said}


def error_in(given: Mapping[str, Any], name: str) -> MemProbeError:
    """The error again; `name` is the system's."""
    detail = str(given.get("detail", ""))
    match given["type"]:
        case "BudgetExceeded":
            return BudgetExceeded(detail)
        case "CallFailed":
            return CallFailed(Reason(given["reason"]), detail, given.get("call_id"))
        case "":
            return AdapterError(f"{name}: {detail}")
        case kind:
            found: type[MemProbeError] = getattr(errors, kind)
            return found(detail)
