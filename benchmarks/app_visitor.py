"""A visitor of the app in a real browser, who opens pages and drags threshold lines."""

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
from app_traffic import Traffic
from served_app import Server, at_rest, opened

from gprune.app.ui.page_names import PAGE_OF, PAGES

MOVES, REACH = 40, 120
"""mouse moves of one drag, and its length in pixels"""
HANDLERS = ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration")
"""Chromium's metrics of the work that the code of a page causes, without painting"""


@dataclass(frozen=True, slots=True)
class Drag:
    """Timings of one drag of a threshold line, in seconds."""

    moves: list[float]
    """event handlers and paint of each mouse move"""
    cpu: float
    """mean CPU time of the page's main thread per move, minus that of a mouse move over an empty part of the page"""
    handlers: float
    """mean time per move of script, style and layout; the rest of the CPU time is painting in software"""
    counts: float | None
    """from the release to the first changed number; None if none changed"""
    charts: float | None
    """from the release to the last change of a chart; None if none changed"""
    preview: float | None
    """from the release to a live perplexity; None if none appeared in time or none was awaited"""


@dataclass(frozen=True, slots=True)
class Load:
    """Timings of the first page that a visitor opens, in seconds."""

    first_chart: float
    stable: float
    """until the page no longer changes"""
    server_cpu: float


@dataclass(frozen=True, slots=True)
class Switch:
    """Timings of one click that opens a page or a tab, in seconds."""

    wall: float
    """until the page no longer changes"""
    server_cpu: float
    page_cpu: float


class Visitor:
    """A browser page, the messages that it received, and the server behind it."""

    def __init__(self, chromium: Any, server: Server) -> None:
        """Open an empty page with a fresh profile that has the server's cookie."""
        self.server, self.process = server, psutil.Process(server.pid)
        self.page = opened(chromium, server, viewport={"width": 1280, "height": 1000})
        self.traffic, self.page_url = Traffic(self.page), PAGES[0].url
        self._devtools = self.page.context.new_cdp_session(self.page)
        self._devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def load(self) -> Load:
        """Open the app."""
        before = self._server_cpu()
        self.page.goto(self.server.address)
        times = at_rest(self.page)
        return Load(times["firstChart"] / 1000, times["rested"] / 1000, self._server_cpu() - before)

    def close(self) -> None:
        """Close the page and its profile."""
        self.page.context.close()

    def links(self) -> dict[str, Any]:
        """Return the visible navigation links by the last part of their address."""
        links = self.page.locator(".st-key-frame_pages a:visible").all()
        paths = [str(link.get_attribute("href")).partition("?")[0] for link in links]
        by_url = {path.rstrip("/").rpartition("/")[2]: link for path, link in zip(paths, links, strict=True)}
        # the link of the first page has the address of the app, without a page's name
        return {(PAGES[0].url if ":" in url or not url else url): link for url, link in by_url.items()}

    def go(self, place: str) -> Switch:
        """Open a page by its link, then the tab unless it is already selected; return the timings of the last click."""
        page = PAGE_OF[place]
        selected = self.page.get_by_role("tab", name=page.places[place], exact=True, selected=True)
        if page.url != self.page_url:
            switch, self.page_url = self.click(self.links()[page.url]), page.url
            if len(page.places) == 1 or selected.count():
                return switch
            self.traffic.take()
        return self.click(self.page.get_by_role("tab", name=page.places[place], exact=True))

    def click(self, target: Any) -> Switch:
        """Click an element and wait until the page no longer changes."""
        server, page = self._server_cpu(), self._page_cpu()
        self.page.evaluate("watcher.arm('click')")
        target.click()
        wall = at_rest(self.page)["rested"] / 1000
        return Switch(wall, self._server_cpu() - server, self._page_cpu() - page)

    def drag(self, line: Any, patience: float = 0.0) -> Drag:
        """Drag a threshold line back and forth and release it.

        Args:
            line: the handle of the line.
            patience: seconds to wait for a live perplexity after the release.
        """
        # an earlier drag may have scrolled the page
        line.scroll_into_view_if_needed()
        box = line.bounding_box()
        is_vertical = box["height"] > box["width"]
        # near the end of the line, where no other line covers it
        x = box["x"] + box["width"] * (0.5 if is_vertical else 0.1)
        y = box["y"] + box["height"] * (0.1 if is_vertical else 0.5)
        # the reference: the same moves at the top of the page, without a line
        idle = self._move_mouse(640, 10, is_vertical)
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.evaluate("watcher.drag(true)")
        before = self._page_cpu(*HANDLERS)
        cpu = max(0.0, self._move_mouse(x, y, is_vertical) - idle)
        handlers = (self._page_cpu(*HANDLERS) - before) / MOVES
        moves = self.page.evaluate("watcher.drag(false), watcher.moves()")
        self.page.evaluate("watcher.watchRelease(), watcher.arm('pointerup')")
        self.page.mouse.up()
        if patience:
            with contextlib.suppress(Exception):  # the result has None if no value came in time
                self.page.wait_for_function("watcher.previewed()", timeout=1000 * patience)
        at_rest(self.page)
        after = self.page.evaluate("watcher.released()")
        seconds = {name: None if time is None else time / 1000 for name, time in after.items()}
        return Drag([move / 1000 for move in moves], cpu, handlers, **seconds)

    def _move_mouse(self, x: float, y: float, is_vertical: bool) -> float:
        """Move the mouse back and forth, one step per frame; return the CPU seconds of the page per step."""
        before = self._page_cpu()
        for step in range(1, MOVES + 1):
            offset = REACH * np.sin(0.75 * np.pi * step / MOVES)
            self.page.mouse.move(x - offset * is_vertical, y + offset * (not is_vertical))
            self.page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        return (self._page_cpu() - before) / MOVES

    def _page_cpu(self, *names: str) -> float:
        """Return CPU seconds of the page's main thread: the sum of some metrics of Chromium, all tasks by default."""
        metrics = self._devtools.send("Performance.getMetrics")["metrics"]
        return float(sum(metric["value"] for metric in metrics if metric["name"] in (names or ("TaskDuration",))))

    def _server_cpu(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)
