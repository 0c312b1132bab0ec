"""Asks an ASGI app as a server would hand on what a browser sends."""

import asyncio
from dataclasses import dataclass
from typing import Any

from gprune.app.server.auth import Guard
from gprune.app.server.endpoint import Keys, names

KEYS = Keys("the-right-token", "the-right-session")
HOST = "127.0.0.1:8501"
ORIGIN = f"http://{HOST}"
COOKIE = {"cookie": f"a=b; gprune-8501={KEYS.session}"}
PAGE = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document", "sec-fetch-site": "none"}
OWN = {"sec-fetch-mode": "cors", "sec-fetch-dest": "empty", "sec-fetch-site": "same-origin"}


@dataclass(frozen=True)
class Said:
    """What came back."""

    status: int
    headers: list[tuple[str, str]]
    body: str
    reached: bool
    """whether the app behind the door was asked"""

    def header(self, name: str) -> str:
        results = [value for key, value in self.headers if key == name]
        assert len(results) == 1, (name, self.headers)
        return results[0]


class Behind:
    """An app that answers everything; as Streamlit, it has headers of its own."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope["type"])
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
        elif scope["type"] == "http":
            headers = [(b"x-frame-options", b"SAMEORIGIN"), (b"content-security-policy", b"object-src 'none'")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"inside"})


def ask(
    target: str = "/",
    *pairs: tuple[str, str],
    method: str = "GET",
    kind: str = "http",
    guarded: Any = None,
    **headers: str,
) -> Said:
    """Asks the guard of a server on loopback, or another one.

    `pairs` are headers beside `headers`, for those that are sent twice; `headers` have `_` for `-`,
    and `host` is the server's own unless given, and left out where empty.
    """
    behind = Behind()
    guard = guarded or Guard(behind, names("127.0.0.1", 8501, ["localhost:9000", "https://gpu.example"]), KEYS)
    supplied = {"host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
    raw, _, query = target.partition("?")
    scope = {
        "type": kind,
        "method": method,
        "path": raw,
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "headers": [(k.encode(), v.encode("latin-1")) for k, v in [*supplied.items(), *pairs] if v],
        "extensions": {"websocket.http.response": {}},
    }
    if kind == "websocket":
        del scope["method"]
    return _answered(guard, behind, scope)


def _answered(guard: Guard, behind: Behind, scope: Any) -> Said:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect" if scope["type"] == "websocket" else "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(guard(scope, receive, send))
    first = sent[0]
    pairs = [(name.decode(), value.decode("latin-1")) for name, value in first.get("headers", [])]
    status = {"websocket.accept": 101}.get(first["type"], first.get("status"))
    body = b"".join(message.get("body", b"") for message in sent[1:]).decode()
    return Said(int(status or 0), pairs, body, bool(behind.seen))
