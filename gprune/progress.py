"""How long work reports where it stands, without knowing who listens.

A stage calls ``on_progress(done, total, message)``; the listener draws a bar, appends to a job's file, or
raises ``Cancelled`` to stop the work at that point.
"""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int, str], None]


def silent(done: int, total: int, message: str) -> None:
    """Listens to nothing."""
