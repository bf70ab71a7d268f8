"""A Prefect server for the session, and shells in folders of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows import server
from tests.e2e.support import Shell

NewShell = Callable[..., Shell]


@pytest.fixture(scope="session")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Server]:
    """A tuned server like the one `memprobe up` keeps."""
    started, process = server.start(tmp_path_factory.mktemp("prefect"))
    try:
        yield started
    finally:
        server.stop(process)


@pytest.fixture
def shell(tmp_path: Path, prefect: server.Server) -> NewShell:
    """A new shell by name; its runs use the session's server."""

    def new(name: str = "home", **env: str) -> Shell:
        home = tmp_path / name
        api = {"PREFECT_API_URL": prefect.api_url, "PREFECT_HOME": str(tmp_path / "prefect")}
        return Shell(home, {**server.TUNING, **api, **env})

    return new
