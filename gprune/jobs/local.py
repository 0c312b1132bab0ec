"""Processes of this machine: start a run that outlives the app, tell whether it lives, make it stop.

A run is a child of a small supervisor (``gprune.jobs.supervisor``), and both lead a session of their own:
closing the tab, the app or the terminal ends neither. Everything is started from an argument list, without
a shell.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gprune.jobs import device_slots
from gprune.jobs import folder as files
from gprune.jobs.state import JobState
from gprune.system import installation, machine, processes
from gprune.system.processes import QUIET_SECONDS
from gprune.system.processes import is_alive as is_alive
from gprune.system.processes import process_start as process_start

CommandBuilder = Callable[[Path, Sequence[str]], list[str]]

EXPORTS = ("export", "gguf", "map")
"""commands besides `run` that a job can be; each takes `--job` and makes no run"""
SPEED = "speed"
"""one more of them: it computes where its study says, and nothing may run beside it"""
# a run that has reported its end gets this long to leave the machine before it is killed
EXIT_SECONDS = 30.0

_started: list[subprocess.Popen[bytes]] = []
_started_lock = threading.Lock()


def exports(arguments: Sequence[str]) -> bool:
    """Whether the arguments of a job name one of ``EXPORTS``, or ``SPEED``."""
    return bool(arguments) and arguments[0] in (*EXPORTS, SPEED)


def times(arguments: Sequence[str]) -> bool:
    """Whether a job is a measurement of speed, of models by name and not of a run."""
    return bool(arguments) and arguments[0] == SPEED


def worker_command(folder: Path, arguments: Sequence[str]) -> list[str]:
    """The command line of a job that reports to its folder.

    A run of the job's study with results in the job's own cache; or one of ``EXPORTS``, where the arguments
    begin with its name. The arguments alone decide, so that a resumed job does what it did before.
    """
    if exports(arguments):
        return installation.command("gprune", *arguments, "--job", str(folder))
    study, cache = str(folder / files.STUDY), str(folder.parents[1])
    return installation.command("gprune", "run", study, "--job", str(folder), "--cache", cache, *arguments)


def environment(device: str = "") -> dict[str, str]:
    """The environment of a run: threads as gprune.system.machine sets, a log that is UTF-8 and unbuffered.

    `device` is the only GPU that it sees, or several with blanks between them; empty for all that this
    process sees. Raises ValueError where this process does not see that GPU.
    """
    values = {**os.environ, machine.THREADS_VARIABLE: machine.threads()}
    return values | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"} | device_slots.visible(device)


def start_supervisor(folder: Path) -> None:
    """Starts the supervisor of a job, which starts the run; OSError where no process can be started."""
    process = start(installation.command("gprune.jobs.supervisor", str(folder)), folder)
    with _started_lock:
        _started.append(process)


def start(command: Sequence[str], folder: Path, device: str = "") -> subprocess.Popen[bytes]:
    """Starts a process in a session of its own that writes to the job's log.

    Raises OSError where the program does not exist or the system cannot start it, ValueError without the
    device.
    """
    # what a job writes below the cache is its owner's alone
    with open(os.open(folder / files.LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=installation.CHILD_FOLDER,
            env=environment(device),
            start_new_session=True,
            umask=0o077,
        )


def reap() -> None:
    """Collects the supervisors started here that have ended, so that none stays a zombie."""
    with _started_lock:
        _started[:] = [process for process in _started if process.poll() is None]


def worker_alive(state: JobState) -> bool:
    """Whether the process of the run exists; of another machine's, whether it counts as there."""
    return _alive(state, state.pid, state.process_started)


def supervisor_alive(state: JobState) -> bool:
    """Whether the process that watches the run exists; of another machine's, whether it counts as there."""
    return _alive(state, state.supervisor, state.supervisor_started)


def _alive(state: JobState, pid: int | None, started: float | None) -> bool:
    if elsewhere(state):
        # what it reported as its end is believed: nobody here could wait for its process to leave
        return not state.finished and not silent(state, time.time())
    if state.boot and state.boot != processes.boot():
        # the machine has started anew since: whatever has that number now is something else
        return False
    return is_alive(pid, started)


def elsewhere(state: JobState) -> bool:
    """Whether the processes of a job are another machine's, where nothing can be asked or signalled."""
    return state.host not in ("", processes.host())


def silent(state: JobState, now: float) -> bool:
    """Whether a job of another machine has said nothing for so long that it is given up."""
    said = max((moment for moment in (state.beat, state.started) if moment is not None), default=0.0)
    # a moment in the future is one of another machine's clock
    return abs(now - said) >= QUIET_SECONDS


def here() -> dict[str, Any]:
    """Which machine this is, and which start of it: what a state holds of its processes."""
    return {"host": processes.host(), "boot": processes.boot(), "beat": time.time()}


def due_signal(state: JobState, now: float) -> signal.Signals | None:
    """The signal that a run should get now.

    A run asked to stop has its grace to do so by itself, then gets SIGTERM, and after as long again SIGKILL.
    A run that reported its end but does not leave gets SIGKILL. The answer depends on the stored times only,
    so that whoever looks next continues where the last one stopped.
    """
    if state.state == "cancelling" and state.cancel_requested is not None:
        waited = now - state.cancel_requested
        if waited >= 2 * state.grace:
            return signal.SIGKILL
        # a request in the future was made before a clock was set back
        return signal.SIGTERM if waited >= state.grace or waited < 0 else None
    if state.finished and state.ended is not None and now - state.ended >= EXIT_SECONDS:
        return signal.SIGKILL
    return None


def send(pid: int, started: float | None, number: signal.Signals) -> None:
    """Signals a process, with its whole group if it leads one; a process that is gone is left alone."""
    if not is_alive(pid, started):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


def sweep(group: int) -> None:
    """Kills what is left of the group of a process that has just ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
