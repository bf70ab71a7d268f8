"""A Prefect server for the session, and shells in folders of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flows import server
from tests.e2e.support import Model, Shell
from tests.support.postgres import postgres
from tests.support.s3 import bucket, s3_endpoint

__all__ = ["bucket", "postgres", "s3_endpoint"]

NewShell = Callable[..., Shell]


@pytest.fixture(scope="session")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Server]:
    """A tuned server like the one `memprobe up` keeps."""
    started, process = server.start(tmp_path_factory.mktemp("prefect"))
    try:
        yield started
    finally:
        server.stop(process)


def shell_in(home: Path, prefect: server.Server, **env: str) -> Shell:
    api = {"PREFECT_API_URL": prefect.api_url, "PREFECT_HOME": str(home / ".prefect-client")}
    return Shell(home, {**server.TUNING, **api, **env})


@pytest.fixture
def shell(tmp_path: Path, prefect: server.Server) -> NewShell:
    """A new shell by name; its runs use the session's server."""

    def new(name: str = "home", **env: str) -> Shell:
        return shell_in(tmp_path / name, prefect, **env)

    return new


@dataclass(frozen=True)
class Clean:
    """The small remote run, uninterrupted and without faults."""

    run: Path
    result: dict[str, Any]
    calls: int
    shell: Shell


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory, prefect: server.Server) -> Clean:
    """What killed, faulty and interrupted runs are held against."""
    with Model() as model:
        shell = shell_in(tmp_path_factory.mktemp("clean"), prefect, **model.env)
        done = shell.remote("clean")
        calls = len(model.chats)
    assert done.code == 0, done.err
    return Clean(shell.runs / "clean", done.json, calls, shell)
