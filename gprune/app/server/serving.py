"""Start the app's server behind its access control; apart from the pages, only this module uses Streamlit.

Streamlit is imported only when a server is started, so that other commands start fast.
"""

import contextlib
import importlib
import logging
import pkgutil
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import Any

from gprune.app.server import ServerOptions, store_options
from gprune.app.server.auth import Guard
from gprune.app.server.endpoint import UNSAFE, Endpoint
from gprune.system import installation

_FRAME = "gprune.app.ui.frame"
_PAGES = "gprune.app.pages"
_log = logging.getLogger(__name__)
SCRIPT = installation.APP_FOLDER / "app.py"
_REFUSED = "ASGI callable returned without completing handshake."
"""message of uvicorn for each WebSocket that the guard refuses with a plain response"""


def import_pages() -> None:
    """Import the modules of every page, the first page first.

    An import error is logged here, and shown by the page that needs the module.
    """
    pages = importlib.import_module(_PAGES)
    modules = sorted(pkgutil.iter_modules(pages.__path__), key=lambda info: (info.name != "overview", info.name))
    names = [f"{_PAGES}.{info.name}{'.page' if info.ispkg else ''}" for info in modules]
    for page in (_FRAME, *names):
        try:
            importlib.import_module(page)
        except Exception:
            _log.warning("%s cannot be imported", page, exc_info=True)


def serve(endpoint: Endpoint, options: ServerOptions, while_listening: AbstractContextManager[None]) -> None:
    """Serve the app until it is interrupted; `while_listening` is entered while the server listens."""
    store_options(options)
    # Streamlit looks for its settings next to the script, and adds this folder to the import path
    sys.argv = [str(SCRIPT)]
    # an open page without a valid cookie reconnects every second: do not log each refusal
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: record.levelno >= logging.WARNING and record.msg != _REFUSED
    )
    with contextlib.suppress(KeyboardInterrupt):
        app(endpoint, while_listening).run(config=_settings(endpoint))


def app(endpoint: Endpoint, while_listening: AbstractContextManager[None]) -> Any:
    """Return the app with access control, for any ASGI server."""
    import streamlit as st
    from starlette.middleware import Middleware

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        print(endpoint.start_message(), flush=True)
        if not endpoint.private:
            print(UNSAFE, file=sys.stderr, flush=True)
        threading.Thread(target=import_pages, name="imports of the pages", daemon=True).start()
        with while_listening:
            yield

    _reserve_addresses()
    guard = Middleware(Guard, names=endpoint.names, keys=endpoint.keys)
    return st.App(SCRIPT, middleware=[guard], lifespan=lifespan)


def _reserve_addresses() -> None:
    """Make every address of a page work before the first script run.

    Until a script has called `st.navigation`, Streamlit uses the file names of `pages/` as addresses: it would
    serve `pages/tuning.py` alone at /tuning, and report /tune as missing.
    """
    import streamlit as st

    def empty_page() -> None:
        """Draw nothing, in place of a page."""

    # Streamlit would print a warning about the missing session
    logger = logging.getLogger("streamlit.runtime.scriptrunner_utils.script_run_context")
    logger.disabled = True
    try:
        st.navigation([st.Page(empty_page, title="GPrune Studio")], position="hidden")
    finally:
        logger.disabled = False


def _settings(endpoint: Endpoint) -> dict[str, Any]:
    """Return Streamlit's settings for this server; the others are in .streamlit/config.toml."""
    return {
        "server.address": endpoint.address,
        "server.port": endpoint.port,
        "server.allowedHosts": endpoint.names.hosts,
        # Streamlit would print and open the address without the token
        "server.headless": True,
        "logger.hideWelcomeMessage": True,
        "server.baseUrlPath": "",
        "server.enableXsrfProtection": True,
        "server.enableCORS": True,
        "browser.gatherUsageStats": False,
    }
