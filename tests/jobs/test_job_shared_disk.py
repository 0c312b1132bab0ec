"""A job on a disk that several machines share, with all that goes wrong there, in every process of it."""

import pytest
import shared_file_system
from shared_file_system import Disk
from waiting import wait_for

from gprune import jobs
from gprune.jobs import folder as files
from gprune.jobs.state import read_state
from gprune.system import locks

from .conftest import fake_command, make_study

FAULTS = ("stale", "unseen", "lost", "open", "lockless")


@pytest.mark.long
@pytest.mark.process
def test_a_job_runs_is_cancelled_and_resumed(cache, tmp_path, monkeypatch):
    for name, value in shared_file_system.environment(tmp_path / "site", cache, *FAULTS).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(locks, "_without", set())
    with Disk(cache, *FAULTS).used() as disk:
        job = jobs.submit(cache, make_study(), "one", ["hold"], fake_command)
        waiting = jobs.submit(cache, make_study(1), "two", ["finish"], fake_command)
        assert (waiting.state, waiting.position) == ("queued", 1)
        wait_for(lambda: jobs.progress(cache, job.id).stage == "calibrate")
        assert jobs.submit(cache, make_study(), "one", ["hold"], fake_command).id == job.id
        jobs.cancel(cache, job.id)
        wait_for(lambda: read_state(job.folder).finished)
        assert (read_state(job.folder).state, read_state(job.folder).error) == ("cancelled", "")
        # its supervisor starts the next one
        wait_for(lambda: read_state(waiting.folder).finished)
        assert (read_state(waiting.folder).state, read_state(waiting.folder).run_id) == ("done", "run-7")
        again = jobs.resume(cache, job.id, fake_command)
        with disk.elsewhere():
            (again.folder / "go").touch()
        wait_for(lambda: read_state(again.folder).finished)
        assert read_state(again.folder).state == "done"
        assert [one.state for one in jobs.jobs(cache)] == ["done", "done", "cancelled"]
        assert any("worker hold" in line for line in jobs.log_tail(cache, again.id))
        assert disk.told["unseen"] and disk.told["stale"] and disk.told["lost"]
        assert not [name for name in files.root(cache).iterdir() if name.name.startswith(".new")]
