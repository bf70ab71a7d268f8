"""Reading a store in parts that fit the window, and merging what the parts say.

Beside the reading of the whole store (layer `base`), which a store larger than
the window overflows, this is a reading of its own (layer `chunked`). A store that
fits has one part, and its chunked reading is the whole one. Otherwise each part
is read for each dimension with the same prompt, and the labels that are not
"unknown" are merged: none leaves "unknown"; one, or several that say the same, is
taken as it is; others are put to the reader with their evidence. Where a part
could not be read, nothing is merged: a reading of the rest would be of another
store. The published procedure has nothing like it, so that no fault of that
procedure is reproduced here: what was not measured is unscored under any protocol.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memprobe.config import RunConfig
from memprobe.dataset import BankEntry
from memprobe.outcomes import Reason, Unscored
from memprobe.types import AccessMode, Category
from tasks.chunks import NoRoom, Part, Piece, parts_of, reach
from tasks.reading import UNKNOWN, Filled, Reader, Rows, Size, is_unknown, status

BASE = "base"
LAYER = "chunked"
"""The layer of slot-fills, verdicts, attributions and metrics of this reading."""
LEAST_ROOM = 64
"""Tokens of memory that a part must have room for; with fewer, no text is worth reading."""
_ENDS = " \t\r\n.,;:!?\"'`«»“”‘’()[]"


def wanted(config: RunConfig) -> bool:
    """Whether a run reads whole stores in parts, too."""
    return config.dump_reader == LAYER and AccessMode.DUMP_ALL in config.access


def layers(config: RunConfig) -> tuple[str, ...]:
    """The layers that a run's own stages make, the first one `base`."""
    return (BASE, LAYER) if wanted(config) else (BASE,)


def overflown(verdicts: pa.Table, layer: str) -> int:
    """How many verdicts of a layer are unscored for a store that is read in parts beside it."""
    chosen = (
        (pc.field("layer") == layer)
        & (pc.field("access_mode") == AccessMode.DUMP_ALL.value)
        & (pc.field("status") == "unscored")
        & (pc.field("reason") == Reason.STORE_OVERFLOW.value)
    )
    return int(verdicts.filter(chosen).num_rows)


def same(label: str) -> str:
    """A label without what makes no difference: case, width, spacing, punctuation around it."""
    text = unicodedata.normalize("NFKC", label).casefold()
    return " ".join(text.split()).strip(_ENDS)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A label with its evidence and the parts it comes from, e.g. `1` or `2, 3`."""

    parts: str
    label: str
    evidence: str
    call_id: str | None

    def quoted(self) -> dict[str, Any]:
        """As the merge prompt lists it."""
        return {"part": self.parts, "label": self.label, "evidence": self.evidence}


class ChunkedReader:
    """One store's chunked reading. `rows` are those of `slot_fill_parts`."""

    def __init__(self, reader: Reader, memories: tuple[str, ...]) -> None:
        self.reader = reader
        self.memories = memories
        self.rows: Rows = []

    def plan(self, size: Size) -> list[Part] | Unscored:
        """The parts of the store; one when it fits, a failure when the window leaves no room."""

        def measure(texts: Sequence[str]) -> int:
            return self.reader.tokens("slot_fill", memories=list(texts))

        whole = self.reader.overflow(size)
        if whole is None:
            pieces = tuple(Piece(i, 0, len(text), text) for i, text in enumerate(self.memories))
            return [Part(pieces, measure(self.memories))]
        budget = self.reader.budget or 0
        none = Unscored(
            Reason.STORE_OVERFLOW, f"{whole.detail}; the prompt leaves no room for a part of it"
        )
        if budget - measure([]) < LEAST_ROOM:
            return none
        try:
            return parts_of(self.memories, measure, budget)
        except NoRoom:
            return none

    async def read(
        self, parts: Sequence[Part], targets: Sequence[tuple[Category, BankEntry]]
    ) -> dict[str, Filled]:
        """Read every part for every dimension, and merge; by dimension."""
        read = await asyncio.gather(
            *(self._part(number, len(parts), part, targets) for number, part in enumerate(parts, 1))
        )
        merged = await asyncio.gather(
            *(
                self._merged(category, entry.dimension, [found[place] for found in read])
                for place, (category, entry) in enumerate(targets)
            )
        )
        return {entry.dimension: m for (_, entry), m in zip(targets, merged, strict=True)}

    async def _part(
        self,
        number: int,
        of: int,
        part: Part,
        targets: Sequence[tuple[Category, BankEntry]],
    ) -> list[Filled]:
        async def one(category: Category, entry: BankEntry) -> Filled:
            item = f"{LAYER}/{AccessMode.DUMP_ALL.value}/{entry.dimension}/part{number}"
            filled = await self.reader.fill(item, part.texts, category, entry.dimension)
            self.note(category, entry.dimension, 0, number, of, filled, part)
            return filled

        # The first call fills the provider's prefix cache for the other thirty.
        first = targets[:1] if self.reader.warms(part.tokens) else []
        done = [await one(*target) for target in first]
        return done + list(
            await asyncio.gather(*(one(*target) for target in targets[len(first) :]))
        )

    def note(
        self,
        category: Category,
        dimension: str,
        step: int,
        part: int,
        of: int,
        filled: Filled,
        read: Part | None,
    ) -> None:
        """A row of `slot_fill_parts`: a part that was read, or a merge (`read` None)."""
        seen = {piece.item for piece in read.pieces} if read else set()
        self.rows.append(
            {
                "system": self.reader.system,
                "user_id": self.reader.user.user_id,
                "epoch": self.reader.epoch,
                "layer": LAYER,
                "category": category.value,
                "dimension": dimension,
                "step": step,
                "part": part,
                "n_parts": of,
                "first_seq": min(seen, default=None),
                "last_seq": max(seen, default=None),
                "prompt_tokens": read.tokens if read else None,
                "label": filled.label,
                "label_reason": filled.reason,
                **status(filled.failure),
                "call_id": filled.call_id,
            }
        )

    async def _merged(self, category: Category, dimension: str, read: list[Filled]) -> Filled:
        of = len(read)
        for number, filled in enumerate(read, 1):
            if filled.failure is not None:
                why = filled.failure
                detail = f"part {number} of {of}: {why.detail}"
                return Filled(call_id=filled.call_id, failure=Unscored(why.reason, detail))
        left = [
            Candidate(str(number), filled.label or "", filled.reason or "", filled.call_id)
            for number, filled in enumerate(read, 1)
        ]
        step = 1
        while True:
            left = [c for c in left if not is_unknown(c.label)]
            if len({same(c.label) for c in left}) <= 1:
                return _settled(left, of)
            groups = self._groups(left)
            if isinstance(groups, Unscored):
                return Filled(failure=groups)
            asked = await asyncio.gather(
                *(
                    self._ask(category, dimension, (step, number, len(groups)), group)
                    for number, group in enumerate(groups, 1)
                )
            )
            failed = next((a for a in asked if isinstance(a, Filled)), None)
            if failed is not None:
                return failed
            left = [a for a in asked if isinstance(a, Candidate)]
            if len(left) == 1:
                only = left[0]
                return Filled(only.label, only.evidence, only.call_id)
            step += 1

    def _groups(self, candidates: Sequence[Candidate]) -> list[list[Candidate]] | Unscored:
        """Candidates by merge prompts that fit the window; a failure where not even two do."""
        budget = self.reader.budget
        if budget is None:
            return [list(candidates)]
        quoted = [candidate.quoted() for candidate in candidates]

        def measure(start: int, end: int) -> int:
            return self.reader.tokens("slot_fill_merge", candidates=quoted[start:end])

        lengths = [len(candidate.label + candidate.evidence) for candidate in candidates]
        groups: list[list[Candidate]] = []
        at = 0
        while at < len(candidates):
            end, _ = reach(lengths, at, measure, budget)
            end = max(end, at + 1)
            groups.append(list(candidates[at:end]))
            at = end
        if len(groups) == len(candidates):
            return Unscored(
                Reason.STORE_OVERFLOW,
                f"no two of the {len(candidates)} labels that the parts gave fit one merge prompt "
                f"in the window of {self.reader.model} {self.reader.window}",
            )
        return groups

    async def _ask(
        self,
        category: Category,
        dimension: str,
        place: tuple[int, int, int],
        group: list[Candidate],
    ) -> Candidate | Filled:
        """One merge; a `Filled` is a failure. A single candidate passes on as it is."""
        if len(group) == 1:
            return group[0]
        step, number, of = place
        item = f"{LAYER}/{AccessMode.DUMP_ALL.value}/{dimension}/merge{step}.{number}"
        variables = {"candidates": [c.quoted() for c in group]}
        filled = await self.reader.ask(
            "slot_fill_merge", item, {**variables, **self.reader.about(category, dimension)}
        )
        self.note(category, dimension, step, number, of, filled, None)
        if filled.failure is not None:
            why = filled.failure
            return Filled(
                call_id=filled.call_id,
                failure=Unscored(why.reason, f"merging {len(group)} labels: {why.detail}"),
            )
        parts = ", ".join(candidate.parts for candidate in group)
        return Candidate(parts, filled.label or "", filled.reason or "", filled.call_id)


def _settled(left: Sequence[Candidate], of: int) -> Filled:
    """The outcome when there is nothing to merge."""
    if not left:
        return Filled(UNKNOWN, f"none of the {of} parts shows anything on this dimension")
    parts = ", ".join(candidate.parts for candidate in left)
    noun = "parts" if "," in parts else "part"
    return Filled(left[0].label, f"{noun} {parts} of {of}: {left[0].evidence}", left[0].call_id)
