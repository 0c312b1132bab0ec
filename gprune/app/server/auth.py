"""Authentication of the server: a request needs a known host, the same origin and the cookie of the session.

The guard is ASGI middleware, so that it checks WebSockets as well as HTTP requests. A request passes if its host is one
of the server's names, it comes from a page of the server, and it has the cookie that the token is exchanged for.
"""

import hmac
from collections.abc import Iterable
from html import escape
from pathlib import Path
from urllib.parse import quote, unquote_plus, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gprune.app.server.endpoint import TOKEN, Keys, Names

WRONG = "This token is not valid: the server creates a new one at every start."
UNKNOWN = "The server has restarted.\nReload this page and enter the token\nthat the server has printed."
"""shown by a page that was open while the server restarted; the page cuts long lines, so these are short"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'"
"""content security policy of the pages of this module, which load nothing but their own style"""
NO_FRAMES = "frame-ancestors 'none'"
"""content security policy that is added to every response"""
HEADERS = {
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""headers of every response"""

_STYLE = Path(__file__).with_name("door.css").read_text(encoding="utf-8")
_NO_SESSION = "none"
"""value of the cookie after a wrong token, so that the form can report it"""
_FOREIGN = "A page of another origin sent this request; only the app's own pages may."
_UNKNOWN_HOST = (
    "This server does not answer under this name: open the address that it printed, or start it with "
    "--public-address and the name and port that you use."
)


class Request(HTTPConnection):
    """An HTTP request, or the request that opens a WebSocket."""

    def header(self, name: str) -> str | None:
        """Return the value of a header that may occur once: None if it is absent, empty if it is repeated."""
        values = self.headers.getlist(name)
        return (values[0] if len(values) == 1 else "") if values else None

    @property
    def reads(self) -> bool:
        """True for the HTTP methods that only read, GET and HEAD; False for a WebSocket."""
        return self.scope.get("method") in ("GET", "HEAD")

    @property
    def navigates(self) -> bool:
        """True if the browser opens a page in a tab; False for a frame, image or script."""
        mode, destination = self.header("sec-fetch-mode"), self.header("sec-fetch-dest")
        if mode is None:
            # browsers send these headers only to https and to this machine
            return self.reads and "text/html" in (self.header("accept") or "")
        return self.reads and mode == "navigate" and destination == "document"

    @property
    def foreign(self) -> bool:
        """True if the browser reports that a page of another origin sent the request, even one on the same machine."""
        return self.header("sec-fetch-site") not in (None, "none", "same-origin")

    @property
    def token(self) -> str | None:
        """Token in the address, or None. A full address that was pasted as the token is accepted too."""
        tokens = self.query_params.getlist(TOKEN) if self.reads else []
        if not tokens:
            return None
        return tokens[-1].strip().rpartition(f"{TOKEN}=")[2].partition("&")[0].partition("#")[0]

    @property
    def path(self) -> str:
        """Path, which starts with a slash, so that no part of it can be read as a host."""
        path = quote(self.scope["path"])
        return path if path.startswith("/") else "/"

    @property
    def address_without_token(self) -> str:
        """Path and query as sent, without the token."""
        query = self.scope.get("query_string", b"").decode("latin-1")
        parts = [part for part in query.split("&") if part and unquote_plus(part.partition("=")[0]) != TOKEN]
        return self.path + ("?" + "&".join(parts) if parts else "")


def token_form(action: str, fields: Iterable[tuple[str, str]], problem: str = "") -> str:
    """Return the page that asks for the token and then opens the requested page."""
    hidden = "".join(f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in fields)
    alert = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    return _wrap_page(
        f"""<h1>GPrune Studio</h1>
<p>This page opens with the server's token. It is in the address that the server printed when it
started, after <code>token=</code>. You can also paste the whole address.</p>{alert}
<form method="get" action="{escape(action)}">{hidden}
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="off" spellcheck="false" required autofocus>
<button type="submit">Open</button></form>"""
    )


def reload_page(address: str) -> str:
    """Return a page that opens an address again, from this server's own page.

    Browsers omit the cookie if a page of another site linked here, and send it if this page does.
    """
    again = f'<meta http-equiv="refresh" content="0; url={escape(address)}">'
    return _wrap_page(f'<p><a href="{escape(address)}">Open GPrune Studio</a></p>', again)


def _wrap_page(body: str, head: str = "") -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>GPrune Studio</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"{head}<style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


class Guard:
    """Middleware that passes a request on to the app, or refuses it with a response."""

    def __init__(self, app: ASGIApp, names: Names, keys: Keys) -> None:
        """Protect an app with the names and the secrets of its server."""
        self._app, self._names, self._keys = app, names, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on or refuse it; every response gets the headers."""

        async def send_with_headers(message: Message) -> None:
            if message["type"].endswith(("http.response.start", "websocket.accept")):
                headers = MutableHeaders(raw=list(message.get("headers", ())))
                headers.update(HEADERS)
                headers.append("content-security-policy", NO_FRAMES)
                message = {**message, "headers": headers.raw}
            await send(message)

        refusal = self.refusal(Request(scope)) if scope["type"] in ("http", "websocket") else None
        await (refusal or self._app)(scope, receive, send_with_headers)

    def refusal(self, request: Request) -> Response | None:
        """Return the response that refuses a request, or None if the request may pass."""
        host = (request.header("host") or "").lower()
        origin = self._names.origins.get(host)
        if origin is None:
            return PlainTextResponse(_UNKNOWN_HOST, 403)
        if not _is_from_own_page(request, origin):
            return PlainTextResponse(_FOREIGN, 403)
        cookie = request.cookies.get(cookie_name(host))
        is_known = cookie is not None and _is_same(cookie, self._keys.session)
        if request.token is not None:
            is_valid = is_known or _is_same(request.token, self._keys.token)
            return _redirect_with_cookie(request, origin, self._keys.session if is_valid else _NO_SESSION)
        if is_known:
            return None
        if request.navigates:
            return _ask_for_token(request, origin, WRONG if cookie is not None else "")
        # as JSON, which a page of the app can read and show
        return JSONResponse(UNKNOWN, 401)


def _redirect_with_cookie(request: Request, origin: str, session: str) -> Response:
    """Redirect to the address without the token, and set the cookie; `session` is its value."""
    response = RedirectResponse(origin + request.address_without_token, 303, {"cache-control": "no-store"})
    # a link with a wrong token on a page of another site must not replace a valid cookie
    if session != _NO_SESSION or not request.foreign:
        name, secure = cookie_name(str(request.header("host"))), origin.startswith("https:")
        response.set_cookie(name, session, secure=secure, httponly=True, samesite="strict")
    return response


def cookie_name(host: str) -> str:
    """Return the name of the cookie, which contains the port: browsers send a cookie to every port of a host.

    `host` is the header Host. Its port is the one that the browser uses, which a tunnel may have changed.
    """
    port = urlsplit(f"//{host}").port
    return f"gprune-{port or 'default'}"


def _is_from_own_page(request: Request, origin: str) -> bool:
    """Return True if one of the app's own pages, or a person who opened an address, has sent the request."""
    sent = request.header("origin")
    if sent != origin and not (sent is None and request.reads):
        return False
    return not request.foreign or request.navigates


def _ask_for_token(request: Request, origin: str, problem: str) -> Response:
    """Return the token form or, after a click on a link of another site, a page that opens the same address again.

    Browsers omit the cookie (SameSite=Strict) after such a link, and send it after a reload by a page of this server.
    `problem` says that the browser sent a wrong cookie; a reload would send it again, so the form is returned.
    """
    headers = {"cache-control": "no-store", "content-security-policy": POLICY}
    if request.header("sec-fetch-site") == "cross-site" and not problem:
        return HTMLResponse(reload_page(origin + request.address_without_token), 200, headers)
    fields = [(name, value) for name, value in request.query_params.multi_items() if name != TOKEN]
    return HTMLResponse(token_form(origin + request.path, fields, problem), 401, headers)


def _is_same(value: str, secret: str) -> bool:
    """Compare a value with a secret in a time that does not depend on their common prefix."""
    return hmac.compare_digest(value.encode("utf-8", "surrogatepass"), secret.encode())
