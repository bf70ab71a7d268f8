"""What a run is: its configuration as recorded in the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, field_validator

from memprobe.errors import UsageError
from memprobe.types import AccessMode, Frozen, Protocol, Role, SuiteName

Positive = Annotated[int, Field(gt=0)]

EMBEDDED = "embedded/default"
"""The model string of the default profile: no key, no server, no download."""


class RunConfig(Frozen):
    """One run's settings. Everything that can change a figure is in here.

    `users` is a count (the first n in id order) or explicit ids; None means all. In the
    paradigms suite an episode stands in a user's place, and a count is spread over it.
    `limit` bounds the tasks per user, there the episodes. An empty `access` reads each
    system as its card says, which is what the paradigms suite does by default.
    `context_window` (tokens) overrides what is known of the models, e.g. for a local
    server. `dump_reader` chunked also reads whole stores in parts that fit the window,
    beside the one reading. `max_cost` is in US dollars.
    `hide_session_type` keeps the published paradigms protocol from telling readers and
    systems a session's part in the design; strict never tells.
    `coverage_threshold` is the share of scored items below which a ranking is
    refused; `error_threshold` the share of unscored items above which a run
    exits with 1. `system_options` are the memory systems' own, by system and
    field. `seed` enters every simulated draw and bootstrap.
    """

    name: str
    suite: SuiteName = "recovery"
    systems: tuple[str, ...] = ("nomem", "longctx_full", "rag")
    users: int | tuple[str, ...] | None = None
    dataset: str | None = None
    limit: Positive | None = None
    model: str = EMBEDDED
    model_roles: dict[Role, str] = Field(default_factory=dict)
    k: tuple[Positive, ...] = (5,)
    access: tuple[AccessMode, ...] = (AccessMode.DUMP_ALL, AccessMode.RETRIEVE)
    dump_reader: Literal["whole", "chunked"] = "whole"
    protocol: Protocol = Protocol.STRICT
    epochs: Positive = 1
    max_turns: Positive = 25
    hide_session_type: bool = False
    max_connections: Positive = 64
    context_window: Positive | None = None
    call_timeout: Annotated[float, Field(gt=0)] = 120.0
    max_cost: Annotated[float, Field(ge=0)] | None = None
    independent: bool = False
    system_options: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
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

    @property
    def verdict_role(self) -> Role:
        """Whose answers the figures stand on: a judge's, or a reader's that rules score."""
        return Role.JUDGE if self.suite == "recovery" else Role.READER

    @property
    def reading_role(self) -> Role:
        """Who reads the stores."""
        return Role.SLOT_FILL if self.suite == "recovery" else Role.READER

    @property
    def self_judged(self) -> bool:
        """Whether the model that helps the user also judges; an embedded judge is no model."""
        if self.suite != "recovery":
            return False
        judge = self.model_of(Role.JUDGE)
        return judge == self.model_of(Role.ASSISTANT) and not judge.startswith("embedded/")

    def model_of(self, role: Role) -> str:
        """The model string configured for a role."""
        return self.model_roles.get(role, self.model)


RESULT_FIELDS = (
    "suite",
    "dataset",
    "limit",
    "protocol",
    "epochs",
    "max_turns",
    "hide_session_type",
    "context_window",
    "independent",
    "seed",
)
"""Fields that cannot change within a run: what was measured before would be of another kind."""


def merge_config(old: RunConfig, new: RunConfig, known: Sequence[str] | None = None) -> RunConfig:
    """The settings of an existing run that is started again with `new`.

    Systems, users, k, access modes and the dump reader are extended, limits and thresholds are
    taken from `new`. Raises `UsageError` naming every field that would change a
    figure, old value against new. `known` are the data set's user ids, needed
    only to join a count of users with explicit ids.
    """
    changed = [
        f"{name}: {_text(getattr(old, name))} in the run, {_text(getattr(new, name))} now"
        for name in RESULT_FIELDS
        if getattr(old, name) != getattr(new, name)
    ]
    moved = [role for role in Role if old.model_of(role) != new.model_of(role)]
    if moved and len({(old.model_of(r), new.model_of(r)) for r in Role}) == 1:
        changed.append(f"model: {old.model} in the run, {new.model} now")
    else:
        changed += [
            f"model of {role.value}: {old.model_of(role)} in the run, {new.model_of(role)} now"
            for role in moved
        ]
    changed += [
        f"options of {name}: {_text(old.system_options.get(name))} in the run, "
        f"{_text(new.system_options.get(name))} now"
        for name in old.systems
        if name in new.systems and old.system_options.get(name) != new.system_options.get(name)
    ]
    # What the cards say stands in no list, so a mode that is named would take its place.
    changed += [
        f"{name}: as each system's card says in the run, {_text(getattr(new, name))} now"
        for name in ("access", "k")
        if not getattr(old, name) and getattr(new, name)
    ]
    if changed:
        lines = "\n  ".join(changed)
        raise UsageError(
            f"run {old.name!r} exists with other settings, and its figures would mix:\n  {lines}\n"
            f"`memprobe resume {old.name}` goes on with the run's own settings; for the new ones "
            "choose another name with --run"
        )
    return new.model_copy(
        update={
            "name": old.name,
            "systems": _union(old.systems, new.systems),
            "system_options": {**new.system_options, **old.system_options},
            "users": _merge_users(old, new, known),
            "k": tuple(sorted({*old.k, *new.k})),
            "access": tuple(m for m in AccessMode if m in {*old.access, *new.access}),
            "dump_reader": "chunked"
            if "chunked" in (old.dump_reader, new.dump_reader)
            else "whole",
        }
    )


SUITE_DEFAULTS: dict[SuiteName, dict[str, Any]] = {
    "recovery": {},
    "paradigms": {
        "systems": (
            "full_context",
            "oracle_rag",
            "naive_rag",
            "time_aware_rag",
            "recency",
            "latest_value",
            "always_update",
            "always_preserve",
        ),
        "access": (),
        "k": (),
    },
}
"""Defaults of a suite that differ from those of the fields."""


def _text(value: object) -> str:
    return "none" if value is None else str(value)


def _union(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*old, *new]))


def _merge_users(
    old: RunConfig, new: RunConfig, known: Sequence[str] | None
) -> int | tuple[str, ...] | None:
    first, second = old.users, new.users
    if first is None or second is None:
        return None
    if isinstance(first, int) and isinstance(second, int):
        return max(first, second)
    if isinstance(first, tuple) and isinstance(second, tuple):
        return _union(first, second)
    if known is None:
        raise UsageError(
            f"run {old.name!r} has users {_text(first)}, the command {_text(second)}; give both "
            "as a count or both as ids"
        )
    ids = [known[:u] if isinstance(u, int) else u for u in (first, second)]
    wanted = set(ids[0]) | set(ids[1])
    rest = wanted - set(known)
    return tuple([u for u in known if u in wanted] + sorted(rest))
