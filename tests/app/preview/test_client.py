"""Whose turn it is, who gets which numbers, what ends when; and which jobs the preview waits for."""

import os
import tempfile
import threading
import time
from queue import SimpleQueue
from types import SimpleNamespace

import numpy as np
import pytest
from preview.conftest import Workshop
from waiting import wait_for

from gprune.app.preview import Client, Question, Source
from gprune.app.preview import worker_manager as module
from gprune.app.preview.request import Resolved
from gprune.app.preview.worker_manager import hindrance
from gprune.app.preview.worker_process import WorkerProcess
from gprune.jobs import folder as files
from gprune.jobs import local, queue
from gprune.jobs.state import JobState, write_state
from gprune.pipeline.stages import Graph
from gprune.study import Study
from gprune.system.errors import StoreError

WINDOWS = 12


def losses(model, message):
    """Losses that tell the model, and whether it was pruned."""
    if "numbers" not in message:
        return {"windows": WINDOWS}
    value = {"first": 1.0, "second": 2.0}[model] + (0.0 if message["pruned"] is None else 0.5)
    return {"losses": [value] * len(message["numbers"])}


def source_of(model, device="cpu"):
    return Source("/nowhere", Graph(Study(model=model, primary="a", auxiliary="b", device=device)))


def resolved(source, question):
    """Without a store: a question is what its method is called."""
    model = source.model
    text = {"name": question.text, "digest": "", "length": 16, "windows": None, "batch": 4}
    pruned = None if question.method == "dense" else {"masks": question.method}
    name = f"{model['model']} {model['device']} {question.method}"
    return Resolved(name, question, model, text, pruned, None)


@pytest.fixture
def shop(monkeypatch):
    monkeypatch.setattr("gprune.app.preview.client.resolve", resolved)
    monkeypatch.setattr("gprune.app.preview.worker_manager.LOOK_OUT_SECONDS", 0.0)
    return Workshop(losses)


@pytest.fixture
def pool(shop):
    made = Client(idle=60.0, start=shop.start, waits_for=shop.waits_for)
    yield made
    made.close()


def complete(pool, identity):
    wait_for(lambda: pool.latest(identity).progress in ("complete", "failed"))
    return pool.latest(identity)


@pytest.mark.long
def test_two_tabs_on_two_runs_get_their_own_numbers(pool, shop):
    sources = {name: source_of(name) for name in ("first", "second")}
    found = {}

    def tab(name):
        for method in ("gprune", "flap", "fang"):
            identity = pool.ask(sources[name], Question("t", method), owner=name)
            found[name, method] = complete(pool, identity)

    tabs = [threading.Thread(target=tab, args=(name,)) for name in sources]
    [one.start() for one in tabs]
    [one.join() for one in tabs]
    assert len(found) == 6
    for (name, _), answer in found.items():
        value = {"first": 1.5, "second": 2.5}[name]
        assert answer.progress == "complete" and answer.done == WINDOWS
        assert np.all(answer.losses == value) and answer.difference.nats == pytest.approx(0.5)
    # one at a time: each makes way before the next is started
    assert all(worker.ended for worker in shop.made[:-1])


def test_while_another_run_has_its_turn_a_run_says_so_and_gets_it_in_the_end(pool, shop, monkeypatch):
    monkeypatch.setattr(module, "TURN_SECONDS", 0.2)
    shop.hold = True
    first = pool.ask(source_of("first"), Question("t"), owner="me")
    wait_for(lambda: shop.sent)
    second = pool.ask(source_of("second"), Question("t"), owner="you")
    state = pool.state(source_of("second"))
    assert state.phase == "waiting" and "another run" in state.reason
    wait_for(lambda: len(shop.made) > 1)
    assert shop.made[0].ended and "another run" in pool.state(source_of("first")).reason
    shop.hold = False
    shop.made[-1].free.set()
    assert complete(pool, second).losses[0] == 2.5 and complete(pool, first).losses[0] == 1.5


def test_a_curve_does_not_take_the_place_of_another_runs_preview(pool, shop, monkeypatch):
    monkeypatch.setattr(module, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(module, "URGENT_SECONDS", 0.0)
    shop.hold = True
    preview = pool.ask(source_of("first"), Question("t"), owner="me")
    wait_for(lambda: shop.sent)
    curve = pool.ask_many(source_of("second"), [Question("t", "flap"), Question("t", "fang")], owner="you")
    shop.made[0].free.set()
    assert complete(pool, preview).progress == "complete"
    shop.hold = False
    wait_for(lambda: len(shop.made) > 1)
    shop.made[-1].free.set()
    assert [complete(pool, point).losses[0] for point in curve] == [2.5, 2.5]
    assert [worker.model["model"] for worker in shop.made] == ["first", "second"]


def test_on_a_cpu_it_rests_while_a_job_is_at_work_and_goes_on_after(pool, shop):
    shop.reason = "live evaluation waits while a job is at work: demo"
    source = source_of("first")
    identity = pool.ask(source, Question("t"), owner="me")
    wait_for(lambda: pool.state(source).reason == shop.reason)
    assert pool.state(source).phase == "waiting" and not shop.made
    shop.reason = ""
    complete(pool, identity)
    shop.reason = "live evaluation waits while a job is at work: other"
    later, sent = pool.ask(source, Question("t", "flap"), owner="me"), len(shop.sent)
    wait_for(lambda: pool.state(source).reason == shop.reason)
    assert pool.state(source).phase == "waiting" and not shop.made[0].ended and len(shop.made) == 1
    assert len(shop.sent) <= sent + 1
    shop.reason = ""
    assert complete(pool, later).done == WINDOWS and len(shop.made) == 1


def test_on_a_gpu_the_worker_ends_for_a_job_and_comes_back(pool, shop):
    shop.hold = True
    source = source_of("first", "cuda")
    identity = pool.ask(source, Question("t"), owner="me")
    wait_for(lambda: shop.sent)
    shop.reason = "live evaluation waits while a job is at work: demo"
    wait_for(lambda: shop.made[0].ended)
    assert pool.state(source).phase == "waiting" and pool.latest(identity).progress == "open"
    shop.hold, shop.reason = False, ""
    assert complete(pool, identity).done == WINDOWS and len(shop.made) == 2


def test_an_idle_worker_ends_and_the_next_question_starts_another(shop):
    pool = Client(idle=0.1, start=shop.start, waits_for=shop.waits_for)
    source = source_of("first")
    assert pool.state(source).phase == "cold"
    complete(pool, pool.ask(source, Question("t"), owner="me"))
    wait_for(lambda: pool.state(source).phase == "ended")
    assert shop.made[0].ended and "0.1 seconds" in pool.state(source).reason
    wait_for(lambda: pool._thread is None)
    assert complete(pool, pool.ask(source, Question("t", "flap"), owner="me")).done == WINDOWS
    assert len(shop.made) == 2
    pool.close()


def test_a_model_that_cannot_be_loaded_is_a_sentence_and_not_loaded_over_and_over(pool, shop):
    shop.broken = "the model folder 'x' is not there any more"
    source = source_of("first")
    for method in ("gprune", "flap", "gprune"):
        answer = complete(pool, pool.ask(source, Question("t", method), owner="me"))
        assert (answer.progress, answer.problem) == ("failed", shop.broken)
    assert len(shop.made) == 1 and pool.state(source).reason == shop.broken
    assert pool.state(source).phase == "ended"


def test_an_answer_to_another_question_is_never_shown(pool, shop):
    shop.hold = True
    identity = pool.ask(source_of("first"), Question("t"), owner="me")
    wait_for(lambda: shop.sent)
    shop.made[0].say({"id": "of somebody else", "windows": 3})
    answer = complete(pool, identity)
    assert answer.progress == "failed" and answer.windows == 0 and "another question" in answer.problem


def test_a_worker_that_says_nothing_is_given_up(pool, shop, monkeypatch):
    shop.hold = True
    identity = pool.ask(source_of("first"), Question("t"), owner="me")
    wait_for(lambda: shop.sent)
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.1)
    answer = complete(pool, identity)
    assert shop.made[0].ended and "has said nothing for 0.1 seconds" in answer.problem


def test_no_process_is_a_sentence(shop):
    def refuse(model, on_reply):
        raise OSError(12, "Cannot allocate memory")

    pool = Client(start=refuse, waits_for=shop.waits_for)
    answer = complete(pool, pool.ask(source_of("first"), Question("t"), owner="me"))
    assert "Cannot allocate memory" in answer.problem
    pool.close()


def test_a_run_that_does_not_say_what_it_has_read_is_a_sentence():
    with pytest.raises(StoreError, match="does not say what it has read"):
        Client().ask(source_of("first"), Question("t"), owner="me")


def test_closing_ends_everything(pool, shop):
    shop.hold = True
    identity = pool.ask(source_of("first"), Question("t"), owner="me")
    wait_for(lambda: shop.sent)
    pool.close()
    assert shop.made[0].ended and pool.latest(identity).progress == "dropped"
    wait_for(lambda: pool._thread is None)


def test_a_worker_that_has_not_gone_holds_up_the_next_one_and_no_page(pool, shop):
    shop.lingers = True
    complete(pool, pool.ask(source_of("first"), Question("t", "gprune"), owner="me"))
    second = pool.ask(source_of("second"), Question("t", "gprune"), owner="me")
    wait_for(lambda: shop.made[0].ended)
    time.sleep(3 * module._TICK)
    # its memory is not free yet, and whoever looks is answered nevertheless
    assert len(shop.made) == 1 and pool.latest(second).progress == "open"
    shop.made[0].gone = True
    assert complete(pool, second).progress == "complete" and len(shop.made) == 2


def test_ending_a_process_waits_for_nothing(monkeypatch):
    child = WorkerProcess.__new__(WorkerProcess)
    child._letters, child._log = SimpleQueue(), tempfile.TemporaryFile()
    child._process = SimpleNamespace(kill=lambda: None, poll=lambda: None, returncode=None, wait=pytest.fail)
    child.end()
    assert not child.gone and "ended by itself" in child.why()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    # nothing is started
    monkeypatch.setattr(local, "start_worker", lambda *_: None)
    return tmp_path


def submitted(cache, device="auto", arguments=(), number=0):
    study = Study(model="demo", primary="a", auxiliary="b", device=device, seed=number)
    return queue.submit(cache, study, label=f"job {number}", arguments=arguments)


WAITS = [("auto", "cpu"), ("cpu", "cpu"), ("auto", "cuda"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1")]
GOES_ON = [("cpu", "cuda"), ("cuda:1", "cuda")]


@pytest.mark.parametrize(("job", "preview"), WAITS + GOES_ON)
def test_a_job_stops_the_preview_on_its_own_device(cache, job, preview):
    submitted(cache, job)
    expected = "live evaluation waits while a job is at work: job 0" if (job, preview) in WAITS else ""
    assert hindrance(cache, preview) == expected


def test_an_export_needs_no_gpu(cache):
    submitted(cache, "cuda", ("gguf", "folder", "out"))
    assert hindrance(cache, "cuda") == "" != hindrance(cache, "cpu")


def test_waiting_running_and_leaving_jobs_count_and_those_that_are_gone_do_not(cache):
    assert hindrance(cache, "cpu") == hindrance(cache, "cuda") == ""
    first, second = submitted(cache), submitted(cache, number=1)
    assert second.state == "queued" and len(queue.at_work(cache)) == 2
    queue.cancel(cache, second.id)
    assert [job.id for job in queue.at_work(cache)] == [first.id]
    here = {"pid": os.getpid(), "process_started": local.process_start(os.getpid())}
    for state, counts in (
        (JobState("running", started=1.0, **here), True),
        (JobState("cancelling", started=1.0, **here), True),
        # it has reported its end and still holds its memory
        (JobState("done", started=1.0, ended=time.time(), **here), True),
        (JobState("running", started=1.0, pid=here["pid"], process_started=1.0), False),
        (JobState("done", started=1.0, ended=2.0), False),
    ):
        write_state(cache / "jobs" / first.id, state)
        assert bool(hindrance(cache, "cpu")) == counts, state
    (cache / "jobs" / first.id / files.STATE).write_text("damaged")
    assert hindrance(cache, "cpu") == ""
