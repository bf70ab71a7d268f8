"""A run's report on loopback."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from flows.cli.output import note
from memprobe.errors import UsageError


class _Handler(SimpleHTTPRequestHandler):
    """Files of the report's folder, to this machine only, whatever name a page asks by."""

    def do_GET(self) -> None:
        if self._local():
            super().do_GET()

    def do_HEAD(self) -> None:
        if self._local():
            super().do_HEAD()

    def _local(self) -> bool:
        # A foreign page could point its own name at loopback and read the report through it.
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host in ("127.0.0.1", "localhost", "[::1]"):
            return True
        self.send_error(403, "Only 127.0.0.1 and localhost are served")
        return False

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not worth a line each."""


def server_for(page: Path, port: int) -> ThreadingHTTPServer:
    """A server of the page's folder on loopback; raises `UsageError` when the port is taken."""
    handler = partial(_Handler, directory=str(page.parent))
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        raise UsageError(f"port {port} cannot be used ({error}); try --port 0") from error


def serve(page: Path, port: int) -> None:
    """Serve until Ctrl-C, which is the normal end."""
    with server_for(page, port) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}/{page.name}", flush=True)
        note("Ctrl-C ends it")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            note("")
