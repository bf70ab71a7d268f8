"""A store that does not work without the network."""

import socket

from examples.my_memory import MyMemory
from memprobe import Event


class NeedsNetwork(MyMemory):
    async def write(self, event: Event) -> None:
        try:
            socket.create_connection(("embeddings.example", 443), timeout=0.1).close()
        except OSError as error:
            raise RuntimeError("the embedding service cannot be reached") from error
        await super().write(event)
