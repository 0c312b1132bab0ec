"""Watches one run: ``python -m gprune.jobs.supervisor FOLDER``.

Starts the run, stops it when it was asked to stop and does not, records how it ended if it could not do so
itself (killed, out of memory, an import that fails), and starts the next job of the queue once its memory
is free. All this without the app, and in a process that loads neither models nor pages.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gprune.jobs import device_slots, local, queue
from gprune.jobs import folder as files
from gprune.jobs.state import LOST, REMEDY, JobState, read_state, update, write_state
from gprune.system.errors import GpruneError
from gprune.system.processes import BEAT_SECONDS

TICK_SECONDS = 0.1


def supervise(folder: Path, heard: Callable[[], signal.Signals | None] = lambda: None) -> None:
    """Runs one job from its start to its end.

    `heard` gives a signal that came since it was last asked, to be passed on to the run. Raises JobError
    where the folder cannot be written.
    """
    worker = _launch(folder)
    if worker is None:
        return
    code = _watch(folder, worker, heard)
    # the second of two signals: the first has not come to say so itself
    interrupted = code in (-signal.SIGTERM, -signal.SIGUSR1)
    reason = _reason(code, folder)
    ended = update(folder, lambda state: state.without_result(reason, interrupted, killed=code == -signal.SIGKILL))
    if ended.state != "done":
        local.sweep(worker.pid)


def _launch(folder: Path) -> subprocess.Popen[bytes] | None:
    """Starts the run unless it was cancelled or started before; the lock keeps it from reporting before."""
    record = files.read_json(folder / files.JOB) or {}
    command = record.get("command")
    with files.locked(folder):
        state = read_state(folder)
        if state.pid is not None or state.state not in ("running", "cancelling"):
            return None
        if state.state == "cancelling":
            write_state(folder, state.ended_as("cancelled"))
            return None
        try:
            # of a study that names a GPU itself, the number is among all of them
            chosen = state.device if record.get("device") in device_slots.OPEN_CHOICE else ""
            worker = local.start(command or [], folder, chosen)
        except (OSError, ValueError, TypeError, IndexError) as error:
            reason = f"the command {command!r} cannot be started ({error}): check the installation"
            write_state(folder, state.ended_as("failed", files.full(folder, error) or reason))
            return None
        _register(folder, state, worker.pid)
    return worker


def _register(folder: Path, state: JobState, pid: int) -> None:
    try:
        write_state(
            folder,
            replace(
                state,
                pid=pid,
                process_started=local.process_start(pid),
                supervisor=os.getpid(),
                supervisor_started=local.process_start(os.getpid()),
                **local.here(),
            ),
        )
    except GpruneError as error:
        # the run registers itself as well; a full disk is no reason to leave it without a supervisor
        print(f"supervisor: {error}", file=sys.stderr)


def _watch(folder: Path, worker: subprocess.Popen[bytes], heard: Callable[[], signal.Signals | None]) -> int:
    """Waits for the run to end, makes it end when that is due, and says that it is watched."""
    started, last, since, beat = local.process_start(worker.pid), "", 0.0, time.monotonic()
    while True:
        try:
            return worker.wait(timeout=TICK_SECONDS)
        except subprocess.TimeoutExpired:
            state = read_state(folder)
        if time.monotonic() - beat >= BEAT_SECONDS:
            beat = time.monotonic()
            _beat(folder)
        passed_on = heard()
        if passed_on is not None:
            local.send(worker.pid, started, passed_on)
        if state.state != last:
            last, since = state.state, time.monotonic()
        # whatever becomes of the clock, a run gets no more time than it is due
        moment = (state.ended if state.finished else state.cancel_requested) or 0.0
        due = local.due_signal(state, max(time.time(), moment + time.monotonic() - since))
        if due is not None:
            local.send(worker.pid, started, due)


def _beat(folder: Path) -> None:
    """Tells other machines that the run is watched; what cannot be written is told by the next one."""
    with contextlib.suppress(GpruneError):
        update(folder, lambda state: state if state.finished else replace(state, beat=time.time()))


def _reason(code: int, folder: Path) -> str:
    """One sentence for a run that ended without reporting how."""
    if code == -signal.SIGKILL:
        return f"the process ended without a result (killed, probably out of memory); {REMEDY}"
    if code < 0:
        return LOST
    lines = files.last_lines(folder / files.LOG, 1)
    said = f", saying: {lines[0]}" if lines else ""
    return f"the process ended without a result (exit code {code}{said}); see its log, then {REMEDY}"


def main(arguments: list[str]) -> int:
    """Supervises the job in the named folder, then starts the next one."""
    folder = Path(arguments[0]).absolute()
    try:
        supervise(folder)
    except GpruneError as error:
        print(f"supervisor: {error}", file=sys.stderr)
    try:
        queue.reconcile(folder.parents[1])
    except GpruneError as error:
        print(f"supervisor: the next job was not started: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
