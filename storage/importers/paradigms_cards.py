"""Cards of the systems in a published paradigms suite: facts of that release, not of ours."""

from __future__ import annotations

from typing import Any, NamedTuple

from memprobe.ports import Capabilities
from memprobe.systems import SystemCard
from memprobe.types import AccessMode

ORIGIN = "published paradigms suite"
LICENCE = "MIT (suite 56) or CC BY-NC 4.0 (suite 40): the records"
_MODEL = Capabilities(needs_llm=True, needs_embedder=True, verbatim=False)
_TYPES = "The reader sees each session's part in the design in its header."
_GOLD = "Its keywords hold the gold values, so that its retrieval is told what to look for."


class _Facts(NamedTuple):
    title: str
    summary: str
    access: AccessMode = AccessMode.DUMP_ALL
    k: int = 15
    gold: str = "none"
    notes: tuple[str, ...] = ()
    capabilities: Capabilities = Capabilities()


_R = AccessMode.RETRIEVE
_CARDS: dict[str, _Facts] = {
    "judge": _Facts("Judge over the dialogue", "One call with all four questions over the whole "
                    "dialogue, in free text: a check of the suite, no memory."),
    "full_context": _Facts("Full context", "The reader sees every session.", notes=(_TYPES,)),
    "naive_rag": _Facts("Sessions by keywords", "The 5 sessions with most keywords.", _R, 5,
                        notes=(_TYPES, _GOLD)),
    "time_aware_rag": _Facts("Sessions by keywords, with their place", "As naive_rag, and the "
                             "reader is told where each stood.", _R, 5, notes=(_TYPES, _GOLD)),
    "recency": _Facts("The last sessions", "The last 5 sessions.", _R, 5, notes=(_TYPES,)),
    "oracle_rag": _Facts("Oracle retrieval", "The sessions that state or challenge the fact.",
                         gold="sessions", notes=(_TYPES,)),
    "latest_value": _Facts("Latest value", "A rule: the value mentioned last.", gold="values"),
    "always_update": _Facts("Always update", "A rule: the new value.", gold="values"),
    "always_preserve": _Facts("Always preserve", "A rule: the old value.", gold="values"),
    "mem0": _Facts("Mem0", "Facts that a model extracts; the reader sees all of them.",
                   capabilities=_MODEL),
    "langmem": _Facts("LangMem", "Memories that a model keeps; the reader sees all of them.",
                      capabilities=_MODEL),
    "amem": _Facts("A-MEM", "Linked notes; 15 of them.", _R, capabilities=_MODEL,
                   notes=("The session's part in the design is stored as tag and category.",)),
    "graphiti": _Facts("Graphiti", "A temporal graph; 15 items.", _R, capabilities=_MODEL,
                       notes=("The session's part in the design is the source description.",)),
    "cognee": _Facts("Cognee", "A graph and vectors; 15 items.", _R, capabilities=_MODEL),
    "memoryos": _Facts("MemoryOS", "Short, mid and long term.", _R, capabilities=_MODEL),
}  # fmt: skip
ORDER = tuple(_CARDS)


KEEPS_SESSIONS = frozenset({"full_context", "naive_rag", "time_aware_rag", "recency", "oracle_rag"})
"""Baselines whose store is the episode's sessions."""


def base_name(key: str) -> str:
    """A report's key as a system: memory systems have `_full` at their end."""
    return key.removesuffix("_full")[:80] or "unnamed"


def card(system: str, key: str, report: str) -> SystemCard:
    """The card of an imported system; one that the paper does not have says so."""
    unknown = "A system of the imported report that the paper's tables do not have."
    facts = _CARDS.get(base_name(key)) or _Facts(base_name(key), unknown)
    more: dict[str, Any] = {"sees_gold": facts.gold}
    return SystemCard(
        name=system,
        title=facts.title,
        summary=facts.summary,
        licence=LICENCE,
        capabilities=facts.capabilities,
        suites=("paradigms",),
        probe_access=facts.access,
        probe_k=facts.k,
        origin=ORIGIN,
        retrieve=facts.access is AccessMode.RETRIEVE,
        notes=(*facts.notes, f"Imported from {key} of {report}."),
        **more,
    )
