"""Telemetry that fails quietly."""

import contextlib
import socket

from examples.my_memory import MyMemory
from memprobe import Event


class PhonesHome(MyMemory):
    async def write(self, event: Event) -> None:
        with contextlib.suppress(OSError):
            socket.create_connection(("203.0.113.7", 443), timeout=0.1).close()
        await super().write(event)
