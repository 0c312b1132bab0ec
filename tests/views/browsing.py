"""A person's browser, as far as tests need one: opens the app on a cache and notes what must not happen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from waiting import limit

from scripts import served_app

PATIENCE = 15000
PLOT = ".js-plotly-plot .main-svg"
LOCAL = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:")
PROBES = "/_stcore/"
"""Streamlit's own client looks for its server below every page's address"""


@dataclass(slots=True)
class Visit:
    """A server over a cache, and a browser that looks at it."""

    address: str
    browser: Any
    outside: list[str] = field(default_factory=list)
    """requests that left the machine"""
    complaints: list[str] = field(default_factory=list)
    """errors of the browser's console"""

    def page(self, where: str = "", **options: Any) -> Any:
        """A page in a context of its own, as a second person would open it.

        Args:
            where: page and query, as `drift?layer=1`.
            options: of the context, as `viewport`.
        """
        options.setdefault("viewport", {"width": 1280, "height": 1200})
        page = self.browser.new_context(**options).new_page()
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: self._requested(request.url))
        page.on("console", lambda message: self._said(message))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(f"{self.address}/{where}")
        page.get_by_role("heading", level=1).first.wait_for()
        return page

    def _requested(self, url: str) -> None:
        if not url.startswith(LOCAL):
            self.outside.append(url)

    def _said(self, message: Any) -> None:
        if message.type == "error" and PROBES not in message.location.get("url", ""):
            self.complaints.append(message.text)


@contextmanager
def visiting(cache: Path) -> Iterator[Visit]:
    """Serves a cache to a browser; at the end nothing has complained and nothing has left the machine.

    Skips the test where there is no browser.
    """
    try:
        with served_app.browser() as browser, served_app.served(cache) as server:
            visit = Visit(server.address, browser)
            yield visit
    except served_app.NotHereError as error:
        pytest.skip(str(error))
    assert (visit.outside, visit.complaints) == ([], [])


def click_mark(page: Any, card: str, trace: int, point: int) -> None:
    """Clicks one mark of a card's chart, where it stands on the screen."""
    chart = page.locator(f".st-key-{card}_chart .js-plotly-plot")
    chart.scroll_into_view_if_needed()
    place = chart.evaluate(
        """(plot, [trace, point]) => {
            const {xaxis, yaxis} = plot._fullLayout, data = plot._fullData[trace], box = plot.getBoundingClientRect();
            return {x: box.left + xaxis._offset + xaxis.d2p(data.x[point]),
                    y: box.top + yaxis._offset + yaxis.d2p(data.y[point])};
        }""",
        [trace, point],
    )
    # a click counts only where the pointer has been seen before
    page.mouse.move(place["x"] - 3, place["y"])
    page.mouse.move(place["x"], place["y"])
    page.wait_for_timeout(100)
    page.mouse.click(place["x"], place["y"])
