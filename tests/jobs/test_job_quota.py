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
from gprune.jobs.slurm import batch, client, submission, watching
from gprune.jobs.slurm.record import Record
from gprune.jobs.slurm.settings import SlurmSettings
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


def test_an_array_whose_script_finds_no_room_is_not_handed_over(tmp_path, monkeypatch, number):
    monkeypatch.setattr("gprune.jobs.slurm.client.submit", lambda *_: pytest.fail("it was handed over"))
    entry = submission.StudyJob(make_study())
    monkeypatch.setattr(submission, "make_folder", refuse(number))
    with pytest.raises(JobError, match=FULL[number]):
        submission.submit(tmp_path, [entry], SlurmSettings(), [])
    assert jobs.jobs(tmp_path.parent) == []


def test_an_array_whose_number_cannot_be_kept_is_taken_back(tmp_path, monkeypatch, number):
    def write(*_):
        # the disk is full from here on, for renames too
        monkeypatch.setattr(submission, "discard", refuse(number))
        raise files.unwritable(tmp_path, OSError(number, os.strerror(number)))

    told: list[list[str]] = []
    answer = client.Answer(0, "", "")
    monkeypatch.setattr(client, "submit", lambda *_: "41")
    monkeypatch.setattr(client, "ask", lambda words: told.append(words) or answer)
    monkeypatch.setattr(submission, "write_record", write)
    with pytest.raises(JobError, match=FULL[number]):
        submission.submit(tmp_path, [submission.StudyJob(make_study())], SlurmSettings(), [])
    assert told == [["scancel", "41"]]


def test_a_node_without_room_is_told_from_one_that_does_not_see_the_folder(tmp_path, number):
    ended = Record(array="41", state="FAILED", gone=1.0)
    running = JobState(state="running")
    (tmp_path / batch.SIGN).touch()
    told = watching.concluded(tmp_path, running, ended, 1000.0)
    assert told.state == "failed" and "your quota on it is full" in told.error
