"""What makes a first visit slow, begun before it is asked for: a browser's largest script, the imports.

Streamlit tells a browser about Plotly's script, 4.7 MB that must be read and compiled, only with the first
chart; and imports a page's modules only for the first visitor of it. Both can go on while the frame is drawn.
"""

import importlib
import logging
import pkgutil
import threading
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from gprune.app.server.auth import App, Message, Receive, Send

CHARTS = "PlotlyChart.*.js"
"""what Streamlit calls the script that draws charts, with a part that each of its versions has of its own"""
SCRIPTS = Path("static", "static", "js")
"""where Streamlit's package keeps what it serves at /static/js"""
_FRAME = "gprune.app.ui.frame"
_PAGES = "gprune.app.pages"
_REPORT = "gprune.app.report.page"
_log = logging.getLogger(__name__)


class Hint:
    """Names the script that draws charts in the headers of a page, so that the browser reads it at once."""

    def __init__(self, app: App, scripts: Path) -> None:
        """Puts the hint around an app.

        Where no file of `scripts`, the folder served at /static/js, has the name that the script has today,
        there is no hint.
        """
        self._app, self._link = app, _link(scripts)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Hands a request on, and adds the hint to an answer that is a page."""
        if scope["type"] != "http" or self._link is None:
            await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_page(message):
                message = {**message, "headers": [*message.get("headers", ()), (b"link", self._link)]}
            await send(message)

        await self._app(scope, receive, sent)


def _is_page(message: Message) -> bool:
    kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
    return message["status"] == 200 and any(kind.startswith(b"text/html") for kind in kinds)


def _link(scripts: Path) -> bytes | None:
    found = sorted(scripts.glob(CHARTS))
    return f"</static/js/{found[0].name}>; rel=modulepreload".encode() if found else None


def begin_imports() -> None:
    """Begins to import what the pages need, in a thread."""
    threading.Thread(target=import_views, name="imports of the pages", daemon=True).start()


def import_views() -> None:
    """Imports the modules of every page, by name as the app's script does; what opens first goes first.

    A module that cannot be imported is left to the page that needs it, which says so to its reader.
    """
    pages = importlib.import_module(_PAGES)
    names = [one.name for one in pkgutil.iter_modules(pages.__path__) if one.ispkg]
    first = sorted(names, key=lambda name: (name != "overview", name))
    for page in (_FRAME, *(f"{_PAGES}.{name}.page" for name in first), _REPORT):
        try:
            importlib.import_module(page)
        except Exception:
            _log.warning("%s cannot be imported", page, exc_info=True)
