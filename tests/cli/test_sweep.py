"""`sweep` without a server: what it refuses, what it sends, what it says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from flows import server, sweeps
from flows.sweeps import Started, Sweep
from tests.cli.conftest import Invoke

API = "http://127.0.0.1:4200/api"
TROUBLE = "no worker of pool memprobe-cpu is online: run `prefect worker start ...`"


def listed(system: str, **changes: Any) -> Sweep:
    fields: dict[str, Any] = {
        "system": system,
        "deployment": f"sweep/{system}",
        "pool": "memprobe-cpu",
        "schedule": "0 5 * * 0",
        "active": False,
        "next": None,
        "last": None,
        "last_state": None,
        "workers": 1,
        "trouble": None,
    }
    return Sweep(**{**fields, **changes})


class Fake:
    """The server side, without one."""

    def __init__(self) -> None:
        self.sent: list[tuple[list[str], dict[str, Any]]] = []
        self.switched: list[tuple[list[str], bool]] = []
        self.trouble: str | None = None
        self.ends = "Completed"

    async def list_sweeps(self, systems: Sequence[str] = ()) -> list[Sweep]:
        return [listed("rag", trouble=self.trouble), listed("nomem", trouble=self.trouble)]

    async def switch(self, systems: Sequence[str], active: bool) -> list[Sweep]:
        self.switched.append((list(systems), active))
        return [listed(system, active=active) for system in systems]

    async def start(self, systems: Sequence[str], parameters: dict[str, Any]) -> list[Started]:
        self.sent.append((list(systems), dict(parameters)))
        return [
            Started(s, f"sweep_{s}_20310105", "id", "memprobe-cpu", "Scheduled", "", self.trouble)
            for s in systems
        ]

    async def watch(self, started: Sequence[Started], say: Any, poll_s: float = 1) -> list[Started]:
        say("rag: Running")
        return [
            Started(s.system, s.run, s.flow_run, s.pool, self.ends, "why", None) for s in started
        ]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    for name in ("list_sweeps", "switch", "start", "watch"):
        monkeypatch.setattr(sweeps, name, getattr(made, name))
    monkeypatch.setattr(sweeps, "use_server", lambda settings: API)
    return made


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rag", "--activate", "--deactivate"), "exclude each other"),
        (("--activate",), "name the systems"),
        (("--watch",), "name the systems"),
        (("rag", "--activate", "--watch"), "started now"),
        (("rag", "--activate", "--users", "2"), "worker's settings"),
        (("--users", "2"), "worker's settings"),
        (("rag", "--users", "0"), "at least one user"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    invoke: Invoke, fake: Fake, arguments: tuple[str, ...], said: str
) -> None:
    done = invoke("sweep", *arguments)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert (fake.sent, fake.switched) == ([], [])


def test_no_server_is_told_with_what_starts_one(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    done = invoke("sweep")
    assert done.exit_code == 2
    assert "`memprobe up`" in done.stderr
    monkeypatch.setenv("PREFECT_API_URL", API)
    monkeypatch.setattr(server, "healthy", lambda *_, **__: False)
    done = invoke("sweep", "rag")
    assert done.exit_code == 2
    assert f"PREFECT_API_URL is {API}, and no server answers there" in done.stderr


def test_what_the_command_line_gives_is_sent_and_nothing_else(
    invoke: Invoke, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMPROBE_SEED", "11")
    options = ("--users", "u1,u2", "--k", "1,5", "--model-role", "judge=openai/x", "--limit", "3")
    done = invoke("sweep", "rag", "nomem", *options, "--json")
    assert done.exit_code == 0, done.output
    ((systems, parameters),) = fake.sent
    assert systems == ["rag", "nomem"]
    assert parameters == {
        "users": ["u1", "u2"],
        "limit": 3,
        "config": {"k": [1, 5], "model_roles": {"judge": "openai/x"}},
    }
    assert json.loads(done.stdout)["started"][0]["run"] == "sweep_rag_20310105"
    invoke("sweep", "rag")
    assert fake.sent[-1] == (["rag"], {})


def test_nobody_waits_in_silence_for_a_worker(invoke: Invoke, fake: Fake) -> None:
    fake.trouble = TROUBLE
    done = invoke("sweep", "rag", "nomem")
    assert done.exit_code == 0
    assert done.stderr.count(TROUBLE) == 1
    assert "nothing will happen yet" in done.stderr
    assert TROUBLE in invoke("sweep").stderr


@pytest.mark.parametrize(("state", "code"), [("Completed", 0), ("Failed", 1), ("Cancelled", 1)])
def test_a_watched_sweep_that_does_not_complete_is_no_success(
    invoke: Invoke, fake: Fake, state: str, code: int
) -> None:
    fake.ends = state
    done = invoke("sweep", "rag", "--watch")
    assert done.exit_code == code
    assert "rag: Running" in done.stderr
    assert state in done.stdout


@pytest.mark.parametrize(("flag", "active"), [("--activate", True), ("--deactivate", False)])
def test_a_schedule_is_switched(invoke: Invoke, fake: Fake, flag: str, active: bool) -> None:
    done = invoke("sweep", "rag", flag, "--json")
    assert fake.switched == [(["rag"], active)]
    assert json.loads(done.stdout)["sweeps"][0]["active"] is active
    assert fake.sent == []
