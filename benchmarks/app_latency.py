"""What the pages of the app cost with a whole run of the size of LLaMA2-7B or 13B: time to rest, and bytes.

    python benchmarks/app_watcher.py [--size 7b|13b|small] [--cache FOLDER] [--pages home drift ...] [--json]

The run is made by hand, of random numbers in their true form. The app runs in a process of its own, and a
Chromium without a window drives it. Each figure stands beside its budget. A browser and a server that share
two busy cores are slow: the load of the machine and the seconds of CPU that the server took are told as well.
A measurement whose element is on no page is left out with a sentence.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# the project is not installed; the runs are made by what makes them for the tests
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]

import numpy as np  # noqa: E402
import psutil  # noqa: E402
from app_traffic import CHARTS, Traffic  # noqa: E402
from served_app import NotHereError, Server, at_rest, browser, opened, served  # noqa: E402
from views.large_runs import SIZES, leave_large_run  # noqa: E402

FIRST_CHART, AT_REST, COUNTS, CHARTS_AFTER = 5.0, 1.0, 0.3, 1.0
"""budgets in seconds: the first chart of a new visitor, a page at rest, numbers and charts after a release"""
DRAGGED = 0.016
"""budget in seconds of one move of a threshold's line: its handler and what it paints"""
CHART_BYTES, PAGE_BYTES = 300_000, 1_000_000
"""budgets of what is sent for one chart, and for all of a page"""
THRESHOLDS, LINES = "rasa", "[role=slider][data-line], .threshold-lines [role=slider]"
DRAGS, MOVES, REACH = 5, 40, 120
"""drags of a line, moves of each, and how many pixels it goes"""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure beside its budget."""

    name: str
    """what is measured"""
    page: str
    """address of the page"""
    value: float | None
    """seconds or bytes; None where it could not be measured"""
    budget: float
    """what it may be at most"""
    unit: str
    """s or B"""
    detail: str = ""
    """what else is known, or why it could not be measured"""

    @property
    def verdict(self) -> str:
        """PASS, OVER or left out."""
        if self.value is None:
            return "left out"
        return "PASS" if self.value <= self.budget else "OVER"


@dataclass(frozen=True, slots=True)
class Drag:
    """What one drag of a line cost, in seconds."""

    moves: list[float]
    """handlers and paint of each move"""
    cpu: float
    """CPU of the page's main thread for a move, mean"""
    counts: float | None
    """from the release to the first number that changed; None where none did"""
    charts: float | None
    """from the release to the last change of a chart; None where none changed"""


class Visitor:
    """A person before the app: a page of a browser, what it received, and the server behind it."""

    def __init__(self, chromium: Any, server: Server) -> None:
        """Opens an empty page that is watched from its beginning."""
        self.server, self.process = server, psutil.Process(server.pid)
        self.page = opened(chromium, viewport={"width": 1280, "height": 1000})
        self.traffic = Traffic(self.page)
        self.tools = self.page.context.new_cdp_session(self.page)
        self.tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def load(self) -> tuple[float, float]:
        """Opens the app; seconds until its first chart, and until it rests."""
        self.page.goto(self.server.address)
        found = at_rest(self.page)
        return found["firstChart"] / 1000, found["rested"] / 1000

    def links(self) -> dict[str, Any]:
        """Where to click for each page, by the last part of its address."""
        every = self.page.get_by_test_id("stSidebarNavLink").all()
        named = {str(link.get_attribute("href")).rstrip("/").rpartition("/")[2]: link for link in every}
        # the page that opens by itself has no address of its own
        return {("home" if ":" in name or not name else name): link for name, link in named.items()}

    def click(self, target: Any) -> tuple[float, float, float]:
        """Seconds from a click until the page rests, and seconds of CPU of the server and of the page."""
        server, page = self._cpu(), self._page_cpu()
        self.page.evaluate("watcher.arm('click')")
        target.click()
        rested = at_rest(self.page)["rested"] / 1000
        return rested, self._cpu() - server, self._page_cpu() - page

    def drag(self, line: Any) -> Drag:
        """Drags a threshold to and fro, and lets it go."""
        box = line.bounding_box()
        across = box["height"] > box["width"]
        # near its end, where no other line lies over it
        x = box["x"] + box["width"] * (0.5 if across else 0.1)
        y = box["y"] + box["height"] * (0.1 if across else 0.5)
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        before = self._page_cpu()
        self.page.evaluate("watcher.drag(true)")
        for step in range(1, MOVES + 1):
            way = -REACH * np.sin(0.75 * np.pi * step / MOVES)
            self.page.mouse.move(x + way * across, y - way * (not across))
            self.page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        moves = self.page.evaluate("watcher.drag(false), watcher.moves()")
        cpu = (self._page_cpu() - before) / MOVES
        self.page.evaluate("watcher.watchRelease(), watcher.arm('pointerup')")
        self.page.mouse.up()
        at_rest(self.page)
        after = self.page.evaluate("watcher.released()")
        seconds = {name: None if time is None else time / 1000 for name, time in after.items()}
        return Drag([one / 1000 for one in moves], cpu, **seconds)

    def _page_cpu(self) -> float:
        """Seconds of CPU that the page's main thread has taken for its tasks."""
        found = self.tools.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))

    def _cpu(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


def measure(chromium: Any, server: Server, pages: list[str], rounds: int) -> Iterator[Row]:
    """Every figure, in the order in which a visitor meets them."""
    visitor = Visitor(chromium, server)
    first, rested = visitor.load()
    yield Row("first chart of a new server", "home", first, FIRST_CHART, "s", f"at rest after {rested:.2f} s")
    home, links = visitor.traffic.take(), visitor.links()
    wanted = [name for name in links if name in pages] if pages else list(links)
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in wanted}
    sent = {}
    for turn in range(1 + rounds):
        for name in wanted:
            # a click on the page that is shown would change nothing
            if turn == 0 and name == "home":
                sent[name] = home
                continue
            if len(wanted) == 1:
                visitor.click(next(link for other, link in links.items() if other != name))
                visitor.traffic.take()
            times[name].append(visitor.click(links[name]))
            # what was sent once can be kept by the browser
            sent.setdefault(name, visitor.traffic.take())
            visitor.traffic.take()
    yield from _switches(times)
    yield from _bytes(sent)
    if THRESHOLDS in wanted:
        visitor.click(links[THRESHOLDS])
        yield from _thresholds(visitor)


def _switches(times: dict[str, list[tuple[float, ...]]]) -> Iterator[Row]:
    """Page switches, p95 over the warm ones; the first visit of the page stands beside it."""
    for name, found in times.items():
        wall, cpu, page = np.array(found).T
        first, warm = (wall[0], slice(1, None)) if name != "home" else (None, slice(None))
        spent = [f"{1000 * np.median(times[warm]):.0f} ms" for times in (cpu, page)]
        detail = f"median {np.median(wall[warm]):.2f} s; CPU: server {spent[0]}, page {spent[1]}"
        if first is not None:
            detail += f"; first visit {first:.2f} s, server {1000 * cpu[0]:.0f} ms"
        yield Row("page switch to rest, p95", name, _p95(wall[warm]), AT_REST, "s", detail)


def _bytes(sent: dict[str, list[Any]]) -> Iterator[Row]:
    """What a first visit of each page was sent, all of it and its largest chart."""
    for name, messages in sent.items():
        largest = sorted(messages, key=lambda one: -one.size)[:3]
        detail = ", ".join(f"{one.kind} {one.size / 1000:.0f} kB" for one in largest)
        yield Row("bytes of a page", name, sum(one.size for one in messages), PAGE_BYTES, "B", detail)
        charts = [one for one in messages if one.kind in CHARTS]
        if charts:
            most = max(charts, key=lambda one: one.size)
            words = f"{most.called}, of {len(charts)}"
            yield Row("bytes of its largest chart", name, most.size, CHART_BYTES, "B", words)


def _thresholds(visitor: Visitor) -> Iterator[Row]:
    """What a drag of a threshold costs, and what follows its release."""
    figures = (("handler and paint of a drag, p95", DRAGGED), ("release to counts, p95", COUNTS))
    figures += (("release to the last chart, p95", CHARTS_AFTER),)
    lines = visitor.page.locator(LINES)
    if not lines.count():
        why = "the page has no line that can be dragged"
        yield from (Row(name, THRESHOLDS, None, budget, "s", why) for name, budget in figures)
        return
    drags = [visitor.drag(lines.nth(turn % lines.count())) for turn in range(DRAGS)]
    cpu = f", page {1000 * np.mean([drag.cpu for drag in drags]):.1f} ms CPU a move"
    found = [[move for drag in drags for move in drag.moves]]
    found.append([drag.counts for drag in drags if drag.counts is not None])
    found.append([drag.charts for drag in drags if drag.charts is not None])
    for (name, budget), values, beside in zip(figures, found, (cpu, "", ""), strict=True):
        value = _p95(np.array(values)) if values else None
        detail = f"median {_amount(float(np.median(values)), 's')} of {len(values)}{beside}"
        yield Row(name, THRESHOLDS, value, budget, "s", detail if values else "nothing changed")


def _p95(values: np.ndarray) -> float:
    return float(np.percentile(values, 95))


def show(rows: list[Row], load: str) -> None:
    """Prints the table."""
    print(f"{'figure':<34}{'page':<13}{'value':>9}{'budget':>9}  {'':<9} beside it")
    for row in rows:
        value = "–" if row.value is None else _amount(row.value, row.unit)
        budget = _amount(row.budget, row.unit)
        print(f"{row.name:<34}{row.page:<13}{value:>9}{budget:>9}  {row.verdict:<9} {row.detail}")
    print(load)


def _amount(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value / 1000:,.0f} kB"
    return f"{value:.2f} s" if value >= 0.1 else f"{1000 * value:.1f} ms"


@contextmanager
def _cache(folder: Path | None) -> Iterator[Path]:
    """The folder that was named, or one that is gone afterwards."""
    if folder is not None:
        yield folder.resolve()
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def main() -> None:
    """Prints every figure, or says in a sentence what is not on this machine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=tuple(SIZES), default="7b")
    parser.add_argument("--cache", type=Path, help="keep the made runs in this folder, or take them from it")
    parser.add_argument(
        "--pages", nargs="*", default=[], help="by address, as home drift rasa; all by default"
    )
    parser.add_argument("--rounds", type=int, default=5, help="warm visits of every page")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args()
    with _cache(options.cache) as cache:
        leave_large_run(cache, options.size)
        before = os.getloadavg()[0]
        try:
            with browser() as chromium, served(cache) as server:
                rows = list(measure(chromium, server, options.pages, options.rounds))
        except NotHereError as missing:
            sys.exit(str(missing))
        loads = before, os.getloadavg()[0]
    if options.json:
        values = [asdict(row) | {"verdict": row.verdict} for row in rows]
        print(json.dumps({"size": options.size, "cores": os.cpu_count(), "load": loads, "rows": values}))
        return
    load = f"size {options.size}, {os.cpu_count()} cores, load {loads[0]:.2f} before and {loads[1]:.2f} after"
    show(rows, load)


if __name__ == "__main__":
    main()
