"""Entry points of the deployments in `deploy/prefect.yaml`.

`prefect deploy` refuses a deployment whose work pool is not there, and a fresh
server has none. It imports this module first, so the pools are made here; any
other import (a worker's, a test's) leaves the server alone.
"""

from __future__ import annotations

import sys

from flows.recovery import memprobe
from flows.up import ensure_pools

__all__ = ["memprobe"]


def deploying(arguments: list[str]) -> bool:
    """Whether this process is `prefect deploy`."""
    return "prefect" in arguments[0].replace("\\", "/").rsplit("/", 1)[-1] and "deploy" in arguments


if deploying(sys.argv):
    ensure_pools()
