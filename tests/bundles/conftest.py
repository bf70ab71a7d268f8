"""The command, as the other command tests have it."""

from tests.cli.conftest import invoke

__all__ = ["invoke"]
