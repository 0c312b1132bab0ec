"""Jobs from start to end with real processes: finished, stopped, killed, restarted, crowded."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from waiting import limit, wait_for

from gprune.jobs import cancel, get, jobs, local, log_tail, progress, reconcile, resume, submit
from gprune.jobs import folder as files
from gprune.jobs.state import read_state
from gprune.system import installation

from .conftest import fake_command, make_study


def start(cache, seed, *behaviour):
    return submit(cache, make_study(seed), arguments=behaviour, build=fake_command)


def ended(cache, job):
    return lambda: not get(cache, job.id).active


def running(cache, job):
    """True once the run has said something, so that it is past its start."""
    return lambda: progress(cache, job.id).stage == "calibrate"


def gone(pid):
    return lambda: local.process_start(pid) is None


def other_process(cache, script):
    """Runs a script in a process of its own, as another app or a restarted one would."""
    code = f"from pathlib import Path\nfrom gprune.jobs import *\ncache = Path({str(cache)!r})\n{script}"
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=installation.CHILD_FOLDER, check=True, capture_output=True, text=True
    ).stdout.split()


@pytest.mark.process
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
        assert (job.state, job.run_id, job.summary, job.error) == ("done", "run-7", {"retention": 0.5}, "")
        shown = progress(cache, job.id)
        assert [(row.stage, row.state) for row in shown.stages] == [("calibrate", "done"), ("score", "done")]
        assert (shown.stage, shown.fraction, shown.eta) == ("score", 1.0, None)
        assert 0 <= sum(row.seconds for row in shown.stages) <= job.elapsed
        assert log_tail(cache, job.id, 5) == ["worker finish"]
    assert get(cache, second).started >= get(cache, first).ended


@pytest.mark.process
def test_cancelled_job_is_cancelled_and_the_queue_goes_on(cache):
    first, second = start(cache, 0, "hold"), start(cache, 1, "finish")
    wait_for(running(cache, first))
    pid = get(cache, first.id).pid
    assert get(cache, second.id).position == 1
    assert cancel(cache, first.id).state in ("cancelling", "cancelled")
    seen = set()
    wait_for(lambda: seen.add(get(cache, first.id).state) or "cancelled" in seen)
    assert seen <= {"cancelling", "cancelled"} and get(cache, first.id).error == ""
    wait_for(gone(pid))
    wait_for(lambda: get(cache, second.id).state == "done")
    assert progress(cache, first.id).stages[-1].state == "cancelled"


@pytest.mark.process
def test_run_that_does_not_listen_is_stopped_with_all_its_processes(cache):
    job = start(cache, 0, "stubborn")
    wait_for(running(cache, job))
    pid, child = get(cache, job.id).pid, int((job.folder / "child").read_text())
    assert psutil.pid_exists(child) and os.getpgid(child) == pid
    assert cancel(cache, job.id, grace=0.2).state == "cancelling"
    wait_for(ended(cache, job))
    assert (get(cache, job.id).state, get(cache, job.id).error) == ("cancelled", "")
    wait_for(gone(pid))
    wait_for(gone(child))


@pytest.mark.process
def test_killed_run_fails_with_a_reason_and_the_queue_goes_on(cache):
    first, second = start(cache, 0, "stubborn"), start(cache, 1, "finish")
    wait_for(running(cache, first))
    child = int((first.folder / "child").read_text())
    os.kill(get(cache, first.id).pid, signal.SIGKILL)
    wait_for(lambda: get(cache, second.id).state == "done")
    failed = get(cache, first.id)
    assert failed.state == "failed"
    assert failed.error.startswith("the process ended without a result (killed, probably out of memory)")
    assert "finished stages are kept" in failed.error
    wait_for(gone(child))


@pytest.mark.process
def test_failing_runs_say_why_and_the_queue_goes_on(cache):
    raising, leaving, last = start(cache, 0, "raise"), start(cache, 1, "exit"), start(cache, 2, "finish")
    wait_for(lambda: get(cache, last.id).state == "done")
    assert (get(cache, raising.id).state, get(cache, leaving.id).state) == ("failed", "failed")
    assert get(cache, raising.id).error == "the text 'x' is empty: choose another"
    assert log_tail(cache, raising.id)[-1] == "gprune.system.errors.CorpusError: the text 'x' is empty: choose another"
    assert "exit code 1, saying: no such option: --what" in get(cache, leaving.id).error


@pytest.mark.process
def test_restarted_machine_is_noticed_by_the_next_process(cache):
    first, second = start(cache, 0, "hold"), start(cache, 1, "finish")
    wait_for(running(cache, first))
    state = read_state(first.folder)
    os.kill(state.supervisor, signal.SIGKILL)
    os.kill(state.pid, signal.SIGKILL)
    wait_for(lambda: not local.supervisor_alive(state) and not local.worker_alive(state))
    assert get(cache, first.id).state == "running"
    other_process(cache, "reconcile(cache)")
    assert get(cache, first.id).state == "failed"
    assert "killed or the machine restarted" in get(cache, first.id).error
    wait_for(lambda: get(cache, second.id).state == "done")


@pytest.mark.process
def test_run_without_supervisor_is_still_stopped(cache):
    job = start(cache, 0, "quiet")
    wait_for(running(cache, job))
    state = read_state(job.folder)
    os.kill(state.supervisor, signal.SIGKILL)
    wait_for(lambda: not local.supervisor_alive(state))
    reconcile(cache)
    assert get(cache, job.id).state == "running"
    cancel(cache, job.id, grace=0.1)

    def stopped():
        reconcile(cache)
        return not get(cache, job.id).active

    wait_for(stopped)
    assert get(cache, job.id).state == "cancelled"
    assert not local.worker_alive(state)


@pytest.mark.process
def test_submitters_in_several_processes_never_share_the_machine(cache, tmp_path):
    path = os.path.dirname(os.path.abspath(__file__))
    book = tmp_path / "book"
    code = (
        f"import sys; sys.path[:0] = [{path!r}, {os.path.dirname(path)!r}]\n"
        "from pathlib import Path\nfrom gprune.jobs import submit\n"
        "from conftest import fake_command, make_study\n"
        "for seed in (0, int(sys.argv[1])):\n"
        f"    print(submit(Path({str(cache)!r}), make_study(seed), arguments=['turn', {str(book)!r}],"
        " build=fake_command).id)"
    )
    submitters = [
        subprocess.Popen([sys.executable, "-c", code, str(seed)], cwd=installation.CHILD_FOLDER, stdout=subprocess.PIPE)
        for seed in (1, 2)
    ]
    printed = [process.communicate(timeout=limit(30))[0].decode().split() for process in submitters]
    wait_for(lambda: not any(job.active for job in jobs(cache)))
    ids = {job.id for job in jobs(cache)}
    assert {name for names in printed for name in names} == ids
    assert {job.state for job in jobs(cache)} == {"done"}
    turns = book.read_text().split()
    # one begins only after the one before has ended, and each job has one turn
    assert turns[0::2] == ["begin", "end"] * len(ids)
    assert turns[1::4] == turns[3::4] and sorted(turns[1::4]) == sorted(ids)


@pytest.mark.long
@pytest.mark.process
def test_a_job_runs_is_cancelled_and_resumed(cache):
    job = submit(cache, make_study(), "one", ["hold"], fake_command)
    waiting = submit(cache, make_study(1), "two", ["finish"], fake_command)
    assert (waiting.state, waiting.position) == ("queued", 1)
    wait_for(lambda: progress(cache, job.id).stage == "calibrate")
    assert submit(cache, make_study(), "one", ["hold"], fake_command).id == job.id
    cancel(cache, job.id)
    wait_for(lambda: read_state(job.folder).finished)
    assert (read_state(job.folder).state, read_state(job.folder).error) == ("cancelled", "")
    # its supervisor starts the next one
    wait_for(lambda: read_state(waiting.folder).finished)
    assert (read_state(waiting.folder).state, read_state(waiting.folder).run_id) == ("done", "run-7")
    again = resume(cache, job.id, fake_command)
    (again.folder / "go").touch()
    wait_for(lambda: read_state(again.folder).finished)
    assert read_state(again.folder).state == "done"
    assert [one.state for one in jobs(cache)] == ["done", "done", "cancelled"]
    assert any("worker hold" in line for line in log_tail(cache, again.id))
    assert not [name for name in files.root(cache).iterdir() if name.name.startswith(".new")]
