"""What the embedded providers of all suites share: models by name, free answers, no window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pydantic import BaseModel

from adapters.models.provider import Completion, CompletionCall, FaultKind, ProviderFault
from memprobe.types import Usage


class EmbeddedModels(ABC):
    """A provider that answers by itself: nothing is sent anywhere and nothing is billed.

    `salt` names everything beside a call that decides an answer and enters every
    ledger key; `models` are the model strings that are answered.
    """

    salt: str
    models: Sequence[str]

    async def complete(self, call: CompletionCall) -> Completion:
        """The answer of the role's player, as the text a language model would send."""
        if call.model not in self.models:
            raise ProviderFault(
                FaultKind.BAD_REQUEST,
                f"no model {call.model!r}; there are: {', '.join(self.models)}",
            )
        answer = await self._answer(call)
        text = answer if isinstance(answer, str) else answer.model_dump_json()
        return Completion(text=text, finish_reason="stop", usage=Usage())

    @abstractmethod
    async def _answer(self, call: CompletionCall) -> BaseModel | str:
        """The answer of one role; raises `ProviderFault` for one that is not played."""

    def window(self, model: str) -> int | None:
        """Without limit: nothing is sent anywhere."""
        return None

    def count_tokens(self, model: str, text: str) -> int:
        """An estimate at four characters a token; nothing is billed by it."""
        return (len(text) + 3) // 4

    async def close(self) -> None:  # noqa: B027
        """Nothing to release; the embedder belongs to the run."""
