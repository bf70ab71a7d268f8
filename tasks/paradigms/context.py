"""What a stage of the paradigms suite works with, and what it may be asked of a system."""

from __future__ import annotations

from dataclasses import dataclass

from memprobe.chat import ChatModel
from memprobe.config import RunConfig
from memprobe.paradigms.suite import Suite
from memprobe.ports import Embedder
from memprobe.systems import SystemCard, SystemSource
from memprobe.types import AccessMode
from storage.runs import RunStore


@dataclass(frozen=True, slots=True)
class ParadigmsContext:
    """All that the stages of one run of the paradigms suite share in one process."""

    config: RunConfig
    suite: Suite
    store: RunStore
    chat: ChatModel
    embedder: Embedder
    systems: SystemSource

    @property
    def digest(self) -> str:
        """Identifies the suite's content."""
        return self.suite.digest

    @property
    def shows_types(self) -> bool:
        """Whether the published leak of session types is reproduced."""
        return self.config.protocol.value == "paper" and not self.config.hide_session_type


@dataclass(frozen=True, slots=True)
class Reading:
    """One way a reader reaches a store: a mode, and how many items a retrieval gives."""

    mode: AccessMode
    k: int | None

    @property
    def name(self) -> str:
        """As it stands in ledger items: `dump_all` or `retrieve@15`."""
        return self.mode.value if self.k is None else f"{self.mode.value}@{self.k}"


def readings(config: RunConfig, card: SystemCard) -> list[Reading]:
    """How a run reads a system: as its card says, or in the modes that the run names.

    A mode that a system does not have is left out; one that has none of them is
    read as its card says.
    """
    if config.access and card.sees_gold == "none":
        found: list[Reading] = []
        if AccessMode.DUMP_ALL in config.access and card.capabilities.full_dump:
            found.append(Reading(AccessMode.DUMP_ALL, None))
        if AccessMode.RETRIEVE in config.access and card.retrieve and card.capabilities.top_k:
            found += [Reading(AccessMode.RETRIEVE, k) for k in config.k or (card.probe_k,)]
        if found:
            return found
    if card.probe_access is AccessMode.DUMP_ALL:
        return [Reading(AccessMode.DUMP_ALL, None)]
    return [Reading(AccessMode.RETRIEVE, k) for k in config.k or (card.probe_k,)]
