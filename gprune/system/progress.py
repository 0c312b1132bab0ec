"""Progress of long work, reported to a listener.

A stage calls ``on_progress(done, total, message)``; the listener draws a bar, appends to a job's file, or
raises ``Cancelled`` to stop the work at that point. The class of a message tells its kind.
"""

from collections.abc import Callable

Progress = Callable[[int, int, str], None]


class Notice(str):
    """A message that says how a result was made: shown on a line of its own, and kept with the result."""


class Reused(str):
    """A message that says that nothing had to be done."""


class Waiting(str):
    """A message that says for what the work waits."""


def silent(done: int, total: int, message: str) -> None:
    """Listens to nothing."""
