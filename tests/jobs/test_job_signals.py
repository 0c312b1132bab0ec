"""A job that is asked by a signal to leave: interrupted, or cancelled where somebody has asked for that."""

import json
import os
import shutil
import signal
import subprocess
from dataclasses import replace

import pytest
import tiny_study
from waiting import limit, wait_for

from gprune.__main__ import EXIT_STOPPED
from gprune.cli import signals
from gprune.jobs import folder as files
from gprune.jobs.folder import JobState, read_state, worker_command, write_state
from gprune.jobs.queue import environment
from gprune.pipeline import runs
from gprune.store import Store
from gprune.store.resumption import SUFFIX, VARIABLE, StateFile
from gprune.study import from_dict, run_name
from gprune.system.errors import Interrupted


@pytest.fixture(autouse=True)
def handlers():
    """Leaves the signals of this process as they were."""
    before = {item: signal.getsignal(item) for item in signals.SIGNALS}
    yield
    for item, handler in before.items():
        signal.signal(item, handler)


@pytest.mark.parametrize("number", signals.SIGNALS)
def test_the_first_signal_interrupts_and_the_second_is_not_caught(tmp_path, number):
    for job in (None, tmp_path):
        signals.listen(job)
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), number)
        assert {signal.getsignal(item) for item in signals.SIGNALS} == {signal.SIG_DFL}


def test_the_signals_of_a_cancellation_cancel_and_disturb_no_farewell(tmp_path):
    write_state(tmp_path, JobState(state="cancelling", started=1.0, cancel_requested=2.0))
    signals.listen(tmp_path)
    with pytest.raises(KeyboardInterrupt) as caught:
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.type is KeyboardInterrupt
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGUSR1)


class LongStudy:
    """A study whose learning takes longer than any test, and its command as a job of its cache."""

    def __init__(self, home, cache):
        settings = tiny_study.made(home)
        self.settings = settings | {"sparsity": {"epochs": 5000, "batch": 8}, "methods": ["dense", "gprune"]}
        self.study, self.cache = from_dict(self.settings), cache

    def start(self, number):
        folder = self.cache / "jobs" / f"20260131-12000{number}-0123abcd"
        folder.mkdir(parents=True)
        (folder / files.STUDY).write_text(json.dumps(self.settings))
        log = (folder / files.LOG).open("ab")
        command = worker_command(folder, ("--until", "masks"))
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment() | {VARIABLE: "0"})
        return process, folder

    def learns(self, process, folder):
        """Waits until a run has made some steps."""

        def has_begun():
            assert process.poll() is None, (folder / files.LOG).read_text()
            events = folder / files.EVENTS
            messages = map(json.loads, events.read_text().splitlines() if events.exists() else [])
            steps = [m for m in messages if m["stage"] == "learning" and "cross-entropy" in m["message"]]
            return len(steps) > 2

        wait_for(has_begun, 60)

    def step(self):
        """After which step the state that is there goes on."""
        (path,) = (self.cache / "learning").glob(f"*{SUFFIX}")
        state = StateFile(Store(self.cache), "learning", path.name.removesuffix(SUFFIX)).read()
        assert state is not None
        return state.step


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.long
def test_a_real_run_saves_and_is_interrupted_continued_and_cancelled(tmp_path):
    long = LongStudy(tmp_path / "home", tmp_path / "cache")
    store, step = Store(long.cache), 0
    for turn, (number, state) in enumerate(
        [(signal.SIGUSR1, "interrupted"), (signal.SIGTERM, "interrupted"), (signal.SIGTERM, "cancelled")]
    ):
        process, folder = long.start(turn)
        try:
            long.learns(process, folder)
            if state == "cancelled":
                # as the app's button does: the state is recorded before the signal
                write_state(folder, replace(read_state(folder), state="cancelling"))
            process.send_signal(number)
            assert process.wait(limit(30)) == EXIT_STOPPED
        finally:
            process.kill()
            process.wait()
        log = (folder / files.LOG).read_text()
        assert read_state(folder).state == state, log
        record = runs.read(store, run_name(long.study)) or {}
        assert (record["state"], runs.current_state(long.cache, record), record["owner"]) == (state, state, None)
        assert "Traceback" not in log
        assert (f"resumes at step {step + 1} of 20000" in log) == (turn > 0)
        assert f"stopped after step {long.step()}: its state is saved" in log
        assert long.step() > step
        step = long.step()
    shutil.rmtree(long.cache)
