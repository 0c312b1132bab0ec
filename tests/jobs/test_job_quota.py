"""A disk or a quota that is full, wherever a job writes: one sentence, and no run is lost for its log."""

import errno
import io
import os
import sys

import pytest

from gprune import jobs
from gprune.jobs import folder as files
from gprune.jobs import reporting, supervisor
from gprune.jobs.reporting import JobReporter
from gprune.jobs.state import JobState, read_state, update, write_state
from gprune.store import Store
from gprune.system import files as whole
from gprune.system.errors import JobError, StoreError

from .conftest import fake_command, make_study

KEY = "0" * 32
FULL = {
    errno.ENOSPC: "the disk that holds the cache .* is full: free some space",
    errno.EDQUOT: "your quota on the disk that holds the cache .* is full: free some space of yours",
}
pytestmark = pytest.mark.parametrize("number", FULL, ids=errno.errorcode.__getitem__)


def refuse(number):
    def write(*_args, **_options):
        raise OSError(number, os.strerror(number))

    return write


def test_a_result_is_told_and_nothing_is_left(tmp_path, monkeypatch, number):
    def write(folder):
        (folder / "file").write_text("x")
        return {}

    monkeypatch.setattr(os, "fsync", refuse(number))
    with pytest.raises(StoreError, match=FULL[number]):
        Store(tmp_path).put_folder("checkpoint", KEY, write)
    assert list((tmp_path / "checkpoint").iterdir()) == []


def test_a_state_is_written_over_the_last_one_and_a_first_one_is_told(tmp_path, monkeypatch, number):
    write_state(tmp_path, JobState())
    (tmp_path / files.LOCK).touch()
    monkeypatch.setattr(whole, "replaced", refuse(number))
    assert update(tmp_path, lambda state: state.ended_as("cancelled")).state == "cancelled"
    assert read_state(tmp_path).state == "cancelled"
    (tmp_path / files.STATE).unlink()
    with pytest.raises(JobError, match=FULL[number]):
        write_state(tmp_path, JobState())


def test_events_and_words_are_lost_and_the_run_is_not(tmp_path, monkeypatch, number):
    class Stream(io.StringIO):
        write = refuse(number)

    with JobReporter(tmp_path / "job") as report:
        with monkeypatch.context() as patch:
            patch.setattr(files, "append", refuse(number))
            patch.setattr(sys, "stdout", Stream())
            patch.setattr(sys, "stderr", Stream())
            with reporting.forgiving():
                report("score", 0, 2, "first")
                print("lost")
                print("lost as well", file=sys.stderr, flush=True)
        report("learn", 2, 2, "second")
    assert read_state(tmp_path / "job").state == "done"
    assert b"second" in (tmp_path / "job" / files.EVENTS).read_bytes()


def test_a_log_that_cannot_be_begun_fails_the_job_with_the_reason(cache, supervisors, monkeypatch, number):
    job = jobs.submit(cache, make_study(), build=fake_command, arguments=("finish",))
    monkeypatch.setattr("gprune.jobs.local.start", refuse(number))
    supervisor.supervise(job.folder)
    with pytest.raises(JobError, match=FULL[number]):
        raise JobError(read_state(job.folder).error)


def test_a_queue_whose_supervisor_finds_no_room_says_so(cache, monkeypatch, number):
    monkeypatch.setattr("gprune.jobs.local.start_supervisor", refuse(number))
    job = jobs.submit(cache, make_study(), build=fake_command, arguments=("finish",))
    with pytest.raises(JobError, match=FULL[number]):
        raise JobError(jobs.get(cache, job.id).error)
