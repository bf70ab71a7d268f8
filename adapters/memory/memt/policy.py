"""Asking the policy: one call with its sampling, thinking stripped."""

from __future__ import annotations

from typing import Any

from adapters.memory.calls import Completion, DoorClient
from adapters.memory.memt import promptset
from adapters.memory.memt.options import Options
from adapters.memory.memt.parsing import without_thinking
from adapters.memory.memt.promptset import PromptSet
from memprobe.errors import BudgetExceeded, CallFailed
from memprobe.outcomes import Reason
from memprobe.systems import ModelAccess
from memprobe.text import sanitize
from memprobe.types import Protocol


class Policy:
    """One store's line to the policy."""

    def __init__(self, models: ModelAccess | None, options: Options, protocol: Protocol) -> None:
        self.options = options
        self.paper = protocol is Protocol.PAPER
        self.prompts: PromptSet = promptset.load(options.prompts)
        self._client = DoorClient(models)
        self._sampling = options.sampling()

    async def ask(self, messages: list[dict[str, str]], *, stop: str | None = None) -> str:
        """The answer's text.

        A call that failed raises `CallFailed`, and so does an answer that was cut
        off, filtered or is empty: what it lacks was never the policy's decision.
        Under the published protocol a failed call is an empty answer, as the
        released client gives when it gives up, and any other is taken as it came;
        the cost limit raises under any.
        """
        fields: dict[str, Any] = dict(self._sampling)
        if stop is not None:
            fields["stop"] = [stop]
        sent = [{**m, "content": sanitize(m["content"])[0]} for m in messages]
        try:
            answer = await self._client.complete(sent, **fields)
        except BudgetExceeded:
            raise
        except CallFailed:
            if not self.paper:
                raise
            return ""
        if not self.paper:
            _check(answer)
        return without_thinking(answer.text)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()


def _check(answer: Completion) -> None:
    if answer.finish_reason == "content_filter":
        raise CallFailed(Reason.REFUSAL, "memt: stopped by a content filter", answer.call_id)
    if answer.finish_reason == "length":
        raise CallFailed(Reason.TRUNCATED, "memt: the answer was cut off", answer.call_id)
    if not answer.text.strip():
        raise CallFailed(Reason.INVALID_OUTPUT, "memt: the answer is empty", answer.call_id)
