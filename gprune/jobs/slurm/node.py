"""On the node: ``python -m gprune.jobs.slurm.node FOLDER`` runs one job, as a supervisor does at home.

USR1, which Slurm sends to the batch script alone before the time limit, is passed on to the run, once. TERM,
which it sends to every process before it kills, is not: the run has it already, and a second signal would end
it before it has saved. The exit code says to the batch script whether the job is to be continued.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from gprune.jobs import folder as files
from gprune.jobs import local
from gprune.jobs.slurm.batch import INTERRUPTED
from gprune.jobs.slurm.record import read_record, write_record
from gprune.jobs.state import JobState, read_state, write_state
from gprune.jobs.supervisor import supervise
from gprune.system.errors import GpruneError

FAILED = 1


class Signals:
    """What Slurm has sent to this process."""

    def __init__(self) -> None:
        """Listens from now on."""
        self._heard = False
        self._waiting: signal.Signals | None = None
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self._hear)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGUSR1 and not self._heard:
            self._waiting = signal.SIGUSR1
        self._heard = True

    def next(self) -> signal.Signals | None:
        """What the run is to be sent now; None if nothing."""
        due, self._waiting = self._waiting, None
        return due


def begin(folder: Path, environment: dict[str, str] | None = None) -> bool:
    """Takes a job up, for the first time or again; says whether there is something to do.

    Raises JobError where the folder cannot be written.
    """
    with files.locked(folder):
        _sign(folder, dict(os.environ) if environment is None else environment)
        state = read_state(folder)
        if state.state in ("cancelled", "cancelling") or (folder / files.CANCEL).exists():
            if state.state != "cancelled":
                write_state(folder, state.ended_as("cancelled"))
            return False
        if state.state == "done":
            return False
        write_state(folder, JobState(state="running", started=time.time(), **local.here()))
        return True


def _sign(folder: Path, environment: dict[str, str]) -> None:
    """Writes under which number Slurm runs the job: whoever submitted it may have died before."""
    array, task = environment.get("SLURM_ARRAY_JOB_ID", ""), environment.get("SLURM_ARRAY_TASK_ID", "")
    if array.isdecimal() and task.isdecimal():
        told = replace(read_record(folder), array=array, task=int(task), state="RUNNING", reason="", gone=None)
        write_record(folder, told)


def main(arguments: Sequence[str]) -> int:
    """Runs the job of a folder to its end, or to its interruption."""
    folder, signals = Path(arguments[0]).absolute(), Signals()
    try:
        if not begin(folder):
            return 0
        supervise(folder, signals.next)
        state = read_state(folder)
    except GpruneError as error:
        print(f"node: {error}", file=sys.stderr)
        return FAILED
    if state.state == "interrupted":
        return INTERRUPTED
    return 0 if state.state in ("done", "cancelled") else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
