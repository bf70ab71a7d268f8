"""Entry points of the deployments in `deploy/prefect.yaml`.

`prefect deploy` refuses a deployment whose work pool is not there, and a fresh
server has none. It imports this module first, so the pools are made here; any
other import (a worker's, a test's) leaves the server alone.
"""

from __future__ import annotations

import sys
from pathlib import PureWindowsPath

from flows.paradigms import paradigms
from flows.part import memprobe_part
from flows.recovery import memprobe
from flows.sweep import sweep
from flows.up import ensure_pools

__all__ = ["memprobe", "memprobe_part", "paradigms", "sweep"]


def deploying(arguments: list[str]) -> bool:
    """Whether this process is `prefect deploy`, as a command or by `python -m`."""
    program = PureWindowsPath(arguments[0])
    named = program.stem == "prefect" or program.parts[-2:] == ("prefect", "__main__.py")
    return named and "deploy" in arguments


if deploying(sys.argv):
    ensure_pools()
