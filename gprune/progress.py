"""How long work reports where it stands, without knowing who listens.

A stage calls ``on_progress(done, total, message)``; the listener draws a bar, appends to a job's file, or
raises ``Cancelled`` to stop the work at that point. A message that is a ``Notice`` is kept.
"""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int, str], None]


class Notice(str):
    """A message that says how a result was made: shown on a line of its own, and kept with the result."""

    __slots__ = ()


def silent(done: int, total: int, message: str) -> None:
    """Listens to nothing."""


def in_words(seconds: float) -> str:
    """A duration in the unit that leaves a number to be read."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
