"""How long a test waits for a page, a process or a file before it gives up: the one place that decides it.

A wait ends as soon as what it waits for is there, so patience costs nothing; it only decides when a test says
that something hangs. Tests name the seconds that a quiet machine needs at the very most, and a limit is that
times `GPRUNE_TEST_PATIENCE`, 10 unless set, so that a machine ten times slower passes the same tests.
"""

import os
import time
from collections.abc import Callable

import pytest

PATIENCE = float(os.environ.get("GPRUNE_TEST_PATIENCE", "10"))


def limit(seconds: float) -> float:
    """The longest wait, in seconds, for what takes a quiet machine no more than `seconds`."""
    return seconds * PATIENCE


# no test of this suite takes a quiet machine a minute: one that is still at work after this hangs
LONGEST_TEST = limit(180)


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Looks every 10 ms until the condition holds, and fails when the limit of `seconds` is over."""
    deadline = time.monotonic() + limit(seconds)
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"the condition did not become true within {limit(seconds):g} seconds")
        time.sleep(0.01)
