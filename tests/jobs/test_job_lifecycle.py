"""Jobs from start to end with real processes: finished, stopped, killed, restarted, crowded."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
from waiting import wait_for

from gprune.jobs import cancel, get, log_tail, processes, progress, queue, resume, submit
from gprune.system import installation, machine

from .conftest import fake_command, make_study, state_of

pytestmark = pytest.mark.process


def start(cache, seed, *behaviour):
    return submit(cache, make_study(seed), arguments=behaviour, build=fake_command)


def ended(cache, job):
    return lambda: state_of(cache, job) in ("cancelled", "failed", "done")


def running(cache, job):
    """True once the run has said something, so that it is past its start."""
    return lambda: progress(cache, job.id).stage == "calibrate"


def gone(pid):
    return lambda: processes.process_start(pid) is None


def other_process(cache, script):
    """Runs a script in a process of its own, as another app or a restarted one would."""
    code = f"from pathlib import Path\nfrom gprune.jobs import *\ncache = Path({str(cache)!r})\n{script}"
    options = {"cwd": installation.CHILD_FOLDER, "check": True, "capture_output": True, "text": True}
    return subprocess.run([sys.executable, "-c", code], **options).stdout.split()


def test_job_runs_to_its_end_while_the_app_is_closed(cache):
    path = os.path.dirname(os.path.abspath(__file__))
    script = f"import sys; sys.path[:0] = [{path!r}, {os.path.dirname(path)!r}]\n" + (
        "from conftest import fake_command, make_study\n"
        "print(submit(cache, make_study(), arguments=['finish'], build=fake_command).id)\n"
        "print(submit(cache, make_study(1), arguments=['finish'], build=fake_command).id)"
    )
    first, second = other_process(cache, script)
    wait_for(lambda: get(cache, second).state == "done")
    for job in (get(cache, first), get(cache, second)):
        assert (job.state, job.error) == ("done", "")
        visible = progress(cache, job.id)
        assert [(row.stage, row.state) for row in visible.stages] == [("calibrate", "done"), ("score", "done")]
        assert (visible.stage, visible.fraction) == ("score", 1.0)
        assert 0 <= sum(row.seconds for row in visible.stages) <= job.elapsed
        assert log_tail(cache, job.id, 5) == ["worker finish"]
    assert get(cache, second).started >= get(cache, first).ended


def test_a_cancelled_job_is_cancelled_and_the_queue_goes_on(cache):
    first, second, third = start(cache, 0, "hold"), start(cache, 1, "finish"), start(cache, 2, "finish")
    wait_for(running(cache, first))
    pid = get(cache, first.id).pid
    assert get(cache, second.id).position == 1
    waiting = get(cache, second.id).pid
    assert cancel(cache, second.id).state == "cancelled"
    assert cancel(cache, first.id).state in ("cancelling", "cancelled")
    observed = set()
    wait_for(lambda: observed.add(state_of(cache, first)) or "cancelled" in observed)
    assert observed <= {"cancelling", "cancelled"} and get(cache, first.id).error == ""
    wait_for(gone(pid))
    wait_for(gone(waiting))
    wait_for(lambda: get(cache, third.id).state == "done")
    assert get(cache, second.id).state == "cancelled"
    again = resume(cache, first.id, fake_command)
    wait_for(running(cache, again))
    (again.folder / "go").touch()
    wait_for(lambda: get(cache, again.id).state == "done")


def test_a_run_that_does_not_listen_is_killed_with_all_its_processes(cache, monkeypatch):
    monkeypatch.setattr(queue, "GRACE_SECONDS", 0.2)
    job = start(cache, 0, "stubborn")
    wait_for(running(cache, job))
    pid, child = get(cache, job.id).pid, int((job.folder / "child").read_text())
    assert psutil.pid_exists(child) and os.getpgid(child) == pid
    assert cancel(cache, job.id).state == "cancelling"
    wait_for(ended(cache, job))
    assert (get(cache, job.id).state, get(cache, job.id).error) == ("cancelled", "")
    wait_for(gone(pid))
    wait_for(gone(child))


def test_a_killed_run_frees_its_device_and_fails_with_a_reason(cache):
    first, second = start(cache, 0, "quiet"), start(cache, 1, "finish")
    wait_for(running(cache, first))
    os.kill(get(cache, first.id).pid, signal.SIGKILL)
    # nobody has to look: the system frees the device
    wait_for(lambda: get(cache, second.id).state == "done")
    assert get(cache, first.id).state == "running"
    other_process(cache, "reconcile(cache)")
    failed = get(cache, first.id)
    assert failed.state == "failed" and failed.killed
    assert failed.error.startswith("the process ended without a result (killed, out of memory, or")


@pytest.mark.parametrize("command", [[], ["/no/such/program"]])
def test_a_command_that_cannot_be_started_fails_the_job(cache, command):
    job = submit(cache, make_study(), build=lambda *_: command)
    wait_for(ended(cache, job))
    assert "cannot be started" in get(cache, job.id).error and get(cache, job.id).state == "failed"


def test_a_job_sees_the_gpu_that_it_was_given_and_one_that_names_its_own_sees_all(cache, monkeypatch):
    monkeypatch.setattr(machine, "cards", lambda: ("a card", "a card"))
    monkeypatch.setenv("GPRUNE_JOB_DEVICES", "cuda:0 cuda:1")
    monkeypatch.setenv("TMPDIR", str(cache.parent))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    script = (
        "import os, sys, time; from gprune.jobs import JobReporter\n"
        "with JobReporter(sys.argv[1]):\n"
        "    print('sees', os.environ.get('CUDA_VISIBLE_DEVICES', 'all'), flush=True)\n"
        "    while not os.path.exists(sys.argv[1] + '/go'): time.sleep(0.02)"
    )

    def build(folder, arguments):
        return [sys.executable, "-c", script, str(folder)]

    def sees(job):
        return (log_tail(cache, job.id) or [""])[0]

    with_device = submit(cache, replace(make_study(0), device="cuda:0"), build=build)
    wait_for(lambda: sees(with_device))
    free = submit(cache, make_study(1), build=build)
    wait_for(lambda: sees(free))
    assert (get(cache, with_device.id).device, sees(with_device)) == ("cuda:0", "sees all")
    assert (get(cache, free.id).device, sees(free)) == ("cuda:1", "sees 1")
    last = submit(cache, make_study(2), build=build)
    (with_device.folder / "go").touch()
    wait_for(lambda: sees(last))
    assert (get(cache, last.id).device, sees(last)) == ("cuda:0", "sees 0")
