"""MemoryOS's six questions, answered by the exchanges they quote.

Recognised by the sentence that opens each prompt. Themes are named by the longest
words of an exchange, so that exchanges which share them share a segment; one in
four exchanges has two themes. What is drawn from a segment keeps the user's words.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

USER_SECTION, ASSISTANT_SECTION = "【User Private Data】", "【Assistant Knowledge】"
OPENINGS = {
    "You tell whether a conversation goes on": "continuity",
    "You keep a running note on what a conversation is about": "meta",
    "You sort exchanges of a conversation by theme": "themes",
    "You sum up exchanges of a conversation for a memory": "summary",
    "You keep the profile of one user": "profile",
    "You draw lasting facts from a conversation": "knowledge",
}
SUBJECTS = ("the house", "work", "travel", "the family", "health", "money")
NOBODY = "(no message)"
SCRIPT: dict[str, list[str]] = {}
"""By kind of question, what a test has the model say next, word by word."""
WORD = re.compile(r"[^\W\d_]{4,}")


def kind_of(body: dict[str, Any]) -> str | None:
    """Which of the six questions a request is; None when it is another's."""
    messages = body.get("messages", [])
    opening = str(messages[0].get("content")) if len(messages) > 1 else ""
    return next((kind for text, kind in OPENINGS.items() if opening.startswith(text)), None)


def answer(body: dict[str, Any]) -> str | None:
    """The model's text for a request of MemoryOS; None when it is another's."""
    messages = [str(m.get("content")) for m in body.get("messages", [])]
    kind = kind_of(body)
    if kind is None:
        return None
    if SCRIPT.get(kind):
        return SCRIPT[kind].pop(0)
    prompt = messages[1]
    if kind == "continuity":
        earlier, later = quoted(prompt, "Earlier"), quoted(prompt, "Later")
        near = earlier is not None and _words(earlier) & _words(later)
        return "true" if near else "false"
    if kind == "meta":
        page = quoted(prompt, "Latest exchange")
        return f"The talk is about {_name(page)}, in {_subject(page)}."
    pages = quoted(prompt, "Exchanges")
    if kind == "themes":
        return json.dumps([_theme(page, n) for page in pages for n in range(_count(page))])
    if kind == "summary":
        return " ".join(_gist(page) for page in pages)
    if kind == "profile":
        return _profile(quoted(prompt, "Profile so far"), pages)
    return _knowledge(pages)


def quoted(prompt: str, name: str) -> Any:
    """The JSON value behind the last line that begins with a name."""
    return json.loads(re.findall(rf"^{re.escape(name)}: (.*)$", prompt, re.MULTILINE)[-1])


def _said(page: dict[str, str]) -> str:
    return page["user"] if page["user"] != NOBODY else page["assistant"]


def _words(page: dict[str, str]) -> set[str]:
    return {word.lower() for word in WORD.findall(_said(page))}


def _number(text: str) -> int:
    digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8])


def _name(page: dict[str, str]) -> str:
    """The exchange's own longest word."""
    return max(sorted(_words(page)) or ["something"], key=len)[:40]


def _subject(page: dict[str, str]) -> str:
    return SUBJECTS[_number(_name(page)) % len(SUBJECTS)]


def _gist(page: dict[str, str]) -> str:
    return f"The user said: {_said(page)[:300]}"


def _count(page: dict[str, str]) -> int:
    return 2 if _number(_said(page)) % 4 == 0 else 1


def _theme(page: dict[str, str], number: int) -> dict[str, Any]:
    words = sorted(_words(page), key=lambda word: (-len(word), word))[: 3 + number]
    content = _gist(page) if number == 0 else f"It also touches on {_subject(page)}."
    return {"theme": _subject(page), "keywords": words or [_name(page)], "content": content}


def _profile(existing: str | None, pages: list[dict[str, str]]) -> str:
    """Every trait that was there, and one for each new subject."""
    lines = existing.split("\n") if existing else []
    for page in pages:
        line = f"Curiosity (Medium): speaks of {_subject(page)} more than once."
        if line not in lines:
            lines.append(line)
    return "\n".join(lines)


def _knowledge(pages: list[dict[str, str]]) -> str:
    facts = [" ".join(p["user"].split())[:300] for p in pages if p["user"] != NOBODY]
    told = [" ".join(p["assistant"].split())[:120] for p in pages if p["assistant"] != NOBODY]
    user = "\n".join(f"- {fact}" for fact in facts) or "- None"
    own = "\n".join(f"- The assistant said: {line}" for line in told[:1]) or "- None"
    return f"{USER_SECTION}\n{user}\n{ASSISTANT_SECTION}\n{own}"
