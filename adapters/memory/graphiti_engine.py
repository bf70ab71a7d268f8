"""graphiti's own library on an embedded kuzu: built, driven, read out and brought back.

What the library asks and hides is watched from `graphiti_watch`. kuzu cannot be
loaded beside cognee's graph engine, so this belongs into a process of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import threading
import warnings
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from adapters.memory.calls import cause_of
from adapters.memory.graphiti_watch import (
    CURRENT,
    NAME,
    ModelSettings,
    NoReranker,
    RunVectors,
    Store,
    ordinal,
    take_over,
    watched_model,
)
from memprobe.errors import AdapterError, SnapshotError
from memprobe.ports import Embedder
from memprobe.systems import ModelAccess

GROUP = "memprobe"
"""graphiti's group. A store has a database of its own, so that one name does for all of them."""

GRAPH, STATE = "graph.kuzu.z", "state.json"
TABLES = ("Episodic", "Entity", "RelatesToNode_", "Community", "Saga")

_loading = threading.Lock()


@dataclass(frozen=True, slots=True)
class Settings:
    """How one store's library is set up."""

    models: ModelAccess
    embedder: Embedder
    model: ModelSettings


@dataclass(frozen=True, slots=True)
class Rows:
    """All that a graph holds, each kind in the order of creation, and what became of the facts.

    `names` are those of entities by uuid, `history` has (operation, session id) pairs
    by a fact's uuid, `sessions` the session of an episode's.
    """

    facts: list[Any]
    entities: list[Any]
    episodes: list[Any]
    names: Mapping[str, str]
    history: Mapping[str, list[list[str]]]
    sessions: Mapping[str, str]


def installed() -> bool:
    """Whether graphiti and kuzu are there; imports neither."""
    return all(importlib.util.find_spec(name) for name in ("graphiti_core", "kuzu"))


REPAIR = "pip install --no-deps --force-reinstall 'kuzu>=0.11.3,<0.12'"


def trouble() -> str | None:
    """Why kuzu cannot work here: cognee's package puts a stand-in of its name over it."""
    found = importlib.util.find_spec("kuzu")
    if found is None or found.origin is None:
        return None
    text = Path(found.origin).read_text(encoding="utf-8", errors="replace")
    if "ladybug" not in text.lower():
        return None
    return f"cognee has put a stand-in in the place of the package kuzu; put it back: {REPAIR}"


def library(dimensions: int) -> Any:
    """The module `graphiti_core.graphiti`, silenced, with our clock and ids."""
    with _loading:
        if "graphiti_core.graphiti" not in sys.modules:
            _import(dimensions)
            take_over()
        return sys.modules["graphiti_core.graphiti"]


def _import(dimensions: int) -> None:
    """The width of vectors is read at import; whether to report home, at each start."""
    os.environ |= {"GRAPHITI_TELEMETRY_ENABLED": "false", "EMBEDDING_DIM": str(dimensions)}
    importlib.import_module("graphiti_core.graphiti")
    importlib.import_module("graphiti_core.driver.kuzu_driver")
    telemetry = importlib.import_module("graphiti_core.telemetry.telemetry")
    vars(telemetry)["is_telemetry_enabled"] = lambda: False
    for place, name, ours in (
        ("embedder.client", "EmbedderClient", RunVectors),
        ("cross_encoder.client", "CrossEncoderClient", NoReranker),
    ):
        getattr(importlib.import_module(f"graphiti_core.{place}"), name).register(ours)


_template: Path | None = None


def _empty_graph() -> Path:
    """A database with schema and full-text indices, made once a process: it takes seconds."""
    global _template
    with _loading:
        if _template is None:
            folder = Path(tempfile.mkdtemp(prefix="memprobe-graphiti-empty-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            path = folder / "graph.kuzu"
            driver = _driver(path)
            queries = importlib.import_module("graphiti_core.graph_queries")
            kuzu = importlib.import_module("kuzu")
            connection = kuzu.Connection(driver.db)
            # The driver's own method for it does nothing, and without them every write fails.
            for query in queries.get_fulltext_indices(driver.provider):
                connection.execute(query)
            connection.execute("CHECKPOINT")
            connection.close()
            _end(driver)
            _template = path
        return _template


def _driver(path: Path) -> Any:
    module = importlib.import_module("graphiti_core.driver.kuzu_driver")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        driver = module.KuzuDriver(db=str(path))
    driver.client.close()
    # One thread a query: rows with equal scores keep the order in which they were stored.
    driver.client = importlib.import_module("kuzu").AsyncConnection(
        driver.db, max_concurrent_queries=1, max_threads_per_query=1
    )
    # The library asks for it, and the driver of kuzu has none.
    driver._database = GROUP
    return driver


def _end(driver: Any) -> None:
    driver.client.close()
    driver.db.close()


class Engine:
    """One store's library, in one event loop."""

    def __init__(self, settings: Settings) -> None:
        import openai

        self._settings = settings
        self._strict = settings.model.strict
        self._main = library(settings.embedder.dimensions)
        self._store = Store()
        self._sessions: dict[str, str] = {}
        self._history: dict[str, list[list[str]]] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="memprobe-graphiti-"))
        self._path = self._folder / "graph.kuzu"
        # The library's own client follows proxies and OPENAI_BASE_URL, and retries.
        self._client = openai.AsyncOpenAI(
            base_url=settings.models.base_url,
            api_key=settings.models.api_key,
            max_retries=0,
            timeout=None,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False, timeout=None),
        )
        try:
            shutil.copyfile(_empty_graph(), self._path)
            self._graph = self._build()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _build(self) -> Any:
        self._driver = _driver(self._path)
        model = self._settings.models.chat_model
        graph = self._main.Graphiti(
            graph_driver=self._driver,
            llm_client=watched_model(self._client, model, self._settings.model),
            embedder=RunVectors(self._settings.embedder),
            cross_encoder=NoReranker(),
        )
        self._earlier = graph.retrieve_episodes
        graph.retrieve_episodes = self._previous
        return graph

    async def _previous(self, reference_time: datetime, last_n: int = 10, **given: Any) -> Any:
        """The library's own, but episodes of the same moment in the order they were written."""
        everything = max(last_n, len(self._sessions) + 1)
        found = await self._earlier(reference_time, last_n=everything, **given)
        return sorted(found, key=lambda e: (e.valid_at, ordinal(e.uuid)))[-last_n:]

    @contextlib.contextmanager
    def _at(self, when: datetime | None = None) -> Iterator[None]:
        if when is not None:
            self._store.now = when.astimezone(UTC)
        self._store.faults.clear()
        token = CURRENT.set(self._store)
        try:
            yield
        finally:
            CURRENT.reset(token)

    async def add(
        self, body: str, when: datetime, session_id: str, source: str, description: str
    ) -> None:
        """One episode through graphiti's `add_episode`; `source` is `message` or `text`.

        Raises `CallFailed`, `BudgetExceeded` or `AdapterError`; under strict also for
        what the library writes to its log and passes over.
        """
        with self._at(when):
            try:
                result = await self._graph.add_episode(
                    name="episode",
                    episode_body=body,
                    source_description=description,
                    # kuzu drops the zone of a time without a word.
                    reference_time=when.astimezone(UTC),
                    source=self._main.EpisodeType[source],
                    group_id=GROUP,
                )
            except Exception as error:
                raise cause_of(error, NAME, "add_episode") from error
            self._sessions[result.episode.uuid] = session_id
            self._note(result, session_id)
            if self._strict and self._store.faults:
                fault = self._store.faults[0]
                raise cause_of(fault, NAME, "add_episode") from fault

    def _note(self, result: Any, session_id: str) -> None:
        """What this episode did to which facts."""
        for edge in result.edges:
            history = self._history.setdefault(edge.uuid, [])
            if not history:
                history.append(["created", session_id])
            elif result.episode.uuid in edge.episodes and history[-1] != ["repeated", session_id]:
                history.append(["repeated", session_id])
            ended = any(operation == "invalidated" for operation, _ in history)
            if edge.expired_at is not None and not ended:
                history.append(["invalidated", session_id])

    async def search(self, query: str, k: int) -> tuple[Rows, list[float]]:
        """At most `k` facts, best first, with their fused ranks; nothing of another kind."""
        recipes = importlib.import_module("graphiti_core.search.search_config_recipes")
        nodes = importlib.import_module("graphiti_core.nodes")
        # Of our own: `Graphiti.search` sets the limit of the recipe that writing uses, too.
        config = recipes.EDGE_HYBRID_SEARCH_RRF.model_copy(deep=True)
        config.limit = k
        with self._at():
            try:
                found = await self._graph.search_(query, config=config, group_ids=[GROUP])
                facts, scores = found.edges[:k], found.edge_reranker_scores[:k]
                ends = {uuid for f in facts for uuid in (f.source_node_uuid, f.target_node_uuid)}
                named = await nodes.EntityNode.get_by_uuids(self._driver, sorted(ends))
            except Exception as error:
                raise cause_of(error, NAME, "search") from error
        if len(scores) != len(facts):
            raise AdapterError(f"{NAME}: {len(scores)} scores for {len(facts)} facts")
        return self._rows(facts, named, []), scores

    def _rows(self, facts: list[Any], entities: list[Any], episodes: list[Any]) -> Rows:
        names = {node.uuid: node.name for node in entities}
        return Rows(facts, entities, episodes, names, self._history, self._sessions)

    async def dump(self) -> Rows:
        """All facts, entities and episodes; raises `AdapterError` unless it is proven to be all."""
        errors = importlib.import_module("graphiti_core.errors")
        lists: list[list[Any]] = []
        for place, name in (
            ("edges", "EntityEdge"),
            ("nodes", "EntityNode"),
            ("nodes", "EpisodicNode"),
        ):
            kind = getattr(importlib.import_module(f"graphiti_core.{place}"), name)
            try:
                found = await kind.get_by_group_ids(self._driver, [GROUP])
            except (errors.GroupsEdgesNotFoundError, errors.GroupsNodesNotFoundError):
                found = []
            lists.append(sorted(found, key=lambda row: ordinal(row.uuid)))
        facts, entities, episodes = lists
        counted = await self.counts()
        listed = dict.fromkeys(TABLES, 0) | {
            "RelatesToNode_": len({row.uuid for row in facts}),
            "Entity": len({row.uuid for row in entities}),
            "Episodic": len({row.uuid for row in episodes}),
        }
        lost = set(self._history) - {row.uuid for row in facts}
        lost |= set(self._sessions) - {row.uuid for row in episodes}
        if listed != counted or lost:
            raise AdapterError(
                f"{NAME}: the dump is not complete: listed {listed}, in the database {counted}, "
                f"{len(lost)} of those that were written are missing"
            )
        return self._rows(facts, entities, episodes)

    async def counts(self) -> dict[str, int]:
        """Rows by table, as kuzu itself counts them, of whatever group."""
        found = {}
        for table in TABLES:
            rows, *_ = await self._driver.execute_query(f"MATCH (n:{table}) RETURN count(*) AS n")
            found[table] = int(rows[0]["n"])
        return found

    async def state(self) -> tuple[int, dict[str, bytes]]:
        """The number of rows and all that `load` needs."""
        await self._driver.execute_query("CHECKPOINT")
        kept = {
            "ticks": self._store.ticks,
            "sessions": self._sessions,
            "history": self._history,
        }
        text = json.dumps(kept, ensure_ascii=False, sort_keys=True)
        # Mostly empty pages: 16 MB shrink to 0.3.
        graph = zlib.compress(self._path.read_bytes(), 1)
        return sum((await self.counts()).values()), {GRAPH: graph, STATE: text.encode()}

    async def load(self, count: int, parts: Mapping[str, bytes]) -> None:
        """Put a saved graph in the place of the empty one. Raises `SnapshotError`."""
        if self._sessions:
            raise SnapshotError(f"{NAME}: only an empty store can be restored")
        try:
            kept = json.loads(parts[STATE])
            ticks, sessions, history = int(kept["ticks"]), kept["sessions"], kept["history"]
            graph = zlib.decompress(parts[GRAPH])
            self._sessions = {str(key): str(value) for key, value in sessions.items()}
            self._history = {
                str(key): [[str(operation), str(session)] for operation, session in pairs]
                for key, pairs in history.items()
            }
        except (ValueError, TypeError, KeyError, AttributeError, zlib.error) as error:
            raise SnapshotError(f"{NAME}: unreadable snapshot ({error})") from error
        _end(self._driver)
        self._path.write_bytes(graph)
        try:
            self._graph = self._build()
            found = sum((await self.counts()).values())
        except Exception as error:
            raise SnapshotError(f"{NAME}: kuzu does not open the saved graph: {error}") from error
        if found != count:
            raise SnapshotError(f"{NAME}: {count} rows announced, {found} found")
        self._store.ticks = ticks

    async def close(self) -> None:
        """Close library, database and connection, and remove the store's folder."""
        try:
            await self._client.close()
            _end(self._driver)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
