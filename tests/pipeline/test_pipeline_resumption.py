"""A run that is killed while it learns goes on there: results, record and log, of one process and of two."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import run_starters
import tiny_study
from tiny_study import record_of
from waiting import limit

from gprune import pipeline
from gprune.pipeline import cache, runs
from gprune.pipeline.stages import learning
from gprune.store import Store, resumption
from gprune.store.resumption import SUFFIX, VARIABLE, StateFile
from gprune.study import from_dict, run_name
from gprune.system import files
from gprune.system.errors import Cancelled, Interrupted

pytestmark = pytest.mark.slow
STEPS = 12

# ends itself by SIGKILL where its learning is told to be: nothing of it can say good-bye
KILLED = """
import os, signal, sys
from pathlib import Path
from gprune import pipeline
from gprune.pruning.sparsity import passes
from gprune.store import Store
from gprune.study import from_file

study, cache = sys.argv[1:]
seen = 0

def count(*_):
    global seen
    seen += 1
    if seen == 9:
        os.kill(os.getpid(), signal.SIGKILL)

true = passes.Passes._unit_gradients
def inside(self, *arguments, **options):
    count()
    return true(self, *arguments, **options)

passes.Passes._unit_gradients = inside
pipeline.run(from_file(study), Store(Path(cache)), lambda *_: None, "masks")
"""


class Log:
    """Hears what a run says, and may stop its learning after a step."""

    def __init__(self, stop=0, error=None):
        self.stop, self.error = stop, error or Cancelled("stop")
        self.messages, self.steps = list[str](), list[int]()

    def __call__(self, stage, done, total, message):
        if stage == "learning":
            self.messages.append(message)
            if message.startswith("cross-entropy"):
                self.steps.append(done)
            if self.stop and done == self.stop:
                raise self.error

    def says(self, words):
        return [item for item in self.messages if words in item]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resumption")
    settings = tiny_study.made(folder)
    settings |= {"sparsity": {"epochs": 3, "batch": 8}, "methods": ["dense", "gprune"]}
    (folder / "study.json").write_text(json.dumps(settings))
    pipeline.run(from_dict(settings), Store(folder / "undisturbed"), Log(), "masks")
    return folder


@pytest.fixture
def study(home):
    return from_dict(json.loads((home / "study.json").read_text()))


@pytest.fixture
def before_learning(home, study, tmp_path, monkeypatch):
    """A cache that has all but what is learned; states are saved after every epoch of four steps."""
    store = Store(Path(shutil.copytree(home / "undisturbed", tmp_path / "cache")))
    for kind in ("learning", "masks", "runs"):
        shutil.rmtree(store.root / kind)
    return store


def file_of(store, study):
    return StateFile(store, "learning", learning(pipeline.opened(study, store).graph).key)


def assert_undisturbed(store, home, study):
    actual, expected = (run_starters.contents(location) for location in (store.root, home / "undisturbed"))
    assert actual == expected and len([name for name in actual if name.startswith("learning/")]) >= 4
    assert record_of(store, study)["state"] == "done"
    assert not list(store.root.glob("learning/*.state")) and not list(store.root.glob("learning/.*"))


@pytest.mark.process
def test_killed_it_goes_on_from_the_last_state(home, study, before_learning):
    left = 4
    script = [sys.executable, "-c", KILLED, str(home / "study.json"), str(before_learning.root)]
    environment = {**os.environ, "PYTHONPATH": str(run_starters.PROJECT)}
    killed = subprocess.run(script, env=environment, timeout=limit(60), capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert runs.current_state(before_learning.root, record_of(before_learning, study)) == "interrupted"
    state = file_of(before_learning, study).read()
    assert state.step == left
    log = Log()
    pipeline.run(study, before_learning, log, "masks")
    assert_undisturbed(before_learning, home, study)
    assert log.steps == list(range(left + 1, STEPS + 1))
    assert log.says(f"resumes at step {left + 1} of {STEPS}")
    entry, full = (
        record_of(store, study)["stages"]["learning"] for store in (before_learning, Store(home / "undisturbed"))
    )
    assert entry["passes"]["backward"] == full["passes"]["backward"]
    assert any("resumes at" in notice for notice in entry["notices"])


@pytest.mark.parametrize(
    ("error", "state"),
    [(Cancelled("stop"), "cancelled"), (KeyboardInterrupt(), "cancelled"), (Interrupted(), "interrupted")],
)
def test_stopped_it_loses_no_step_and_says_how(home, study, before_learning, error, state):
    for step in (4, 7):
        log = Log(step, error)
        with pytest.raises(type(error)):
            pipeline.run(study, before_learning, log, "masks")
        result = record_of(before_learning, study)
        assert (result["state"], result["owner"]) == (state, None)
        assert runs.current_state(before_learning.root, result) == state
        assert log.says(f"stopped after step {step}") and file_of(before_learning, study).read().step == step
    pipeline.run(study, before_learning, log := Log(), "masks")
    assert_undisturbed(before_learning, home, study)
    assert log.steps[0] == 8
    resumed = [message.split(",")[0] for message in log.says("resumes at")]
    assert resumed == [f"resumes at step {step} of {STEPS}" for step in (5, 8)]


def full_after(monkeypatch, count):
    """Fills the disk for states once some are written; gives what was refused."""
    true, saved, refused = files.write_bytes, [], []

    def write(path, data):
        if path.suffix == SUFFIX:
            if len(saved) == count:
                refused.append(path)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            saved.append(path)
        true(path, data)

    monkeypatch.setattr(resumption, "write_bytes", write)
    return refused


@pytest.mark.parametrize("count", [0, 1])
def test_a_full_disk_costs_one_notice(home, study, before_learning, monkeypatch, count):
    refused, log = full_after(monkeypatch, count), Log()
    pipeline.run(study, before_learning, log, "masks")
    assert len(refused) == 2 - count
    assert_undisturbed(before_learning, home, study)
    (notice,) = log.says("was not saved")
    assert "is full: free some space" in notice and f"would resume at step {4 * count + 1} of {STEPS}" in notice
    assert record_of(before_learning, study)["stages"]["learning"]["notices"] == [notice]


def test_a_damaged_state_is_reported_and_not_used(home, study, before_learning):
    with pytest.raises(Cancelled):
        pipeline.run(study, before_learning, Log(5), "masks")
    location = file_of(before_learning, study).path
    location.write_bytes(location.read_bytes()[:-1] + b"?")
    pipeline.run(study, before_learning, log := Log(), "masks")
    assert_undisturbed(before_learning, home, study)
    assert log.steps[0] == 1 and log.says("restart at step 1")


def test_the_cache_counts_a_state_with_its_run_and_keeps_it(study, before_learning):
    with pytest.raises(Cancelled):
        pipeline.run(study, before_learning, Log(5), "masks")
    file = file_of(before_learning, study)
    size, run = file.path.stat().st_size, run_name(study)
    result = cache.overview(before_learning)
    assert result.other_sizes["unfinished"] == size and "learning" not in result.kinds
    assert result.total == sum(path.stat().st_size for path in before_learning.root.rglob("*") if path.is_file())
    with_state = cache.overview(before_learning).runs[run].unshared
    assert cache.overview(before_learning).unneeded == [] == cache.remove_unneeded(before_learning)
    # without the run nobody goes on with it
    state = file.read()
    assert cache.remove_run(before_learning, run) == with_state and not file.path.exists()
    file.write(state)
    (entry,) = cache.remove_unneeded(before_learning)
    assert entry.name == f"learning/{file.key}.state" and not file.path.exists()


def test_an_interval_that_is_no_number_is_one_sentence(study, before_learning, monkeypatch):
    monkeypatch.setenv(VARIABLE, "often")
    with pytest.raises(ValueError, match=f"{VARIABLE} must be a number of seconds .got 'often'"):
        pipeline.run(study, before_learning, Log(), "masks")
