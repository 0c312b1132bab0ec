"""What is not the app: pages of another origin on this machine, and the far end of a tunnel."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def another_origin(page: str = "<!doctype html><title>Elsewhere</title>") -> Iterator[int]:
    """A server of one page, whatever is asked of it: its port on this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


class Tunnel:
    """Carries bytes from a port of this machine to another one, as `ssh -L` does."""

    def __init__(self) -> None:
        self._near = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._near.getsockname()[1]

    def to(self, port: int) -> None:
        """Opens the tunnel to a port."""
        threading.Thread(target=self._take, args=(port,), daemon=True).start()

    def close(self) -> None:
        """Takes no more connections."""
        self._near.close()

    def _take(self, port: int) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._near.accept()
                far = socket.create_connection(("127.0.0.1", port))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_carry, args=(source, sink), daemon=True).start()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
