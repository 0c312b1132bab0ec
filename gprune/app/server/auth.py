"""The guard of the server: a request needs a known host, an own origin and the cookie of the token.

Pure ASGI middleware, so that it sees what a WebSocket asks for as well as every HTTP request. It lets through
what names this server exactly, comes from none but its own pages, and carries the cookie that only the
server's token gives.
"""

import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gprune.app.server.allowed_hosts import Names
from gprune.app.server.request import TOKEN, Request, read

WRONG = "Your token is not that of this server, which makes a new one whenever it starts."
UNKNOWN = "The server was started anew.\nReload this page, and enter the token\nthat the server has printed."
"""what a page that was open meanwhile shows, where long lines are cut; otherwise nobody reads it"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'"
"""what these pages may load: nothing but their own style"""

_STYLE = Path(__file__).with_name("door.css").read_text(encoding="utf-8")
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
_STRANGER = "A page of another origin has asked for this; only the app's own pages may."
_STRANGE_NAME = (
    "This server does not answer under this name: open the address that it printed, or start it with "
    "--public-address and the name and port that you use."
)


def token_form(action: str, fields: Iterable[tuple[str, str]], problem: str = "") -> str:
    """Asks for the token and then leads to the page that was wanted."""
    hidden = "".join(f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in fields)
    alert = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    return _login_page(
        f"""<h1>GPrune Studio</h1>
<p>This page opens with the server's token. It stands in the address that the server printed when it was
started, behind <code>token=</code>; the whole address will do as well.</p>{alert}
<form method="get" action="{escape(action)}">{hidden}
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="off" spellcheck="false" required autofocus>
<button type="submit">Open</button></form>"""
    )


def once_more(address: str) -> str:
    """Opens an address again from this server's own page.

    Browsers leave the cookie out where a page elsewhere led here, and send it where this one does.
    """
    again = f'<meta http-equiv="refresh" content="0; url={escape(address)}">'
    return _login_page(f'<p><a href="{escape(address)}">Open GPrune Studio</a></p>', again)


def _login_page(body: str, head: str = "") -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>GPrune Studio</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"{head}<style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


@dataclass(frozen=True, slots=True)
class Keys:
    """The secrets of one start of the server."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(_BYTES))
    """opens the door once, from the address"""
    session: str = field(default_factory=lambda: secrets.token_urlsafe(_BYTES))
    """what the cookie carries from then on"""


@dataclass(frozen=True, slots=True)
class Answer:
    """Response to a request that is refused."""

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
            return Answer(403, _STRANGE_NAME)
        if not _from_own_page(request, origin):
            return Answer(403, _STRANGER)
        carried = request.cookies(cookie_name(host))
        known = any(_same(value, self._keys.session) for value in carried)
        if request.token is not None:
            right = known or _same(request.token, self._keys.token)
            return _turned(request, origin, self._keys.session if right else _NO_SESSION)
        if known:
            return None
        if request.navigates:
            return _form(request, origin, WRONG if carried else "")
        # as JSON, because that is what a page of the app reads and shows
        return Answer(401, json.dumps(UNKNOWN), {"content-type": "application/json"})

    async def _let_in(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Hands a request on; whatever comes back has the headers, a failure of the app too."""
        started = False

        async def sent(message: Message) -> None:
            nonlocal started
            if message["type"].endswith(("http.response.start", "websocket.accept")):
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
        "content-security-policy": POLICY,
    }
    if request.header("sec-fetch-site") == "cross-site" and not problem:
        return Answer(200, once_more(origin + request.wanted), headers)
    fields = [(name, value) for name, value in request.fields if name != TOKEN]
    return Answer(401, token_form(origin + request.path, fields, problem), headers)


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())


def _with_headers(headers: Any) -> list[tuple[bytes, bytes]]:
    """The headers of a response with ours; where both forbid something, both do."""
    policy = b"content-security-policy"
    ours = {name.encode(): value.encode() for name, value in HEADERS.items()}
    kept = [(name, value) for name, value in headers if name.lower() not in ours or name.lower() == policy]
    return [*kept, *ours.items()]


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
