"""Where the bundled data lie: the repository's `data/`, or the copy inside a wheel."""

from __future__ import annotations

from pathlib import Path

import memprobe
from memprobe.errors import MissingPrerequisite


def _bundled(folder: str, packaged: str) -> Path:
    package = Path(memprobe.__file__).resolve().parent
    for candidate in (package / packaged, package.parent / folder):
        if candidate.is_dir():
            return candidate
    raise MissingPrerequisite(
        f"the bundled {folder} folder is missing beside {package}; reinstall memprobe-audit"
    )


def data_dir() -> Path:
    """The folder with the bundled suites."""
    return _bundled("data", "_data")


def deploy_dir() -> Path:
    """The folder with `prefect.yaml`, work pools and serving recipes."""
    return _bundled("deploy", "_deploy")


def recovery_dir() -> Path:
    """The bundled recovery data set."""
    return data_dir() / "recovery"


def paradigms_dir(name: str = "suite56") -> Path:
    """A bundled suite of paradigms by its name."""
    return data_dir() / "paradigms" / name
