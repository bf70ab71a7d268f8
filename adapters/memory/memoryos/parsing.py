"""Reading what MemoryOS's model says: a truth value, a sentence, themes, a profile, knowledge.

Each has two readings. `strict` takes what can be read for sure and refuses the
rest with `InvalidAnswer`; `published` makes something of anything, as the
published code does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adapters.models.structured import InvalidAnswer
from memprobe.text import sanitize
from memprobe.types import Frozen

USER_SECTION, ASSISTANT_SECTION = "【User Private Data】", "【Assistant Knowledge】"
NOTHING = "none"
"""How a model says that there is nothing to keep."""
SHORTEST_PROFILE = 30
"""Characters; a shorter profile changes nothing."""
MOST_THEMES = 2

_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_FENCED = re.compile(r"\A```[^\n`]*\n(.*?)\n?```\Z", re.DOTALL)
_OPENING = re.compile(r"[\[{]")
_BULLET = re.compile(r"\A(?:[-*•]|\d+[.)])\s*")


class Theme(Frozen):
    """One topic of a batch of pages; `content` is the summary that finds the pages."""

    theme: str
    keywords: tuple[str, ...]
    content: str


class Learnt(Frozen):
    """Lines about the user and lines about the assistant."""

    user: tuple[str, ...] = ()
    assistant: tuple[str, ...] = ()


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    theme: str = ""
    keywords: list[str] = Field(default_factory=list)
    content: str


def without_thoughts(text: str) -> str:
    """The answer without `<think>` blocks."""
    return _THOUGHT.sub("", text).strip()


def truth(text: str, *, published: bool) -> bool:
    """Whether a page goes on from the one before."""
    said = text.strip().lower()
    if published:
        return said == "true"
    said = said.strip(" \n\t.!\"'`*")
    if said not in ("true", "false"):
        raise InvalidAnswer("neither true nor false")
    return said == "true"


def sentence(text: str, *, published: bool) -> str:
    """A summary in the model's own words."""
    if not published and not text.strip():
        raise InvalidAnswer("the answer is empty")
    return text.strip()


def themes(text: str, *, published: bool) -> tuple[Theme, ...]:
    """The topics of a batch of pages; none at all when the model names none.

    Published, an answer that is no plain JSON list of objects names none, a row
    without content is left out, and there may be any number. Strict reads past a
    code fence and prose around the list, and leaves the third and later topics unread.
    """
    if published:
        return _published_themes(text)
    rows = _list(text)
    try:
        found = [_Row.model_validate(row) for row in rows]
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in problem["loc"]) or "entry"
        raise InvalidAnswer(
            f"an entry of the list is no theme: {place}: {problem['msg']}"
        ) from None
    made = [
        _theme(
            row.theme.strip(),
            dict.fromkeys(k.strip() for k in row.keywords if k.strip()),
            row.content.strip(),
        )
        for row in found
    ]
    if any(not one.content for one in made):
        raise InvalidAnswer("a theme without content")
    return tuple(made[:MOST_THEMES])


def _published_themes(text: str) -> tuple[Theme, ...]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(rows, list):
        return ()
    found = []
    for row in rows:
        if not isinstance(row, dict) or not row.get("content"):
            continue
        keywords = row.get("keywords")
        words = map(str, keywords) if isinstance(keywords, list) else ()
        found.append(_theme(str(row.get("theme", "")), words, str(row["content"])))
    return tuple(found)


def _theme(name: str, keywords: Iterable[str], content: str) -> Theme:
    """A theme without the lone surrogates that JSON can spell."""
    return Theme(
        theme=sanitize(name)[0],
        keywords=tuple(sanitize(keyword)[0] for keyword in keywords),
        content=sanitize(content)[0],
    )


def _list(text: str) -> list[Any]:
    text = text.lstrip("\ufeff").strip()
    fenced = _FENCED.match(text)
    if fenced:
        text = fenced[1].strip()
    opening = _OPENING.search(text)
    if opening is None:
        raise InvalidAnswer("there is no JSON list in the answer")
    start = opening.start()
    try:
        value, end = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(f"no JSON list ({error})") from None
    if not isinstance(value, list):
        raise InvalidAnswer("a JSON list is wanted")
    if "[" in text[start + end :]:
        raise InvalidAnswer("more than one list in the answer")
    return value


def profile(text: str, *, published: bool) -> str | None:
    """The new profile; None for one that says nothing or too little to replace the old."""
    said = text.strip()
    if not published and not said:
        raise InvalidAnswer("the answer is empty")
    bare = said.strip(" .\"'`*").lower()
    return None if bare == NOTHING or len(said) < SHORTEST_PROFILE else said


def knowledge(text: str, *, published: bool) -> Learnt:
    """The lines of the two marked sections; strict refuses an answer that lacks a mark."""
    first, second = text.find(USER_SECTION), text.find(ASSISTANT_SECTION)
    if not published and (first < 0 or second < 0):
        missing = USER_SECTION if first < 0 else ASSISTANT_SECTION
        raise InvalidAnswer(f"the section {missing} is missing")
    return Learnt(
        user=_lines(_section(text, first, USER_SECTION, second)),
        assistant=_lines(_section(text, second, ASSISTANT_SECTION, first)),
    )


def _section(text: str, start: int, mark: str, other: int) -> str:
    if start < 0:
        return ""
    return text[start + len(mark) : other if other > start else len(text)]


def _lines(section: str) -> tuple[str, ...]:
    found = (_BULLET.sub("", line.strip()).strip() for line in section.split("\n"))
    kept = (line for line in found if line.strip("-*•:# "))
    return tuple(line for line in kept if line.strip(" .()[]").lower() != NOTHING)
