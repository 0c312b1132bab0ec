"""Kill what a test leaves running in a cache."""

import os
import signal
from pathlib import Path

from gprune.jobs import folder as files
from gprune.jobs import queue
from gprune.jobs.folder import read_state


def kill(cache: Path) -> None:
    """Kill the process of every job of a cache, but for this process."""
    for job in files.all_folders(files.root(cache)):
        state = read_state(job)
        if state.pid is not None and state.pid != os.getpid():
            queue.signal_process(state.pid, state.process_started, signal.SIGKILL)
