"""Readings take turns with previews and stay few; what is said of a difference, and when nothing can be."""

import itertools

import numpy as np
import pytest
from scipy import stats

from gprune.analysis.paired_test import Difference
from gprune.app.preview import NO_DIFFERENCE, Answer, verdict
from gprune.app.preview import token_requests as module
from gprune.app.preview.request import Question, Resolved
from gprune.app.preview.request_queue import CURVE, LOOK_SECONDS, PREVIEW, order
from gprune.app.preview.token_answers import Read, Written
from gprune.app.preview.token_requests import ModelRequest, TokenRequests
from gprune.app.preview.window_scheduler import WindowScheduler

MODEL = {"root": "/cache", "model": "m", "device": "cpu"}
TEXT = {"name": "t", "digest": "d", "length": 16, "windows": None, "batch": 8}
READ = {"pieces": [["a", 1, 1], ["b", 1, 1]], "losses": [1.5], "total": 9, "places": 64}


def reads(name, content=None):
    return ModelRequest(name, MODEL, content or {"read": {"typed": "a b"}}, None)


def writes(name, most=40):
    return ModelRequest(name, MODEL, {"write": {"prompt": "a", "most": most}}, None)


def window(name):
    return Resolved(name, Question("t"), MODEL, TEXT, None, None)


@pytest.fixture
def both():
    turns = itertools.count(1)
    return WindowScheduler(turns), TokenRequests(turns)


def serve(*request_queues, seconds=0.01):
    """What a worker is handed next, as the manager chooses, and answered at once; None where nothing is."""
    waiting = [(entry, request_queue) for request_queue in request_queues for entry in request_queue.open()]
    for entry, request_queue in sorted(waiting, key=lambda pair: order(pair[0])):
        item = request_queue.turn(entry)
        if item is None:
            continue
        sent = item.message
        if "write" in sent:
            ids = list(range(sent["tokens"]))
            reply = {"ids": ids, "text": "x", "ended": False, "read": 1, "total": 1}
        elif "read" in sent:
            reply = READ
        else:
            reply = {"losses": [3.0] * len(sent["numbers"])} if "numbers" in sent else {"windows": 24}
        request_queue.heard(item, reply, seconds)
        return sent
    return None


def test_readings_and_previews_take_turns_and_curves_wait(both):
    scheduler, token_requests = both
    scheduler.put([(window("curve"), window("dense"))], "me", CURVE, 0.0)
    scheduler.put([(window("now"), window("dense"))], "me", PREVIEW, 0.0)
    token_requests.put((reads("one"), reads("two")), "you", 0.0)
    token_requests.put((writes("three"),), "her", 0.0)
    sent = [serve(scheduler, token_requests, seconds=2.0) for _ in range(9)]
    assert [next(kind for kind in ("write", "read", "text") if kind in one) for one in sent] == [
        "text",
        "read",
        "write",
    ] + ["text", "read", "write"] + ["text", "write"] * 1 + ["text"]
    assert all(one["id"] != "curve" for one in sent)


def test_a_part_that_is_known_is_not_read_again_and_its_losses_have_no_first(both):
    _, token_requests = both
    first = token_requests.put((reads("dense"), reads("a")), "me", 0.0)
    assert [serve(token_requests)["id"] for _ in range(2)] == ["dense", "a"] and serve(token_requests) is None
    found = token_requests.look(first, 0.0)
    assert found.progress == "complete" and isinstance(found.found[0], Read)
    assert np.isnan(found.found[0].losses[0]) and found.found[0].losses[1] == 1.5 and found.found[0].total == 9
    second = token_requests.put((reads("dense"), reads("b")), "me", 0.0)
    assert token_requests.look(second, 0.0).found[0] is found.found[0]
    assert serve(token_requests)["id"] == "b" and serve(token_requests) is None


@pytest.mark.parametrize("seconds", [0.0, 0.4, 60.0])
def test_a_continuation_grows_alike_whatever_a_turn_takes_and_ends_at_its_length(both, seconds):
    _, token_requests = both
    asked = token_requests.put((writes("w", most=42),), "me", 0.0)
    counts = []
    while sent := serve(token_requests, seconds=seconds):
        counts.append(sent["tokens"])
        assert len(sent["ids"]) == sum(counts[:-1])
    # where a turn begins the model reads all anew, and rounds otherwise
    assert counts == [4] * 10 + [2]
    found = token_requests.look(asked, 0.0).found[0]
    assert isinstance(found, Written) and found.ended and len(found.ids) == 42


def test_a_newer_reading_drops_the_owners_older_and_nobody_looking_drops_all(both):
    _, token_requests = both
    old, other = token_requests.put((reads("a"),), "me", 0.0), token_requests.put((reads("b"),), "you", 0.0)
    new = token_requests.put((reads("c"),), "me", 1.0)
    assert [token_requests.look(one, 1.0).progress for one in (old, other, new)] == [
        "dropped",
        "open",
        "open",
    ]
    token_requests.expire(2.0 + LOOK_SECONDS)
    assert token_requests.open() == [] and token_requests.look(new, 40.0).progress == "open"


def test_what_fails_is_told_once_to_all_that_need_it_and_tried_again_later(both):
    _, token_requests = both
    asked = token_requests.put((reads("a"), reads("b")), "me", 0.0)
    item = token_requests.next(token_requests.open()[0].model)
    token_requests.fail(item, "the text is empty: type some words", 10.0)
    assert token_requests.look(asked, 1.0).problem.startswith("the text is empty")
    token_requests.put((reads("a"), reads("b")), "me", 2.0)
    assert token_requests.look(asked, 2.0).progress == "failed"
    token_requests.put((reads("a"), reads("b")), "me", 11.0)
    assert token_requests.look(asked, 11.0).progress == "open"


def test_what_is_kept_is_bounded(both, monkeypatch):
    _, token_requests = both
    monkeypatch.setattr(module, "MOST_ENTRIES", 3)
    monkeypatch.setattr(module, "MOST_PARTS", 4)
    for number in range(20):
        token_requests.put((reads(f"p{number}"),), "me", 0.0)
        serve(token_requests)
    # what came last is counted with the next question
    assert len(token_requests._entries) == 3 and len(token_requests._found) <= 4 + 1


def answer(losses, base, progress="open"):
    return Answer("id", "gprune", "text", progress, np.array(losses, float), np.array(base, float))


def test_only_windows_that_both_have_are_compared():
    rng = np.random.default_rng(0)
    first, second = rng.normal(3, 1, 30), rng.normal(3, 1, 30)
    partial = first.copy()
    partial[20:] = np.nan
    base = second.copy()
    base[:4] = np.nan
    found = answer(partial, base)
    assert (found.done, found.windows) == (16, 30)
    each = (first - second)[4:20]
    assert found.difference.nats == pytest.approx(each.mean())
    assert found.difference.nats_error == pytest.approx(stats.sem(each))
    assert found.perplexity == pytest.approx(np.exp(first[4:20].mean()))
    assert found.difference.change == pytest.approx(found.perplexity / found.base_perplexity - 1)


def test_what_is_claimed_of_few_windows_and_of_differences_whose_interval_holds_zero_or_does_not():
    found = answer([], [])
    assert found.difference is None and np.isnan(found.perplexity) and found.windows == 0
    assert found.verdict == "too early to tell"
    assert answer([np.nan] * 20, [1.0] * 20).verdict == "too early to tell: 0 of 20 windows"
    for nats in (0.195, -0.195):
        assert verdict(Difference(nats, 0.1, True), 20, 40) == NO_DIFFERENCE
    assert verdict(Difference(np.log(1.25), 0.01, True), 20, 40) == "perplexity 25.00 % higher (± 2.45 %)"
    assert verdict(Difference(np.log(0.9), 0.01, True), 20, 40) == "perplexity 10.00 % lower (± 1.76 %)"
    found = Difference(1.0, 0.01, True)
    assert verdict(found, 7, 40) == "too early to tell: 7 of 40 windows"
    assert verdict(found, 7, 7).startswith("perplexity 171.83 % higher")
    assert verdict(Difference(1.0, float("inf"), True), 1, 1) == NO_DIFFERENCE
