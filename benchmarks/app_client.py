"""A client of the app without a browser: it uses Streamlit's protocol over a WebSocket and renders nothing.

It keeps the state that a browser page keeps (widgets and their values, cached messages, timers of fragments), so
that the server has the same work as with a real visitor.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import random
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.asyncio.client import connect

from gprune.app.ui.page_names import PAGE_OF, PAGES, tab

PATIENCE = 60.0
"""seconds after which a request fails"""
EXCLUDED_WIDGETS = ("frame_run", "rasa_live", "rasa_full", "launch", "cp_runs")
"""parts of the ids of widgets that would show another run or start a worker or a job"""
_FINISHED = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY)


@dataclass(frozen=True, slots=True)
class Interaction:
    """The result of one interaction."""

    target: str
    """the page that was opened, or the widget that was changed"""
    seconds: float
    """from the request to the end of the script that the server runs for it"""
    error: str = ""
    """why it failed; empty if it succeeded"""


def fetch_cookie(entry: str) -> str:
    """Return the value of the `Cookie` header that the server grants in exchange for the token.

    Args:
        entry: the address with the token, as the server prints it.
    """
    url = urlsplit(entry)
    connection = http.client.HTTPConnection(url.netloc, timeout=PATIENCE)
    try:
        connection.request("GET", f"{url.path}?{url.query}")
        cookies = connection.getresponse().headers.get_all("Set-Cookie") or []
    finally:
        connection.close()
    return "; ".join(cookie.partition(";")[0] for cookie in cookies)


@dataclass
class _PageState:
    """The state of a browser page."""

    widgets: dict[str, tuple[str, Any, str]] = field(default_factory=dict)
    """kind, element and fragment of each widget, by its id"""
    values: dict[str, WidgetState] = field(default_factory=dict)
    """changed values, by the id of the widget"""
    script_hashes: dict[str, str] = field(default_factory=dict)
    """hash of each page of the app, by the last part of its address"""
    script_hash: str = ""
    """hash of the open page"""
    place: str = ""
    """the open page or tab, as `gprune.app.ui.page_names` calls it"""
    query: str = ""
    """query string of its address"""
    cached_messages: set[str] = field(default_factory=set)
    """hashes of messages that the server need not send again"""


class Client:
    """One visitor with one page."""

    def __init__(self, address: str, cookies: str, seed: int, origin: str = "") -> None:
        """Create a client that is not connected yet.

        Args:
            address: address of the server, as http://127.0.0.1:PORT.
            cookies: value of the `Cookie` header; empty for none.
            seed: seed of the random interactions.
            origin: value of the `Origin` header; the address of the server by default.
        """
        self.address, self.origin = address, origin or address
        self._headers = {"Cookie": cookies} if cookies else {}
        self._random, self._page = random.Random(seed), _PageState()
        # fragments that the server's current script runs; empty for the script of the whole page
        self._running: set[str] = set()
        # fragment of the request that has not ended (empty for the page), and its error once it ends
        self._awaited: tuple[str, asyncio.Future[str]] | None = None
        self._error = ""
        self._timers: dict[str, asyncio.Task[None]] = {}
        self.reruns = 0
        """number of finished scripts, including those of fragments that run on a timer"""

    async def __aenter__(self) -> Client:
        """Connect."""
        url = self.address.replace("http", "ws", 1) + "/_stcore/stream"
        self._socket = await connect(
            url,
            origin=self.origin,
            subprotocols=["streamlit"],
            additional_headers=self._headers,
            max_size=None,
        )
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect, as a closed browser tab does."""
        self._stop_timers()
        self._reader.cancel()
        await self._socket.close()

    async def load(self) -> Interaction:
        """Open the app."""
        return await self._request("load", "")

    async def visit(self, place: str) -> Interaction:
        """Open a page or one of its tabs."""
        self._page.place, self._page.script_hash = place, self._page.script_hashes[PAGE_OF[place].url]
        self._page.query = urlencode(tab(place))
        return await self._request(place, "")

    async def act(self) -> Interaction:
        """Open another page or change a widget of the current page, at random."""
        places = [place for place in PAGE_OF if place != self._page.place]
        widgets = [widget for widget in self._page.widgets if not any(part in widget for part in EXCLUDED_WIDGETS)]
        if not widgets or self._random.random() < 0.5:
            return await self.visit(self._random.choice(places))
        widget = self._random.choice(widgets)
        kind, element, fragment = self._page.widgets[widget]
        self._page.values[widget] = self._new_value(widget, kind, element)
        return await self._request(f"{kind} {widget.rpartition('-')[2]}", fragment)

    def _new_value(self, widget: str, kind: str, element: Any) -> WidgetState:
        """Return another value of a widget: the opposite of a checkbox, else a random option."""
        state, current = WidgetState(id=widget), self._page.values.get(widget)
        if kind == "checkbox":
            state.bool_value = not (current.bool_value if current else element.default)
        elif kind == "selectbox":
            state.string_value = self._random.choice(list(element.options))
        else:
            state.string_array_value.data.append(self._random.choice(element.options).content)
        return state

    async def _request(self, target: str, fragment: str) -> Interaction:
        """Run the script of the page, or of a fragment, and return its time and its error."""
        # the server runs the script of the page, or only that of a fragment
        self._error, finished = "", asyncio.get_running_loop().create_future()
        self._awaited = fragment, finished
        started = time.perf_counter()
        try:
            await self._send(fragment)
            message = await asyncio.wait_for(finished, PATIENCE)
        except Exception as error:  # any failure is reported, and the other clients continue
            message = f"{type(error).__name__}: {error}"
        finally:
            self._awaited = None
        return Interaction(target, time.perf_counter() - started, message)

    async def _send(self, fragment: str, is_timed: bool = False) -> None:
        """Send a request to run the script, with the state of the page, as a browser does."""
        message, page = BackMsg(), self._page
        state = message.rerun_script
        state.query_string, state.page_script_hash, state.fragment_id = page.query, page.script_hash, fragment
        state.is_auto_rerun = is_timed
        state.context_info.url, state.context_info.timezone = f"{self.address}/", "UTC"
        state.widget_states.widgets.extend(value for widget, value in page.values.items() if widget in page.widgets)
        state.cached_message_hashes.extend(page.cached_messages)
        await self._socket.send(message.SerializeToString())

    async def _read(self) -> None:
        """Handle every message of the server until the connection ends."""
        try:
            async for raw in self._socket:
                self._handle(ForwardMsg.FromString(raw if isinstance(raw, bytes) else raw.encode()))
        except Exception as error:
            self._finish(f"the connection ended: {type(error).__name__}: {error}")
        else:
            self._finish("the connection ended")

    def _handle(self, message: ForwardMsg) -> None:
        """Update the state of the page by a message of the server."""
        kind, page = message.WhichOneof("type"), self._page
        if message.metadata.cacheable and message.hash:
            page.cached_messages.add(message.hash)
        if kind == "new_session":
            self._running = set(message.metadata.run.fragment_ids)
            if not self._running:
                page.widgets.clear()
                self._stop_timers()
        elif kind == "navigation":
            # the first page has the address of the app
            page.script_hashes = {
                item.url_pathname or PAGES[0].url: item.page_script_hash for item in message.navigation.app_pages
            }
            page.script_hash = message.navigation.page_script_hash
        elif kind == "page_info_changed":
            page.query = message.page_info_changed.query_string
        elif kind == "delta":
            self._add_element(message.delta)
        elif kind == "auto_rerun":
            self._start_timer(message.auto_rerun.fragment_id, message.auto_rerun.interval)
        elif kind == "script_finished":
            self._end_script(message.script_finished)

    def _add_element(self, delta: Any) -> None:
        """Store the widget that the server draws, if this client can change it; store the error that it shows."""
        if delta.WhichOneof("type") != "new_element":
            return
        kind = delta.new_element.WhichOneof("type")
        if kind == "exception":
            self._error = f"{delta.new_element.exception.type}: {delta.new_element.exception.message}"
        element = getattr(delta.new_element, kind) if kind else None
        usable = kind == "checkbox" or (kind in ("selectbox", "button_group") and len(element.options) > 1)
        if usable and not element.disabled and not element.form_id:
            self._page.widgets[element.id] = kind, element, delta.fragment_id

    def _end_script(self, status: int) -> None:
        """Finish the awaited request if the script that ended is that of the request."""
        self.reruns += 1
        if status == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
            self._finish("the script could not be compiled")
        elif status in _FINISHED and self._awaited is not None:
            fragment = self._awaited[0]
            if fragment in self._running if fragment else not self._running:
                self._finish(self._error)

    def _finish(self, error: str) -> None:
        if self._awaited is not None and not self._awaited[1].done():
            self._awaited[1].set_result(error)

    def _start_timer(self, fragment: str, seconds: float) -> None:
        # a browser page requests such a fragment at the same interval

        async def tick() -> None:
            with contextlib.suppress(Exception):
                while True:
                    await asyncio.sleep(seconds)
                    await self._send(fragment, is_timed=True)

        if fragment in self._timers:
            self._timers[fragment].cancel()
        self._timers[fragment] = asyncio.get_running_loop().create_task(tick())

    def _stop_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
