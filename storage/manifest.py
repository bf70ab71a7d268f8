"""The manifest: what a run is, written before its first call and kept up to date.

It answers how a figure came about: settings, versions, prompts, data set, seeds,
models, and whatever was changed on the way (dropped parameters, self-judging).
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from importlib import metadata
from typing import Any

from pydantic import Field, ValidationError

from memprobe.config import RunConfig
from memprobe.dataset import explain
from memprobe.errors import StorageError
from memprobe.systems import SystemCard
from memprobe.types import Frozen, Protocol
from storage.schemas import SCHEMA_VERSION

_PACKAGES = (
    "prefect",
    "litellm",
    "duckdb",
    "pyarrow",
    "sentence-transformers",
    "numpy",
)


class RunStatus(StrEnum):
    """Where a run stands. Every status but `complete` can be resumed."""

    CREATED = "created"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    COMPLETE = "complete"
    FAILED = "failed"


def package_versions() -> dict[str, str]:
    """Versions that a figure may depend on; a package that is not installed is left out."""
    versions = {"python": platform.python_version()}
    for distribution in ("memprobe-audit", *_PACKAGES):
        try:
            versions[distribution] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    if "memprobe-audit" not in versions:
        import memprobe

        versions["memprobe-audit"] = memprobe.__version__
    versions["memprobe"] = versions.pop("memprobe-audit")
    return versions


def now() -> str:
    """The current time, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Origin(Frozen):
    """Where a run came from that was imported and not played.

    `layer` is a second name of the layer `base`; `runs` maps a system to the
    name of its run in the source.
    """

    kind: str
    layer: str
    source: str
    runs: dict[str, str] = Field(default_factory=dict)


class Manifest(Frozen):
    """The record of a run. `schema_version` is the version of table and manifest format.

    `self_judged` tells that the model under test judges itself; `embedded` that
    the verdicts come from the deterministic profile. `dropped_params` maps a
    model to the parameters it rejected; such a run is not deterministic.
    """

    schema_version: int = SCHEMA_VERSION
    name: str
    status: RunStatus = RunStatus.CREATED
    config: RunConfig
    versions: dict[str, str] = Field(default_factory=package_versions)
    prompts: dict[str, str] = Field(default_factory=dict)
    dataset_name: str
    dataset_digest: str
    seeds: dict[str, int] = Field(default_factory=dict)
    protocol: Protocol = Protocol.STRICT
    embedded: bool = False
    self_judged: bool = False
    dropped_params: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    systems: dict[str, SystemCard] = Field(default_factory=dict)
    parent: str | None = None
    origin: Origin | None = None
    note: str | None = None
    created_at: str = Field(default_factory=now)
    updated_at: str = Field(default_factory=now)

    @classmethod
    def start(
        cls,
        config: RunConfig,
        *,
        dataset_name: str,
        dataset_digest: str,
        prompts: Mapping[str, str] | None = None,
        systems: Mapping[str, SystemCard] | None = None,
        parent: str | None = None,
    ) -> Manifest:
        """The manifest of a new run of these settings.

        `prompts` maps a template's name to its identity.
        """
        embedded = config.model_of(config.verdict_role).startswith("embedded/")
        return cls(
            name=config.name,
            config=config,
            prompts=dict(prompts or {}),
            dataset_name=dataset_name,
            dataset_digest=dataset_digest,
            seeds={"run": config.seed},
            protocol=config.protocol,
            embedded=embedded,
            self_judged=config.self_judged,
            systems=dict(systems or {}),
            parent=parent,
        )

    def stored_layer(self, name: str) -> str:
        """The layer of verdicts that a name means: an import's own name is that of `base`."""
        return "base" if self.origin is not None and name == self.origin.layer else name

    @property
    def system_names(self) -> tuple[str, ...]:
        """The systems as the tables call them; a path to a class goes by its slug there."""
        return tuple(self.systems) or self.config.systems

    def to_bytes(self) -> bytes:
        """The manifest file's content."""
        return (self.model_dump_json(indent=2) + "\n").encode()

    def changed(self, **changes: Any) -> Manifest:
        """A validated copy with some fields replaced and `updated_at` set."""
        unknown = sorted(set(changes) - set(type(self).model_fields))
        if unknown:
            raise StorageError(f"the manifest has no field {', '.join(unknown)}")
        fields = self.model_dump(mode="json") | {"updated_at": now()} | changes
        try:
            return Manifest.model_validate(fields)
        except ValidationError as error:
            raise StorageError(f"manifest: {explain(error)}") from error


def read_manifest(raw: bytes, where: str) -> Manifest:
    """Parse a manifest file; raises `StorageError` telling the version or the field."""
    try:
        parsed = json.loads(raw)
    except ValueError as error:
        raise StorageError(f"{where} is not valid JSON ({error})") from error
    found = parsed.get("schema_version") if isinstance(parsed, dict) else None
    if found != SCHEMA_VERSION:
        age = "a newer" if isinstance(found, int) and found > SCHEMA_VERSION else "an older"
        raise StorageError(
            f"{where} has run format {found!r}, written by {age} MemProbe; this one reads "
            f"format {SCHEMA_VERSION}. Install the version it names under 'versions', or run "
            "the suite again: nothing was changed"
        )
    try:
        return Manifest.model_validate(parsed)
    except ValidationError as error:
        raise StorageError(f"{where}: {explain(error)}") from error
