"""Asking the policy: one call with its sampling, thinking stripped."""

from __future__ import annotations

from typing import Any

from adapters.memory.calls import DoorClient
from adapters.memory.memt import promptset
from adapters.memory.memt.options import Options
from adapters.memory.memt.parsing import without_thinking
from adapters.memory.memt.promptset import PromptSet
from memprobe.errors import BudgetExceeded, CallFailed
from memprobe.systems import ModelAccess
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

        A call that failed raises `CallFailed`. Under the published protocol it
        is an empty answer, as the released client gives when it gives up; the
        cost limit raises under any.
        """
        fields: dict[str, Any] = dict(self._sampling)
        if stop is not None:
            fields["stop"] = [stop]
        try:
            text = await self._client.chat(messages, **fields)
        except BudgetExceeded:
            raise
        except CallFailed:
            if not self.paper:
                raise
            return ""
        return without_thinking(text)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()
