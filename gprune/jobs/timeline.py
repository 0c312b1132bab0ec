"""How far a job has come: the time each stage took, and how long the present one still needs.

How long all stages of a run still need is said by `pipeline.eta`, which knows what they cost.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from gprune.jobs.state import LATEST, JobState, is_text
from gprune.system import safe_parsing

# the moving rate looks at this many events and seconds; with less behind it there is no estimate yet
RATE_EVENTS = 60
RATE_SECONDS = 60.0
FEWEST_EVENTS = 3
FEWEST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a job's progress."""

    ts: float
    """seconds since 1970"""
    stage: str
    """name of the stage"""
    done: int
    """steps of the stage that are finished"""
    total: int
    """steps of the stage; 0 if unknown"""
    message: str
    """what is being done, in words"""
    waits: bool = False
    """whether that is waiting for another run"""


@dataclass(frozen=True, slots=True)
class Trace:
    """The events of a job, reduced to what is shown."""

    spans: tuple[tuple[str, float], ...] = ()
    """(stage, seconds since 1970 of its first event), a stage that comes back again included"""
    recent: tuple[Event, ...] = ()
    """the last events, oldest first"""


@dataclass(frozen=True, slots=True)
class StageTime:
    """One row of the timeline."""

    stage: str
    """name of the stage"""
    seconds: float
    """time spent in it so far"""
    state: str
    """running, done, cancelled, interrupted or failed"""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Where a job stands now."""

    stage: str = ""
    """present stage; empty before the first event"""
    done: int = 0
    """steps of that stage that are finished"""
    total: int = 0
    """steps of that stage; 0 if unknown"""
    message: str = ""
    """what is being done, in words"""
    waits: str = ""
    """what it waits for, in words, while another run computes what it needs; else empty"""
    updated: float | None = None
    """when the run last said something, seconds since 1970"""
    elapsed: float | None = None
    """seconds since the job left the queue; None while it waits"""
    eta: float | None = None
    """seconds left of the present stage; None while it cannot be estimated"""
    stages: tuple[StageTime, ...] = ()
    """time of each stage, in order of appearance"""

    @property
    def fraction(self) -> float:
        """Finished share of the present stage, in [0, 1]; 0 if unknown."""
        return min(1.0, max(0.0, self.done / self.total)) if self.total > 0 else 0.0


def read_trace(path: Path) -> Trace:
    """Reads a job's events; a line that is torn or damaged is passed over, a missing file has none."""
    try:
        found = path.lstat()
    except OSError:
        return Trace()
    return _read_trace(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=256)
def _read_trace(path: Path, size: int, changed: int) -> Trace:
    """Size and time of change are the cache key: finished jobs are read once."""
    try:
        lines = path.read_bytes()[:size].split(b"\n")
    except OSError:
        return Trace()
    # what follows the last line break is still being written
    parsed = [values for line in lines[:-1] if (values := _parse(line)) is not None]
    spans: list[tuple[str, float]] = []
    for seconds, stage, *_ in parsed:
        if not spans or spans[-1][0] != stage:
            spans.append((stage, seconds))
    return Trace(tuple(spans), tuple(Event(*values) for values in parsed[-RATE_EVENTS:]))


def _parse(line: bytes) -> tuple[float, str, int, int, str, bool] | None:
    """The fields of an event; a long run writes tens of thousands, of which few become records."""
    try:
        values = safe_parsing.json_value(line, "the event")
        seconds, stage, done, total = (values[name] for name in ("ts", "stage", "done", "total"))
        message, waits = values.get("message", ""), values.get("waits") is True
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    counted = all(type(count) is int and count >= 0 for count in (done, total))
    timed = type(seconds) in (int, float) and 0 <= seconds < LATEST
    if not (counted and timed and is_text(stage) and is_text(message)):
        return None
    return float(seconds), stage, done, total, message, waits


def measure(trace: Trace, state: JobState, now: float) -> JobProgress:
    """Puts a job's events and state together; `now` is seconds since 1970."""
    end = state.ended if state.ended is not None else now
    elapsed = None if state.started is None else max(0.0, end - state.started)
    if not trace.recent:
        return JobProgress(elapsed=elapsed)
    last = trace.recent[-1]
    return JobProgress(
        stage=last.stage,
        done=last.done,
        total=last.total,
        message=last.message,
        waits=last.message if last.waits else "",
        updated=last.ts,
        elapsed=elapsed,
        eta=None if state.finished else remaining(trace.recent, now),
        stages=_stage_times(trace.spans, state, end),
    )


def _stage_times(spans: Iterable[tuple[str, float]], state: JobState, end: float) -> tuple[StageTime, ...]:
    """Adds up the spans of each stage; the last one carries the state of the job."""
    spans = list(spans)
    ends = [start for _, start in spans[1:]] + [end]
    rows: dict[str, StageTime] = {}
    for (stage, start), stop in zip(spans, ends, strict=True):
        before = rows.get(stage, StageTime(stage, 0.0, "done"))
        rows[stage] = replace(before, seconds=before.seconds + max(0.0, stop - start))
    last = spans[-1][0]
    rows[last] = replace(rows[last], state=state.state if state.finished else "running")
    return tuple(rows.values())


def remaining(events: tuple[Event, ...], now: float) -> float | None:
    """Seconds left of the present stage at the rate of the job's latest events, oldest first.

    None while there are too few events, while nothing moves, and once the estimate is overdue.
    """
    window = _steady(events)
    if len(window) < FEWEST_EVENTS:
        return None
    first, last = window[0], window[-1]
    seconds, steps = last.ts - first.ts, last.done - first.done
    if seconds < FEWEST_SECONDS or steps <= 0:
        return None
    left = max(0, last.total - last.done) * seconds / steps - max(0.0, now - last.ts)
    return left if left >= 0 else None


def _steady(events: tuple[Event, ...]) -> list[Event]:
    """The latest events of one stage, one total and growing counts, oldest first.

    They reach back as far as the time window, or further while there are too few.
    """
    window: list[Event] = []
    for event in reversed(events):
        if window:
            after = window[-1]
            same = (event.stage, event.total) == (after.stage, after.total)
            recent = len(window) < FEWEST_EVENTS or window[0].ts - event.ts <= RATE_SECONDS
            if not (same and recent and event.done <= after.done):
                break
        window.append(event)
    return window[::-1]
