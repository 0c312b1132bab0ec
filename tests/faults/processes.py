"""Faults of the job's processes: the one that submitted it, its supervisor, its worker, all of them."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

from faults.arena import Arena
from faults.verdict import FAILED, ORPHAN, UNTRUE, Verdict, judge_mended, orphans, whole

from gprune.jobs import queue
from gprune.jobs.local import EXIT_SECONDS
from gprune.jobs.state import read_state
from gprune.study import from_file

LONGEST_SECONDS = 300.0


def killed_processes(arena: Arena, tries: int, seed: int) -> Verdict:
    """Processes of a job are killed, in each combination; then the job goes on to its end."""
    verdict, chance = Verdict("server, supervisor, worker killed"), random.Random(seed)
    plans = (("server",), ("supervisor",), ("worker",), ("supervisor", "worker"), ("server", "supervisor"))
    for number in range(tries):
        victims = plans[number % len(plans)]
        cache, what = arena.cache("processes"), " and ".join(victims)
        server, job = _submitted(arena, cache)
        time.sleep(chance.uniform(0.0, 6.0))
        state = read_state(queue.get(cache, job).folder)
        for victim, pid in (("server", server), ("supervisor", state.supervisor), ("worker", state.pid)):
            if victim in victims and pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        verdict.tries += 1
        _follow(verdict, arena, cache, job, what)
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        for one in _staying(cache):
            verdict.add(ORPHAN, f"{what}: {one}")
    return verdict


def _staying(cache: Path) -> list[str]:
    """Processes that are there still when everything has had its time to leave."""
    deadline = time.monotonic() + 2 * EXIT_SECONDS
    while (found := orphans(cache)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _submitted(arena: Arena, cache: Path) -> tuple[int, str]:
    """A process that submits the study as the app does, and stays; its number and the job's."""
    note = arena.home / "submitted"
    note.unlink(missing_ok=True)
    pid = os.fork()
    if not pid:
        try:
            job = queue.submit(cache, from_file(arena.study))
            note.with_suffix(".part").write_text(job.id)
            note.with_suffix(".part").rename(note)
            time.sleep(LONGEST_SECONDS)
        finally:
            os._exit(0)
    deadline = time.monotonic() + LONGEST_SECONDS
    while not note.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return pid, note.read_text()


def _follow(verdict: Verdict, arena: Arena, cache: Path, job: str, what: str) -> None:
    """Waits for the job's end, resumes it if it was lost, and looks at what it has left."""
    ended = _ended(cache, job)
    there = whole(cache)
    if ended.state == "failed":
        if "again" not in ended.error:
            verdict.add(UNTRUE, f"{what}: failed without a remedy: {ended.error!r}")
        ended = _ended(cache, queue.resume(cache, job).id)
    if ended.state != "done":
        verdict.add(FAILED, f"{what}: the job ended {ended.state}: {ended.error}")
        return
    judge_mended(verdict, arena, cache, what, 0, there)


def _ended(cache: Path, job: str) -> queue.Job:
    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline:
        queue.reconcile(cache)
        found = queue.get(cache, job)
        if not found.active:
            return found
        time.sleep(0.1)
    return queue.get(cache, job)
