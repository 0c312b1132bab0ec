"""What a run tells of itself: its end, its events, and the times that follow from them."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from gprune.jobs import JobReporter, local
from gprune.jobs import folder as files
from gprune.jobs.folder import EVENTS
from gprune.jobs.reporting import sentence
from gprune.jobs.state import JobState, read_state, write_state
from gprune.jobs.timeline import Event, StageTime, measure, read_trace, remaining
from gprune.system.errors import Cancelled, CorpusError, JobError
from gprune.system.progress import Waiting


class Clock:
    """A clock that moves only when told."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def events(folder):
    return [json.loads(line) for line in (folder / files.EVENTS).read_text().splitlines() if line]


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_running_state_carries_this_process(tmp_path):
    with JobReporter(tmp_path / "job") as report:
        state = read_state(report.folder)
        assert (state.state, state.pid) == ("running", os.getpid())
        assert local.worker_alive(state)
    assert read_state(tmp_path / "job").state == "done"


def test_done_records_run_id_and_summary_with_numpy_numbers(tmp_path):
    with JobReporter(tmp_path) as report:
        report.finish({"retention": np.float32(0.5), "layers": np.int64(6), "where": Path("x")}, "key")
    state = read_state(tmp_path)
    assert (state.state, state.run_id, state.error) == ("done", "key", "")
    assert state.summary == {"retention": 0.5, "layers": 6, "where": "x"}
    assert state.ended is not None and state.ended >= state.started


@pytest.mark.parametrize(
    ("error", "state", "text"),
    [
        (
            CorpusError("the text 'x' is empty:\nchoose another"),
            "failed",
            "the text 'x' is empty: choose another",
        ),
        (ValueError("first line\nsecond line"), "failed", "ValueError: first line"),
        (MemoryError(), "failed", "MemoryError"),
        (SystemExit(3), "failed", "the run ended with exit code 3"),
        (SystemExit(0), "done", ""),
        (Cancelled("stop"), "cancelled", ""),
        (KeyboardInterrupt(), "cancelled", ""),
    ],
)
def test_exception_decides_the_end_and_passes_through(tmp_path, error, state, text):
    with pytest.raises(type(error)):
        with JobReporter(tmp_path):
            raise error
    assert (read_state(tmp_path).state, read_state(tmp_path).error) == (state, text)


def test_first_and_last_event_of_each_stage_are_written_and_the_rest_limited(tmp_path):
    clock = Clock()
    with JobReporter(tmp_path, clock) as report:
        for stage in ("calibrate", "score"):
            for step in range(1, 101):
                report(stage, step, 100, "")
                clock.now += 0.01
    written = {name: [e["done"] for e in events(tmp_path) if e["stage"] == name] for name in ("calibrate", "score")}
    for steps in written.values():
        assert steps[0] == 1 and steps[-1] == 100
        # one second at five a second, and the first and last
        assert 6 <= len(steps) <= 7
        assert steps == sorted(steps)


def test_writes_get_rarer_in_a_long_stage_but_never_older_than_a_second(tmp_path):
    clock = Clock()
    with JobReporter(tmp_path, clock) as report:
        for step in range(4000):
            report("learn", step, 10_000, "")
            clock.now += 0.1
    times = [float(e["ts"]) for e in events(tmp_path)]
    gaps = np.diff(times)
    assert gaps[:10].max() < 0.31
    assert 0.99 < gaps[-20:-1].min() and gaps.max() < 1.11
    assert len(times) < 700


def test_cancel_flag_raises_at_the_next_look_and_ever_after(tmp_path):
    clock = Clock()
    with pytest.raises(Cancelled, match="stopped on request"):
        with JobReporter(tmp_path, clock) as report:
            report("learn", 1, 10, "")
            (tmp_path / files.CANCEL).touch()
            report("learn", 2, 10, "within a fifth of a second the flag is not looked for")
            clock.now += 0.2
            with pytest.raises(Cancelled):
                report("learn", 3, 10, "")
            report("learn", 4, 10, "")
    assert read_state(tmp_path).state == "cancelled"
    assert events(tmp_path)[-1]["done"] == 4


def test_messages_stay_on_one_line_and_long_errors_are_bounded(tmp_path):
    with JobReporter(tmp_path) as report:
        report("score", np.int64(1), np.int32(2), 'a "quoted"\nmessage \u2028 é')
    assert events(tmp_path)[0]["message"] == 'a "quoted" message é'
    text = sentence(CorpusError("word " * 1000))
    assert len(text) <= 300 and text.endswith("word") and " … " in text and "\n" not in text


def test_line_torn_by_a_full_disk_does_not_swallow_the_next(tmp_path, monkeypatch):
    append = files.append

    def half(path, data):
        append(path, data[: len(data) // 2])
        full_disk()

    with JobReporter(tmp_path) as report:
        monkeypatch.setattr(files, "append", half)
        report("learn", 1, 4, "")
        monkeypatch.setattr(files, "append", append)
        report("score", 1, 1, "")
    lines = (tmp_path / files.EVENTS).read_bytes().splitlines()
    assert len(lines) == 2 and json.loads(lines[1])["stage"] == "score"


def test_the_end_is_recorded_in_place_when_no_new_file_fits(tmp_path, monkeypatch):
    with JobReporter(tmp_path) as report:
        report.finish({"retention": 0.5}, "key")
        monkeypatch.setattr(Path, "write_bytes", full_disk)
    assert (read_state(tmp_path).state, read_state(tmp_path).run_id) == ("done", "key")
    assert sorted(p.name for p in tmp_path.iterdir()) == [files.LOCK, files.STATE]


def test_state_that_cannot_be_written_at_all_is_told_to_the_log_only(tmp_path, monkeypatch, capsys):
    with JobReporter(tmp_path):
        monkeypatch.setattr(files, "write_json", full_disk)
    assert "the job's state was not recorded" in capsys.readouterr().err


def test_deleted_job_folder_does_not_stop_the_run(tmp_path, capsys):
    folder = tmp_path / "job"
    with JobReporter(folder) as report:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        report("score", 1, 1, "")
    assert not folder.exists()
    assert "cannot be written" in capsys.readouterr().err


def test_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JobError, match="cannot be written"):
        with JobReporter(tmp_path / "file" / "job"):
            pytest.fail("the body must not run")


def test_a_run_wrongly_given_up_has_the_last_word(tmp_path):
    with JobReporter(tmp_path) as report:
        write_state(tmp_path, read_state(tmp_path).without_result())
        assert read_state(tmp_path).state == "failed"
        report.finish(run_id="key")
    assert (read_state(tmp_path).state, read_state(tmp_path).error) == ("done", "")


def test_damaged_and_wrongly_given_up_states_do_not_stop_the_run(tmp_path):
    with JobReporter(tmp_path):
        (tmp_path / files.STATE).write_text("{")
    assert read_state(tmp_path).state == "done"


def test_job_cancelled_before_it_began_never_runs(tmp_path):
    write_state(tmp_path, JobState(state="cancelling", started=5.0, cancel_requested=6.0))
    with pytest.raises(Cancelled, match="before it began"):
        with JobReporter(tmp_path):
            pytest.fail("the body must not run")
    assert read_state(tmp_path).state == "cancelled"


def test_stage_listener_has_the_signature_of_a_progress_function(tmp_path):
    with JobReporter(tmp_path) as report:
        report.stage("score")(1, 2, "flap")
    assert [(e["stage"], e["done"], e["total"], e["message"]) for e in events(tmp_path)] == [("score", 1, 2, "flap")]


def line(ts, stage, done, total, message=""):
    return json.dumps({"ts": ts, "stage": stage, "done": done, "total": total, "message": message}).encode()


def write(path, *lines, end=b"\n"):
    path.write_bytes(b"\n".join(lines) + end)
    return read_trace(path)


def steady(count, every, start=100.0, stage="learn"):
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
    assert [e.done for e in write(path, line(1, "learn", 1, 4), line(2, "learn", 2, 4), end=b"").recent] == [1]
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


def test_eta_follows_the_moving_rate_and_is_withdrawn_when_overdue():
    slow = steady(5, every=100.0)
    fast = tuple(Event(600.0 + i, "learn", 5 + i, 100, "") for i in range(60))
    assert remaining(slow + fast, now=659.0) == pytest.approx((100 - 64) * 1.0)
    assert remaining(steady(4, every=80.0), now=340.0) == pytest.approx(97 * 80.0)
    events = tuple(Event(100.0 + i, "learn", 97 + i, 100, "") for i in range(3))
    assert remaining(events, now=102.5) == pytest.approx(0.5)
    assert remaining(events, now=103.5) is None


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


def test_unknown_totals_and_many_events(tmp_path):
    progress = measure(write(tmp_path / "e", line(0, "learn", 5, 0)), JobState(state="running", started=0.0), 1.0)
    assert progress.fraction == 0.0
    trace = write(tmp_path / "e", *(line(i, "learn", i, 1000) for i in range(500)))
    assert len(trace.recent) == 60 and trace.recent[-1].done == 499
    assert trace.spans == (("learn", 0.0),)
