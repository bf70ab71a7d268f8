"""Cards of the systems in the published release: facts of that release, not of our adapters."""

from __future__ import annotations

from typing import Any

from memprobe.ports import Capabilities
from memprobe.systems import SystemCard

ORIGIN = "published recovery release"
LICENCE = "CC BY 4.0 (the records)"

_CARDS: dict[str, dict[str, Any]] = {
    "amem": {
        "title": "A-MEM",
        "summary": "Messages as linked notes that a model describes and lets evolve.",
        "capabilities": Capabilities(needs_llm=True, needs_embedder=True, event_time=False),
        "score_scale": "squared L2 distance of all-MiniLM-L6-v2 vectors: smaller is nearer",
        "notes": (
            "Assistant replies are never stored. Timestamps are wall clock.",
            "Evolved tags and contexts show in results and never reach the index.",
        ),
    },
    "longctx_full": {
        "title": "Long context (full transcript)",
        "summary": "The whole transcript before every reply; top-k by all-MiniLM-L6-v2.",
        "capabilities": Capabilities(needs_embedder=True, event_time=False),
        "score_scale": "cosine of all-MiniLM-L6-v2 vectors: larger is nearer",
        "reply_access": "dump_all",
        "notes": ("The last reply of every episode is missing from the store.",),
    },
    "mem0": {
        "title": "Mem0",
        "summary": "Facts that a model extracts (mem0ai 2.0.1, gpt-4o-mini inside).",
        "capabilities": Capabilities(needs_llm=True, needs_embedder=True, verbatim=False),
        "notes": ("Only the user's messages are added. The release holds no retrieval scores.",),
    },
    "memt": {
        "title": "Mem-T (memory only)",
        "summary": "A trained 4B policy over five collections; run memt_memonly_pooled_50.",
        "capabilities": Capabilities(needs_llm=True, needs_embedder=True, derives=True),
        "pool": "gpu",
        "notes": (
            "Dumped items repeat their source turns, so most whole stores did not fit the "
            "reader's window; those targets were published as 0 and are marked store_overflow.",
            "Retrieved items have no scores, and sometimes there are fewer than five.",
        ),
    },
    "nomem": {
        "title": "No memory",
        "summary": "Keeps nothing; every conversation starts from the task alone.",
        "capabilities": Capabilities(stores=False, top_k=False),
        "retrieve": False,
        "reply_access": "none",
    },
}


def card(system: str, run: str) -> SystemCard:
    """The card of an imported system; one that the paper does not know says so."""
    known = _CARDS.get(system) or {
        "title": system,
        "summary": "A system of the imported release that the paper's tables do not use.",
        "capabilities": Capabilities(),
    }
    notes = (*known.get("notes", ()), f"Imported from run {run}.")
    return SystemCard(
        **{**known, "notes": notes, "name": system, "licence": LICENCE, "origin": ORIGIN}
    )
