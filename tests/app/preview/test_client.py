"""The order of work, the owner of each number, the end of a worker; and the jobs that the preview waits for."""

import time

import numpy as np
import pytest
from preview.conftest import Workshop
from scipy import stats
from waiting import wait_for

from gprune.analysis.paired_test import Difference
from gprune.app.preview import NO_DIFFERENCE, Answer, Passage, Piece, Prompt, Question, Source, TokenLosses, verdict
from gprune.app.preview import manager as module
from gprune.app.preview.manager import Client, blocking_job
from gprune.app.preview.questions import Continuation, WindowLosses
from gprune.app.preview.requests import WorkerRequest
from gprune.jobs import queue
from gprune.pipeline.stages import Graph
from gprune.study import Study
from gprune.system.errors import StoreError

WINDOWS = 12
VALUES = {"first": 1.0, "second": 2.0}


def answer(model, task, arguments, previous):
    """Two more windows, whose losses tell the model and the method; or a passage; or a token of a continuation."""
    if task == "read":
        return TokenLosses((Piece("a"), Piece("b")), np.array([np.nan, 1.5]), 2)
    if task == "write":
        ids = (*(previous.ids if previous else ()), 7)
        return Continuation("x" * len(ids), ids, len(ids) == 3, 1, 1)
    losses = np.full(WINDOWS, np.nan) if previous is None else previous.losses.copy()
    done = int(np.isfinite(losses).sum())
    losses[done : done + 2] = VALUES[model] + (0.0 if arguments["method"] == "dense" else 0.5)
    return WindowLosses(losses)


def source_of(model, device="cpu"):
    return Source("/nowhere", Graph(Study(model=model, primary="a", auxiliary="b", device=device)))


def resolved(source, question):
    """Without a store: a question is what its method is called."""
    model, stored = source.model, None
    if question.method == "wanda_sp":
        stored = WindowLosses(np.full(WINDOWS, 9.0))
    name = f"{model.model} {model.device} {question.method}"
    return WorkerRequest(name, model, "losses", {"method": question.method}, question, stored)


def tokens_resolved(source, question, models):
    task = "read" if isinstance(question, Passage) else "write"
    names = [f"{source.model.model} {task} {model.method} {question.typed}" for model in models]
    return tuple(WorkerRequest(name, source.model, task, {}, question) for name in names)


@pytest.fixture
def shop(monkeypatch):
    monkeypatch.setattr(module, "resolve", resolved)
    monkeypatch.setattr(module, "base_question", lambda _, question, base: base or Question(question.text, "dense"))
    monkeypatch.setattr(module, "resolve_tokens", tokens_resolved)
    monkeypatch.setattr(module, "JOBS_SECONDS", 0.0)
    return Workshop(answer)


@pytest.fixture
def pool(shop):
    created = Client(idle=60.0, start=shop.start, waits_for=shop.waits_for)
    yield created
    created.close()


def complete(pool, identity):
    wait_for(lambda: pool.latest(identity).progress in ("complete", "failed"))
    return pool.latest(identity)


def methods(shop):
    return [arguments.get("method", task) for _, task, arguments in shop.sent]


def test_an_answer_refines_window_by_window_on_both_sides_and_is_kept(pool, shop):
    shop.hold = True
    identity = pool.ask(source_of("first"), Question("t"), owner="me")
    assert pool.latest(identity).windows == 0 and pool.latest(identity).progress == "open"
    wait_for(lambda: shop.sent)
    shop.made[0].free.set()
    result = complete(pool, identity)
    assert (result.method, result.text, result.done) == ("gprune", "t", WINDOWS)
    assert methods(shop) == ["gprune", "dense"] * (WINDOWS // 2)
    # the dense side is known: another question measures its own side only, the same one nothing
    complete(pool, pool.ask(source_of("first"), Question("t", "flap"), owner="me"))
    assert methods(shop)[WINDOWS:] == ["flap"] * (WINDOWS // 2)
    assert pool.latest(pool.ask(source_of("first"), Question("t"), owner="me")).progress == "complete"


def test_stored_losses_need_no_worker(pool, shop):
    source = source_of("first")
    stored = Question("t", "wanda_sp")
    result = pool.latest(pool.ask(source, stored, owner="me", base=stored))
    assert result.progress == "complete" and result.perplexity == pytest.approx(np.exp(9.0)) and not shop.made


def test_the_newest_question_of_an_owner_wins_and_those_of_others_go_on(pool, shop):
    shop.hold = True
    source = source_of("first")
    old = pool.ask(source, Question("t", "gprune"), owner="me")
    other = pool.ask(source, Question("t", "flap"), owner="you")
    shared = pool.ask(source, Question("t", "flap"), owner="me:second")
    wait_for(lambda: shop.sent)
    new = pool.ask(source, Question("t", "fang"), owner="me")
    assert other == shared
    assert [pool.latest(each).progress for each in (old, other, new)] == ["dropped", "open", "open"]
    pool.ask(source, Question("t", "fang"), owner="me:second")
    assert pool.latest(other).progress == "open"
    shop.made[0].free.set()
    assert complete(pool, new).done == complete(pool, other).done == WINDOWS
    # the slice that was under way is not lost, and asking again takes it up
    assert methods(shop).count("gprune") == 1 and pool.latest(old).progress == "dropped"
    assert pool.ask(source, Question("t", "gprune"), owner="me") == old
    assert complete(pool, old).done == WINDOWS and methods(shop).count("gprune") == WINDOWS // 2


def test_a_question_that_is_replaced_while_the_model_is_loaded_is_not_measured(pool, shop):
    shop.loads.clear()
    source = source_of("first")
    old = pool.ask(source, Question("t", "gprune"), owner="me")
    wait_for(lambda: pool.state(source).reason == "The model is being loaded: it needs 1.0 GiB")
    assert pool.state(source).phase == "loading"
    new = pool.ask(source, Question("t", "flap"), owner="me")
    shop.loads.set()
    assert complete(pool, new).done == WINDOWS
    assert "gprune" not in methods(shop) and pool.latest(old).progress == "dropped"


def test_points_of_a_curve_take_turns_behind_every_preview(pool, shop):
    shop.hold = True
    source = source_of("first")
    points = pool.ask_many(source, [Question("t", name) for name in ("gprune", "flap", "flap")], owner="me")
    assert points[1] == points[2]
    wait_for(lambda: shop.sent)
    preview = pool.ask(source, Question("t", "fang"), owner="me:preview")
    shop.made[0].free.set()
    assert complete(pool, preview).done == complete(pool, points[0]).done == complete(pool, points[1]).done == WINDOWS
    order = methods(shop)
    assert order.index("fang") == 1 and set(order[1 : order.index("flap")]) == {"fang", "dense"}
    rest = [name for name in order[order.index("flap") :] if name != "dense"]
    assert rest[:4] == ["flap", "gprune", "flap", "gprune"]
    # a new curve takes the place of the old one
    shop.made[0].free.clear()
    first = pool.ask_many(source, [Question("t", "osscar"), Question("t", "slimllm")], owner="me")
    second = pool.ask_many(source, [Question("t", "slimllm")], owner="me")
    assert [pool.latest(each).progress for each in first] == ["dropped", "open"] and second == first[1:]
    shop.made[0].free.set()


def test_passages_and_continuations_take_turns_with_previews_and_known_parts_are_not_read_again(pool, shop):
    shop.hold = True
    source, models = source_of("first"), [Question("", "dense"), Question("", "gprune")]
    preview = pool.ask(source, Question("t"), owner="me")
    passage = pool.read(source, Passage(typed="a b"), models, "me:lens")
    prompt = pool.read(source, Prompt("a"), models[:1], "me:prompt")
    wait_for(lambda: shop.sent)
    shop.made[0].free.set()
    wait_for(lambda: all(pool.reading(each).progress == "complete" for each in (passage, prompt)))
    assert complete(pool, preview).done == WINDOWS
    assert methods(shop)[:6] == ["gprune", "read", "write", "dense", "read", "write"]
    (saved,) = pool.reading(prompt).answers
    assert saved.complete and saved.ids == (7, 7, 7)
    assert np.isnan(pool.reading(passage).answers[0].losses[0])
    again = pool.read(source, Passage(typed="a b"), [models[0], Question("", "flap")], "you")
    wait_for(lambda: pool.reading(again).progress == "complete")
    assert pool.reading(again).answers[0] is pool.reading(passage).answers[0] and methods(shop).count("read") == 3
    assert pool.reading("never asked") is None and pool.latest("never asked") is None


def test_nobody_looks_nothing_is_done_and_looking_again_takes_it_up(pool, shop, monkeypatch):
    shop.hold = True
    identity = pool.ask(source_of("first"), Question("t"), owner="me")
    wait_for(lambda: shop.sent)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    shop.made[0].free.set()
    wait_for(lambda: not pool._open_entries())
    sent = len(shop.sent)
    assert sent < WINDOWS
    monkeypatch.setattr(module, "LOOK_SECONDS", 20.0)
    assert complete(pool, identity).done == WINDOWS and len(shop.sent) > sent


def test_what_is_kept_is_bounded(pool, shop, monkeypatch):
    monkeypatch.setattr(module, "MOST_ENTRIES", 3)
    for number in range(10):
        identity = pool.read(source_of("first"), Passage(typed=str(number)), [Question("", "dense")], "me")
        wait_for(lambda identity=identity: pool.reading(identity).progress == "complete")
    assert len(pool._entries) == 3 and len(pool._answers) <= 4


def test_while_another_run_has_its_turn_a_run_says_so_and_gets_it_in_the_end(pool, shop):
    shop.hold = True
    first = pool.ask(source_of("first"), Question("t"), owner="me")
    wait_for(lambda: shop.sent)
    second = pool.ask(source_of("second"), Question("t"), owner="you")
    state = pool.state(source_of("second"))
    assert state.phase == "waiting" and "another run" in state.reason
    shop.hold = False
    shop.made[0].free.set()
    assert complete(pool, second).losses[0] == 2.5 and complete(pool, first).losses[0] == 1.5
    assert shop.made[0].ended and "another run" in pool.state(source_of("first")).reason


def test_on_a_cpu_it_rests_while_a_job_is_at_work_and_goes_on_after(pool, shop):
    shop.reason = "live evaluation waits while a job is running: demo"
    source = source_of("first")
    identity = pool.ask(source, Question("t"), owner="me")
    wait_for(lambda: pool.state(source).reason == shop.reason)
    assert pool.state(source).phase == "waiting" and not shop.made
    shop.reason = ""
    complete(pool, identity)
    shop.reason = "live evaluation waits while a job is running: other"
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
    shop.reason = "live evaluation waits while a job is running: demo"
    shop.made[0].free.set()
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


def test_a_worker_that_dies_is_a_sentence_and_the_next_question_starts_another(pool, shop):
    shop.hold = True
    source = source_of("first")
    identity = pool.ask(source, Question("t"), owner="me")
    wait_for(lambda: shop.sent)
    shop.made[0].kill()
    result = complete(pool, identity)
    assert (result.progress, result.problem) == ("failed", "the process was killed: ask again")
    assert pool.state(source).phase == "ended" and pool.state(source).reason == result.problem
    # the page draws itself again and repeats its question: the sentence stays
    assert pool.latest(pool.ask(source, Question("t"), owner="me")).progress == "failed"
    shop.hold = False
    assert complete(pool, pool.ask(source, Question("t", "flap"), owner="me")).done == WINDOWS
    # one that dies while nobody waits fails nothing
    shop.made[1].kill()
    assert complete(pool, pool.ask(source, Question("t", "fang"), owner="me")).done == WINDOWS
    assert len(shop.made) == 3


def test_a_model_that_cannot_be_loaded_is_a_sentence_and_not_loaded_over_and_over(pool, shop, monkeypatch):
    shop.broken = "the model folder 'x' is missing"
    source = source_of("first")
    for method, count in (("gprune", 1), ("gprune", 1), ("flap", 2)):
        result = complete(pool, pool.ask(source, Question("t", method), owner="me"))
        assert (result.progress, result.problem) == ("failed", shop.broken)
        wait_for(lambda: pool.state(source).phase == "ended")
        assert len(shop.made) == count and pool.state(source).reason == shop.broken
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    shop.broken = ""
    pool._entries.clear()
    assert complete(pool, pool.ask(source, Question("t"), owner="me")).done == WINDOWS


def test_a_question_that_fails_takes_no_other_with_it(pool, shop, monkeypatch):
    def fail(model, task, arguments, previous):
        if arguments["method"] == "flap":
            raise module.RequestError("layer 1 would lose all", usable=True)
        return answer(model, task, arguments, previous)

    shop.answer = fail
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    bad, good = pool.ask_many(source_of("first"), [Question("t", "flap"), Question("t")], owner="me")
    assert complete(pool, bad).problem == "layer 1 would lose all"
    assert complete(pool, good).progress == "complete" and not shop.made[0].ended
    shop.answer = answer
    pool.ask(source_of("first"), Question("t", "flap"), owner="me")
    assert complete(pool, bad).problem == "" and len(shop.made) == 1


def test_a_fit_is_seen_under_way_and_is_interrupted_by_a_newer_question(pool, shop):
    shop.hold, shop.report = True, (2, 6, "repairing the kept weights")
    source = source_of("first")
    first = pool.ask(source, Question("t", "gprune"), owner="me")
    wait_for(lambda: pool.state(source).phase == "fitting")
    state = pool.state(source)
    assert state.reason == "The worker is repairing the kept weights: layer 3 of 6"
    assert state.share == pytest.approx(1 / 3)
    second = pool.ask(source, Question("t", "flap"), owner="me")
    wait_for(lambda: methods(shop)[-1] == "flap")
    assert pool.latest(first).progress == "dropped"
    shop.made[0].free.set()
    assert complete(pool, second).progress == "complete" and pool.state(source).phase == "warm"
    assert methods(shop).count("gprune") == 1 and len(shop.made) == 1


@pytest.mark.parametrize(
    ("part", "fault", "sentence"),
    [
        ("answer", None, "live evaluation failed (TypeError"),
        ("reason", OSError(5, "Input/output error"), "Input/output error"),
        ("refusal", OSError(12, "Cannot allocate memory"), "Cannot allocate memory"),
    ],
)
def test_any_fault_is_a_sentence_and_the_next_question_is_answered(pool, shop, part, fault, sentence):
    usual = getattr(shop, part)
    setattr(shop, part, fault)
    assert sentence in complete(pool, pool.ask(source_of("first"), Question("t"), owner="me")).problem
    assert all(worker.ended for worker in shop.made)
    setattr(shop, part, usual)
    assert complete(pool, pool.ask(source_of("first"), Question("t", "flap"), owner="me")).done == WINDOWS


def test_a_run_that_does_not_say_what_it_has_read_is_a_sentence():
    with pytest.raises(StoreError, match="has no digests of its inputs"):
        Client().ask(source_of("first"), Question("t"), owner="me")


def test_closing_ends_everything(pool, shop):
    shop.hold = True
    identity = pool.ask(source_of("first"), Question("t"), owner="me")
    wait_for(lambda: shop.sent)
    pool.close()
    assert pool.latest(identity).progress == "dropped"
    wait_for(lambda: pool._thread is None)
    assert shop.made[0].ended


def test_a_worker_that_has_not_gone_holds_up_the_next_one_and_no_page(pool, shop):
    complete(pool, pool.ask(source_of("first"), Question("t"), owner="me"))
    shop.freed.clear()
    second = pool.ask(source_of("second"), Question("t"), owner="me")
    time.sleep(0.1)
    # its memory is not free yet, and whoever looks is answered nevertheless
    assert len(shop.made) == 1 and pool.latest(second).progress == "open"
    shop.freed.set()
    assert complete(pool, second).progress == "complete" and len(shop.made) == 2


def paired(losses, base, progress="open"):
    return Answer("id", "gprune", "text", progress, np.array(losses, float), np.array(base, float))


def test_only_windows_that_both_have_are_compared():
    rng = np.random.default_rng(0)
    first, second = rng.normal(3, 1, 30), rng.normal(3, 1, 30)
    partial = first.copy()
    partial[20:] = np.nan
    base = second.copy()
    base[:4] = np.nan
    result = paired(partial, base)
    assert (result.done, result.windows) == (16, 30)
    each = (first - second)[4:20]
    assert result.difference.nats == pytest.approx(each.mean())
    assert result.difference.nats_error == pytest.approx(stats.sem(each))
    assert result.perplexity == pytest.approx(np.exp(first[4:20].mean()))
    assert result.difference.change == pytest.approx(result.perplexity / result.base_perplexity - 1)


def test_what_is_claimed_of_few_windows_and_of_differences_whose_interval_holds_zero_or_does_not():
    empty = paired([], [])
    assert empty.difference is None and np.isnan(empty.perplexity) and empty.windows == 0
    assert empty.verdict == "too early to tell"
    assert paired([np.nan] * 20, [1.0] * 20).verdict == "too early to tell: 0 of 20 windows"
    for nats in (0.195, -0.195):
        assert verdict(Difference(nats, 0.1, True), 20, 40) == NO_DIFFERENCE
    assert verdict(Difference(np.log(1.25), 0.01, True), 20, 40) == "perplexity 25.00% higher (± 2.45%)"
    assert verdict(Difference(np.log(0.9), 0.01, True), 20, 40) == "perplexity 10.00% lower (± 1.76%)"
    difference = Difference(1.0, 0.01, True)
    assert verdict(difference, 7, 40) == "too early to tell: 7 of 40 windows"
    assert verdict(difference, 7, 7).startswith("perplexity 171.83% higher")
    assert verdict(Difference(1.0, float("inf"), True), 1, 1) == NO_DIFFERENCE


@pytest.fixture
def cache(tmp_path, monkeypatch):
    # nothing is started
    monkeypatch.setattr(queue, "start_worker", lambda *_: None)
    return tmp_path


def submitted(cache, device="auto", arguments=(), number=0):
    study = Study(model="demo", primary="a", auxiliary="b", device=device, seed=number)
    return queue.submit(cache, study, label=f"job {number}", arguments=arguments)


WAITS = [("auto", "cpu"), ("cpu", "cpu"), ("auto", "cuda"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1")]
GOES_ON = [("cpu", "cuda"), ("cuda:1", "cuda")]


@pytest.mark.parametrize(("job", "preview"), WAITS + GOES_ON)
def test_a_job_stops_the_preview_on_its_own_device(cache, job, preview):
    submitted(cache, job)
    expected = "live evaluation waits while a job is running: job 0" if (job, preview) in WAITS else ""
    assert blocking_job(cache, preview) == expected


def test_an_export_needs_no_gpu(cache):
    submitted(cache, "cuda", ("gguf", "folder", "out"))
    assert blocking_job(cache, "cuda") == "" != blocking_job(cache, "cpu")
