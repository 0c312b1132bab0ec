"""The true worker in a process of its own: what it answers, what it survives, and when it ends."""

import os
import shutil
import signal
import sys
import time

import pytest
from preview.conftest import random_masks
from waiting import limit, wait_for

from gprune.app.preview import Question
from gprune.app.preview import manager as module
from gprune.app.preview.manager import Client, RequestError, WorkerProcess
from gprune.app.preview.requests import resolve
from gprune.pipeline import stages

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def pool():
    created = Client()
    yield created
    created.close()


@pytest.fixture
def source(tiny_run, tmp_path):
    return tiny_run().copied(tmp_path)


@pytest.fixture
def worker(source):
    """A worker that is spoken to by hand."""
    process = WorkerProcess(source.model)
    yield process
    process.end()


def finished(pool, identity):
    wait_for(lambda: pool.latest(identity).progress != "open", 60)
    return pool.latest(identity)


def masks_of(source, seed):
    return random_masks(source.results.get(stages.shape), seed)


def test_at_the_runs_own_masks_no_process_is_started(pool, tiny_run):
    source = tiny_run().source
    text = source.graph.study.evaluation.texts[0]
    masks = source.results.get(stages.masks, "gprune")
    answer = pool.latest(pool.ask(source, Question(text, "gprune", masks), owner="me"))
    assert answer.progress == "complete" and pool.state(source).phase == "cold"
    stored = source.results.get(stages.perplexity, "gprune", text)
    assert answer.perplexity == pytest.approx(stored.perplexity)


@pytest.mark.long
def test_a_killed_worker_is_noticed_and_the_next_question_starts_another(pool, source):
    text = source.graph.study.evaluation.texts[0]
    finished(pool, pool.ask(source, Question(text, "gprune", masks_of(source, 0)), owner="me"))
    first = pool.state(source).pid
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: pool.state(source).phase == "ended")
    assert "killed" in pool.state(source).reason
    answer = finished(pool, pool.ask(source, Question(text, "gprune", masks_of(source, 1)), owner="me"))
    assert answer.progress == "complete" and pool.state(source).pid not in (None, first)


@pytest.mark.long
def test_one_that_is_killed_while_it_loads_is_a_sentence(pool, source):
    identity = pool.ask(source, Question(source.graph.study.evaluation.texts[0]), owner="me")
    wait_for(lambda: pool.state(source).pid is not None)
    os.kill(pool.state(source).pid, signal.SIGKILL)
    answer = finished(pool, identity)
    assert answer.progress == "failed" and "killed" in answer.problem


@pytest.mark.long
def test_a_model_that_is_deleted_after_it_was_loaded_is_a_sentence(pool, source, tmp_path):
    text = source.graph.study.evaluation.texts[0]
    finished(pool, pool.ask(source, Question(text, "gprune", masks_of(source, 0)), owner="me"))
    assert pool.state(source).phase == "warm"
    shutil.rmtree(tmp_path / "model")
    answer = finished(pool, pool.ask(source, Question(text, "gprune", masks_of(source, 1)), owner="me"))
    assert answer.progress == "failed"
    assert answer.problem.startswith(f"the model folder {str(tmp_path / 'model')!r} is missing or incomplete")
    assert pool.state(source).phase == "ended" and pool.state(source).reason == answer.problem


@pytest.mark.long
def test_the_end_of_its_input_ends_it_at_once(worker, source):
    worker._connection.send(("load", {"model": source.model}, None))
    # in the middle of an import that takes seconds
    time.sleep(0.3)
    worker._connection.close()
    assert worker._process.wait(limit(30)) == 0


@pytest.mark.long
def test_a_task_that_cannot_be_done_does_not_kill_it(worker, source):
    request = resolve(source, Question(source.graph.study.evaluation.texts[0]))
    with pytest.raises(RequestError, match="live evaluation failed") as failure:
        worker.call("load", {}, None, lambda *_: True)
    assert not failure.value.usable
    assert worker.call("load", {"model": source.model}, None, lambda *_: True)
    with pytest.raises(RequestError, match="KeyError") as failure:
        worker.call("unknown", {}, None, lambda *_: True)
    assert failure.value.usable
    assert worker.call(request.task, request.arguments, None, lambda *_: True).done == 2


def test_one_that_cannot_start_says_its_last_words(monkeypatch, source):
    monkeypatch.setattr(module, "COMMAND", (sys.executable, "-c", "raise SystemExit('no torch here')"))
    child = WorkerProcess(source.model)
    with pytest.raises(RequestError) as failure:
        child.call("load", {}, None, lambda *_: True)
    assert str(failure.value) == (
        "the worker process ended unexpectedly (exit code 1, last line: no torch here): try again"
    )
    child.end()
