"""Answers: may this request reach the app?

Pure ASGI middleware, so that it sees what a WebSocket asks for as well as every HTTP request. It lets through
what names this server exactly, comes from none but its own pages, and carries the cookie that only the
server's token gives.
"""

import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from gprune.app.server import login_page
from gprune.app.server.allowed_hosts import Names
from gprune.app.server.request import TOKEN, Request, read

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

HEADERS = {
    "content-security-policy": "frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""on every response"""
_NO_SESSION = "none"
"""the cookie of whoever came with a wrong token, so that the form can say so"""
_BYTES = 32
"""of chance in each secret: 2**256 values are not to be tried out"""
_STRANGE_NAME = (
    "This server does not answer under this name: open the address that it printed, or start it with "
    "--public-address and the name and port that you use."
)
_STRANGE_PAGE = "A page of another origin has asked for this; only the app's own pages may."


@dataclass(frozen=True, slots=True)
class Keys:
    """The secrets of one start of the server."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(_BYTES))
    """opens the door once, from the address"""
    session: str = field(default_factory=lambda: secrets.token_urlsafe(_BYTES))
    """what the cookie carries from then on"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said to those who stay outside."""

    status: int
    body: str
    headers: dict[str, str] = field(default_factory=dict)


class Guard:
    """Stands before an ASGI app."""

    def __init__(self, app: App, names: Names, keys: Keys) -> None:
        """Puts a guard before an app."""
        self._app, self._names, self._keys = app, names, keys

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Lets a request through, or answers it here."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        answer = self.answer(read(scope))
        if answer is None:
            await self._let_in(scope, receive, send)
        else:
            await _say(answer, scope, receive, send)

    def answer(self, request: Request) -> Answer | None:
        """What a request is told at the door; None lets it in."""
        host = (request.header("host") or "").lower()
        origin = self._names.origins.get(host)
        if origin is None:
            return _refused(_STRANGE_NAME)
        if not _from_own_page(request, origin):
            return _refused(_STRANGE_PAGE)
        carried = request.cookies(cookie_name(host))
        known = any(_same(value, self._keys.session) for value in carried)
        if request.token is not None:
            right = known or _same(request.token, self._keys.token)
            return _turned(request, origin, self._keys.session if right else _NO_SESSION)
        if known:
            return None
        if request.navigates:
            return _form(request, origin, login_page.WRONG if carried else "")
        # as JSON, because that is what a page of the app reads and shows
        return Answer(401, json.dumps(login_page.UNKNOWN), {"content-type": "application/json"})

    async def _let_in(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Hands a request on; whatever comes back has the headers, a failure of the app too."""
        started = False

        async def sent(message: Message) -> None:
            nonlocal started
            if message["type"] in (
                "http.response.start",
                "websocket.http.response.start",
                "websocket.accept",
            ):
                started = True
                message = {**message, "headers": _with_headers(message.get("headers", ()))}
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except Exception:
            if not started and scope["type"] == "http":
                await _say(Answer(500, "The app failed; its log says how."), scope, receive, send)
            raise


def _turned(request: Request, origin: str, session: str) -> Answer:
    """Turns a token into a cookie, and leads to the address without it."""
    headers = {"location": origin + request.wanted, "cache-control": "no-store"}
    # a page elsewhere that leads here with a wrong token takes nobody's cookie away
    if session != _NO_SESSION or not request.foreign:
        safe = "; Secure" if origin.startswith("https:") else ""
        name = cookie_name(str(request.header("host")))
        headers["set-cookie"] = f"{name}={session}; Path=/; HttpOnly; SameSite=Strict{safe}"
    return Answer(303, "The app stands at the address without the token.", headers)


def cookie_name(host: str) -> str:
    """Name of the cookie: browsers send it to every port of a host, so the port is in its name.

    `host` is the header, so the port that the browser sees, which a tunnel may have changed.
    """
    port = urlsplit(f"//{host}").port
    return f"gprune-{port or 'default'}"


def _from_own_page(request: Request, origin: str) -> bool:
    """Whether none but the app's own pages, or a person, can have asked for it."""
    sent = request.header("origin")
    if sent is not None and sent != origin:
        return False
    if sent is None and (request.socket or not request.reading):
        return False
    return not request.foreign or request.navigates


def _form(request: Request, origin: str, problem: str) -> Answer:
    """The form, or first a page that asks anew where the browser has left the cookie out."""
    headers = {
        "content-type": "text/html; charset=utf-8",
        "cache-control": "no-store",
        "content-security-policy": login_page.POLICY,
    }
    if request.header("sec-fetch-site") == "cross-site" and not problem:
        return Answer(200, login_page.once_more(origin + request.wanted), headers)
    fields = [(name, value) for name, value in request.fields if name != TOKEN]
    return Answer(401, login_page.token_form(origin + request.path, fields, problem), headers)


def _refused(sentence: str) -> Answer:
    return Answer(403, sentence)


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())


def _with_headers(headers: Any) -> list[tuple[bytes, bytes]]:
    """The headers of a response with ours; where both forbid something, both do."""
    ours = {name.encode(): value.encode() for name, value in HEADERS.items()}
    kept = [(name, value) for name, value in headers if name.lower() not in ours or name.lower() == _POLICY]
    return [*kept, *ours.items()]


_POLICY = b"content-security-policy"


async def _say(answer: Answer, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Sends an answer, to who asks for a WebSocket before that is opened."""
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008})
            return
        kind = "websocket.http.response"
    body = (answer.body.rstrip("\n") + "\n").encode()
    headers = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body))} | answer.headers
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": f"{kind}.start", "status": answer.status, "headers": _with_headers(pairs)})
    empty = scope.get("method") == "HEAD"
    await send({"type": f"{kind}.body", "body": b"" if empty else body})
