"""A fact store as the parts of a snapshot, and back. Equal stores, equal bytes."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from adapters.memory.factstore.records import Fact, Observation, Operation, Store
from adapters.memory.vectors import VectorIndex
from memprobe.errors import SnapshotError
from memprobe.types import Frozen

STATE, TEXTS, VECTORS = "state.json", "texts.jsonl", "vectors.npy"
PARTS = (STATE, TEXTS, VECTORS)


class _State(Frozen):
    facts: tuple[Fact, ...]
    observations: tuple[Observation, ...]
    operations: tuple[Operation, ...]


def parts_of(store: Store) -> dict[str, bytes]:
    """The parts by name."""
    state = _State(
        facts=tuple(store.facts.values()),
        observations=tuple(store.observations.values()),
        operations=tuple(store.operations),
    )
    texts, vectors = store.index.dump_rows()
    return {STATE: state.model_dump_json().encode(), TEXTS: texts, VECTORS: vectors}


def store_of(parts: Mapping[str, bytes], index: VectorIndex) -> Store:
    """The store that `parts_of` was given; encodes nothing, and fills the empty `index`.

    Raises `SnapshotError` when a part cannot be read or the parts are not of one store.
    """
    index.load_rows(parts[TEXTS], parts[VECTORS])
    try:
        state = _State.model_validate_json(parts[STATE])
    except ValidationError as error:
        raise SnapshotError(f"unreadable snapshot ({error})") from error
    store = Store(
        index,
        {fact.id: fact for fact in state.facts},
        {seen.id: seen for seen in state.observations},
        list(state.operations),
    )
    indexed = {i: index.text(i) for i in index.ids()}
    done = [operation.observation_id for operation in store.operations]
    if indexed != {f.id: f.statement for f in state.facts} or done != list(store.observations):
        raise SnapshotError(
            f"{len(state.facts)} facts, {len(indexed)} indexed statements, "
            f"{len(state.observations)} observations and {len(done)} operations, which do not "
            "belong together"
        )
    return store
