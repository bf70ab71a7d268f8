"""The embedded model of the paradigms suite behind the gateway's provider port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from adapters.models.embedded.base import EmbeddedModels
from adapters.models.embedded.probe_constants import identity
from adapters.models.embedded.probe_reader import ProbeReader
from adapters.models.minilm import MiniLM
from adapters.models.provider import CompletionCall, FaultKind, ProviderFault
from memprobe.paradigms.spec import ProbeType
from memprobe.types import Role

MODELS = ("embedded/default", "embedded/reader")


class ProbesProvider(EmbeddedModels):
    """Reads memories for the suite's questions. Same inputs, same bits; no other role.

    The suite does not enter `salt`: the reader knows nothing of it.
    """

    models = MODELS

    def __init__(self, embedder: MiniLM) -> None:
        self._reader = ProbeReader(embedder)
        self.salt = identity()

    async def _answer(self, call: CompletionCall) -> BaseModel | str:
        if call.role is not Role.READER:
            raise ProviderFault(
                FaultKind.BAD_REQUEST,
                f"the embedded profile of the paradigms suite has no {call.role or 'such role'}, "
                "only a reader; give a model with --model",
            )
        v: Mapping[str, Any] = call.variables
        # A fault of the reader's own must not pass for one of the question.
        missing = [name for name in ("probe_type", "question", "entries") if name not in v]
        if missing or v["probe_type"] not in {kind.value for kind in ProbeType}:
            what = f"no {', '.join(missing)}" if missing else f"no probe type {v['probe_type']!r}"
            raise ProviderFault(FaultKind.BAD_REQUEST, f"not a question of the suite: {what}")
        return await self._reader.answer(v["probe_type"], v["question"], v["entries"])
