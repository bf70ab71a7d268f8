"""What the benchmark of the probe reader shares with its calibration: views and halves."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from memprobe.paradigms.spec import Episode, Session
from memprobe.stopwords import STOP_WORDS

VIEWS = ("oracle", "full", "naive", "recency")
TOP = 5
_STOP = frozenset(STOP_WORDS.split())
_SPEAKER = {"user": "User", "assistant": "Assistant", "tool_output": "Tool output"}


def tuning(episode: Episode) -> bool:
    """Whether an episode is in the half that constants may be fitted on: by its group's hash."""
    digest = hashlib.sha256(episode.spec.group_id.encode()).hexdigest()
    return int(digest, 16) % 2 == 1


def text_of(session: Session) -> str:
    """A session as a memory keeps it: a line a message, with its speaker."""
    return "\n".join(f"{_SPEAKER[t.role]}: {t.content}" for t in session.dialogue)


def _share(question: str, text: str) -> float:
    words = {w for w in re.findall(r"[^\W_]+", question.lower()) if len(w) > 2 and w not in _STOP}
    return sum(w in text.lower() for w in words) / len(words) if words else 0.0


def chosen(episode: Episode, question: str, view: str) -> Sequence[int]:
    """The sessions of a view, by index, in time order."""
    sessions = episode.sessions
    if view == "full":
        return range(len(sessions))
    if view == "recency":
        return range(max(0, len(sessions) - TOP), len(sessions))
    if view == "oracle":
        return [i for i, s in enumerate(sessions) if not s.session_type.filler]
    if view == "naive":
        by_share = sorted(
            range(len(sessions)), key=lambda i: (-_share(question, text_of(sessions[i])), i)
        )
        return sorted(by_share[:TOP])
    raise ValueError(f"no view {view!r}; there are: {', '.join(VIEWS)}")


def entries(episode: Episode, question: str, view: str) -> list[dict[str, str]]:
    """The entries that a reader of a view gets: true index in the header, no session type."""
    n = len(episode.sessions)
    return [
        {"header": f"Session {i + 1} of {n}", "text": text_of(episode.sessions[i])}
        for i in chosen(episode, question, view)
    ]
