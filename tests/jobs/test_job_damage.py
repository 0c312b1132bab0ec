"""Damaged files, strange folders and full disks; no process is started."""

import errno
import os

import pytest

from gprune.jobs import folder as files
from gprune.jobs import get, jobs, progress, reconcile, submit
from gprune.jobs.state import DAMAGED, JobState, write_state
from gprune.system.errors import JobError

from .conftest import make_study


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"state": "sleeping"}',
        b'{"state": "running", "pid": "12"}',
        b'{"state": "running", "pid": -1}',
        b'{"state": "running", "pid": true}',
        b'{"state": "running", "started": "noon"}',
        b'{"state": "done", "summary": 3}',
        b'{"state": "failed", "error": null}',
        b"\xff\x00",
    ],
)
def test_damaged_state_reads_as_failed(cache, supervisors, content):
    first, second = (submit(cache, make_study(seed)) for seed in range(2))
    (first.folder / files.STATE).write_bytes(content)
    reconcile(cache)
    assert (get(cache, first.id).state, get(cache, first.id).error) == ("failed", DAMAGED)
    assert get(cache, second.id).state == "running"
    assert progress(cache, first.id).elapsed is None


def test_missing_state_reads_as_failed_and_unknown_fields_are_passed_over(cache, supervisors):
    job = submit(cache, make_study())
    (job.folder / files.STATE).write_text('{"state": "done", "colour": "red", "ended": 2.0}')
    assert get(cache, job.id).state == "done"
    (job.folder / files.STATE).unlink()
    assert get(cache, job.id).error == DAMAGED


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"label": 1}'])
def test_damaged_record_is_not_listed(cache, supervisors, content):
    first, second = (submit(cache, make_study(seed)) for seed in range(2))
    (first.folder / files.JOB).write_text(content)
    assert [job.id for job in jobs(cache)] == [second.id]
    with pytest.raises(JobError, match=f"job {first.id} cannot be read"):
        get(cache, first.id)


def test_cache_that_cannot_be_written_is_an_error(tmp_path, supervisors):
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(JobError, match="cannot be written .*set GPRUNE_CACHE to another folder"):
        submit(tmp_path / "cache", make_study())
    assert jobs(tmp_path / "cache") == []


def test_what_refuses_a_folder_decides_the_remedy(tmp_path):
    refused = str(files.unwritable(tmp_path, PermissionError(errno.EACCES, "Permission denied")))
    assert "change its permissions" in refused and "free some space" not in refused
    assert "is full: free some space" in str(
        files.unwritable(tmp_path, OSError(errno.ENOSPC, "No space left"))
    )


def test_full_disk_leaves_no_half_job(cache, supervisors, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_json", full)
    with pytest.raises(JobError, match="is full: free some space"):
        submit(cache, make_study())
    assert [path.name for path in files.root(cache).iterdir()] == [files.LOCK]
    assert supervisors == []


def test_full_disk_starts_no_job_that_it_cannot_record(cache, supervisors, monkeypatch):
    first, second = (submit(cache, make_study(seed)) for seed in range(2))
    write_state(first.folder, JobState(state="done", ended=2.0))

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_json", full)
        with pytest.raises(JobError, match="is full: free some space"):
            reconcile(cache)
    assert supervisors == [first.folder]
    reconcile(cache)
    assert supervisors == [first.folder, second.folder]


def test_looking_creates_nothing(cache):
    assert jobs(cache) == []
    reconcile(cache)
    assert not cache.exists()
