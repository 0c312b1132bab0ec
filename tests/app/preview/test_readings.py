"""Readings take turns with previews, share what is the same, grow by as many tokens a turn, and stay few."""

import itertools

import numpy as np
import pytest

from gprune.app.preview import token_requests as module
from gprune.app.preview.request import Question, Resolved
from gprune.app.preview.request_queue import LOOK_SECONDS, order
from gprune.app.preview.token_requests import Part, Read, Readings, Written
from gprune.app.preview.window_scheduler import CURVE, PREVIEW, Agenda

MODEL = {"root": "/cache", "model": "m", "device": "cpu"}
TEXT = {"name": "t", "digest": "d", "length": 16, "windows": None, "batch": 8}
READ = {"pieces": [["a", 1, 1], ["b", 1, 1]], "losses": [1.5], "total": 9, "places": 64}


def reads(name, content=None):
    return Part(name, MODEL, content or {"read": {"typed": "a b"}}, None)


def writes(name, most=40):
    return Part(name, MODEL, {"write": {"prompt": "a", "most": most}}, None)


def window(name):
    return Resolved(name, Question("t"), MODEL, TEXT, None, None)


@pytest.fixture
def both():
    turns = itertools.count(1)
    return Agenda(turns), Readings(turns)


def serve(*dockets, seconds=0.01):
    """What a worker is handed next, as the manager chooses, and answered at once; None where nothing is."""
    waiting = [(entry, docket) for docket in dockets for entry in docket.open()]
    for entry, docket in sorted(waiting, key=lambda pair: order(pair[0])):
        item = docket.turn(entry)
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
        docket.heard(item, reply, seconds)
        return sent
    return None


def kind(sent):
    return next(name for name in ("write", "read", "text") if name in sent)


def test_readings_and_previews_take_turns_and_curves_wait(both):
    agenda, readings = both
    agenda.put([(window("curve"), window("dense"))], "me", CURVE, 0.0)
    agenda.put([(window("now"), window("dense"))], "me", PREVIEW, 0.0)
    readings.put((reads("one"), reads("two")), "you", 0.0)
    readings.put((writes("three"),), "her", 0.0)
    sent = [serve(agenda, readings, seconds=2.0) for _ in range(9)]
    assert [kind(one) for one in sent] == ["text", "read", "write"] + ["text", "read", "write"] + [
        "text",
        "write",
    ] * 1 + ["text"]
    assert all(one["id"] != "curve" for one in sent)


def test_a_part_that_is_known_is_not_read_again_and_its_losses_have_no_first(both):
    _, readings = both
    first = readings.put((reads("dense"), reads("a")), "me", 0.0)
    assert [serve(readings)["id"] for _ in range(2)] == ["dense", "a"] and serve(readings) is None
    found = readings.look(first, 0.0)
    assert found.progress == "complete" and isinstance(found.found[0], Read)
    assert (
        np.isnan(found.found[0].losses[0]) and found.found[0].losses[1] == 1.5 and found.found[0].total == 9
    )
    second = readings.put((reads("dense"), reads("b")), "me", 0.0)
    assert readings.look(second, 0.0).found[0] is found.found[0]
    assert serve(readings)["id"] == "b" and serve(readings) is None


@pytest.mark.parametrize("seconds", [0.0, 0.4, 60.0])
def test_a_continuation_grows_alike_whatever_a_turn_takes_and_ends_at_its_length(both, seconds):
    _, readings = both
    asked = readings.put((writes("w", most=42),), "me", 0.0)
    counts = []
    while sent := serve(readings, seconds=seconds):
        counts.append(sent["tokens"])
        assert len(sent["ids"]) == sum(counts[:-1])
    # where a turn begins the model reads all anew, and rounds otherwise
    assert counts == [4] * 10 + [2]
    found = readings.look(asked, 0.0).found[0]
    assert isinstance(found, Written) and found.ended and len(found.ids) == 42


def test_a_newer_reading_drops_the_owners_older_and_nobody_looking_drops_all(both):
    _, readings = both
    old, other = readings.put((reads("a"),), "me", 0.0), readings.put((reads("b"),), "you", 0.0)
    new = readings.put((reads("c"),), "me", 1.0)
    assert [readings.look(one, 1.0).progress for one in (old, other, new)] == ["dropped", "open", "open"]
    readings.expire(2.0 + LOOK_SECONDS)
    assert readings.open() == [] and readings.look(new, 40.0).progress == "open"


def test_what_fails_is_told_once_to_all_that_need_it_and_tried_again_later(both):
    _, readings = both
    asked = readings.put((reads("a"), reads("b")), "me", 0.0)
    item = readings.next(readings.open()[0].model)
    readings.fail(item, "the text is empty: type some words", 10.0)
    assert readings.look(asked, 1.0).problem.startswith("the text is empty")
    readings.put((reads("a"), reads("b")), "me", 2.0)
    assert readings.look(asked, 2.0).progress == "failed"
    readings.put((reads("a"), reads("b")), "me", 11.0)
    assert readings.look(asked, 11.0).progress == "open"


def test_what_is_kept_is_bounded(both, monkeypatch):
    _, readings = both
    monkeypatch.setattr(module, "MOST_ENTRIES", 3)
    monkeypatch.setattr(module, "MOST_PARTS", 4)
    for number in range(20):
        readings.put((reads(f"p{number}"),), "me", 0.0)
        serve(readings)
    # what came last is counted with the next question
    assert len(readings._entries) == 3 and len(readings._found) <= 4 + 1
