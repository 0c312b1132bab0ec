"""Servers and a browser, for the tests that only a browser can make."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from synthetic_run import the_run
from waiting import limit

from gprune.app.ui import page_names
from gprune.pipeline.runs.opened import Run, all_runs
from scripts import served_app
from scripts.served_app import served

PATIENCE = 1000 * limit(60)
PLOT = ".js-plotly-plot .main-svg"
AT_REST = "!document.querySelector('[data-test-script-state=running], .stSkeleton')"
_PROBES = ("/_stcore/health", "/_stcore/host-config")
"""what Streamlit's own page asks for below every address before it knows where its server is"""
_LOCAL = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:")


@contextmanager
def chromium() -> Iterator[Any]:
    """A Chromium without a window; skips where there is none."""
    with ExitStack() as stack:
        try:
            started = stack.enter_context(served_app.browser())
        except served_app.NotHereError as error:
            pytest.skip(str(error))
        from playwright.sync_api import expect

        # what Playwright waits for by itself is too short for a busy machine
        expect.set_options(timeout=PATIENCE)
        yield started


def expect(target: Any) -> Any:
    """What Playwright waits for; imported only where there is one."""
    from playwright.sync_api import expect as waited_for

    return waited_for(target)


def outside(page: Any) -> list[str]:
    """Gathers what a page asks of other machines."""
    result: list[str] = []
    page.on("request", lambda request: None if request.url.startswith(_LOCAL) else result.append(request.url))
    return result


def complaints(page: Any) -> list[str]:
    """Gathers the errors of a page's console, but for Streamlit's own probes."""
    result: list[str] = []

    def note(message: Any) -> None:
        requested = str((message.location or {}).get("url", ""))
        if message.type == "error" and not requested.endswith(_PROBES):
            result.append(f"{message.text} ({requested})")

    page.on("console", note)
    page.on("pageerror", lambda error: result.append(str(error)))
    return result


@dataclass(slots=True)
class Visit:
    """A server over a cache, and people who look at it; notes what must not happen."""

    server: served_app.Server
    browser: Any
    cache: Path
    noted: list[list[str]] = field(default_factory=list)
    """requests that left the machine and errors of the console, page by page"""
    contexts: list[Any] = field(default_factory=list)
    """of the people who have come"""

    @property
    def address(self) -> str:
        """The app's address, without the token."""
        return self.server.address

    @property
    def runs(self) -> dict[str, str]:
        """The folder of every run by the name of its study; the first is shown where none is asked for."""
        return {run.study.name: run.name for run in all_runs(str(self.cache))[0]}

    @property
    def first(self) -> Run:
        """The run that is shown where none is asked for."""
        return the_run(self.cache)

    def person(self, inside: bool = True, **options: Any) -> Any:
        """A context of its own; `inside` for whom the server lets in, as after its address with the token."""
        self.contexts.append(self.browser.new_context(**options))
        self.contexts[-1].set_default_timeout(PATIENCE)
        if inside:
            self.server.let_in(self.contexts[-1])
        return self.contexts[-1]

    def page(self, where: str = "", **options: Any) -> Any:
        """A page as another person would open it, at an address or a place, as `drift?layer=1`."""
        options.setdefault("viewport", {"width": 1280, "height": 1200})
        page = self.person(**options).new_page()
        self.noted += [outside(page), complaints(page)]
        self.go(page, where)
        return page

    def go(self, page: Any, where: str) -> None:
        """Leads an open page to another address or place, and waits until all of it is drawn."""
        location, _, query = where.partition("?")
        if location in page_names.PAGE_OF:
            where = page_names.path(location, parse_qsl(query, keep_blank_values=True)).removeprefix("/")
        page.goto(f"{self.address}/{where}")
        page.get_by_role("heading", level=1).first.wait_for()
        # what is typed or clicked while a page is still drawn may be lost
        page.wait_for_function(AT_REST)
        served_app.draw_whole(page)


@contextmanager
def looking(chromium: Any, server: served_app.Server, cache: Path) -> Iterator[Visit]:
    """People at a server; at the end no page has complained and nothing has left the machine."""
    visit = Visit(server, chromium, cache)
    yield visit
    for context in visit.contexts:
        context.close()
    results = [sentence for item in visit.noted for sentence in item]
    if results:
        pytest.fail("; ".join(results))


@contextmanager
def visiting(chromium: Any, cache: Path) -> Iterator[Visit]:
    """People at a server of their own over a cache."""
    with served(cache) as server, looking(chromium, server, cache) as visit:
        yield visit


def click_mark(page: Any, card: str, trace: int, point: int) -> None:
    """Clicks one mark of a card's chart, where it stands on the screen."""
    chart = page.locator(f".st-key-{card}_chart .js-plotly-plot")
    chart.scroll_into_view_if_needed()
    location = chart.evaluate(
        """(plot, [trace, point]) => {
            const {xaxis, yaxis} = plot._fullLayout, data = plot._fullData[trace];
            const box = plot.getBoundingClientRect();
            return {x: box.left + xaxis._offset + xaxis.d2p(data.x[point]),
                    y: box.top + yaxis._offset + yaxis.d2p(data.y[point])};
        }""",
        [trace, point],
    )
    # a click counts only where the pointer has been seen before
    page.mouse.move(location["x"] - 3, location["y"])
    page.mouse.move(location["x"], location["y"])
    page.wait_for_timeout(100)
    page.mouse.click(location["x"], location["y"])
