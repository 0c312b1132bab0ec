"""What the pages of the app cost with a whole run of the size of LLaMA2-7B or 13B: time to rest, and bytes.

    python benchmarks/app_latency.py [--size 7b|13b|small|demo] [--cache FOLDER] [--pages home rasa] [--json]

The run is made by hand, of random numbers in their true form; `--size demo` takes a real run of the bundled
model, the only one that can have a preview. The app runs in a process of its own, and a Chromium without a
window drives it. Each figure stands beside its budget. A browser and a server that share two busy cores are
slow: the load of the machine, and the CPU that the server and the page took, are told as well. A measurement
whose element is on no page is left out with a sentence.
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
# the project is not installed; the runs are made by what makes them for the tests
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "app"), str(ROOT / "scripts")]

import numpy as np  # noqa: E402
from app_traffic import CHARTS, Message  # noqa: E402
from app_visitor import Visitor  # noqa: E402
from large_runs import SIZES, leave_large_run  # noqa: E402
from screenshots import finished  # noqa: E402
from served_app import NotHereError, Server, browser, served  # noqa: E402

from gprune.app.ui.page_names import PAGE_OF  # noqa: E402

FIRST_CHART, AT_REST, COUNTS, CHARTS_AFTER = 5.0, 1.0, 0.3, 1.0
"""budgets in seconds: the first chart of a new visitor, a page at rest, numbers and charts after a release"""
DRAGGED = 0.016
"""budget in seconds of one move of a threshold's line: its handler and what it paints"""
CHART_BYTES, PAGE_BYTES = 300_000, 1_000_000
"""budgets of what is sent for one chart, and for all of a page"""
THRESHOLDS, LINES = "rasa", "[role=slider][data-line], .threshold-lines [role=slider]"
DRAGS = 5
PREVIEW, PREVIEW_COLD, PREVIEW_WARM = ".st-key-preview_value", 10.0, 3.0
"""where a value of the preview stands, and its budgets in seconds while the model is read, and afterwards"""
DEMO = "demo"
"""the one size that is a real run: only a model with weights can have a preview"""


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
    """s or B; empty for what is counted"""
    detail: str = ""
    """what else is known, or why it could not be measured"""

    @property
    def verdict(self) -> str:
        """PASS, OVER or left out."""
        if self.value is None:
            return "left out"
        return "PASS" if self.value <= self.budget else "OVER"


def measure(chromium: Any, server: Server, pages: list[str], rounds: int, weights: bool) -> Iterator[Row]:
    """Every figure, in the order in which a visitor meets them.

    Args:
        chromium: the browser.
        server: the app, which nobody has visited yet.
        pages: places, as their addresses call them; all where there is none.
        rounds: warm visits of every page.
        weights: whether the run's model has any; without, nothing of it can be measured anew.

    Raises:
        NotHereError: there is no such page.
    """
    visitor = Visitor(chromium, server)
    first, rested, cpu = visitor.load()
    detail = f"at rest after {rested:.2f} s; CPU: server {1000 * cpu:.0f} ms"
    yield Row("first chart of a new server", "home", first, FIRST_CHART, "s", detail)
    home = visitor.traffic.take()
    if unknown := set(pages) - set(PAGE_OF):
        raise NotHereError(f"there is no page {min(unknown)!r}: there are {', '.join(PAGE_OF)}")
    wanted = [name for name in PAGE_OF if not pages or name in pages]
    times, sent = _visit(visitor, wanted, rounds, home)
    yield from _switches(times)
    yield from _bytes(sent)
    if THRESHOLDS in wanted:
        if visitor.shown != PAGE_OF[THRESHOLDS].url:
            visitor.go(THRESHOLDS)
        if weights:
            yield from _previews(visitor)
        yield from _thresholds(visitor)


def _visit(
    visitor: Visitor, wanted: list[str], rounds: int, home: list[Message]
) -> tuple[dict[str, list[tuple[float, ...]]], dict[str, list[Message]]]:
    """Goes through the places again and again: what each visit took, and what the first of each was sent."""
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in wanted}
    sent = {"home": home} if "home" in wanted else {}
    for turn in range(1 + rounds):
        for name in wanted:
            if turn == 0 and name == "home":
                # it has just been loaded, and a click on the page that is shown changes nothing
                continue
            if len(wanted) == 1:
                visitor.go(next(other for other in PAGE_OF if other != name))
                visitor.traffic.take()
            times[name].append(visitor.go(name))
            # what was sent once can be kept by the browser
            sent.setdefault(name, visitor.traffic.take())
    return times, sent


def _switches(times: dict[str, list[tuple[float, ...]]]) -> Iterator[Row]:
    """Page switches, p95 over the warm ones; the first visit of the page stands beside it."""
    for name, found in times.items():
        wall, cpu, page = np.array(found).T
        first, warm = (wall[0], slice(1, None)) if name != "home" else (None, slice(None))
        spent = [f"{1000 * np.median(one[warm]):.0f} ms" for one in (cpu, page)]
        detail = f"median {np.median(wall[warm]):.2f} s; CPU: server {spent[0]}, page {spent[1]}"
        if first is not None:
            detail += f"; first visit {first:.2f} s, server {1000 * cpu[0]:.0f} ms"
        yield Row("page switch to rest, p95", name, _p95(wall[warm]), AT_REST, "s", detail)


def _bytes(sent: dict[str, list[Message]]) -> Iterator[Row]:
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


def _previews(visitor: Visitor) -> Iterator[Row]:
    """From the release of a line to a first value: while the model is read, and once it is in memory."""
    with contextlib.suppress(Exception):  # a run without a preview: reported below
        visitor.page.locator(PREVIEW).wait_for(timeout=5000)
    yield from _first_values(visitor)


def _first_values(visitor: Visitor) -> Iterator[Row]:
    """The rows of the preview, whose view is open."""
    lines, budgets = visitor.page.locator(LINES), {"cold": PREVIEW_COLD, "warm": PREVIEW_WARM}
    missing = not (lines.count() and visitor.page.locator(PREVIEW).count())
    for state, budget in budgets.items():
        value, why = None, "the page has no preview of this run" if missing else "no value came"
        if not missing:
            value = visitor.drag(lines.first, patience=6 * budget).preview
        detail = why if value is None else f"the model is {'read first' if state == 'cold' else 'in memory'}"
        yield Row(f"preview's first value, {state}", THRESHOLDS, value, budget, "s", detail)


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
    parts = [f"{1000 * np.mean(part):.1f} ms" for part in zip(*((d.cpu, d.handlers) for d in drags), strict=True)]
    cpu = f"; page {parts[0]} CPU a move, {parts[1]} of it script, style and layout"
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
    if not unit:
        return f"{value:.0f}"
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=(*SIZES, DEMO), default="7b")
    parser.add_argument("--cache", type=Path, help="keep the run in this folder, or take it from there")
    parser.add_argument("--pages", nargs="*", default=[], help="by place, as home drift rasa; all by default")
    parser.add_argument("--rounds", type=int, default=5, help="warm visits of every page")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args()
    with _cache(options.cache) as cache:
        try:
            finished(cache) if options.size == DEMO else leave_large_run(cache, options.size)
            before = os.getloadavg()[0]
            with browser() as chromium, served(cache) as server:
                rows = list(measure(chromium, server, options.pages, options.rounds, options.size == DEMO))
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
