"""What a run tells of itself: its end, its events, and the times that follow from them."""

import errno
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from unwritable import failing

from gprune.jobs import JobReporter, queue, reporting
from gprune.jobs import folder as files
from gprune.jobs.folder import EVENTS, JobState, read_state, write_state
from gprune.jobs.reporting import StageTime, describe_error, measure_progress, read_trace
from gprune.system.errors import Cancelled, CorpusError, Interrupted, JobError
from gprune.system.progress import Waiting


@pytest.fixture
def clock(monkeypatch):
    """The time that reporters read, in seconds, as the only item of a list."""
    seconds = [1000.0]
    monkeypatch.setattr(reporting.time, "monotonic", lambda: seconds[0])
    return seconds


def events(folder):
    return [json.loads(line) for line in (folder / files.EVENTS).read_text().splitlines() if line]


def test_running_state_carries_this_process(tmp_path):
    with JobReporter(tmp_path / "job") as report:
        state = read_state(report.folder)
        assert (state.state, state.pid) == ("running", os.getpid())
        assert queue.has_process(report.folder, state)
    assert read_state(tmp_path / "job").state == "done"


@pytest.mark.parametrize(
    ("error", "state", "text"),
    [
        (CorpusError("the text 'x' is empty:\nchoose another"), "failed", "the text 'x' is empty: choose another"),
        (ValueError("first line\nsecond line"), "failed", "ValueError: first line"),
        (MemoryError(), "failed", "MemoryError"),
        (SystemExit(3), "failed", "SystemExit: 3"),
        (SystemExit(0), "done", ""),
        (Cancelled("stop"), "cancelled", ""),
        (KeyboardInterrupt(), "cancelled", ""),
        (Interrupted(), "interrupted", ""),
    ],
)
def test_exception_decides_the_end_and_passes_through(tmp_path, error, state, text):
    with pytest.raises(type(error)), JobReporter(tmp_path):
        raise error
    assert (read_state(tmp_path).state, read_state(tmp_path).error) == (state, text)


def test_first_and_last_event_of_each_stage_are_written_and_the_rest_limited(tmp_path, clock):
    with JobReporter(tmp_path) as report:
        for stage in ("calibrate", "score"):
            for step in range(1, 101):
                report(stage, step, 100, "")
                clock[0] += 0.01
    for name in ("calibrate", "score"):
        steps = [event["done"] for event in events(tmp_path) if event["stage"] == name]
        assert steps[0] == 1 and steps[-1] == 100 and steps == sorted(steps)
        # one second at three a second, and the last
        assert 4 <= len(steps) <= 6


def test_a_cancelled_job_stops_at_its_next_look(tmp_path, clock):
    with pytest.raises(Cancelled, match="was cancelled"):
        with JobReporter(tmp_path) as report:
            report("learn", 1, 10, "")
            write_state(tmp_path, replace(read_state(tmp_path), state="cancelling"))
            report("learn", 2, 10, "within half a second the state is not read")
            clock[0] += 0.5
            report("learn", 3, 10, "")
    assert read_state(tmp_path).state == "cancelled" and events(tmp_path)[-1]["done"] == 3


def test_messages_stay_on_one_line_and_long_errors_are_bounded(tmp_path):
    with JobReporter(tmp_path) as report:
        report("score", np.int64(1), np.int32(2), 'a "quoted"\nmessage \u2028 é')
    assert events(tmp_path)[0]["message"] == 'a "quoted" message é'
    text = describe_error(CorpusError("word " * 1000))
    assert len(text) <= 300 and text.endswith("word") and " … " in text and "\n" not in text


def test_state_that_cannot_be_written_at_all_is_told_to_the_log_only(tmp_path, monkeypatch, capsys):
    with JobReporter(tmp_path):
        monkeypatch.setattr("gprune.jobs.folder.write_json", failing(errno.ENOSPC))
    assert "the job's state was not recorded" in capsys.readouterr().err


def test_a_job_without_a_folder_or_cancelled_before_it_began_never_runs(tmp_path):
    write_state(tmp_path, JobState(state="cancelling", started=5.0, cancel_requested=6.0))
    (tmp_path / "file").write_text("")
    for folder, error, words in (
        (tmp_path, Cancelled, "before it began"),
        (tmp_path / "file" / "job", JobError, "cannot be used"),
    ):
        with pytest.raises(error, match=words), JobReporter(folder):
            pytest.fail("the body must not run")
    assert read_state(tmp_path).state == "cancelled"


def line(ts, stage, done, total, message=""):
    return json.dumps({"ts": ts, "stage": stage, "done": done, "total": total, "message": message}).encode()


def write(path, *lines, end=b"\n"):
    path.write_bytes(b"\n".join(lines) + end)
    return read_trace(path)


def test_what_a_job_waits_for_is_told_by_its_reporter(tmp_path):
    with JobReporter(tmp_path) as report:
        report("learn", 0, 1, Waiting("waiting for another run"))
    result = measure_progress(read_trace(tmp_path / EVENTS), JobState(), current_time=50.0)
    assert result.waits == result.message == "waiting for another run"
    report("learn", 1, 1, "waiting for nothing")
    assert measure_progress(read_trace(tmp_path / EVENTS), JobState(), current_time=50.0).waits == ""


@pytest.mark.parametrize("damaged", [b"", b"[1, 2]", b'{"ts": 1}', b"\xff\xfe\x00"])
def test_damaged_and_incomplete_lines_are_passed_over(tmp_path, damaged):
    lines = line(1, "learn", 1, 4), damaged, line(3, "learn", 3, 4)
    assert write(tmp_path / "e", *lines, end=b"").last.done == 1
    trace = write(tmp_path / "e", *lines)
    assert trace.last.done == 3 and trace.spans == (("learn", 1.0),)


def test_stage_times_add_up_to_the_elapsed_time(tmp_path):
    lines = (line(10, "calibrate", 0, 2), line(14, "calibrate", 2, 2), line(15, "score", 0, 1), line(16, "learn", 1, 4))
    trace = write(tmp_path / "e", *lines)
    progress = measure_progress(trace, JobState(state="running", started=10.0), current_time=30.0)
    assert progress.stages == (
        StageTime("calibrate", 5.0, "done"),
        StageTime("score", 1.0, "done"),
        StageTime("learn", 14.0, "running"),
    )
    assert progress.elapsed == 20.0 == sum(row.seconds for row in progress.stages)
    assert (progress.stage, progress.done, progress.total) == ("learn", 1, 4)
    assert progress.fraction == 0.25
    lines = (line(0, "evaluate", 0, 1), line(2, "prune", 0, 1), line(3, "evaluate", 1, 1))
    state = JobState(state="done", started=0.0, ended=7.0)
    rows = measure_progress(write(tmp_path / "e", *lines), state, current_time=100.0).stages
    assert rows == (StageTime("evaluate", 6.0, "done"), StageTime("prune", 1.0, "done"))


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
def test_ended_job_stops_the_clock_and_marks_its_last_stage(tmp_path, end):
    trace = write(tmp_path / "e", line(0, "calibrate", 1, 1), line(2, "score", 1, 4))
    progress = measure_progress(trace, JobState(state=end, started=0.0, ended=5.0), current_time=1000.0)
    assert progress.elapsed == 5.0
    assert [(row.seconds, row.state) for row in progress.stages] == [(2.0, "done"), (3.0, end)]


def test_unknown_totals_and_many_events(tmp_path):
    progress = measure_progress(
        write(tmp_path / "e", line(0, "learn", 5, 0)), JobState(state="running", started=0.0), 1.0
    )
    assert progress.fraction == 0.0
    trace = write(tmp_path / "e", *(line(i, "learn", i, 1000) for i in range(500)))
    assert trace.last.done == 499
    assert trace.spans == (("learn", 0.0),)
