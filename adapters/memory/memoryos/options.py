"""What can be set of a MemoryOS store."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, JsonValue

from memprobe.systems import SystemOptions


class Options(SystemOptions):
    """Capacities are in turn pairs, segments and lines of knowledge; similarities are cosines.

    `temperature` and `max_tokens` hold for every call; None takes each call's
    published one (0 to 0.7, 10 to 2,000 tokens). `include_short_term` lets a search
    find the latest pairs, which have not moved to the middle memory yet.
    """

    short_term_capacity: int = Field(default=10, ge=1)
    mid_term_capacity: int = Field(default=2000, ge=1)
    knowledge_capacity: int = Field(default=100, ge=1)
    heat_threshold: float = Field(default=5.0, gt=0.0)
    similarity_threshold: float = Field(default=0.6, ge=0.0, le=2.0)
    retrieval_queue_capacity: int = Field(default=7, ge=1)
    top_segments: int = Field(default=5, ge=1)
    top_knowledge: int = Field(default=20, ge=1)
    segment_similarity: float = Field(default=0.1, ge=-1.0, le=1.0)
    page_similarity: float = Field(default=0.1, ge=-1.0, le=1.0)
    knowledge_similarity: float = Field(default=0.01, ge=-1.0, le=1.0)
    include_short_term: bool = True
    temperature: float | None = Field(default=0.0, ge=0.0, le=2.0)
    max_tokens: int | None = Field(default=2000, gt=0)

    @classmethod
    def published(cls) -> Mapping[str, JsonValue]:
        """The published paradigms run: 7 pairs, which no reader sees, and each call's limits."""
        return {
            "short_term_capacity": 7,
            "include_short_term": False,
            "temperature": None,
            "max_tokens": None,
        }
