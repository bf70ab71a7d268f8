"""Turn pairs: what MemoryOS takes in, made of messages, sessions and documents."""

from __future__ import annotations

from datetime import datetime

from adapters.memory.refusals import check_text
from memprobe.errors import UnsupportedEvent
from memprobe.types import DocumentEvent, Event, Frozen, SessionEvent, SessionMessage

PLACEHOLDER = "(no message)"
"""Stands for a side that nobody spoke; the published code drops pairs with an empty side."""

TOOL = "[tool]"
"""Before a tool's output, which belongs to the assistant's side."""


class Pair(Frozen):
    """What the user said and what the assistant answered, at one moment."""

    number: int
    user: str
    assistant: str
    event_time: datetime
    session: str

    def text(self) -> str:
        """Both sides on a line each, without one that nobody spoke."""
        both = (("User", self.user), ("Assistant", self.assistant))
        return "\n".join(f"{name}: {said}" for name, said in both if said != PLACEHOLDER)

    def embedded_text(self) -> str:
        """The text by which the pair is found."""
        return f"User: {self.user} Assistant: {self.assistant}"


def sides(messages: tuple[SessionMessage, ...]) -> list[tuple[str, str]]:
    """The user's and the assistant's side of each turn of a session.

    Consecutive messages of one role are joined by a line break; a side that is
    missing or blank is the placeholder. Raises `UnsupportedEvent` for other roles.
    """
    turns: list[tuple[list[str], list[str]]] = []
    for message in messages:
        match message.role:
            case "user":
                if not turns or turns[-1][1]:
                    turns.append(([], []))
                turns[-1][0].append(message.text)
            case "assistant" | "tool_output":
                if not turns:
                    turns.append(([], []))
                tool = message.role == "tool_output"
                turns[-1][1].append(f"{TOOL} {message.text}" if tool else message.text)
            case other:
                raise UnsupportedEvent(f"memoryos: no message of role {other!r} is kept")
    return [(_side(user), _side(assistant)) for user, assistant in turns]


def _side(parts: list[str]) -> str:
    return spoken("\n".join(parts))


def spoken(text: str) -> str:
    """A side as it is kept: the text, or the placeholder for one that shows nothing."""
    return text if text.strip() else PLACEHOLDER


def document_text(event: DocumentEvent) -> str:
    """A document as the user's side: its author and day before it."""
    return f"[{event.author}, {event.event_time.date().isoformat()}] {event.text}"


def check_event(event: Event) -> None:
    """Raise `UnsupportedEvent` for text that is not valid Unicode."""
    parts = [m.text for m in event.messages] if isinstance(event, SessionEvent) else [event.text]
    if isinstance(event, DocumentEvent):
        parts.append(event.author)
    for text in parts:
        check_text("memoryos", text)
