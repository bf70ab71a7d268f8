"""What mem0's library hides, watched at the three objects that it asks.

Its model: an extraction answer that it cannot read becomes "nothing to
remember", and the "today" of its prompt is the wall clock. Its embedder: a
memory whose embedding fails is dropped with a log line. Its vector store: equal
scores come in any order. The library's own objects do the work; these stand in
front of them.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from adapters.memory.calls import KEY_PREFIX, cause_of
from memprobe.errors import AdapterError, CallFailed, MemProbeError
from memprobe.outcomes import Reason
from memprobe.text import sanitize

Vector = npt.NDArray[np.float32]
SPARE = 16
"""Points beyond the wanted ones, among which ties at the end are settled."""
DRIFT = 1e-4
"""More than a score of the embedded Qdrant is off by; cosines in single precision."""

_TODAY = re.compile(
    r"(?<=\n\n## Observation Date\n)\S+(\n\n## Current Date\n)\S+(?=\n\n# Output:\Z)"
)


def reason_of(error: BaseException, doing: str) -> MemProbeError:
    """What a run should hear of an error that came out of the library."""
    return cause_of(error, "mem0", doing)


@dataclass
class Watch:
    """What the library swallowed during the call under way."""

    faults: list[BaseException] = field(default_factory=list)

    def raise_first(self, doing: str) -> None:
        """Raise for the first fault, if there was one."""
        if self.faults:
            raise reason_of(self.faults[0], doing) from self.faults[0]


class WatchedModel:
    """mem0's model: the prompt's date is set, an unreadable answer is told from an empty one."""

    def __init__(self, inner: Any, strict: bool) -> None:
        self._inner = inner
        self._strict = strict
        self._reply: Any = None
        self.today: str | None = None
        inner.config.response_callback = self._keep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _keep(self, model: object, response: object, params: object) -> None:
        self._reply = response

    def generate_response(self, messages: list[dict[str, str]], **kwargs: Any) -> Any:
        """As mem0's own; raises `CallFailed` under strict when the answer is not in its form."""
        if self.today is not None:
            last = messages[-1]
            text, found = _TODAY.subn(rf"{self.today}\g<1>{self.today}", last["content"])
            if not found:
                raise AdapterError(
                    "mem0: its extraction prompt does not end in its two dates, as version 2.2 "
                    "does; the event's day cannot be told to this version"
                )
            messages = [*messages[:-1], {**last, "content": text}]
        self._reply = None
        answer = self._inner.generate_response(messages=messages, **kwargs)
        return self._checked(answer) if self._strict else answer

    def _checked(self, answer: Any) -> Any:
        """The answer, with U+FFFD for lone surrogates that it spells out: none can be embedded."""
        choice = self._reply.choices[0] if self._reply is not None else None
        call_id = str(self._reply.id).removeprefix(KEY_PREFIX) if self._reply is not None else None
        if choice is not None and choice.message.refusal:
            raise CallFailed(Reason.REFUSAL, choice.message.refusal[:400], call_id)
        if choice is not None and choice.finish_reason == "content_filter":
            raise CallFailed(Reason.REFUSAL, "mem0: stopped by a content filter", call_id)
        value = read(answer)
        if value is not None:
            text, replaced = sanitize(json.dumps(value, ensure_ascii=False))
            return text if replaced else answer
        reason = Reason.INVALID_OUTPUT
        if choice is not None and choice.finish_reason == "length":
            reason = Reason.TRUNCATED
        shown = ascii(answer)[:200]
        raise CallFailed(reason, f"mem0: no list of memories in the answer: {shown}", call_id)


def read(answer: object) -> dict[str, Any] | None:
    """An answer as mem0 reads it; None unless it is an object with a list of texts."""
    utils = importlib.import_module("mem0.memory.utils")
    text = utils.remove_code_blocks(answer)
    try:
        try:
            value = json.loads(text, strict=False)
        except json.JSONDecodeError:
            value = json.loads(utils.extract_json(text), strict=False)
    except (ValueError, RecursionError):
        return None
    rows = value.get("memory") if isinstance(value, dict) else None
    sound = isinstance(rows, list) and all(
        isinstance(row, dict) and isinstance(row.get("text"), str) for row in rows
    )
    return value if sound else None


class WatchedEmbedder:
    """mem0's embedder; it notes what fails, since mem0 then drops the memory and goes on."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def embed(self, *args: Any, **kwargs: Any) -> Any:
        """As mem0's own."""
        return self._noting(self._inner.embed, *args, **kwargs)

    def embed_batch(self, *args: Any, **kwargs: Any) -> Any:
        """As mem0's own."""
        return self._noting(self._inner.embed_batch, *args, **kwargs)

    def _noting(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            self._watch.faults.append(error)
            raise


@dataclass(frozen=True, slots=True)
class Row:
    vector: Vector
    payload: dict[str, Any]


class OrderedVectors:
    """mem0's vector store; it keeps the order of creation, the vectors as they came, and ties.

    The embedded Qdrant scales its vectors anew at every search, so that equal ones
    drift apart in the last digit; it loads a folder in another order than it was
    written; and mem0 names memories by random ids. Which of two equal memories a
    prompt shows first would change by a restart. Scores are therefore made exact,
    equal ones ordered by creation, and a restored store is filled in that order.
    """

    def __init__(self, inner: Any, watch: Watch) -> None:
        # The hub's keyword model is tried over the network unless this says it was.
        inner._bm25_encoder = False
        self._inner = inner
        self._watch = watch
        self.rows: dict[str, Row] = {}
        self.ordinals: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def insert(
        self,
        vectors: Sequence[Any],
        payloads: Sequence[dict[str, Any]],
        ids: Sequence[str],
    ) -> None:
        """As mem0's own."""
        try:
            self._inner.insert(vectors=vectors, payloads=payloads, ids=ids)
        except Exception as error:
            self._watch.faults.append(error)
            raise
        for key, vector, payload in zip(ids, vectors, payloads, strict=True):
            self.ordinals.setdefault(key, len(self.ordinals) + 1)
            self.rows[key] = Row(np.asarray(vector, dtype=np.float32), dict(payload))

    def search(
        self,
        query: str,
        vectors: Sequence[float],
        top_k: int = 5,
        filters: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """As mem0's own: at most `top_k` of Qdrant's points by cosine, equal ones oldest first."""
        limit = top_k + SPARE
        while True:
            hits = self._inner.search(query=query, vectors=vectors, top_k=limit, filters=filters)
            if len(hits) < limit or hits[top_k - 1].score - hits[-1].score > DRIFT:
                break
            limit *= 2
        if not hits:
            return []
        keys = [str(hit.id) for hit in hits]
        exact = cosines(vectors, [self.rows[key].vector for key in keys])
        best = sorted(range(len(hits)), key=lambda n: (-exact[n], self.ordinals[keys[n]]))
        return [hits[n].model_copy(update={"score": exact[n]}) for n in best[:top_k]]

    def count(self) -> int:
        """What Qdrant itself says that the whole collection holds."""
        return int(self._inner.client.count(self._inner.collection_name, exact=True).count)


def cosines(query: Sequence[float], rows: Sequence[Vector]) -> list[float]:
    """Cosines of a query with some rows; equal rows give equal values, wherever they stand."""
    target = np.asarray(query, dtype=np.float64)
    table = np.stack(rows).astype(np.float64)
    lengths = np.sqrt((table**2).sum(axis=1)) * np.sqrt((target**2).sum())
    # Not a matrix product: its last digits depend on a row's place.
    products = (table * target).sum(axis=1)
    return [float(p / n) if n > 0 else 0.0 for p, n in zip(products, lengths, strict=True)]
