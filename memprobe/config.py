"""What a run is: its configuration as recorded in the manifest."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from memprobe.types import AccessMode, Frozen, Protocol, Role

Positive = Annotated[int, Field(gt=0)]

EMBEDDED = "embedded/default"
"""The model string of the default profile: no key, no server, no download."""


class RunConfig(Frozen):
    """One run's settings. Everything that can change a figure is in here.

    `users` is a count (the first n in id order) or explicit ids; None means all.
    `limit` bounds the tasks per user. `context_window` (tokens) overrides what is
    known of the models, e.g. for a local server. `max_cost` is in US dollars.
    `coverage_threshold` is the share of scored items below which a ranking is
    refused; `error_threshold` the share of unscored items above which a run
    exits with 1. `seed` enters every simulated draw and bootstrap.
    """

    name: str
    suite: Literal["recovery"] = "recovery"
    systems: tuple[str, ...] = ("nomem", "longctx_full", "rag")
    users: int | tuple[str, ...] | None = None
    dataset: str | None = None
    limit: Positive | None = None
    model: str = EMBEDDED
    model_roles: dict[Role, str] = Field(default_factory=dict)
    k: tuple[Positive, ...] = (5,)
    access: tuple[AccessMode, ...] = (AccessMode.DUMP_ALL, AccessMode.RETRIEVE)
    protocol: Protocol = Protocol.STRICT
    epochs: Positive = 1
    max_turns: Positive = 25
    max_connections: Positive = 64
    context_window: Positive | None = None
    call_timeout: Annotated[float, Field(gt=0)] = 120.0
    max_cost: Annotated[float, Field(ge=0)] | None = None
    independent: bool = False
    seed: int = 7
    coverage_threshold: Annotated[float, Field(ge=0, le=1)] = 0.95
    error_threshold: Annotated[float, Field(ge=0, le=1)] = 0.05

    @field_validator("k")
    @classmethod
    def _distinct(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) != len(value):
            raise ValueError("each k once")
        return tuple(sorted(value))

    @field_validator("systems")
    @classmethod
    def _some_systems(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("at least one system")
        if len(set(value)) != len(value):
            raise ValueError("each system once")
        return value

    def model_of(self, role: Role) -> str:
        """The model string configured for a role."""
        return self.model_roles.get(role, self.model)
