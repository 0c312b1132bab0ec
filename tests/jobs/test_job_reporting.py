import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from gprune.jobs import JobReporter, local
from gprune.jobs import folder as files
from gprune.jobs.reporting import sentence
from gprune.jobs.state import JobState, read_state, write_state
from gprune.system.errors import Cancelled, CorpusError, JobError


class Clock:
    """A clock that moves only when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def events(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / files.EVENTS).read_text().splitlines() if line]


def full_disk(*_: object) -> None:
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


def test_long_error_is_one_bounded_line():
    text = sentence(CorpusError("word " * 1000))
    assert len(text) <= 300 and text.endswith("word") and " … " in text and "\n" not in text


def test_first_and_last_event_of_each_stage_are_written_and_the_rest_limited(tmp_path):
    clock = Clock()
    with JobReporter(tmp_path, clock) as report:
        for stage in ("calibrate", "score"):
            for step in range(1, 101):
                report(stage, step, 100, "")
                clock.now += 0.01
    written = {
        name: [e["done"] for e in events(tmp_path) if e["stage"] == name] for name in ("calibrate", "score")
    }
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


def test_message_stays_on_one_line(tmp_path):
    with JobReporter(tmp_path) as report:
        report("score", np.int64(1), np.int32(2), 'a "quoted"\nmessage \u2028 é')
    assert events(tmp_path)[0]["message"] == 'a "quoted" message é'


def test_full_disk_loses_events_but_not_the_run(tmp_path, monkeypatch):
    clock = Clock()
    append = files.append
    with JobReporter(tmp_path, clock) as report:
        report("learn", 1, 4, "")
        monkeypatch.setattr(files, "append", full_disk)
        report("score", 1, 4, "lost")
        monkeypatch.setattr(files, "append", append)
        clock.now += 1
        report("score", 2, 4, "")
        report.finish(run_id="key")
    assert [(e["stage"], e["done"]) for e in events(tmp_path)] == [("learn", 1), ("score", 2)]
    assert read_state(tmp_path).run_id == "key"


def test_line_torn_by_a_full_disk_does_not_swallow_the_next(tmp_path, monkeypatch):
    append = files.append

    def half(path: Path, data: bytes) -> None:
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


def test_damaged_state_does_not_stop_the_run(tmp_path):
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
    assert [(e["stage"], e["done"], e["total"], e["message"]) for e in events(tmp_path)] == [
        ("score", 1, 2, "flap")
    ]
