"""Format times, durations, sizes and lists as text."""

import time
from collections.abc import Sequence
from datetime import datetime


def seconds_since(moment: object) -> float:
    """Return the seconds since a time in ISO form; infinite if it is not valid."""
    return time.time() - seconds_since_1970(moment)


def seconds_since_1970(moment: object) -> float:
    """Return a time in ISO form as seconds since 1970; minus infinity if it is not valid."""
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except (ValueError, OverflowError, OSError):
        # not every system can convert the year 1
        return float("-inf")


def duration(seconds: float | None, units: int = 2) -> str:
    """Return a duration in words; a dash if it is unknown.

    `units` is 2 for two units, such as minutes with seconds; 1 for estimates.
    """
    # NaN differs from itself
    if seconds is None or seconds != seconds:
        return "–"
    rounded = round(max(seconds, 0.0))
    if rounded < 90:
        return f"{rounded} s"
    if units == 1:
        return f"{seconds / 60:.0f} min" if rounded < 5400 else f"{seconds / 3600:.1f} h"
    if rounded < 5400:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"


def amount(count: float) -> str:
    """Return a number of bytes in a readable unit."""
    for power, unit in ((30, "GiB"), (20, "MiB")):
        if count >= 2**power:
            return f"{count / 2**power:,.1f} {unit}"
    return f"{count / 2**10:,.1f} KiB"


def join_words(words: Sequence[str]) -> str:
    """Join words as in a sentence, such as `A, B and C`; an empty sequence gives an empty string."""
    *first, last = words or ("",)
    return f"{', '.join(first)} and {last}" if first else last
