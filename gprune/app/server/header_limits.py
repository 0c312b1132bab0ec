"""Answers: is the head of a request small enough to be looked at at all?

Everybody who reaches the port can send one, with or without the token, and one process answers everyone. So
what is larger than any browser's is refused before it is read, and its connection is closed.
"""

import re
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gprune.app.server.auth import HEADERS
from gprune.app.server.request import MOST_BYTES, MOST_LINES, TOO_LARGE

LINGER_SECONDS = 2.0
"""how long what is still coming is taken and thrown away, so that the sender gets to read the answer"""
_END = re.compile(rb"\n\r?\n")


class BoundedProtocol(H11Protocol):
    """One connection, whose requests have heads of MOST_LINES and MOST_BYTES at most."""

    def __init__(self, *given: Any, **named: Any) -> None:
        """Begins a connection; for the parameters see uvicorn."""
        super().__init__(*given, **named)
        self.conn = h11.Connection(h11.SERVER, MOST_BYTES)
        self._refused = False

    def data_received(self, data: bytes) -> None:
        """Takes what has come, and throws it away once a request was refused."""
        if not self._refused:
            super().data_received(data)

    def handle_events(self) -> None:
        """Reads what has come, of which the next request may have waited for the answer to the one before."""
        if self.conn.their_state is h11.IDLE and too_large(self.conn.trailing_data[0]):
            self._refuse()
        else:
            super().handle_events()

    def _refuse(self) -> None:
        self._refused = True
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        self.transport.write(_answer())
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.loop.call_later(LINGER_SECONDS, self.transport.close)
        else:
            self.transport.close()


def too_large(received: bytes) -> bool:
    """Whether what has come of a request, from its first byte, begins with too large a head."""
    # the last line's end, and the empty line behind it, belong to the head
    end = _END.search(received, 0, MOST_BYTES + 4)
    head = received[: end.start()] if end else received
    return len(head) > MOST_BYTES or head.count(b"\n") > MOST_LINES


def _answer() -> bytes:
    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    body = TOO_LARGE.encode()
    told = {
        "content-type": "text/plain; charset=utf-8",
        "content-length": str(len(body)),
        "connection": "close",
        **HEADERS,
    }
    lines = [f"HTTP/1.1 {status} {status.phrase}", *(f"{name}: {one}" for name, one in told.items()), "", ""]
    return "\r\n".join(lines).encode() + body
