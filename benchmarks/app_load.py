"""Measure how the app responds to many visitors at once, on a synthetic run with the shapes of LLaMA2-7B.

    python benchmarks/app_load.py [--size 7b|13b|small] [--cache FOLDER] [--clients 20] [--seconds 60]

Every ten seconds, each client opens a page or changes a widget. The clients use the app's protocol and render
nothing; headless Chromium opens pages at the same pace. The first part runs on an otherwise idle machine, the
second while a job computes a study in the same cache. Each row has its value and its target. The load of the
machine is printed because clients, browser, server and job share its cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# the project is not installed, and the builders of synthetic runs belong to the tests
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "app"), str(ROOT / "scripts")]

import numpy as np  # noqa: E402
import psutil  # noqa: E402
from app_client import PATIENCE, Client, Interaction, fetch_cookie  # noqa: E402
from app_latency import Row, print_rows  # noqa: E402
from app_visitor import Visitor  # noqa: E402
from large_runs import SIZES, write_large_run  # noqa: E402
from served_app import NotHereError, Server, browser, served  # noqa: E402

from gprune.app.ui.page_names import PAGE_OF, PAGES  # noqa: E402
from gprune.jobs import queue  # noqa: E402
from gprune.study.demo import demo_study  # noqa: E402

P95, MEDIAN, MEMORY = 1.0, 0.5, 1.5 * 2**30
"""targets: seconds from an interaction to the end of its script, and resident bytes of the server"""
INTERVAL = 10.0
"""seconds between two interactions of a visitor"""
_SCRIPT_ENDED = (
    "name => location.pathname.replace(/\\/$/, '').split('/').pop() === name && "
    "document.querySelector('[data-testid=stApp]').dataset.testScriptState === 'notRunning'"
)
QUIET, JOB = "quiet", "a job computes"


@dataclass
class PartRecord:
    """The measurements of one part."""

    interactions: list[Interaction] = field(default_factory=list)
    """interactions of the clients"""
    clicks: list[Interaction] = field(default_factory=list)
    """clicks in the browser"""
    memory: list[tuple[int, int]] = field(default_factory=list)
    """memory of the server every second: resident bytes, and those unique to the process"""
    loads: list[float] = field(default_factory=list)
    """load of the machine every second"""
    reruns: int = 0
    """scripts that the server ran for the clients"""
    cpu: float = 0.0
    """CPU seconds of the server"""


class Schedule:
    """The current part of the measurement, shared by the threads of clients and browser."""

    def __init__(self, clients: int) -> None:
        """Create a schedule before its first part; `clients` is the number of clients to wait for."""
        self.part, self.is_over = "", False
        self._connected = threading.Semaphore(0)
        self._clients = clients

    def add_client(self) -> None:
        """Count a client that has loaded the app."""
        self._connected.release()

    def wait_for_clients(self, thread: threading.Thread) -> None:
        """Wait until all clients have loaded the app.

        Raises:
            NotHereError: the thread of the clients ended before that.
        """
        for _ in range(self._clients):
            while not self._connected.acquire(timeout=1.0):
                if not thread.is_alive():
                    raise NotHereError("The clients could not connect to the app.")


async def run_clients(server: Server, count: int, parts: dict[str, PartRecord], schedule: Schedule) -> None:
    """Run clients until the schedule is over.

    Args:
        server: the app.
        count: number of clients.
        parts: records by the name of the part, to which the interactions are added.
        schedule: has the name of the running part.
    """
    cookies = await asyncio.to_thread(fetch_cookie, server.entry)
    async with Client(server.address, cookies, seed=0) as client:
        # fill the server's caches first, because this benchmark measures load and not first visits
        await client.load()
        for place in PAGE_OF:
            await client.visit(place)
    clients = [Client(server.address, cookies, seed) for seed in range(1, 1 + count)]
    delays = [INTERVAL * index / count for index in range(count)]
    await asyncio.gather(*(_run_client(*pair, parts, schedule) for pair in zip(clients, delays, strict=True)))


def _run_clients_in_thread(server: Server, count: int, parts: dict[str, PartRecord], schedule: Schedule) -> None:
    """Run the clients; errors are ignored after the end of the schedule."""
    try:
        asyncio.run(run_clients(server, count, parts, schedule))
    except Exception:
        # after the end of the schedule the server is stopped, so errors are expected; a thread that prints a
        # traceback while the interpreter exits would abort it
        if not schedule.is_over:
            raise


async def _run_client(client: Client, delay: float, parts: dict[str, PartRecord], schedule: Schedule) -> None:
    """Connect a client after `delay` seconds, and let it interact every INTERVAL until the schedule is over."""
    await asyncio.sleep(delay)
    async with client:
        load = await client.load()
        if load.error:
            parts[QUIET].interactions.append(load)
        await asyncio.to_thread(schedule.add_client)
        while not schedule.is_over:
            started, part, reruns = time.monotonic(), schedule.part, client.reruns
            interaction = await client.act()
            if part and part == schedule.part:
                parts[part].interactions.append(interaction)
                parts[part].reruns += client.reruns - reruns
            # short sleeps, so that the end of the measurement does not wait for the next interaction
            while not schedule.is_over and time.monotonic() < started + INTERVAL:
                await asyncio.sleep(0.1)


def observe(visitor: Visitor | None, server: Server, seconds: float, record: PartRecord) -> None:
    """Record one part of some seconds: memory and load every second, and a click in the browser every INTERVAL."""
    process, end = psutil.Process(server.pid), time.monotonic() + seconds
    links = list(visitor.links().items()) if visitor else []
    cpu, clicks = sum(process.cpu_times()[:2]), 0
    while (started := time.monotonic()) < end:
        if visitor is not None:
            record.clicks.append(_click(visitor.page, *links[clicks % len(links)]))
            clicks += 1
        while time.monotonic() < min(started + INTERVAL, end):
            memory = process.memory_full_info()
            record.memory.append((memory.rss, memory.uss))
            record.loads.append(os.getloadavg()[0])
            time.sleep(1.0)
    record.cpu = sum(process.cpu_times()[:2]) - cpu


def _click(page: Any, url: str, link: Any) -> Interaction:
    """Click a link in the browser, and return the time until the script of its page has ended."""
    # a page keeps changing while a job computes, so only the end of its script is awaited
    started = time.perf_counter()
    last_part = "" if url == PAGES[0].url else url
    try:
        link.click()
        page.wait_for_function(_SCRIPT_ENDED, arg=last_part, timeout=1000 * PATIENCE, polling=20)
    except Exception as error:  # Playwright is imported only where there is a browser
        return Interaction(url, time.perf_counter() - started, str(error).splitlines()[0])
    return Interaction(url, time.perf_counter() - started)


def rows(parts: dict[str, PartRecord]) -> Iterator[Row]:
    """Return the rows of every part, each with a value and its target."""
    for part, record in parts.items():
        interactions = record.interactions
        seconds = np.array([interaction.seconds for interaction in interactions if not interaction.error])
        failures = [interaction for interaction in (*interactions, *record.clicks) if interaction.error]
        slowest = sorted(interactions, key=lambda interaction: -interaction.seconds)[:3]
        names = ", ".join(f"{interaction.target} {interaction.seconds:.2f} s" for interaction in slowest)
        load = f"load {min(record.loads):.1f} to {max(record.loads):.1f}" if record.loads else ""
        count = f"{len(seconds)} interactions"
        yield Row("interaction to its end, p50", part, _percentile(seconds, 50), MEDIAN, "s", f"{count}, {load}")
        yield Row("interaction to its end, p95", part, _percentile(seconds, 95), P95, "s", f"slowest: {names}")
        detail = f"{failures[0].target}: {failures[0].error}"[:120] if failures else f"of {count}"
        yield Row("failures", part, float(len(failures)), 0.0, "", detail)
        if record.clicks:
            clicks = np.array([click.seconds for click in record.clicks])
            detail = f"median {np.median(clicks):.2f} s of {len(clicks)}"
            yield Row("page script in Chromium, p95", part, _percentile(clicks, 95), P95, "s", detail)
        if record.memory:
            resident, unique = np.array(record.memory).max(axis=0)
            detail = (
                f"{unique / 2**20:,.0f} MiB of it unique, {record.memory[0][0] / 2**20:,.0f} MiB at the start; "
                f"CPU {record.cpu:.1f} s, {record.reruns} reruns of the clients"
            )
            yield Row("peak memory of the server", part, float(resident), MEMORY, "B", detail)


def _percentile(values: np.ndarray, percent: int) -> float | None:
    return float(np.percentile(values, percent)) if len(values) else None


def measure(server: Server, cache: Path, count: int, seconds: float, chromium: Any) -> list[Row]:
    """Measure both parts.

    Args:
        server: the app.
        cache: its cache, in which the job computes.
        count: number of clients.
        seconds: duration of each part.
        chromium: the browser; None measures the clients only.
    """
    parts, schedule = {QUIET: PartRecord(), JOB: PartRecord()}, Schedule(count)
    arguments = server, count, parts, schedule
    thread = threading.Thread(target=_run_clients_in_thread, args=arguments, daemon=True)
    thread.start()
    try:
        visitor = Visitor(chromium, server) if chromium is not None else None
        if visitor is not None:
            visitor.load()
        schedule.wait_for_clients(thread)
        for part, record in parts.items():
            with _running_job(cache) if part == JOB else nullcontext():
                schedule.part = part
                observe(visitor, server, seconds, record)
                schedule.part = ""
    finally:
        schedule.is_over = True
        thread.join(timeout=3 * INTERVAL)
    return list(rows(parts))


@contextmanager
def _running_job(cache: Path) -> Iterator[None]:
    """Submit the demo study as a job, and cancel it at the end of the context."""
    job = queue.submit(cache, demo_study().renamed("Load test"))
    try:
        yield
    finally:
        queue.cancel(cache, job.id)


def main() -> None:
    """Print every value; exit with one sentence if the browser or the app does not start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=tuple(SIZES), default="7b")
    parser.add_argument("--cache", type=Path, help="folder for the run, which is reused (default: temporary)")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of each of the two parts")
    parser.add_argument("--no-browser", action="store_true", help="measure the clients only")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args()
    # SIGTERM raises SystemExit, so that the server and the job are stopped too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with nullcontext(options.cache) if options.cache else tempfile.TemporaryDirectory() as folder:
        cache = Path(folder).resolve()
        write_large_run(cache, options.size)
        before = os.getloadavg()[0]
        try:
            with nullcontext(None) if options.no_browser else browser() as chromium, served(cache) as server:
                values = measure(server, cache, options.clients, options.seconds, chromium)
        except NotHereError as error:
            sys.exit(str(error))
    cores, after = os.cpu_count(), os.getloadavg()[0]
    if options.json:
        items = [asdict(row) | {"verdict": row.verdict} for row in values]
        print(json.dumps({"size": options.size, "cores": cores, "load": [before, after], "rows": items}))
        return
    visitors = f"{options.clients} clients" + ("" if options.no_browser else " and Chromium")
    print_rows(
        values, f"{visitors}, size {options.size}, {cores} cores, load {before:.2f} before and {after:.2f} after"
    )


if __name__ == "__main__":
    main()
