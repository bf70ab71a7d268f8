"""graphiti (Zep's engine), through its own library on an embedded kuzu (extra `graphiti`).

A temporal knowledge graph: each session becomes an episode, from which a model
extracts entities and facts between them; facts that repeat are joined, facts that
contradict end the older one (https://github.com/getzep/graphiti; arXiv:2501.13956).
Telemetry is off, the model is asked through the run's door, the vectors are the
run's own, and no model reranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue

from adapters.memory import graphiti_engine
from adapters.memory.graphiti_engine import Engine, Rows
from adapters.memory.graphiti_watch import NAME, ModelSettings, ordinal
from adapters.memory.refusals import check_text, models_for, pass_over
from adapters.memory.snapshots import read_snapshot, write_snapshot
from memprobe.errors import (
    AdapterError,
    MemProbeError,
    SnapshotError,
    UnsupportedEvent,
)
from memprobe.ports import Capabilities
from memprobe.systems import ModelWork, Services, SystemCard, SystemOptions
from memprobe.types import (
    AccessMode,
    DocumentEvent,
    Event,
    MemoryItem,
    MessageEvent,
    Protocol,
    Scope,
    SessionEvent,
)

INSTALL = "pip install 'memprobe-audit[graphiti]'"
CONVERSATION, DOCUMENT = "conversation", "document"
"""What a prompt is told of an episode's source; never what part it plays in a design."""


class GraphitiOptions(SystemOptions):
    """graphiti's options; the defaults are the library's own.

    `structured` is how answers are asked for: `json_object` puts the schema into the
    prompt, for servers without `json_schema`. `store` goes for single messages only: a
    session is one episode with everything that was said. `validity` shows from when to
    when a fact held in its text, or leaves that to the fields.
    """

    temperature: float = Field(default=0.0, ge=0, le=2)
    max_tokens: int = Field(default=16384, gt=0)
    structured: Literal["json_schema", "json_object"] = "json_schema"
    store: Literal["user", "both"] = "user"
    validity: Literal["shown", "fields"] = "shown"

    @classmethod
    def published(cls) -> Mapping[str, JsonValue]:
        """The publication showed its reader the bare facts."""
        return {"validity": "fields"}


class Graphiti:
    """A temporal knowledge graph that graphiti's library builds from sessions."""

    Options = GraphitiOptions
    capabilities = Capabilities(
        needs_llm=True,
        needs_embedder=True,
        documents=True,
        sessions=True,
        derives=True,
    )
    card = SystemCard(
        name=NAME,
        title="graphiti",
        summary="a temporal knowledge graph of entities and facts, by Zep's engine",
        licence="Apache-2.0",
        capabilities=capabilities,
        process="own",
        probe_access=AccessMode.RETRIEVE,
        probe_k=15,
        extra="graphiti",
        package="graphiti-core",
        per_message=ModelWork(calls=6.0, prompt_tokens=1800, completion_tokens=120),
        score_scale="reciprocal rank fusion of BM25 and cosine, above 0",
        notes=(
            "measured with graphiti-core 0.31.2 on embedded kuzu 0.11.3, which upstream has "
            "deprecated in favour of database servers",
            "17 calls of 1,200 tokens a session, counted over 44 sessions of the paradigms suite "
            "with a fake model: 1 for entities, 1 for facts, up to 2 to join and sum up entities, "
            "and up to 2 a fact, to join or end facts and to date them",
            "facts are found by the library's hybrid search without a reranking model; those with "
            "a cosine below 0.6 and no common word are not found",
            "a dump holds facts, entities with their summaries, and the sessions as they came",
            "created and ended facts carry the time of their session in place of the wall clock's",
        ),
    )

    @staticmethod
    def trouble() -> str | None:
        """Why the library cannot work on this machine; None when nothing is known of it."""
        return graphiti_engine.trouble()

    def __init__(self, services: Services) -> None:
        given = services.options
        self._services = services
        self._options = given if isinstance(given, GraphitiOptions) else GraphitiOptions()
        self._strict = services.protocol is Protocol.STRICT
        self._engine: Engine | None = None

    async def open(self, scope: Scope) -> None:
        """An empty graph in a folder of its own, which `close` removes.

        Raises `MissingPrerequisite` when the library or a model is missing.
        """
        if self._engine is not None:
            raise AdapterError(f"{NAME}: the store is open already")
        models = models_for(
            NAME, self._services, installed=graphiti_engine.installed(), install=INSTALL
        )
        chosen = self._options
        settings = graphiti_engine.Settings(
            models=models,
            embedder=self._services.embedder,
            model=ModelSettings(
                chosen.temperature, chosen.max_tokens, chosen.structured, self._strict
            ),
        )
        try:
            self._engine = Engine(settings)
        except MemProbeError:
            raise
        except Exception as error:
            raise AdapterError(f"{NAME}: the library did not start: {error!r}") from error

    def _opened(self) -> Engine:
        if self._engine is None:
            raise AdapterError(f"{NAME}: the store is not open")
        return self._engine

    async def write(self, event: Event) -> None:
        """One episode of the graph: a session, a document or a message.

        Raises `CallFailed` when a model call failed or its answer was not in the form
        that was asked for. Under the published protocol both are logged and forgotten,
        and a session's label is its source description, as it was then.
        """
        engine = self._opened()
        _check_text(event)
        source, description = "message", CONVERSATION
        match event:
            case SessionEvent():
                body = event.text
                if not self._strict and event.label:
                    description = event.label
            case DocumentEvent():
                day = event.event_time.date().isoformat()
                body = f"[{event.author}, {day}] {event.text}"
                source, description = "text", DOCUMENT
            case MessageEvent():
                if event.role not in ("user", "assistant"):
                    raise UnsupportedEvent(f"{NAME}: no message of role {event.role!r} is kept")
                if event.role == "assistant" and self._options.store == "user":
                    return
                body = f"{event.role.capitalize()}: {event.text}"
        try:
            await engine.add(body, event.event_time, event.session_id, source, description)
        except MemProbeError as error:
            self._swallow(error, "an episode")

    def _swallow(self, error: MemProbeError, what: str) -> None:
        """Raise, but forget what the publication forgot under its protocol."""
        pass_over(NAME, what, error, strict=self._strict)

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """At most `k` facts by graphiti's hybrid search; nothing for a blank query."""
        engine = self._opened()
        if k < 1 or not query.strip():
            return []
        try:
            rows, scores = await engine.search(query, k)
        except MemProbeError as error:
            self._swallow(error, "a search")
            return []
        return [
            self._fact(edge, rows, score) for edge, score in zip(rows.facts, scores, strict=True)
        ]

    async def dump(self) -> list[MemoryItem]:
        """Facts, then entities, then episodes, each oldest first; all of them or `AdapterError`."""
        rows = await self._opened().dump()
        return [
            *(self._fact(edge, rows) for edge in rows.facts),
            *(_entity(node) for node in rows.entities),
            *(_episode(node, rows) for node in rows.episodes),
        ]

    def _fact(self, edge: Any, rows: Rows, score: float | None = None) -> MemoryItem:
        told = [rows.sessions.get(uuid, "") for uuid in edge.episodes]
        history = rows.history.get(edge.uuid, [])
        fields: dict[str, JsonValue] = {
            "category": "fact",
            "relation": edge.name,
            "source": rows.names.get(edge.source_node_uuid),
            "target": rows.names.get(edge.target_node_uuid),
            "valid_at": _moment(edge.valid_at),
            "invalid_at": _moment(edge.invalid_at),
            "expired_at": _moment(edge.expired_at),
            "sessions": list(dict.fromkeys(told)),
            "session_id": told[0] if told else "",
            "operations": [{"operation": what, "session_id": which} for what, which in history],
        }
        return MemoryItem(
            id=f"fact{ordinal(edge.uuid):06d}",
            content=edge.fact + (_held(edge) if self._options.validity == "shown" else ""),
            event_time=_aware(edge.reference_time or edge.created_at),
            score=score,
            fields=fields,
        )

    async def save(self, directory: Path) -> None:
        """The database after a checkpoint, and what became of which fact in which session."""
        count, parts = await self._opened().state()
        write_snapshot(directory, NAME, self._services.embedder.name, count, parts)

    async def restore(self, directory: Path) -> None:
        """Bring back a saved store; asks no model and embeds nothing."""
        engine = self._opened()
        names = (graphiti_engine.GRAPH, graphiti_engine.STATE)
        count, parts = read_snapshot(directory, NAME, self._services.embedder.name, names)
        try:
            await engine.load(count, parts)
        except SnapshotError as error:
            raise SnapshotError(f"{directory}: {error}") from error

    async def close(self) -> None:
        """Close the library and remove its folder; safe to call twice."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()


def _check_text(event: Event) -> None:
    check_text(NAME, event.text)


def _aware(moment: datetime) -> datetime:
    """kuzu gives times without a zone; they are UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _moment(moment: datetime | None) -> str | None:
    return _aware(moment).isoformat() if moment else None


def _held(edge: Any) -> str:
    """From when to when a fact held, as far as it is known; days, as a reader needs them."""
    start = _aware(edge.valid_at).date().isoformat() if edge.valid_at else None
    end = _aware(edge.invalid_at).date().isoformat() if edge.invalid_at else None
    match start, end:
        case None, None:
            return ""
        case _, None:
            return f" (since {start})"
        case None, _:
            return f" (until {end})"
    return f" (from {start} until {end})"


def _entity(node: Any) -> MemoryItem:
    return MemoryItem(
        id=f"entity{ordinal(node.uuid):06d}",
        content=f"{node.name}: {node.summary}" if node.summary else node.name,
        event_time=_aware(node.created_at),
        fields={"category": "entity", "name": node.name, "labels": sorted(node.labels)},
    )


def _episode(node: Any, rows: Rows) -> MemoryItem:
    return MemoryItem(
        id=f"episode{ordinal(node.uuid):06d}",
        content=node.content,
        event_time=_aware(node.valid_at),
        fields={
            "category": "episode",
            "source": node.source.value,
            "source_description": node.source_description,
            "session_id": rows.sessions.get(node.uuid, ""),
        },
    )
