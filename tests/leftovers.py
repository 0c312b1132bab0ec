"""What a test leaves running in a cache is killed behind it."""

import os
import signal
from pathlib import Path

from gprune.jobs import folder as files
from gprune.jobs import local
from gprune.jobs.state import read_state


def kill(cache: Path) -> None:
    """Kills the supervisors and the runs of every job of a cache, but for this process."""
    for job in files.all_folders(files.root(cache)):
        state = read_state(job)
        for pid, started in (
            (state.supervisor, state.supervisor_started),
            (state.pid, state.process_started),
        ):
            if pid is not None and pid != os.getpid():
                local.send(pid, started, signal.SIGKILL)
