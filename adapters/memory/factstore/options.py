"""What can be set of a fact store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, JsonValue

from memprobe.ports import Capabilities
from memprobe.systems import SystemOptions


class Options(SystemOptions):
    """`engine`: who extracts and decides; `auto` is the model where the run has one.

    `guard`: what a document older than a fact's last update may do to it: only
    reinforce it (`strict`), or append details, too (`enrich`). `conflict`: whether a
    decision can be `conflict`, which the published prompt has not. `candidates` are
    the facts shown to a decision. `store`: whose messages of a dialogue are read;
    documents and sessions are read whole. `superseded`: a search finds them, too.
    `observations`: a dump lists them behind the facts.
    """

    engine: Literal["auto", "model", "embedded"] = "auto"
    guard: Literal["strict", "enrich"] = "strict"
    conflict: bool = True
    candidates: int = Field(default=10, ge=1)
    store: Literal["user", "both"] = "user"
    superseded: bool = False
    observations: bool = False
    temperature: float = Field(default=0.0, ge=0.0, le=2.0)

    @classmethod
    def published(cls) -> Mapping[str, JsonValue]:
        """The published prompt cannot decide on a conflict."""
        return {"conflict": False}

    def capabilities(self, declared: Capabilities) -> Capabilities:
        """`engine=model` cannot do without a model; `engine=embedded` takes none."""
        needs = {"model": {"needs_llm": True}, "embedded": {"uses_llm": False}, "auto": {}}
        return declared.model_copy(update=needs[self.engine])
