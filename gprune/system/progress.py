"""Progress of long work, reported to a listener.

A stage calls ``on_progress(done, total, message)``. The listener displays or stores the progress, or raises
``Cancelled`` to stop the work at that point. The class of a message tells its kind.
"""

from collections.abc import Callable

Progress = Callable[[int, int, str], None]


class Notice(str):
    """A message about how a result was computed, which is displayed on its own line and stored with the result."""


class Reused(str):
    """A message that a result was reused, so nothing was computed."""


class Waiting(str):
    """A message about what the work waits for."""


def silent(done: int, total: int, message: str) -> None:
    """Ignore all progress."""
