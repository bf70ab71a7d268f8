"""The contract suite: one set of checks for every memory system, ours and yours."""

from adapters.memory.contract.bench import CheckResult
from adapters.memory.contract.suite import CHECKS, NO_NETWORK, check_spec, check_system

__all__ = ["CHECKS", "NO_NETWORK", "CheckResult", "check_spec", "check_system"]
