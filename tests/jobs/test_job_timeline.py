import json
from pathlib import Path

import pytest

from gprune.jobs.folder import EVENTS
from gprune.jobs.reporting import JobReporter
from gprune.jobs.state import JobState
from gprune.jobs.timeline import Event, StageTime, Trace, measure, read_trace, remaining
from gprune.system.progress import Waiting


def line(ts: float, stage: str, done: int, total: int, message: str = "") -> bytes:
    return json.dumps({"ts": ts, "stage": stage, "done": done, "total": total, "message": message}).encode()


def write(path: Path, *lines: bytes, end: bytes = b"\n") -> Trace:
    path.write_bytes(b"\n".join(lines) + end)
    return read_trace(path)


def steady(count: int, every: float, start: float = 100.0, stage: str = "learn") -> tuple[Event, ...]:
    return tuple(Event(start + every * i, stage, i, 100, "") for i in range(count))


def test_what_a_job_waits_for_is_told_by_its_reporter(tmp_path):
    with JobReporter(tmp_path) as report:
        report("learn", 0, 1, Waiting("waiting for another run"))
    found = measure(read_trace(tmp_path / EVENTS), JobState(), now=50.0)
    assert found.waits == found.message == "waiting for another run"
    report("learn", 1, 1, "waiting for nothing")
    assert measure(read_trace(tmp_path / EVENTS), JobState(), now=50.0).waits == ""


def test_last_line_without_line_break_is_read_once_complete(tmp_path):
    path = tmp_path / "e"
    assert [e.done for e in write(path, line(1, "learn", 1, 4), line(2, "learn", 2, 4), end=b"").recent] == [
        1
    ]
    assert [e.done for e in write(path, line(1, "learn", 1, 4), line(2, "learn", 2, 4)).recent] == [1, 2]


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b"[1, 2]",
        b"null",
        b'"text"',
        b'{"ts": 1}',
        b'{"ts": "x", "stage": "a", "done": 1, "total": 2}',
        b'{"ts": 1, "stage": "a", "done": null, "total": 2}',
        b'{"ts": 1, "stage": "a", "done": Infinity, "total": 2}',
        b"\xff\xfe\x00",
    ],
)
def test_damaged_line_is_passed_over(tmp_path, damaged):
    trace = write(tmp_path / "e", line(1, "learn", 1, 4), damaged, line(3, "learn", 3, 4))
    assert [event.done for event in trace.recent] == [1, 3]


def test_stage_times_add_up_to_the_elapsed_time(tmp_path):
    lines = (
        line(10, "calibrate", 0, 2),
        line(14, "calibrate", 2, 2),
        line(15, "score", 0, 1),
        line(16, "learn", 1, 4),
    )
    trace = write(tmp_path / "e", *lines)
    progress = measure(trace, JobState(state="running", started=10.0), now=30.0)
    assert progress.stages == (
        StageTime("calibrate", 5.0, "done"),
        StageTime("score", 1.0, "done"),
        StageTime("learn", 14.0, "running"),
    )
    assert progress.elapsed == 20.0 == sum(row.seconds for row in progress.stages)
    assert (progress.stage, progress.done, progress.total, progress.updated) == ("learn", 1, 4, 16.0)
    assert progress.fraction == 0.25


def test_stage_that_comes_back_is_one_row(tmp_path):
    lines = (line(0, "evaluate", 0, 1), line(2, "prune", 0, 1), line(3, "evaluate", 1, 1))
    state = JobState(state="done", started=0.0, ended=7.0)
    rows = measure(write(tmp_path / "e", *lines), state, now=100.0).stages
    assert rows == (StageTime("evaluate", 6.0, "done"), StageTime("prune", 1.0, "done"))


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
def test_ended_job_stops_the_clock_and_marks_its_last_stage(tmp_path, end):
    trace = write(tmp_path / "e", line(0, "calibrate", 1, 1), line(2, "score", 1, 4))
    progress = measure(trace, JobState(state=end, started=0.0, ended=5.0), now=1000.0)
    assert progress.elapsed == 5.0
    assert progress.eta is None
    assert [(row.seconds, row.state) for row in progress.stages] == [(2.0, "done"), (3.0, end)]


def test_eta_follows_the_moving_rate_and_not_the_average():
    slow = steady(5, every=100.0)
    fast = tuple(Event(600.0 + i, "learn", 5 + i, 100, "") for i in range(60))
    assert remaining(slow + fast, now=659.0) == pytest.approx((100 - 64) * 1.0)


def test_eta_of_slow_steps_looks_further_back_than_the_window():
    assert remaining(steady(4, every=80.0), now=340.0) == pytest.approx(97 * 80.0)


@pytest.mark.parametrize(
    "events",
    [
        (),
        steady(1, every=1.0),
        steady(2, every=1.0),
        steady(4, every=0.1),
        tuple(Event(100.0 + i, "learn", 3, 100, "") for i in range(9)),
        (*steady(9, every=1.0), Event(109.0, "prune", 0, 10, "")),
        (*steady(9, every=1.0), Event(109.0, "learn", 0, 100, "second pass")),
        (*steady(9, every=1.0), Event(109.0, "learn", 9, 50, "another total")),
    ],
    ids=["none", "one", "two", "too short", "no step", "new stage", "new pass", "new total"],
)
def test_eta_is_not_guessed_from_too_little(events):
    assert remaining(events, now=110.0) is None


def test_overdue_estimate_is_withdrawn():
    events = tuple(Event(100.0 + i, "learn", 97 + i, 100, "") for i in range(3))
    assert remaining(events, now=102.5) == pytest.approx(0.5)
    assert remaining(events, now=103.5) is None


def test_unknown_total_gives_no_fraction(tmp_path):
    progress = measure(
        write(tmp_path / "e", line(0, "learn", 5, 0)), JobState(state="running", started=0.0), 1.0
    )
    assert progress.fraction == 0.0


def test_only_the_last_events_are_kept(tmp_path):
    trace = write(tmp_path / "e", *(line(i, "learn", i, 1000) for i in range(500)))
    assert len(trace.recent) == 60 and trace.recent[-1].done == 499
    assert trace.spans == (("learn", 0.0),)
