"""Progress of a job: its latest event and the time of each stage.

The time left of a run is estimated by `pipeline.eta`, which knows what its stages cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from gprune.jobs.state import JobState
from gprune.system import safe_parsing


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a job's progress."""

    ts: float
    """Seconds since 1970."""
    stage: str
    done: int
    """Finished steps of the stage."""
    total: int
    """Steps of the stage; 0 if unknown."""
    message: str
    waits: bool = False
    """True if it waits for another run."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The events of a job, reduced to what is displayed."""

    spans: tuple[tuple[str, float], ...] = ()
    """(stage, seconds since 1970 of its first event); a stage may return."""
    last: Event | None = None


@dataclass(frozen=True, slots=True)
class StageTime:
    """One row of the timeline."""

    stage: str
    seconds: float
    state: str
    """running, done, cancelled, interrupted or failed"""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Progress of a job at one moment."""

    stage: str = ""
    """Present stage; empty before the first event."""
    done: int = 0
    total: int = 0
    message: str = ""
    waits: str = ""
    """What it waits for while another run computes what it needs; else empty."""
    elapsed: float | None = None
    """Seconds since the job left the queue; None while it waits."""
    stages: tuple[StageTime, ...] = ()
    """Time of each stage, in order of appearance."""

    @property
    def fraction(self) -> float:
        """Return the finished share of the present stage, in [0, 1]; 0 if unknown."""
        return min(1.0, max(0.0, self.done / self.total)) if self.total > 0 else 0.0


def read_trace(path: Path) -> Trace:
    """Read a job's events; damaged lines are skipped, a missing file has none."""
    try:
        stat = path.stat()
        return _read_trace(path, stat.st_size, stat.st_mtime_ns)
    except OSError:
        return Trace()


@lru_cache(maxsize=256)
def _read_trace(path: Path, size: int, modified: int) -> Trace:
    # size and time are the key of the cache: finished jobs are read once
    lines = path.read_bytes()[:size].split(b"\n")
    # what follows the last line break is still being written
    events = [event for line in lines[:-1] if (event := parse_event(line)) is not None]
    spans: list[tuple[str, float]] = []
    for event in events:
        if not spans or spans[-1][0] != event.stage:
            spans.append((event.stage, event.ts))
    return Trace(tuple(spans), events[-1] if events else None)


def parse_event(line: bytes) -> Event | None:
    """Return the event of a line, or None if it is damaged."""
    try:
        return Event(**safe_parsing.json_object(line, "the event"))
    except (ValueError, TypeError):
        return None


def measure(trace: Trace, state: JobState, current_time: float) -> JobProgress:
    """Combine a job's events and state; `current_time` is in seconds since 1970."""
    elapsed, event = state.elapsed_at(current_time), trace.last
    if event is None:
        return JobProgress(elapsed=elapsed)
    stages = _stage_times(trace.spans, state, state.ended or current_time)
    waits = event.message if event.waits else ""
    return JobProgress(event.stage, event.done, event.total, event.message, waits, elapsed, stages)


def _stage_times(spans: Sequence[tuple[str, float]], state: JobState, end: float) -> tuple[StageTime, ...]:
    rows: dict[str, StageTime] = {}
    for (stage, start), (_, stop) in pairwise([*spans, ("", end)]):
        before = rows.get(stage, StageTime(stage, 0.0, "done"))
        rows[stage] = replace(before, seconds=before.seconds + max(0.0, stop - start))
    current = spans[-1][0]
    rows[current] = replace(rows[current], state=state.state if state.finished else "running")
    return tuple(rows.values())
