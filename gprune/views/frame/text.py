"""Text from outside, made safe for Markdown, for figures and for spreadsheets."""

from __future__ import annotations

import html
import re
import time
from datetime import datetime

import pandas as pd

from gprune import study

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|$:<>~&])")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def plain(text: object) -> str:
    """Escapes Markdown, so that a name or a path reads as it is and links to nothing."""
    return _SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


def in_figure(text: object) -> str:
    """Escapes the mark-up that Plotly understands in names and titles."""
    return html.escape(str(text), quote=False)


def short(text: str, most: int = 22) -> str:
    """A name without its folders and options, cut for narrow labels."""
    last = study.short(text.partition("#")[0]) or text
    return last if len(last) <= most else last[: most - 1] + "…"


def duration(seconds: float | None) -> str:
    """Seconds in words of one or two units; a dash where unknown."""
    if seconds is None or seconds != seconds:
        return "–"
    whole = round(max(seconds, 0.0))
    if whole < 90:
        return f"{whole} s"
    if whole < 5400:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def csv(frame: pd.DataFrame) -> bytes:
    """A table as CSV; text cells that a spreadsheet would run as a formula get an apostrophe in front."""
    safe = frame.copy()
    for name in safe.columns:
        if not pd.api.types.is_numeric_dtype(safe[name]):
            safe[name] = [_guard(value) for value in safe[name]]
    safe.columns = [_guard(name) for name in safe.columns]
    return safe.to_csv(index=False, lineterminator="\n").encode("utf-8")


def _guard(value: object) -> object:
    return "'" + value if isinstance(value, str) and value.startswith(_FORMULA) else value


def seconds_since(moment: object) -> float:
    """Seconds since a time in ISO form; infinite where it is none."""
    return time.time() - seconds_since_1970(moment)


def seconds_since_1970(moment: object) -> float:
    """A time in ISO form as seconds since 1970; minus infinity where it is none."""
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except (ValueError, OverflowError, OSError):
        # the year 1 has no such number everywhere
        return float("-inf")
