"""A person's browser without the browser: speaks the app's protocol over its WebSocket, and draws nothing.

It keeps what a real page keeps (which widgets there are, what was chosen, which messages it has seen, which
fragments run by themselves), so that the server has the work that a person makes it.
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

from gprune.app.ui.page_names import PAGE_OF, tab

PATIENCE = 60.0
"""seconds after which an answer is given up"""
LEFT_ALONE = ("frame_run", "rasa_live", "rasa_full", "launch", "cp_runs")
"""widgets that would show another run, start a worker or a job"""
_ENDS = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one interaction came to."""

    what: str
    """the page that was gone to, or the widget that was changed"""
    seconds: float
    """from sending it until its script had ended"""
    fault: str = ""
    """why it failed; empty if it did not"""


def cookie(entry: str) -> str:
    """What the server gives to whoever comes with the token, as a header.

    Args:
        entry: address with the token, as the server has printed it.
    """
    place = urlsplit(entry)
    connection = http.client.HTTPConnection(place.netloc, timeout=PATIENCE)
    try:
        connection.request("GET", f"{place.path}?{place.query}")
        found = connection.getresponse().headers.get_all("Set-Cookie") or []
    finally:
        connection.close()
    return "; ".join(one.partition(";")[0] for one in found)


@dataclass
class _Page:
    """What a page holds now."""

    widgets: dict[str, tuple[str, Any, str]] = field(default_factory=dict)
    """kind, element and fragment of each widget, by its identity"""
    chosen: dict[str, WidgetState] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    """pages of the app: identity by the last part of the address"""
    shown: str = ""
    place: str = ""
    """what of the page is shown, as its address calls it"""
    query: str = ""
    seen: set[str] = field(default_factory=set)
    """messages that need not be sent again"""


class Client:
    """One person, on one page at a time."""

    def __init__(self, address: str, cookies: str, seed: int, origin: str = "") -> None:
        """Connects to nothing.

        Args:
            address: of the server, as http://127.0.0.1:PORT.
            cookies: header that opens its door.
            seed: of what the person does.
            origin: where the page is from; the server itself where left out.
        """
        self.address, self.origin = address, origin or address
        self._headers = {"Cookie": cookies} if cookies else {}
        self._random, self._page = random.Random(seed), _Page()
        self._running: set[str] = set()
        self._awaited: tuple[str, asyncio.Future[str]] | None = None
        self._fault = ""
        self._timers: dict[str, asyncio.Task[None]] = {}
        self.reruns = 0
        """scripts that have ended, also those of fragments that run by themselves"""

    async def __aenter__(self) -> Client:
        """Connects."""
        place = self.address.replace("http", "ws", 1) + "/_stcore/stream"
        self._socket = await connect(
            place,
            origin=self.origin,
            subprotocols=["streamlit"],
            additional_headers=self._headers,
            max_size=None,
        )
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Goes away, as a tab that is closed."""
        self._stop_timers()
        self._reader.cancel()
        await self._socket.close()

    async def load(self) -> Answer:
        """Opens the app."""
        return await self._ask("load", "")

    async def visit(self, name: str) -> Answer:
        """Goes to a place: a page, or a tab of one."""
        self._page.place, self._page.shown = name, self._page.links[PAGE_OF[name].url]
        self._page.query = urlencode(tab(name))
        return await self._ask(name, "")

    def pages(self) -> list[str]:
        """Every place of the app."""
        return list(PAGE_OF)

    async def act(self) -> Answer:
        """Does what a person might: goes to another page, or changes something on this one."""
        others = [name for name in PAGE_OF if name != self._page.place]
        widgets = [one for one in self._page.widgets if not any(key in one for key in LEFT_ALONE)]
        if not widgets or self._random.random() < 0.5:
            return await self.visit(self._random.choice(others))
        name = self._random.choice(widgets)
        kind, element, fragment = self._page.widgets[name]
        self._page.chosen[name] = self._changed(name, kind, element)
        return await self._ask(f"{kind} {name.rpartition('-')[2]}", fragment)

    def _changed(self, name: str, kind: str, element: Any) -> WidgetState:
        """Another value for a widget."""
        state, now = WidgetState(id=name), self._page.chosen.get(name)
        if kind == "checkbox":
            state.bool_value = not (now.bool_value if now else element.default)
        elif kind == "selectbox":
            state.string_value = self._random.choice(list(element.options))
        else:
            state.string_array_value.data.append(self._random.choice(element.options).content)
        return state

    async def _ask(self, what: str, fragment: str) -> Answer:
        """Sends a request and waits until its script has ended."""
        self._fault, ended = "", asyncio.get_running_loop().create_future()
        self._awaited = fragment, ended
        started = time.perf_counter()
        try:
            await self._send(fragment)
            fault = await asyncio.wait_for(ended, PATIENCE)
        except Exception as error:  # whatever it was, it is told and the others go on
            fault = f"{type(error).__name__}: {error}"
        finally:
            self._awaited = None
        return Answer(what, time.perf_counter() - started, fault)

    async def _send(self, fragment: str, by_itself: bool = False) -> None:
        message, page = BackMsg(), self._page
        state = message.rerun_script
        state.query_string, state.page_script_hash, state.fragment_id = page.query, page.shown, fragment
        state.is_auto_rerun = by_itself
        state.context_info.url, state.context_info.timezone = f"{self.address}/", "UTC"
        state.widget_states.widgets.extend(one for name, one in page.chosen.items() if name in page.widgets)
        state.cached_message_hashes.extend(page.seen)
        await self._socket.send(message.SerializeToString())

    async def _read(self) -> None:
        """Takes in what the server sends, as long as it does."""
        try:
            async for raw in self._socket:
                self._take(ForwardMsg.FromString(raw if isinstance(raw, bytes) else raw.encode()))
        except Exception as error:
            self._end(f"the connection ended: {type(error).__name__}: {error}")
        else:
            self._end("the connection ended")

    def _take(self, message: ForwardMsg) -> None:
        kind, page = message.WhichOneof("type"), self._page
        if message.metadata.cacheable and message.hash:
            page.seen.add(message.hash)
        if kind == "new_session":
            self._running = set(message.metadata.run.fragment_ids)
            if not self._running:
                page.widgets.clear()
                self._stop_timers()
        elif kind == "navigation":
            # pages of other addresses are no pages of ours
            page.links = {one.url_pathname or "home": one.page_script_hash for one in message.navigation.app_pages}
            page.shown = message.navigation.page_script_hash
        elif kind == "page_info_changed":
            page.query = message.page_info_changed.query_string
        elif kind == "delta":
            self._note(message.delta)
        elif kind == "auto_rerun":
            self._repeat(message.auto_rerun.fragment_id, message.auto_rerun.interval)
        elif kind == "script_finished":
            self._finished(message.script_finished)

    def _note(self, delta: Any) -> None:
        """Remembers what can be used, and what failed."""
        if delta.WhichOneof("type") != "new_element":
            return
        kind = delta.new_element.WhichOneof("type")
        if kind == "exception":
            self._fault = f"{delta.new_element.exception.type}: {delta.new_element.exception.message}"
        element = getattr(delta.new_element, kind) if kind else None
        usable = kind == "checkbox" or (kind in ("selectbox", "button_group") and len(element.options) > 1)
        if usable and not element.disabled and not element.form_id:
            self._page.widgets[element.id] = kind, element, delta.fragment_id

    def _finished(self, status: int) -> None:
        self.reruns += 1
        if status == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
            self._end("the script could not be compiled")
        elif status in _ENDS and self._awaited is not None:
            fragment = self._awaited[0]
            if fragment in self._running if fragment else not self._running:
                self._end(self._fault)

    def _end(self, fault: str) -> None:
        """What is waited for has come, or never will."""
        if self._awaited is not None and not self._awaited[1].done():
            self._awaited[1].set_result(fault)

    def _repeat(self, fragment: str, seconds: float) -> None:
        """Has a fragment drawn again and again, as the page of a browser does."""

        async def tick() -> None:
            with contextlib.suppress(Exception):
                while True:
                    await asyncio.sleep(seconds)
                    await self._send(fragment, by_itself=True)

        if fragment in self._timers:
            self._timers[fragment].cancel()
        self._timers[fragment] = asyncio.get_running_loop().create_task(tick())

    def _stop_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
