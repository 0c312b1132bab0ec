import errno
import os
import signal
import subprocess
import sys

import pytest
from waiting import SLEEPER, limit

from gprune.jobs import folder as files
from gprune.jobs import get, jobs, local, progress, reconcile, submit
from gprune.jobs.state import DAMAGED, JobState, write_state
from gprune.system import machine
from gprune.system.errors import JobError

from .conftest import make_study


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.process
def test_process_is_known_by_number_and_start_until_it_is_a_zombie(sleeper):
    started = local.process_start(sleeper.pid)
    assert local.is_alive(sleeper.pid, started)
    assert not local.is_alive(sleeper.pid, started - 1.0)
    assert not local.is_alive(sleeper.pid, None)
    assert not local.is_alive(None, started)
    started = local.process_start(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert local.process_start(sleeper.pid) is None
    assert not local.is_alive(sleeper.pid, started)


@pytest.mark.process
def test_signal_to_a_reused_number_reaches_nobody(sleeper):
    local.send(sleeper.pid, local.process_start(sleeper.pid) - 10.0, signal.SIGKILL)
    assert sleeper.poll() is None
    local.send(sleeper.pid, local.process_start(sleeper.pid), signal.SIGKILL)
    assert sleeper.wait(limit(10)) == -signal.SIGKILL


@pytest.mark.process
def test_signal_reaches_the_group_only_of_its_leader():
    process = subprocess.Popen([sys.executable, "-c", SLEEPER])
    try:
        local.send(process.pid, local.process_start(process.pid), signal.SIGTERM)
        # this process shares the group and is still here
        assert process.wait(limit(10)) == -signal.SIGTERM
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("state", "now", "expected"),
    [
        (JobState(state="running", started=0.0), 1e9, None),
        (JobState(state="cancelling", cancel_requested=100.0, grace=5.0), 104.9, None),
        (JobState(state="cancelling", cancel_requested=100.0, grace=5.0), 105.0, signal.SIGTERM),
        (JobState(state="cancelling", cancel_requested=100.0, grace=5.0), 109.9, signal.SIGTERM),
        (JobState(state="cancelling", cancel_requested=100.0, grace=5.0), 110.0, signal.SIGKILL),
        (JobState(state="done", ended=100.0), 129.0, None),
        (JobState(state="done", ended=100.0), 130.0, signal.SIGKILL),
        (JobState(state="failed"), 1e9, None),
    ],
)
def test_signal_follows_from_the_stored_times(state, now, expected):
    assert local.due_signal(state, now) == expected


def test_command_is_an_argument_list_of_this_interpreter(tmp_path):
    folder = tmp_path / "my; cache" / "jobs" / "20260131-120000-0123abcd"
    assert local.worker_command(folder, ("--seed", "1")) == [
        sys.executable,
        "-m",
        "gprune",
        "run",
        str(folder / "study.json"),
        "--job",
        str(folder),
        "--cache",
        str(tmp_path / "my; cache"),
        "--seed",
        "1",
    ]


def test_environment_leaves_a_core_to_the_app_where_there_are_more_than_two(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for cores, threads in ((1, "1"), (2, "2"), (8, "7")):
        monkeypatch.setattr(machine, "cores", lambda cores=cores: cores)
        assert local.environment()["OMP_NUM_THREADS"] == threads
    assert local.environment()["HF_HUB_OFFLINE"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert local.environment()["OMP_NUM_THREADS"] == "5"


def test_last_lines_are_plain_text_and_whole(tmp_path):
    log = tmp_path / files.LOG
    log.write_bytes(b"one\r\n 10%|#\r 50%|###\r100%|#####\n\x1b[31mred\x1b[0m \x07<b>\xff\n\n")
    assert files.last_lines(log, 10) == ["one", "100%|#####", "red \x07<b>�"]
    assert files.last_lines(log, 1) == ["red \x07<b>�"]
    assert files.last_lines(log, 0) == []
    assert files.last_lines(tmp_path / "none", 5) == []
    log = tmp_path / files.LOG
    log.write_text("".join(f"line {i:06d}\n" for i in range(10_000)))
    lines = files.last_lines(log, 99, window=64)
    assert lines[-1] == "line 009999" and all(len(text) == 11 for text in lines)
    assert files.last_lines(log, 3) == ["line 009997", "line 009998", "line 009999"]


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


def test_cache_that_cannot_be_written_is_an_error_with_its_remedy(tmp_path, supervisors):
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(JobError, match="cannot be written .*set GPRUNE_CACHE to another folder"):
        submit(tmp_path / "cache", make_study())
    assert jobs(tmp_path / "cache") == []
    refused = str(files.unwritable(tmp_path, PermissionError(errno.EACCES, "Permission denied")))
    assert "change its permissions" in refused and "free some space" not in refused
    assert "is full: free some space" in str(files.unwritable(tmp_path, OSError(errno.ENOSPC, "No space left")))


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
