"""Watching for network use: a memory system may talk to loopback and to nothing else.

An audit hook sees every Python-level connection and name look-up of the
process, in any thread. It cannot be taken out again, so it is installed once
and does nothing while no guard is active.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_trusted: ContextVar[bool] = ContextVar("memprobe_trusted_network", default=False)
_active: list[NetworkGuard] = []
_installed = False


class NetworkBlocked(OSError):
    """A connection beyond loopback was attempted while the guard was active."""


class NetworkGuard:
    """Blocks and records what goes beyond loopback while it is entered.

    `lookups=False` lets names be resolved: a gateway in this process that
    reaches a provider does so in threads that cannot be told apart. Its
    connections are made inside `trusted()`.
    """

    def __init__(self, *, lookups: bool = True) -> None:
        self.attempts: list[str] = []
        self._lookups = lookups

    def __enter__(self) -> NetworkGuard:
        global _installed
        if not _installed:
            sys.addaudithook(_audit)
            _installed = True
        _active.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _active.remove(self)

    def see(self, what: str, host: str, port: object) -> None:
        """Record and refuse one attempt."""
        if what == "getaddrinfo" and not self._lookups:
            return
        target = f"{host}:{port}" if port is not None else host
        self.attempts.append(target)
        raise NetworkBlocked(f"{target} is beyond loopback; network use is blocked in this check")


def watching() -> bool:
    """Whether a guard is active in this process."""
    return bool(_active)


def report(targets: Sequence[str]) -> None:
    """Put what a process of ours reached for, and was refused, on the active guards' lists."""
    for guard in list(_active):
        guard.attempts += targets


@contextmanager
def trusted() -> Iterator[None]:
    """Connections made by this task, and by tasks started in it, are the gateway's own."""
    token = _trusted.set(True)
    try:
        yield
    finally:
        _trusted.reset(token)


def is_local(host: str) -> bool:
    """Loopback by address or by name; an empty host means any local interface."""
    if host in ("", "localhost", "localhost.localdomain"):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _active or not event.startswith("socket."):
        return
    what = event.removeprefix("socket.")
    host: object
    port: object = None
    if what in ("connect", "sendto", "sendmsg"):
        address = args[1] if len(args) > 1 else None
        # A Unix socket's address is a path; it does not leave the machine.
        if not isinstance(address, tuple) or len(address) < 2:
            return
        host, port = address[0], address[1]
    elif what in ("getaddrinfo", "gethostbyname"):
        host, port = args[0], args[1] if len(args) > 1 else None
    else:
        return
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if not isinstance(host, str) or is_local(host) or _trusted.get():
        return
    what = "getaddrinfo" if what.startswith("get") else what
    for guard in list(_active):
        guard.see(what, host, port)
