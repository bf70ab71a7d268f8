"""The network guard: what it stops, what it lets through."""

import asyncio
import contextlib
import socket
import threading

import pytest

from adapters.memory.contract.network import NetworkBlocked, NetworkGuard, is_local, trusted


def reach(host: str) -> None:
    """Connect a datagram socket: nothing is sent, and nothing needs to listen."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((host, 9))
        except NetworkBlocked:
            raise
        except OSError:
            pass  # a machine without a route; the guard let it through all the same


def test_a_remote_address_is_blocked_and_recorded() -> None:
    with NetworkGuard() as guard, pytest.raises(NetworkBlocked):
        reach("203.0.113.7")
    assert guard.attempts == ["203.0.113.7:9"]


def test_a_name_is_blocked_before_it_is_looked_up() -> None:
    with NetworkGuard() as guard, pytest.raises(NetworkBlocked):
        socket.getaddrinfo("telemetry.example", 443)
    assert guard.attempts == ["telemetry.example:443"]


def test_a_background_thread_is_seen() -> None:
    def run() -> None:
        with pytest.raises(NetworkBlocked):
            reach("203.0.113.7")

    with NetworkGuard() as guard:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert guard.attempts == ["203.0.113.7:9"]


async def test_loopback_is_let_through() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    with NetworkGuard() as guard:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b"hello"
        writer.close()
        server.close()
    assert guard.attempts == []


def test_the_gateway_is_let_through() -> None:
    with NetworkGuard() as guard, trusted():
        reach("203.0.113.7")
    assert guard.attempts == []


def test_nothing_is_watched_outside_a_guard() -> None:
    with NetworkGuard() as guard:
        pass
    reach("203.0.113.7")
    assert guard.attempts == []


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("", True),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("example.org", False),
        ("169.254.169.254", False),
    ],
)
def test_what_is_local(host: str, local: bool) -> None:
    assert is_local(host) is local


async def test_what_the_door_starts_is_the_gateway_and_what_the_system_starts_is_not() -> None:
    async def door(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reach("203.0.113.7")
        writer.write(b"answered")
        writer.close()

    with NetworkGuard() as guard:
        with trusted():
            server = await asyncio.create_task(asyncio.start_server(door, "127.0.0.1", 0))
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b"answered"
        writer.close()
        server.close()
        assert guard.attempts == []
        with pytest.raises(NetworkBlocked):
            reach("203.0.113.8")
    assert guard.attempts == ["203.0.113.8:9"]


def test_names_may_be_resolved_for_a_gateway_but_not_connected_to() -> None:
    with NetworkGuard(lookups=False) as guard:
        with contextlib.suppress(socket.gaierror):
            socket.getaddrinfo("203.0.113.7", 443, flags=socket.AI_NUMERICHOST)
        assert guard.attempts == []
        with pytest.raises(NetworkBlocked):
            reach("203.0.113.7")
