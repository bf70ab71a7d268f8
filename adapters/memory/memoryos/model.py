"""The six questions that MemoryOS asks its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import prompts
from adapters.memory.calls import DoorClient
from adapters.memory.memoryos import parsing
from adapters.memory.memoryos.options import Options
from adapters.memory.memoryos.parsing import Learnt, Theme
from adapters.memory.memoryos.records import Page
from adapters.models.structured import InvalidAnswer
from memprobe.errors import BudgetExceeded, CallFailed
from memprobe.outcomes import Reason
from memprobe.text import sanitize

T = TypeVar("T")

FAILED = "Error: Could not get response from LLM."
"""What the published client gives in place of an answer that did not come, as if it were one."""


UNNAMED = "General conversation segment from short-term memory."
"""The published summary of pages for which no theme could be read."""


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt with its published temperature and token limit."""

    prompt: str
    temperature: float
    max_tokens: int


CONTINUITY = Question("memoryos_continuity", 0.0, 10)
META = Question("memoryos_meta", 0.3, 100)
THEMES = Question("memoryos_themes", 0.7, 2000)
SUMMARY = Question("memoryos_summary", 0.7, 2000)
PROFILE = Question("memoryos_profile", 0.7, 2000)
KNOWLEDGE = Question("memoryos_knowledge", 0.7, 2000)


class Analyst:
    """Asks, and reads what comes.

    Strict: an answer that cannot be used is asked for once more, then the write
    fails. `published`: whatever comes is made something of, and the sentence of a
    failed call is taken for its answer; `marks` then tells which.
    """

    def __init__(self, client: DoorClient, options: Options, *, published: bool) -> None:
        self._client = client
        self._options = options
        self._published = published
        self._marks: list[str] = []

    def take_marks(self) -> tuple[str, ...]:
        """Calls that failed and were passed over since this was last asked."""
        marks, self._marks = tuple(self._marks), []
        return marks

    async def continuous(self, previous: Page | None, page: Page) -> bool:
        """Whether a page goes on from the one that left the short-term memory before it."""
        shown = {"previous": previous.quoted() if previous else None, "page": page.quoted()}
        return await self._ask(CONTINUITY, shown, parsing.truth)

    async def meta(self, previous: str | None, page: Page) -> str:
        """One or two sentences on the exchange so far; `previous` are those on its beginning."""
        shown = {"previous": previous, "page": page.quoted()}
        return await self._ask(META, shown, parsing.sentence)

    async def themes(self, pages: Sequence[Page]) -> tuple[Theme, ...]:
        """What the pages are about; where no theme is named, a summary.

        The published summary is then one and the same sentence, so that all such pages
        share a segment.
        """
        shown = {"pages": [page.quoted() for page in pages]}
        found = await self._ask(THEMES, shown, parsing.themes)
        if found:
            return found
        if self._published:
            return (Theme(theme="", keywords=(), content=UNNAMED),)
        summary = await self._ask(SUMMARY, shown, parsing.sentence)
        return (Theme(theme="", keywords=(), content=summary),)

    async def profile(self, existing: str | None, pages: Sequence[Page]) -> str | None:
        """The whole profile anew, or None when nothing is to change."""
        shown = {"existing": existing, "pages": [page.quoted() for page in pages]}
        return await self._ask(PROFILE, shown, parsing.profile)

    async def knowledge(self, pages: Sequence[Page]) -> Learnt:
        """Lines worth keeping about the user and about the assistant."""
        shown = {
            "pages": [page.quoted() for page in pages],
            "user_section": parsing.USER_SECTION,
            "assistant_section": parsing.ASSISTANT_SECTION,
        }
        return await self._ask(KNOWLEDGE, shown, parsing.knowledge)

    async def _ask(
        self, question: Question, variables: Mapping[str, Any], read: Callable[..., T]
    ) -> T:
        rendered = prompts.load(question.prompt).render(**variables)
        messages = [{"role": m.role, "content": sanitize(m.content)[0]} for m in rendered]
        asked_again = False
        while True:
            try:
                text, cut, call_id = await self._said(question, messages)
            except BudgetExceeded:
                raise
            except CallFailed as failure:
                if not self._published:
                    raise
                self._marks.append(f"{question.prompt}: {failure.reason.value}")
                return read(FAILED, published=True)
            try:
                if cut and not self._published:
                    raise InvalidAnswer("the answer was cut off")
                return read(text, published=self._published)
            except InvalidAnswer as error:
                if asked_again:
                    reason = Reason.TRUNCATED if cut else Reason.INVALID_OUTPUT
                    detail = sanitize(f"{question.prompt}: {error}")[0]
                    raise CallFailed(reason, detail, call_id) from error
                messages = [*messages, *_correction(text, str(error))]
                asked_again = True

    async def _said(
        self, question: Question, messages: Sequence[Mapping[str, str]]
    ) -> tuple[str, bool, str]:
        heat, limit = self._options.temperature, self._options.max_tokens
        reply = await self._client.complete(
            messages,
            temperature=question.temperature if heat is None else heat,
            max_tokens=question.max_tokens if limit is None else limit,
        )
        if reply.finish_reason == "content_filter":
            raise CallFailed(
                Reason.REFUSAL, f"{question.prompt}: stopped by a content filter", reply.call_id
            )
        text = parsing.without_thoughts(sanitize(reply.text)[0])
        return text, reply.finish_reason == "length", reply.call_id


def _correction(text: str, problem: str) -> list[dict[str, str]]:
    said = f"That answer cannot be used: {problem}. Answer again in exactly the form asked for."
    turns = [("assistant", text)] if text.strip() else []
    turns.append(("user", said))
    return [{"role": role, "content": sanitize(content)[0]} for role, content in turns]
