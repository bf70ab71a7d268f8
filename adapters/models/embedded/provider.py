"""The embedded models behind the gateway's provider port.

`embedded/default` answers every role it can; preference ratings are refused as
not judged, and generation needs a language model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from adapters.models.embedded.base import EmbeddedModels
from adapters.models.embedded.reader import ExtractiveReader
from adapters.models.embedded.scripted import Stage
from adapters.models.embedded.similarity import SimilarityJudge
from adapters.models.embedded.thresholds import identity, thresholds
from adapters.models.minilm import MiniLM
from adapters.models.provider import CompletionCall, FaultKind, ProviderFault
from memprobe.dataset import Dataset
from memprobe.types import Category, Role

MODELS = ("embedded/default", "embedded/scripted", "embedded/reader", "embedded/judge")


class EmbeddedProvider(EmbeddedModels):
    """Answers from scripts, extraction and similarity. Same inputs, same bits.

    `salt` names everything else that decides an answer and enters every ledger
    key: code version, constants, data set and seed.
    """

    models = MODELS

    def __init__(self, dataset: Dataset, seed: int, embedder: MiniLM) -> None:
        cuts = thresholds()
        self._stage = Stage(dataset.users, seed)
        self._judge = SimilarityJudge(embedder, cuts)
        self._reader = ExtractiveReader(embedder, dataset.pool, cuts)
        self.salt = f"{identity()}/{dataset.digest}/{seed}"

    async def _answer(self, call: CompletionCall) -> BaseModel | str:
        v: Mapping[str, Any] = call.variables
        match call.role:
            case Role.ASSISTANT:
                return self._stage.reply(self._scripted(v["task"]), len(v["history"]) + 1)
            case Role.SIMULATOR:
                return self._stage.feedback(self._scripted(v["task"]), v["turn"], call.replicate)
            case Role.SLOT_FILL | Role.READER:
                category = Category(v["category"])
                if "candidates" in v:
                    return await self._reader.merge(v["candidates"], category, v["dimension"])
                return await self._reader.fill(v["memories"], category, v["dimension"])
            case Role.JUDGE:
                return await self._judge.judge(
                    v["label"], v["short"], v["explanation"], v.get("dimension", "")
                )
            case Role.ORACLE:
                return await self._judge.oracle(v["task"], v["short"], v["explanation"])
            case Role.DISCLOSURE:
                spoken = [turn["user"] for turn in v["transcript"]]
                return await self._judge.disclosure(spoken, v["short"], v["explanation"])
            case Role.SUBCLASS:
                replies = [turn["assistant"] for turn in v["transcript"]]
                return await self._judge.subclass(replies, v["short"], v["explanation"])
            case Role.PREFERENCE:
                raise ProviderFault(
                    FaultKind.NOT_JUDGED, "the embedded profile cannot rate preferences"
                )
            case _:
                raise ProviderFault(
                    FaultKind.BAD_REQUEST,
                    f"the embedded profile has no {call.role}; give a model with --model",
                )

    def _scripted(self, task: str) -> str:
        if not self._stage.knows(task):
            raise ProviderFault(
                FaultKind.DATASET,
                "no script was written for this task; users without scripts need --model "
                f"(task: {json.dumps(task[:80])})",
            )
        return task
