"""The true worker in a process of its own: what it answers, what it survives, and when it ends."""

import os
import shutil
import signal
import subprocess
import time

import numpy as np
import psutil
import pytest
from preview.conftest import random_masks
from pruned_folder import compensating
from waiting import limit, wait_for

from gprune.app.preview import Client, Question
from gprune.app.preview.request import resolve
from gprune.app.preview.worker import messages
from gprune.app.preview.worker_process import COMMAND, WorkerProcess, environment
from gprune.evaluation.perplexity import perplexity
from gprune.pipeline import stages
from gprune.pipeline.stages import RunContext
from gprune.pruning.surgery import cut
from gprune.system import installation

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def pool():
    made = Client()
    yield made
    made.close()


@pytest.fixture
def source(tiny_run, tmp_path):
    return tiny_run().copied(tmp_path)


@pytest.fixture
def worker():
    """A worker that is spoken to by hand."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(COMMAND, cwd=installation.CHILD_FOLDER, env=environment(), **pipes)
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def finished(pool, identity):
    wait_for(lambda: pool.latest(identity).progress != "open", 60)
    return pool.latest(identity)


def masks_of(source, seed):
    return random_masks(source.results.get(stages.shape), seed)


@pytest.mark.long
def test_what_comes_back_is_what_the_cut_model_loses(pool, tiny_run, source):
    text = source.graph.study.evaluation.texts[0]
    masks = masks_of(source, 1)
    answer = finished(pool, pool.ask(source, Question(text, "flap", masks), owner="me"))
    assert (answer.progress, answer.done, answer.windows) == ("complete", 40, 40), answer.problem
    work = RunContext(source.graph.study, source.graph.inputs, source.results.store.texts)
    statistics = source.results.get(stages.statistics, "primary")
    model = cut(work.decoder, compensating(masks, statistics))
    expected = perplexity(model, work.stream(text), text, source.graph.study.evaluation)
    dense = tiny_run().source.results.get(stages.perplexity, "dense", text)
    np.testing.assert_allclose(answer.losses, expected.losses, rtol=1e-4)
    np.testing.assert_allclose(answer.base, dense.losses, rtol=1e-4)
    each = expected.losses - dense.losses
    assert answer.difference.nats == pytest.approx(each.mean(), rel=1e-3)
    assert answer.difference.nats_error == pytest.approx(each.std(ddof=1) / np.sqrt(40), rel=1e-3)
    assert answer.perplexity == pytest.approx(expected.perplexity, rel=1e-4)


def test_at_the_runs_own_masks_no_process_is_started(pool, tiny_run):
    source = tiny_run().source
    text = source.graph.study.evaluation.texts[0]
    own = source.results.get(stages.masks, "gprune")
    answer = pool.latest(pool.ask(source, Question(text, "gprune", own), owner="me"))
    assert answer.progress == "complete" and pool.state(source).phase == "cold"
    stored = source.results.get(stages.perplexity, "gprune", text)
    assert answer.perplexity == pytest.approx(stored.perplexity)


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
@pytest.mark.parametrize("warm", [False, True])
def test_a_deleted_model_is_a_sentence(pool, source, tmp_path, warm):
    text = source.graph.study.evaluation.texts[0]
    if warm:
        finished(pool, pool.ask(source, Question(text, "gprune", masks_of(source, 0)), owner="me"))
        assert pool.state(source).phase == "warm"
    shutil.rmtree(tmp_path / "model")
    answer = finished(pool, pool.ask(source, Question(text, "gprune", masks_of(source, 1)), owner="me"))
    assert answer.progress == "failed"
    assert answer.problem.startswith(f"the model folder {str(tmp_path / 'model')!r} is not there any more")
    assert pool.state(source).phase == "ended" and pool.state(source).reason == answer.problem


@pytest.mark.long
def test_an_idle_worker_leaves(source):
    pool = Client(idle=0.3)
    finished(pool, pool.ask(source, Question(source.graph.study.evaluation.texts[0]), owner="me"))
    pid = pool.state(source).pid
    wait_for(lambda: pool.state(source).phase == "ended")
    wait_for(lambda: not psutil.pid_exists(pid))
    pool.close()


@pytest.mark.long
@pytest.mark.parametrize("loading", [False, True])
def test_the_end_of_its_input_ends_it_at_once(worker, source, loading):
    if loading:
        worker.stdin.write(messages.line({"model": source.model}))
        worker.stdin.flush()
        # in the middle of an import that takes seconds
        time.sleep(0.3)
    worker.stdin.close()
    assert worker.wait(limit(5)) == 0


@pytest.mark.long
def test_garbage_does_not_kill_it(worker, source):
    text = resolve(source, Question(source.graph.study.evaluation.texts[0])).text
    for line in (b"\x00\xff not JSON\n", b"[]\n", b'{"id": 7, "numbers": "x"}\n'):
        worker.stdin.write(line)
    worker.stdin.write(messages.line({"model": source.model}))
    worker.stdin.write(messages.line({"id": 1, "text": text, "numbers": [99], "pruned": None}))
    odd = {"masks": {"ffn": 1}, "repairs": [], "inputs": {}}
    worker.stdin.write(messages.line({"id": 2, "text": text, "numbers": [0], "pruned": odd}))
    worker.stdin.write(messages.line({"id": 3, "text": text}))
    worker.stdin.flush()
    replies = [messages.read(worker.stdout.readline()) for _ in range(7)]
    assert all(reply["problem"] for reply in replies[:3])
    assert replies[3] == {"id": None, "ready": True}
    assert "windows 0 to 39" in replies[4]["problem"] and "masks of a question" in replies[5]["problem"]
    assert replies[6] == {"id": 3, "windows": 40}


def test_one_that_cannot_start_says_its_last_words(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "gprune.app.preview.worker_process.COMMAND", (COMMAND[0], "-c", "raise SystemExit('no torch here')")
    )
    child = WorkerProcess({}, lambda: None)
    assert child.replies.get(timeout=limit(10)) is None
    assert child.why() == ("the worker’s process ended by itself (exit code 1, saying: no torch here): ask again")
    child.end()
