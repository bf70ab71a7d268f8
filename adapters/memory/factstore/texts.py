"""What a store reads of an event: its text, who speaks in it, its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from memprobe.errors import UnsupportedEvent
from memprobe.types import DocumentEvent, Event, MessageEvent, SessionEvent

ROLES = ("user", "assistant", "tool_output")


@dataclass(frozen=True, slots=True)
class Part:
    """What one speaker says in one go."""

    speaker: str
    text: str


def parts_of(event: Event) -> list[Part]:
    """A document as its author's one part, a message as its role's, a session's messages.

    Raises `UnsupportedEvent` for an unknown role and for text that is not valid Unicode.
    """
    match event:
        case DocumentEvent():
            parts = [Part(event.author, event.text)]
        case SessionEvent():
            parts = [Part(message.role, message.text) for message in event.messages]
        case MessageEvent():
            parts = [Part(event.role, event.text)]
    for part in parts:
        if not isinstance(event, DocumentEvent) and part.speaker not in ROLES:
            raise UnsupportedEvent(f"factstore: no message of role {part.speaker!r} is kept")
        try:
            f"{part.speaker}{part.text}".encode()
        except UnicodeEncodeError as error:
            raise UnsupportedEvent(
                f"factstore: a lone surrogate at position {error.start} of speaker and text"
            ) from error
    return parts


def is_read(event: Event, store: Literal["user", "both"]) -> bool:
    """Whether a store takes in an event; of single messages it may want the user's only."""
    return not isinstance(event, MessageEvent) or store == "both" or event.role == "user"
