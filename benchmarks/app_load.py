"""What the app costs with many people at once, on a whole run of the size of LLaMA2-7B, made by hand.

    python benchmarks/app_load.py [--size 7b|13b|small] [--cache FOLDER] [--clients 20] [--seconds 60]

Clients that speak the app's protocol and draw nothing go to pages and change what they find there, one
interaction each every ten seconds, and a Chromium does so beside them: once while nothing else goes on, and
once while a job computes a study in the same cache. Each figure stands beside its budget and the load of the
machine: all of this shares the cores of one machine, and on a busy one nothing is fast.
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
# the project is not installed; the runs are made by what makes them for the tests
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "app"), str(ROOT / "scripts")]

import numpy as np  # noqa: E402
import psutil  # noqa: E402
from app_client import PATIENCE, Answer, Client, cookie  # noqa: E402
from app_latency import Row, show  # noqa: E402
from app_visitor import Visitor  # noqa: E402
from large_runs import SIZES, leave_large_run  # noqa: E402
from served_app import NotHereError, Server, browser, served  # noqa: E402

from gprune.jobs import queue  # noqa: E402
from gprune.study.demo import demo_study  # noqa: E402

P95, MEDIAN, MEMORY = 1.0, 0.5, 1.5 * 2**30
"""budgets: seconds from an interaction to the end of its script, and bytes of the server"""
EVERY = 10.0
"""seconds between two interactions of a person"""
_ENDED = (
    "name => location.pathname.replace(/\\/$/, '').split('/').pop() === name && "
    "document.querySelector('[data-testid=stApp]').dataset.testScriptState === 'notRunning'"
)
QUIET, JOB = "quiet", "a job computes"


@dataclass
class Watched:
    """What was seen in one part of the measurement."""

    answers: list[Answer] = field(default_factory=list)
    """of the clients"""
    clicks: list[Answer] = field(default_factory=list)
    """of the browser"""
    memory: list[tuple[int, int]] = field(default_factory=list)
    """bytes of the server: all that is resident, and what is its own alone"""
    loads: list[float] = field(default_factory=list)
    """load of the machine"""
    reruns: int = 0
    """scripts that the server has run for the clients"""
    cpu: float = 0.0
    """seconds of the server's CPU"""


async def people(server: Server, count: int, parts: dict[str, Watched], turn: Turns) -> None:
    """Plays all clients until the last part has ended.

    Args:
        server: the app.
        count: how many.
        parts: gets what they see, by the name of the part.
        turn: says which part it is.
    """
    carried = await asyncio.to_thread(cookie, server.entry)
    async with Client(server.address, carried, seed=0) as first:
        # what is computed once for all is not what many people cost
        await first.load()
        for name in first.pages():
            await first.visit(name)
    clients = [Client(server.address, carried, seed) for seed in range(1, 1 + count)]
    await asyncio.gather(*(_person(one, place, count, parts, turn) for place, one in enumerate(clients)))


def _play(server: Server, count: int, parts: dict[str, Watched], turn: Turns) -> None:
    try:
        asyncio.run(people(server, count, parts, turn))
    except Exception:
        # a server that is ended under its clients is no fault, and words of a thread that outlives
        # the interpreter would abort it
        if not turn.run_batches:
            raise


async def _person(client: Client, place: int, count: int, parts: dict[str, Watched], turn: Turns) -> None:
    # people come one after the other, and do not act in step
    await asyncio.sleep(EVERY * place / count)
    async with client:
        arrived = await client.load()
        if arrived.fault:
            parts[QUIET].answers.append(arrived)
        await asyncio.to_thread(turn.arrive)
        while not turn.run_batches:
            began, part, before = time.monotonic(), turn.part, client.reruns
            answer = await client.act()
            if part and part == turn.part:
                parts[part].answers.append(answer)
                parts[part].reruns += client.reruns - before
            # whoever ends the measurement need not wait for the next interaction
            while not turn.run_batches and time.monotonic() < began + EVERY:
                await asyncio.sleep(0.1)


class Turns:
    """Which part of the measurement it is, for clients and browser alike."""

    def __init__(self, clients: int) -> None:
        """Begins before the first part; all clients have to arrive."""
        self.part, self.run_batches = "", False
        self._there = threading.Semaphore(0)
        self._clients = clients

    def arrive(self) -> None:
        """Says that a client is there."""
        self._there.release()

    def wait(self, alive: threading.Thread) -> None:
        """Waits for all clients.

        Raises:
            NotHereError: they have ended instead.
        """
        for _ in range(self._clients):
            while not self._there.acquire(timeout=1.0):
                if not alive.is_alive():
                    raise NotHereError("the clients could not connect to the app")


def watch(visitor: Visitor | None, server: Server, seconds: float, seen: Watched) -> None:
    """Lets one part go on for some seconds, a click of the browser every ten of them."""
    process, ends = psutil.Process(server.pid), time.monotonic() + seconds
    links = list(visitor.links().items()) if visitor else []
    spent, clicks = sum(process.cpu_times()[:2]), 0
    while (began := time.monotonic()) < ends:
        if visitor is not None:
            seen.clicks.append(_click(visitor.page, *links[clicks % len(links)]))
            clicks += 1
        while time.monotonic() < min(began + EVERY, ends):
            found = process.memory_full_info()
            seen.memory.append((found.rss, found.uss))
            seen.loads.append(os.getloadavg()[0])
            time.sleep(1.0)
    seen.cpu = sum(process.cpu_times()[:2]) - spent


def _click(page: Any, name: str, link: Any) -> Answer:
    """A click of the browser on a page; while a job computes pages never rest, so its script has to end."""
    started = time.perf_counter()
    try:
        link.click()
        page.wait_for_function(_ENDED, arg="" if name == "home" else name, timeout=1000 * PATIENCE, polling=20)
    except Exception as error:  # the browser gives a class of its own for each version
        return Answer(name, time.perf_counter() - started, str(error).splitlines()[0])
    return Answer(name, time.perf_counter() - started)


def rows(parts: dict[str, Watched]) -> Iterator[Row]:
    """Every figure beside its budget."""
    for part, seen in parts.items():
        times = np.array([one.seconds for one in seen.answers if not one.fault])
        faults = [one for one in (*seen.answers, *seen.clicks) if one.fault]
        slowest = sorted(seen.answers, key=lambda one: -one.seconds)[:3]
        words = ", ".join(f"{one.what} {one.seconds:.2f} s" for one in slowest)
        load = f"load {min(seen.loads):.1f} to {max(seen.loads):.1f}" if seen.loads else ""
        many = f"{len(times)} interactions, {load}"
        yield Row("interaction to its end, p50", part, _quantile(times, 50), MEDIAN, "s", many)
        yield Row("interaction to its end, p95", part, _quantile(times, 95), P95, "s", f"slowest: {words}")
        why = f"{faults[0].what}: {faults[0].fault}"[:120] if faults else f"of {many.partition(',')[0]}"
        yield Row("failures", part, float(len(faults)), 0.0, "", why)
        if seen.clicks:
            clicks = np.array([one.seconds for one in seen.clicks])
            detail = f"median {np.median(clicks):.2f} s of {len(clicks)}"
            yield Row("page of Chromium drawn, p95", part, _quantile(clicks, 95), P95, "s", detail)
        if seen.memory:
            resident, own = np.array(seen.memory).max(axis=0)
            per = f"; CPU {seen.cpu:.1f} s, {seen.reruns} reruns of the clients"
            detail = f"{own / 2**20:,.0f} MiB of it its own, at first {seen.memory[0][0] / 2**20:,.0f} MiB{per}"
            yield Row("memory of the server, most", part, float(resident), MEMORY, "B", detail)


def _quantile(values: np.ndarray, share: int) -> float | None:
    return float(np.percentile(values, share)) if len(values) else None


def measure(server: Server, cache: Path, count: int, seconds: float, chromium: Any) -> list[Row]:
    """Both parts.

    Args:
        server: the app.
        cache: its cache, in which the job computes.
        count: clients.
        seconds: of each part.
        chromium: the browser; none is used where it is None.
    """
    parts, turn = {QUIET: Watched(), JOB: Watched()}, Turns(count)
    thread = threading.Thread(target=_play, args=(server, count, parts, turn), daemon=True)
    thread.start()
    try:
        visitor = Visitor(chromium, server) if chromium is not None else None
        if visitor is not None:
            visitor.load()
        turn.wait(thread)
        for part, seen in parts.items():
            with _a_job(cache) if part == JOB else nullcontext():
                turn.part = part
                watch(visitor, server, seconds, seen)
                turn.part = ""
    finally:
        turn.run_batches = True
        thread.join(timeout=3 * EVERY)
    return list(rows(parts))


@contextmanager
def _a_job(cache: Path) -> Iterator[None]:
    """A job at work on the demo, which is stopped afterwards if it has not ended."""
    job = queue.submit(cache, demo_study().renamed("Beside the visitors"))
    try:
        yield
    finally:
        queue.cancel(cache, job.id)


def main() -> None:
    """Prints every figure, or says in a sentence what is not on this machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=tuple(SIZES), default="7b")
    parser.add_argument("--cache", type=Path, help="keep the run in this folder, or take it from there")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each of the two parts")
    parser.add_argument("--no-browser", action="store_true", help="the clients alone")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args()
    # whoever is told to end takes the server and the job along
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with nullcontext(options.cache) if options.cache else tempfile.TemporaryDirectory() as folder:
        cache = Path(folder).resolve()
        leave_large_run(cache, options.size)
        before = os.getloadavg()[0]
        try:
            with nullcontext(None) if options.no_browser else browser() as chromium, served(cache) as server:
                found = measure(server, cache, options.clients, options.seconds, chromium)
        except NotHereError as missing:
            sys.exit(str(missing))
    cores, after = os.cpu_count(), os.getloadavg()[0]
    if options.json:
        values = [asdict(row) | {"verdict": row.verdict} for row in found]
        print(json.dumps({"size": options.size, "cores": cores, "load": [before, after], "rows": values}))
        return
    people = f"{options.clients} clients" + ("" if options.no_browser else " and a Chromium")
    show(found, f"{people}, size {options.size}, {cores} cores, load {before:.2f} before and {after:.2f} after")


if __name__ == "__main__":
    main()
