"""Answers: are the other processes of a run still there, and what is said and done when one is not?

Every one of them watches those that it depends on, so that none waits for one that is gone. They share a
machine, which says at once who is there; the beat that a job or a run writes into its files, every
BEAT_SECONDS of `system.processes`, is for whoever looks from another machine.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from gprune.models.distributed.rpc import made, plain
from gprune.system import processes, safe_parsing
from gprune.system.errors import GpruneError, RanksError

EXIT_LOST = 2
"""exit code of a run that another process has left alone: that of any error told in one sentence"""
GRACE_SECONDS = 15.0
"""what rank 0 is given to end in good order when another process is gone, or the one that started it"""
_LOOK_SECONDS = 0.2


class Heartbeat:
    """The processes of a run, as one of them watches them."""

    def __init__(self, store: Any, rank: int, numbers: Iterable[int]) -> None:
        """Remembers torch's store, which all of them share, its own rank, and the process numbers by rank."""
        self._store, self._rank, self._parent = store, rank, os.getppid()
        self._known = [(number, processes.process_start(number)) for number in numbers]
        self.over = False
        """whether nothing more is to be done together, so that anyone may go"""

    def watch(self) -> None:
        """Watches them from now on."""
        threading.Thread(target=self._watch, daemon=True).start()

    def withdraw(self, error: GpruneError) -> None:
        """Leaves for good, and says why; the others are told by `missing`."""
        with contextlib.suppress(RuntimeError):
            self._store.set(f"gone/{self._rank}", plain(error))

    def missing(self) -> GpruneError | None:
        """What is to be said of another process that has ended; None while all are there."""
        if self.over:
            return None
        if os.getppid() != self._parent:
            return RanksError(
                f"the command that started the {len(self._known)} processes of this run has ended: finished "
                "stages are kept, run it again to go on"
            )
        for rank, (pid, started) in enumerate(self._known):
            if rank == self._rank or processes.is_alive(pid, started):
                continue
            with contextlib.suppress(RuntimeError):
                if self._store.check([f"gone/{rank}"]):
                    return made(self._store.get(f"gone/{rank}"))
            return RanksError(
                f"process {rank + 1} of the {len(self._known)} that compute this model together has ended "
                "(killed, probably out of memory): finished stages are kept, run it again to go on"
            )
        return None

    def missed(self, seconds: float) -> GpruneError | None:
        """The same, once there was time to see it."""
        deadline = time.monotonic() + seconds
        while (gone := self.missing()) is None and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS / 4)
        return gone

    def _watch(self) -> None:
        """Ends this process when it waits for one that is gone; whoever could do so itself has its time."""
        asked = False
        while True:
            time.sleep(_LOOK_SECONDS)
            orphaned = os.getppid() != self._parent
            if self._rank and (orphaned or not processes.is_alive(*self._known[0])):
                os._exit(0)
            gone = None if asked else self.missing()
            if gone is None:
                continue
            asked = True
            if orphaned:
                # whoever would have is gone
                os.kill(os.getpid(), signal.SIGTERM)
            threading.Thread(target=self._leave, args=(gone,), daemon=True).start()

    def _leave(self, gone: GpruneError) -> None:
        """Ends this process once it had time to do so itself; rank 0 says why, for all of them."""
        time.sleep(GRACE_SECONDS)
        if self.over:
            return
        if not self._rank:
            print(safe_parsing.sentence(f"error: {gone}"), file=sys.stderr, flush=True)
        os._exit(EXIT_LOST)
