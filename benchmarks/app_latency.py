"""Measure how fast every page and tab of the app appears, how many bytes it gets, and how smooth a drag is.

    python benchmarks/app_latency.py [--size 7b|13b|small|demo] [--cache FOLDER] [--pages home rasa] [--json]

The sizes 7b, 13b and small use a synthetic run of random numbers with the array shapes of such a model. The
size demo uses a real run of the bundled model, the only one with a live perplexity. The app runs in a process
of its own and headless Chromium opens its pages. A page is ready when it no longer changes.

The first visit of a page and the warm visits after it have separate rows. Each row has its value, its target
and the CPU time of server and page. The load of the machine is printed last: browser and server share its
cores, so measure on an idle machine.
"""

import argparse
import contextlib
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
# the project is not installed, and the builders of synthetic runs belong to the tests
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "app"), str(ROOT / "scripts")]

import numpy as np  # noqa: E402
from app_traffic import CHARTS, Message  # noqa: E402
from app_visitor import Load, Switch, Visitor  # noqa: E402
from large_runs import SIZES, write_large_run  # noqa: E402
from screenshots import finish_demo  # noqa: E402
from served_app import NotHereError, Server, browser, served  # noqa: E402

from gprune.app.ui.page_names import PAGE_OF, PAGES  # noqa: E402

FIRST_CHART = 5.0
"""target in seconds from opening the app to the first chart, for a visitor who was never there before"""
FIRST_VISIT, WARM_SWITCH = 1.0, 0.6
"""targets in seconds from a click to a page that no longer changes: at its first visit, and later"""
DRAG_MOVE = 0.016
"""target in seconds of one mouse move of a drag: event handlers and paint"""
COUNTS, CHARTS_AFTER = 0.3, 1.0
"""targets in seconds from the release of a line to changed numbers, and to the last changed chart"""
PREVIEW_COLD, PREVIEW_WARM = 10.0, 3.0
"""targets in seconds from a release to a live perplexity: with loading the model, and with a loaded one"""
CHART_BYTES, PAGE_BYTES = 300_000, 1_000_000
"""targets for the largest chart of a page, and for all messages of its first visit"""
HOME, THRESHOLDS, ALL_PLACES = "home", "rasa", "all"
"""pages by their names in the app, and the name of the row over all pages"""
LINES = "[role=slider][data-line], .threshold-lines [role=slider]"
PREVIEW = ".st-key-preview_value"
"""selectors of the handles of threshold lines (LINES), and of the live perplexity (PREVIEW)"""
DRAGS = 5
"""number of measured drags"""
DEMO = "demo"


@dataclass(frozen=True, slots=True)
class Row:
    """One measured value and its target."""

    name: str
    page: str
    """the page or tab, as `gprune.app.ui.page_names` calls it"""
    value: float | None
    """seconds, bytes or a count; None if it could not be measured"""
    target: float
    unit: str
    """s or B; empty for a count"""
    detail: str = ""
    """related values, or why there is no value"""

    @property
    def verdict(self) -> str:
        """PASS, OVER or not measured."""
        if self.value is None:
            return "not measured"
        return "PASS" if self.value <= self.target else "OVER"


def measure(chromium: Any, server: Server, places: list[str], rounds: int, has_weights: bool) -> Iterator[Row]:
    """Measure first charts, page switches, bytes, the live perplexity and drags, in this order.

    Args:
        chromium: the browser.
        server: the app, before its first visitor.
        places: names of the pages and tabs to measure; all if empty.
        rounds: number of warm visits of every page and tab.
        has_weights: True if the run's model has weights, which a live perplexity needs.

    Raises:
        NotHereError: a place does not exist.
    """
    if unknown := set(places) - set(PAGE_OF):
        raise NotHereError(f"Unknown page {min(unknown)!r}. Use some of: {', '.join(PAGE_OF)}.")
    places = [place for place in PAGE_OF if not places or place in places]
    visitor = Visitor(chromium, server)
    yield _first_chart("first chart of a new server", visitor.load())
    first_messages = {HOME: visitor.traffic.take()} if HOME in places else {}
    newcomer = Visitor(chromium, server)
    yield _first_chart("first chart of a new visitor", newcomer.load())
    newcomer.close()
    switches = _visit(visitor, places, rounds, first_messages)
    yield from _switch_rows(switches)
    yield from _byte_rows(first_messages)
    if THRESHOLDS in places:
        if visitor.page_url != PAGE_OF[THRESHOLDS].url:
            visitor.go(THRESHOLDS)
        if has_weights:
            yield from _preview_rows(visitor)
        yield from _drag_rows(visitor)


def _first_chart(name: str, load: Load) -> Row:
    detail = f"stable after {load.stable:.2f} s; CPU: server {1000 * load.server_cpu:.0f} ms"
    return Row(name, HOME, load.first_chart, FIRST_CHART, "s", detail)


def _visit(
    visitor: Visitor, places: list[str], rounds: int, first_messages: dict[str, list[Message]]
) -> dict[str, list[Switch]]:
    """Visit every place 1 + `rounds` times; add the messages of each first visit to `first_messages`."""
    switches: dict[str, list[Switch]] = {place: [] for place in places}
    for turn in range(1 + rounds):
        for place in places:
            if turn == 0 and place == HOME:
                # the page is already open, so a click on its link would change nothing
                continue
            if len(places) == 1:
                # leave the only place, so that it can be opened again
                visitor.go(next(other for other in PAGE_OF if other != place))
                visitor.traffic.take()
            switches[place].append(visitor.go(place))
            messages = visitor.traffic.take()
            # the browser caches messages, so later visits get fewer
            first_messages.setdefault(place, messages)
    return switches


def _switch_rows(switches: dict[str, list[Switch]]) -> Iterator[Row]:
    """Rows of the first visits, of the warm visits of each place, and of all warm visits together."""
    for place, visits in switches.items():
        if place != HOME:
            yield Row("first visit", place, visits[0].wall, FIRST_VISIT, "s", _cpu(visits[:1]))
    warm_visits = {place: visits if place == HOME else visits[1:] for place, visits in switches.items()}
    for place, visits in (*warm_visits.items(), (ALL_PLACES, sum(warm_visits.values(), []))):
        if not visits:
            yield Row("warm switch, p95", place, None, WARM_SWITCH, "s", "needs --rounds of at least 1")
            continue
        seconds = [visit.wall for visit in visits]
        detail = f"median {np.median(seconds):.2f} s of {len(seconds)}; {_cpu(visits)}"
        yield Row("warm switch, p95", place, percentile_95(seconds), WARM_SWITCH, "s", detail)


def _cpu(visits: list[Switch]) -> str:
    server = 1000 * np.median([visit.server_cpu for visit in visits])
    return f"CPU: server {server:.0f} ms, page {1000 * np.median([visit.page_cpu for visit in visits]):.0f} ms"


def _byte_rows(first_messages: dict[str, list[Message]]) -> Iterator[Row]:
    """Rows of the bytes of each first visit: all messages, and the largest chart."""
    for place, messages in first_messages.items():
        largest = sorted(messages, key=lambda message: -message.size)[:3]
        detail = ", ".join(f"{message.kind} {message.size / 1000:.0f} kB" for message in largest)
        yield Row("bytes of a page", place, sum(message.size for message in messages), PAGE_BYTES, "B", detail)
        charts = [message for message in messages if message.kind in CHARTS]
        if charts:
            chart = max(charts, key=lambda message: message.size)
            yield Row(
                "bytes of its largest chart", place, chart.size, CHART_BYTES, "B",
                f"{chart.element}, of {len(charts)} charts",
            )  # fmt: skip


def _preview_rows(visitor: Visitor) -> Iterator[Row]:
    """Rows of the live perplexity: first with loading the model, then with the loaded model."""
    lines, preview = visitor.page.locator(LINES), visitor.page.locator(PREVIEW)
    with contextlib.suppress(Exception):  # a page without a live perplexity is reported below
        preview.wait_for(timeout=5000)
    has_preview = bool(lines.count() and preview.count())
    for name, target in (("model not loaded", PREVIEW_COLD), ("model loaded", PREVIEW_WARM)):
        seconds = visitor.drag(lines.first, patience=6 * target).preview if has_preview else None
        reason = "no value appeared in time" if has_preview else "the page has no live perplexity of this run"
        detail = reason if seconds is None else ""
        yield Row(f"live perplexity, {name}", THRESHOLDS, seconds, target, "s", detail)


def _drag_rows(visitor: Visitor) -> Iterator[Row]:
    """Rows of the drags of threshold lines, and of the changes of the page after their release."""
    lines = visitor.page.locator(LINES)
    count = lines.count()
    drags = [visitor.drag(lines.nth(turn % count)) for turn in range(DRAGS)] if count else []
    moves = [move for drag in drags for move in drag.moves]
    counts = [drag.counts for drag in drags if drag.counts is not None]
    charts = [drag.charts for drag in drags if drag.charts is not None]
    for name, target, seconds in (
        ("drag, one move, p95", DRAG_MOVE, moves),
        ("release to counts, p95", COUNTS, counts),
        ("release to the last chart, p95", CHARTS_AFTER, charts),
    ):
        if not seconds:
            reason = "nothing changed" if count else "the page has no threshold line"
            yield Row(name, THRESHOLDS, None, target, "s", reason)
            continue
        detail = f"median {_format(float(np.median(seconds)), 's')} of {len(seconds)}"
        if seconds is moves:
            cpu, handlers = (1000 * np.mean([getattr(drag, part) for drag in drags]) for part in ("cpu", "handlers"))
            detail += f"; page CPU {cpu:.1f} ms per move, {handlers:.1f} ms of it script, style and layout"
        yield Row(name, THRESHOLDS, percentile_95(seconds), target, "s", detail)


def percentile_95(values: list[float]) -> float:
    """Return the 95th percentile, interpolated linearly."""
    return float(np.percentile(values, 95))


def print_rows(rows: list[Row], summary: str) -> None:
    """Print the rows as a table, and `summary` below it."""
    print(f"{'measurement':<34}{'page':<16}{'value':>9}{'target':>9}  {'':<12} details")
    for row in rows:
        value = "–" if row.value is None else _format(row.value, row.unit)
        target = _format(row.target, row.unit)
        print(f"{row.name:<34}{row.page:<16}{value:>9}{target:>9}  {row.verdict:<12} {row.detail}")
    print(summary)


def _format(value: float, unit: str) -> str:
    if not unit:
        return f"{value:.0f}"
    if unit == "B":
        return f"{value / 1000:,.0f} kB"
    return f"{value:.2f} s" if value >= 0.1 else f"{1000 * value:.1f} ms"


@contextmanager
def _cache(folder: Path | None) -> Iterator[Path]:
    """Return the named folder, or a temporary one that is removed afterwards."""
    if folder is not None:
        yield folder.resolve()
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def main() -> None:
    """Print the table; exit with one sentence if the browser or the app does not start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=(*SIZES, DEMO), default="7b")
    parser.add_argument("--cache", type=Path, help="folder for the run, which is reused (default: temporary)")
    parser.add_argument("--pages", nargs="*", default=[], metavar="PAGE", help=f"of {', '.join(PAGE_OF)} (all)")
    parser.add_argument("--rounds", type=int, default=8, help="warm visits of every page (8)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args()
    with _cache(options.cache) as cache:
        try:
            if options.size == DEMO:
                finish_demo(cache)
            else:
                write_large_run(cache, options.size)
            before = os.getloadavg()[0]
            with browser() as chromium, served(cache) as server:
                rows = list(measure(chromium, server, options.pages, options.rounds, options.size == DEMO))
        except NotHereError as error:
            sys.exit(str(error))
        loads = before, os.getloadavg()[0]
    if options.json:
        values = [asdict(row) | {"verdict": row.verdict} for row in rows]
        print(json.dumps({"size": options.size, "cores": os.cpu_count(), "load": loads, "rows": values}))
        return
    summary = f"size {options.size}, {os.cpu_count()} cores, load {loads[0]:.2f} before and {loads[1]:.2f} after"
    print_rows(rows, f"{summary}; {len(PAGES)} pages with {len(PAGE_OF)} places")


if __name__ == "__main__":
    main()
