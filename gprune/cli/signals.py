"""Handle SIGTERM and SIGUSR1, by which a scheduler asks a process to stop.

The run is then marked as interrupted. Learning finishes its step and saves a checkpoint, from which the next run
resumes. If the folder of a job records a cancellation, its run is marked as cancelled instead. A second signal ends the
process at once, except in a cancelled job, which ignores it.
"""

import signal
from pathlib import Path

from gprune.system.errors import Interrupted
from gprune.system.machine import interrupt

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


def listen(job: Path | None) -> None:
    """Install the signal handlers; `job` is the folder of the job that this process runs, if any."""

    def stop(number: int, _: object) -> None:
        # imported late, because most commands do not need it
        from gprune.jobs.reporting import is_cancelled

        cancelled = job is not None and is_cancelled(job)
        for signal_number in SIGNALS:
            signal.signal(signal_number, signal.SIG_IGN if cancelled else signal.SIG_DFL)
        interrupt(KeyboardInterrupt() if cancelled else Interrupted())

    for signal_number in SIGNALS:
        signal.signal(signal_number, stop)
