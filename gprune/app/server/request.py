"""A request as the guard sees it: target, origin, token and cookies."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote_plus

TOKEN = "token"
"""name of the token in an address"""
_ENDS = re.compile(r"[\x00-\x20\x7f]")


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, or one that asks for a WebSocket."""

    headers: Mapping[str, tuple[str, ...]]
    """every header by its name in small letters"""
    path: str
    """as it was sent, with its percent signs"""
    query: str
    """the same of what follows the question mark"""
    socket: bool
    """whether it asks for a WebSocket"""
    reading: bool
    """whether it only asks for something, as GET does"""

    def header(self, name: str) -> str | None:
        """A header that may stand there once; None where it is absent, empty where it stands twice."""
        found = self.headers.get(name, ())
        return (found[0] if len(found) == 1 else "") if found else None

    @property
    def navigates(self) -> bool:
        """Whether a person opens a page of its own, and no frame, picture or script is asked for."""
        if self.socket or not self.reading:
            return False
        mode, place = self.header("sec-fetch-mode"), self.header("sec-fetch-dest")
        if mode is None:
            # browsers say it only of addresses that they take for safe: https, and this machine
            return "text/html" in (self.header("accept") or "")
        return mode == "navigate" and place == "document"

    @property
    def foreign(self) -> bool:
        """Whether the browser says that a page of another origin asks, be it on the same machine."""
        return self.header("sec-fetch-site") not in (None, "none", "same-origin")

    @property
    def token(self) -> str | None:
        """The token in the address; None where there is none. A whole address with its token will do."""
        if self.socket or not self.reading:
            return None
        found = [value for name, value in self.fields if name == TOKEN]
        if not found:
            return None
        return found[-1].strip().rpartition(f"{TOKEN}=")[2].partition("&")[0].partition("#")[0]

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The query, name by name."""
        return parse_qsl(self.query, keep_blank_values=True)

    @property
    def wanted(self) -> str:
        """Path and query without the token, otherwise as they were sent."""
        kept = [part for part in self.query.split("&") if part and unquote_plus(part.partition("=")[0]) != TOKEN]
        return self.path + ("?" + "&".join(kept) if kept else "")

    def cookies(self, name: str) -> list[str]:
        """Every value of a cookie; several may come, of other paths."""
        pairs = [part.partition("=") for line in self.headers.get("cookie", ()) for part in line.split(";")]
        return [value.strip() for key, _, value in pairs if key.strip() == name]


def read(scope: Mapping[str, Any]) -> Request:
    """A request, of type http or websocket, as ASGI gives it."""
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    sent = _line((scope.get("raw_path") or quote(scope["path"]).encode()).partition(b"?")[0])
    return Request(
        headers={name: tuple(values) for name, values in headers.items()},
        # anything else could be read as a part of the host where it is put behind one
        path=sent if sent.startswith("/") else "/",
        query=_line(scope.get("query_string", b"")),
        socket=scope["type"] == "websocket",
        reading=scope.get("method", "GET") in ("GET", "HEAD"),
    )


def _line(sent: bytes) -> str:
    """A part of an address without what could end the header that it is put into."""
    return _ENDS.sub("", sent.decode("latin-1"))
