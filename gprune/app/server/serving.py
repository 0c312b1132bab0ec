"""Starts the app's server behind its door: the one place outside of the pages that knows Streamlit.

Streamlit is imported only when a server is started, so that every other command stays quick.
"""

import contextlib
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from gprune.app.server import preload
from gprune.app.server.auth import Guard
from gprune.app.server.endpoint import UNSAFE, Endpoint
from gprune.app.server.server_options import ServerOptions, open_with
from gprune.system import installation

SCRIPT = installation.APP_FOLDER / "app.py"
HOME = "/home"
"""another name of the first page"""
_REFUSED = "ASGI callable returned without completing handshake."
"""what uvicorn says of each WebSocket that was answered with a plain response, as the guard does"""


def serve(place: Endpoint, terms: ServerOptions, shown: AbstractContextManager[None]) -> None:
    """Serves the app until it is interrupted; `shown` is entered while the server listens."""
    open_with(terms)
    # beside the script Streamlit looks for its settings, and that folder is where imports are looked for
    sys.argv = [str(SCRIPT)]
    logging.getLogger("uvicorn.error").addFilter(_worth_saying)
    with contextlib.suppress(KeyboardInterrupt):
        app(place, shown).run(config=_settings(place))


def _worth_saying(record: logging.LogRecord) -> bool:
    """Whether a line of the server's log is shown; who waits outside with an open page asks every second."""
    return record.levelno >= logging.WARNING and record.msg != _REFUSED


def app(place: Endpoint, shown: AbstractContextManager[None]) -> Any:
    """The app behind its door, for any ASGI server."""
    import streamlit as st
    from starlette.middleware import Middleware
    from starlette.routing import Route

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        print(place.told(), flush=True)
        if not place.private:
            print(UNSAFE, file=sys.stderr, flush=True)
        preload.begin_imports()
        with shown:
            yield

    _only_own_addresses()
    guard = Middleware(Guard, names=place.names, keys=place.keys)
    hint = Middleware(preload.Hint, scripts=Path(st.__file__).parent / preload.SCRIPTS)
    return st.App(SCRIPT, routes=[Route(HOME, _home)], middleware=[guard, hint], lifespan=lifespan)


def _only_own_addresses() -> None:
    """Lets the very first visitor come by any address, as every later one.

    Streamlit takes the file names of `pages/` for addresses until a script has called `st.navigation` once:
    it would serve `pages/reliability.py` alone at /reliability, and report /rasa as missing.
    """
    import streamlit as st

    def nothing() -> None:
        """Outside of a visit this registers no page."""

    # which it would say on the terminal
    logger = logging.getLogger("streamlit.runtime.scriptrunner_utils.script_run_context")
    logger.disabled = True
    try:
        st.navigation([st.Page(nothing, title="GPrune Studio")], position="hidden")
    finally:
        logger.disabled = False


async def _home(request: Any) -> Any:
    """Leads to the first page, which Streamlit serves under no other name than the root."""
    from starlette.responses import RedirectResponse

    query = request.url.query
    return RedirectResponse(f"/?{query}" if query else "/")


def _settings(place: Endpoint) -> dict[str, Any]:
    """Streamlit's settings for this server; what is not here stands in .streamlit/config.toml."""
    return {
        "server.address": place.address,
        "server.port": place.port,
        "server.allowedHosts": place.names.hosts,
        # Streamlit would print and open the address without the token
        "server.headless": True,
        "logger.hideWelcomeMessage": True,
        "server.baseUrlPath": "",
        "server.enableXsrfProtection": True,
        "server.enableCORS": True,
        "browser.gatherUsageStats": False,
    }
