"""A person before the app, as the benchmark of the pages plays one: goes to pages, and drags lines."""

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
from app_traffic import Traffic
from served_app import Server, at_rest, opened

from gprune.app.ui.page_names import PAGE_OF

MOVES, REACH = 40, 120
"""moves of a drag, and how many pixels it goes"""
HANDLERS = ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration")
"""the browser's names of the work that the code of a page decides"""


@dataclass(frozen=True, slots=True)
class Drag:
    """What one drag of a line cost, in seconds."""

    moves: list[float]
    """handlers and paint of each move"""
    cpu: float
    """CPU of the page's main thread for a move, mean, without what the mouse costs by itself"""
    handlers: float
    """the part of it that is script, style and layout; the rest is painting, here without a graphics card"""
    counts: float | None
    """from the release to the first number that changed; None where none did"""
    charts: float | None
    """from the release to the last change of a chart; None where none changed"""
    preview: float | None
    """from the release to a value of the preview; None where none was waited for, or none came"""


class Visitor:
    """A person before the app: a page of a browser, what it received, and the server behind it."""

    def __init__(self, chromium: Any, server: Server) -> None:
        """Opens an empty page that is watched from its beginning."""
        self.server, self.process = server, psutil.Process(server.pid)
        self.page = opened(chromium, server, viewport={"width": 1280, "height": 1000})
        self.traffic, self.shown = Traffic(self.page), "home"
        self.tools = self.page.context.new_cdp_session(self.page)
        self.tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def load(self) -> tuple[float, float, float]:
        """Opens the app; seconds until its first chart, until it rests, and of CPU that the server took."""
        before = self._cpu()
        self.page.goto(self.server.address)
        found = at_rest(self.page)
        return found["firstChart"] / 1000, found["rested"] / 1000, self._cpu() - before

    def links(self) -> dict[str, Any]:
        """Where to click for each page, by the last part of its address."""
        every = self.page.locator(".st-key-frame_pages a:visible").all()
        paths = [str(link.get_attribute("href")).partition("?")[0] for link in every]
        named = {path.rstrip("/").rpartition("/")[2]: link for path, link in zip(paths, every, strict=True)}
        # the page that opens by itself has no address of its own
        return {("home" if ":" in name or not name else name): link for name, link in named.items()}

    def go(self, place: str) -> tuple[float, float, float]:
        """Goes to a place: by the link of its page, then by its tab where the page was left at another one.

        Seconds and CPU as `click` says, of the last click; what an earlier one brought is forgotten.
        """
        page = PAGE_OF[place]
        shown = self.page.get_by_role("tab", name=page.places[place], exact=True, selected=True)
        if page.url != self.shown:
            took, self.shown = self.click(self.links()[page.url]), page.url
            if len(page.places) == 1 or shown.count():
                return took
            self.traffic.take()
        return self.click(self.page.get_by_role("tab", name=page.places[place], exact=True))

    def click(self, target: Any) -> tuple[float, float, float]:
        """Seconds from a click until the page rests, and seconds of CPU of the server and of the page."""
        server, page = self._cpu(), self._page_cpu()
        self.page.evaluate("watcher.arm('click')")
        target.click()
        rested = at_rest(self.page)["rested"] / 1000
        return rested, self._cpu() - server, self._page_cpu() - page

    def drag(self, line: Any, patience: float = 0.0) -> Drag:
        """Drags a threshold to and fro, and lets it go.

        Args:
            line: its handle.
            patience: seconds to wait for a value of the preview.
        """
        # a control further down may have been used before
        line.scroll_into_view_if_needed()
        box = line.bounding_box()
        across = box["height"] > box["width"]
        # near its end, where no other line lies over it
        x = box["x"] + box["width"] * (0.5 if across else 0.1)
        y = box["y"] + box["height"] * (0.1 if across else 0.5)
        # what the mouse costs by itself, where nothing answers to it
        idle = self._move(640, 10, across)
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.evaluate("watcher.drag(true)")
        before = self._page_cpu(*HANDLERS)
        cpu = max(0.0, self._move(x, y, across) - idle)
        handlers = (self._page_cpu(*HANDLERS) - before) / MOVES
        moves = self.page.evaluate("watcher.drag(false), watcher.moves()")
        self.page.evaluate("watcher.watchRelease(), watcher.arm('pointerup')")
        self.page.mouse.up()
        if patience:
            with contextlib.suppress(Exception):  # nothing came, and the answer says so
                self.page.wait_for_function("watcher.previewed()", timeout=1000 * patience)
        at_rest(self.page)
        after = self.page.evaluate("watcher.released()")
        seconds = {name: None if time is None else time / 1000 for name, time in after.items()}
        return Drag([one / 1000 for one in moves], cpu, handlers, **seconds)

    def _move(self, x: float, y: float, across: bool) -> float:
        """Moves the mouse to and fro, a frame at a time; seconds of the page's CPU for one move."""
        before = self._page_cpu()
        for step in range(1, MOVES + 1):
            way = REACH * np.sin(0.75 * np.pi * step / MOVES)
            self.page.mouse.move(x - way * across, y + way * (not across))
            self.page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        return (self._page_cpu() - before) / MOVES

    def _page_cpu(self, *parts: str) -> float:
        """Seconds of CPU that the page's main thread has taken for parts of its work, all by default."""
        found = self.tools.send("Performance.getMetrics")["metrics"]
        return float(sum(one["value"] for one in found if one["name"] in (parts or ("TaskDuration",))))

    def _cpu(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)
