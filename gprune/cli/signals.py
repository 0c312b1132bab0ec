"""What a signal means to a command: SIGTERM and SIGUSR1 of a machine that needs the process to leave.

The run then reads as interrupted. Learning finishes its step and saves a checkpoint, from which the next run resumes.
In a job with a cancellation recorded in its folder the signal comes from that: the run is cancelled. A second signal
ends the process at once; a cancelled job ignores it.
"""

import signal
from pathlib import Path

from gprune.system.errors import Interrupted
from gprune.system.processes import interrupt

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


def listen(job: Path | None) -> None:
    """Let the first signal stop this process, and the job of a folder if it is one, in good order."""

    def stop(number: int, _: object) -> None:
        cancelled = job is not None and _is_cancelled(job)
        for one in SIGNALS:
            signal.signal(one, signal.SIG_IGN if cancelled else signal.SIG_DFL)
        interrupt(KeyboardInterrupt() if cancelled else Interrupted())

    for one in SIGNALS:
        signal.signal(one, stop)


def _is_cancelled(job: Path) -> bool:
    # not before: a command that is no job loads nothing of them
    from gprune.jobs.reporting import is_cancelled

    return is_cancelled(job)
