"""Pools, their workers, and the deployments that are made for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from adapters.memory.registry import BUILT_IN, Registry
from flows import deployed
from flows.pools import POOL_OF, PoolState, alive, deployment, own_kind, pool_state
from flows.sweep import sweep_name
from memprobe.errors import MissingPrerequisite
from storage.bundled import deploy_dir
from tests.adapters.support import WordEmbedder

NOW = datetime(2031, 1, 5, 12, tzinfo=UTC)
SPEC = yaml.safe_load((deploy_dir() / "prefect.yaml").read_text(encoding="utf-8"))


def worker(age_s: float | None, status: str = "ONLINE", every: int | None = 30) -> Any:
    beat = None if age_s is None else NOW - timedelta(seconds=age_s)
    return SimpleNamespace(
        name="w", last_heartbeat_time=beat, heartbeat_interval_seconds=every, status=status
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (worker(1), True),
        (worker(44), True),
        (worker(46), False),
        (worker(1, "OFFLINE"), False),
        (worker(None), False),
        (worker(14, every=10), True),
        (worker(16, every=10), False),
        (worker(44, every=None), True),
    ],
)
def test_a_worker_lives_by_its_heartbeat(found: Any, expected: bool) -> None:
    assert alive(found, NOW) is expected


def test_a_prefect_status_counts_as_its_word() -> None:
    from prefect.client.schemas.objects import WorkerStatus

    assert alive(SimpleNamespace(**{**vars(worker(1)), "status": WorkerStatus.ONLINE}), NOW)
    assert not alive(SimpleNamespace(**{**vars(worker(1)), "status": WorkerStatus.OFFLINE}), NOW)


def test_trouble_comes_with_the_command_that_ends_it() -> None:
    assert PoolState("p", True, False, ("w",)).trouble is None
    assert "`prefect worker start --pool p`" in str(PoolState("p", True, False, ()).trouble)
    assert "`prefect work-pool resume p`" in str(PoolState("p", True, True, ("w",)).trouble)
    missing = str(PoolState("p", False, False, ()).trouble)
    assert "prefect deploy --prefect-file" in missing
    assert "prefect.yaml --all" in missing


class Client:
    """Knows one pool and the part deployments, as they are named in a dictionary."""

    def __init__(self, parts: dict[str, str], mine: str | None) -> None:
        self.parts = parts
        self.mine = mine

    def _missing(self) -> Exception:
        from prefect.exceptions import ObjectNotFound

        return ObjectNotFound(Exception("404"))

    async def read_deployment_by_name(self, name: str) -> Any:
        if name not in self.parts:
            raise self._missing()
        return SimpleNamespace(work_pool_name=self.parts[name])

    async def read_flow_run(self, _: object) -> Any:
        return SimpleNamespace(work_pool_name=self.mine)

    async def read_work_pool(self, name: str) -> Any:
        if name != "memprobe-cpu":
            raise self._missing()
        return SimpleNamespace(is_paused=False)

    async def read_workers_for_work_pool(self, _: str) -> list[Any]:
        fresh = SimpleNamespace(**{**vars(worker(0)), "last_heartbeat_time": datetime.now(UTC)})
        return [fresh, worker(0, "OFFLINE")]


async def test_a_pool_is_told_with_the_workers_that_live() -> None:
    client = Client({}, None)
    assert (await pool_state(client, "memprobe-cpu")).workers == ("w",)
    assert not (await pool_state(client, "memprobe-gpu")).exists


@pytest.mark.parametrize(
    ("parts", "mine", "expected"),
    [
        ({"memprobe-part/cpu": "memprobe-cpu", "memprobe-part/gpu": "memprobe-gpu"}, None, "cpu"),
        (
            {"memprobe-part/cpu": "memprobe-cpu", "memprobe-part/gpu": "memprobe-gpu"},
            "memprobe-gpu",
            "gpu",
        ),
        ({"memprobe-part/cpu": "small", "memprobe-part/gpu": "big"}, "big", "gpu"),
        ({}, "memprobe-gpu", "cpu"),
    ],
)
async def test_a_flow_runs_own_kind_is_that_of_its_pool(
    parts: dict[str, str], mine: str | None, expected: str
) -> None:
    assert await own_kind(Client(parts, mine), "id") == expected


async def test_a_missing_deployment_is_told_with_the_command() -> None:
    with pytest.raises(MissingPrerequisite, match=r"memprobe-part/gpu: run `prefect deploy"):
        await deployment(Client({}, None), "memprobe-part/gpu")


def test_each_built_in_system_has_a_sweep_in_the_pool_of_its_card() -> None:
    registry = Registry(WordEmbedder())
    cards = {name: registry.card(name) for name in BUILT_IN}
    sweeps = {d["name"]: d for d in SPEC["deployments"] if d["entrypoint"].endswith(".sweep")}
    assert {name: d["work_pool"]["name"] for name, d in sweeps.items()} == {
        name: POOL_OF[card.pool] for name, card in cards.items()
    }
    for name, sweep in sweeps.items():
        suite = {} if "recovery" in cards[name].suites else {"suite": "paradigms"}
        assert sweep["parameters"] == {"system": name, **suite}
        (schedule,) = sweep["schedules"]
        assert schedule["active"] is False
        assert schedule["timezone"] == "UTC"
    # Two that start at the same time in one pool would wait for each other.
    times = [(s["work_pool"]["name"], s["schedules"][0]["cron"]) for s in sweeps.values()]
    assert len(set(times)) == len(times)


def test_every_deployment_names_a_flow_and_a_pool_that_there_is() -> None:
    for made in SPEC["deployments"]:
        module, _, name = made["entrypoint"].rpartition(".")
        assert module == "flows.deployed"
        flow = getattr(deployed, name)
        assert set(made.get("parameters", {})) <= set(flow.parameters.properties)
        assert made["work_pool"]["name"] in POOL_OF.values()
    kinds = {d["name"] for d in SPEC["deployments"] if d["entrypoint"].endswith("_part")}
    assert kinds == set(POOL_OF)


def test_a_sweeps_run_is_named_after_the_day_in_utc() -> None:
    east = datetime.fromisoformat("2031-01-05T01:00:00+05:00")
    assert sweep_name("rag", east) == "sweep_rag_20310104"
    assert sweep_name("rag", NOW) == "sweep_rag_20310105"
