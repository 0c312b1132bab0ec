"""Which windows come next: previews first, curves in turn, nothing for those who have gone."""

import numpy as np
import pytest

from gprune.app.preview.request import Question, Resolved
from gprune.app.preview.request_queue import CURVE, LOOK_SECONDS, PREVIEW
from gprune.app.preview.window_scheduler import WindowScheduler, visiting_order

WINDOWS = 24
MODEL = {"root": "/cache", "model": "m", "device": "cpu"}


def asked(name, stored=None, model="m"):
    text = {"name": "t", "digest": "d", "length": 16, "windows": None, "batch": 8}
    return Resolved(name, Question("t"), {**MODEL, "model": model}, text, None, stored)


DENSE = asked("dense", np.linspace(1, 2, WINDOWS))


def serve(scheduler, value=3.0, seconds=0.01):
    """Lets a worker do what comes next: every loss is `value`."""
    item = scheduler.next(asked("any").model_key)
    if item is None:
        return None
    if item.numbers is None:
        scheduler.counted(item, WINDOWS)
    else:
        scheduler.record(item, [value] * len(item.numbers), seconds)
    return item


@pytest.fixture
def scheduler():
    return WindowScheduler()


def test_a_question_refines_until_it_is_complete(scheduler):
    (identity,) = scheduler.put([(asked("a"), DENSE)], "me", PREVIEW, 0.0)
    done = []
    while serve(scheduler):
        answer = scheduler.look(identity, 0.0)
        done.append(answer.done)
    assert done == [2, 10, 18, 24] and answer.progress == "complete"
    assert answer.difference.nats == pytest.approx(3.0 - 1.5)
    assert answer.base_perplexity == pytest.approx(np.exp(1.5)) and answer.perplexity == pytest.approx(np.exp(3))


def test_stored_losses_need_no_worker_and_the_first_windows_are_the_same_for_all(scheduler):
    (identity,) = scheduler.put([(asked("own", np.full(WINDOWS, 2.0)), DENSE)], "me", PREVIEW, 0.0)
    assert scheduler.look(identity, 0.0).progress == "complete" and not scheduler.open()
    order = visiting_order(80)
    assert sorted(order) == list(range(80)) and np.array_equal(order, visiting_order(80))
    assert order[:8].min() < 20 and order[:8].max() >= 60
    (identity,) = scheduler.put([(asked("a"), DENSE)], "me", PREVIEW, 0.0)
    serve(scheduler)
    assert set(np.flatnonzero(np.isfinite(scheduler.look(identity, 0.0).losses))) == set(visiting_order(WINDOWS)[:2])


def test_a_base_that_is_not_stored_is_measured_on_the_same_windows_and_once(scheduler):
    pairs = [(asked(name), asked("base")) for name in "ab"]
    first, second = scheduler.put(pairs, "me", CURVE, 0.0)
    items = []
    while item := serve(scheduler):
        items.append(item)
        for identity in (first, second):
            answer = scheduler.look(identity, 0.0)
            assert answer.done <= np.isfinite(answer.losses).sum()
    assert items[0].numbers is None
    measured = {name: [] for name in ("a", "b", "base")}
    for item in items[1:]:
        measured[item.asked.identity].extend(item.numbers)
    assert all(sorted(numbers) == list(range(WINDOWS)) for numbers in measured.values())
    assert scheduler.look(first, 0.0).difference.nats == 0.0


def test_a_newer_preview_drops_the_older_of_its_owner_only(scheduler):
    old, other = (scheduler.put([(asked(n), DENSE)], n, PREVIEW, 0.0)[0] for n in ("me", "you"))
    serve(scheduler)
    (new,) = scheduler.put([(asked("newer"), DENSE)], "me", PREVIEW, 1.0)
    assert [scheduler.look(i, 1.0).progress for i in (old, other, new)] == ["dropped", "open", "open"]
    while item := serve(scheduler):
        assert item.asked.identity != "me"
    # what was measured stays, and asking again takes it up
    kept = scheduler.look(old, 1.0)
    assert kept.progress == "dropped" and kept.done == 2
    assert scheduler.put([(asked("me"), DENSE)], "me", PREVIEW, 2.0) == [old]
    item = serve(scheduler)
    assert len(item.numbers) == 8 and scheduler.look(old, 2.0).done == 10


def test_what_two_owners_ask_goes_on_when_one_leaves(scheduler):
    ids = {scheduler.put([(asked("same"), DENSE)], owner, PREVIEW, 0.0)[0] for owner in ("me", "you")}
    scheduler.put([(asked("newer"), DENSE)], "me", PREVIEW, 0.0)
    assert len(ids) == 1 and scheduler.look(ids.pop(), 0.0).progress == "open"


def test_points_of_a_curve_take_turns_behind_every_preview(scheduler):
    points = scheduler.put([(asked(f"p{i}"), DENSE) for i in range(3)], "me", CURVE, 0.0)
    turns = [serve(scheduler).asked.identity for _ in range(6)]
    assert turns[:3] == turns[3:] == ["p0", "p1", "p2"]
    scheduler.put([(asked("now"), DENSE)], "me", PREVIEW, 0.0)
    assert {serve(scheduler).asked.identity for _ in range(3)} == {"now"}
    assert serve(scheduler).asked.identity == "p0"
    # a new curve takes the place of the old one; its preview goes on
    scheduler.put([(asked("p1"), DENSE), (asked("p9"), DENSE)], "me", CURVE, 0.0)
    assert [scheduler.look(point, 0.0).progress for point in points] == ["dropped", "open", "dropped"]


def test_a_batch_takes_half_a_second_whatever_the_model(scheduler):
    scheduler.put([(asked("a"), DENSE)], "me", PREVIEW, 0.0)
    sizes = [len(serve(scheduler, seconds=0.25 * 2).numbers)]
    sizes += [len(serve(scheduler, seconds=2.0 * sizes[-1]).numbers) for _ in range(3)]
    assert sizes == [2, 2, 1, 1]


def test_nobody_looks_nothing_is_done_and_looking_again_takes_it_up(scheduler):
    (identity,) = scheduler.put([(asked("a"), DENSE)], "me", PREVIEW, 0.0)
    scheduler.expire(LOOK_SECONDS)
    assert len(scheduler.open()) == 1
    scheduler.expire(LOOK_SECONDS + 1)
    assert serve(scheduler) is None
    assert scheduler.look(identity, LOOK_SECONDS + 2).progress == "open" and serve(scheduler) is not None


def test_a_question_that_fails_takes_no_other_with_it_and_is_tried_again_later(scheduler):
    bad, good = scheduler.put([(asked(n), DENSE) for n in ("bad", "good")], "me", CURVE, 0.0)
    item = scheduler.next(asked("any").model_key)
    scheduler.fail(item, "layer 1 would lose all", 10.0)
    answer = scheduler.look(bad, 0.0)
    assert (answer.progress, answer.problem) == ("failed", "layer 1 would lose all")
    assert scheduler.look(good, 0.0).progress == "open"
    scheduler.put([(asked("bad"), DENSE)], "me", CURVE, 5.0)
    assert scheduler.look(bad, 5.0).progress == "failed"
    scheduler.put([(asked("bad"), DENSE)], "me", CURVE, 11.0)
    assert (scheduler.look(bad, 11.0).progress, scheduler.look(bad, 11.0).problem) == ("open", "")


def test_a_model_that_fails_fails_every_new_question_for_a_while_and_no_other_model(scheduler):
    (other,) = scheduler.put([(asked("o", model="other"), DENSE)], "you", PREVIEW, 0.0)
    scheduler.put([(asked("a"), DENSE)], "me", PREVIEW, 0.0)
    scheduler.fail_model(asked("a").model_key, "it is gone", 10.0)
    (late,) = scheduler.put([(asked("b"), DENSE)], "me", PREVIEW, 9.0)
    assert scheduler.look(late, 9.0).problem == "it is gone"
    assert scheduler.look(other, 9.0).progress == "open"
    scheduler.put([(asked("b"), DENSE)], "me", PREVIEW, 11.0)
    assert scheduler.look(late, 11.0).progress == "open"
    assert scheduler.look("never asked", 0.0) is None
