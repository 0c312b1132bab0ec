"""The last slide: the retention curve, measured and live, with the line of the chosen retention."""

import json

import numpy as np
import pytest
from app_driver import opened
from synthetic_run import the_run

from gprune.app import preview
from gprune.app.pages.rasa.curve_card import RETENTIONS
from gprune.app.preview import Answer, State
from gprune.app.ui import story
from gprune.app.ui.tour import STEPS
from gprune.pipeline import stages

pytestmark = pytest.mark.slow
LAST = str(len(STEPS))


class AnsweringPool:
    """Answers at once: a model loses 0.1 / retention nats more than the dense one, alternating by 0.01."""

    def __init__(self):
        self.questions = []

    def ask_many(self, source, questions, owner, base=None):
        self.questions = list(questions)
        return [str(number) for number in range(len(questions))]

    def latest(self, identity):
        question = self.questions[int(identity)]
        base = np.linspace(3, 5, 40)
        losses = base + 0.1 / question.masks.retention + np.tile([0.01, -0.01], 20)
        return Answer(identity, question.method, question.text, "complete", losses, base)

    def state(self, source):
        return State("warm")


@pytest.fixture
def pool(monkeypatch, name):
    made = AnsweringPool()
    monkeypatch.setattr(preview, "pool", lambda: made)
    return made


def curve(app):
    sent = [json.loads(item.proto.json) for item in app.get("bidi_component")]
    return next(one for one in sent if "series" in one)


def test_the_curve_has_live_points_of_gprune_and_its_rival_and_the_line_stands_at_the_run(pool, cache):
    app = opened(tour=LAST, present="1")
    sent, run = curve(app), the_run(cache)
    text, _ = story.on_unseen(run)
    assert {question.text for question in pool.questions} == {text}
    assert {question.method for question in pool.questions} == {"gprune", story.rival(run)}
    assert sent["fills"] and sent["retention"] == run.study.retention and not app.exception and not app.error
    (points,) = (one["points"] for one in sent["series"] if one["name"] == "GPrune")
    assert [point["x"] for point in points] == sorted({*RETENTIONS, run.study.retention})
    (masks,) = (question.masks for question in pool.questions[:1])
    assert points[0]["y"] == pytest.approx(sent["dense"] * np.exp(0.1 / masks.retention))
    assert curve(opened(tour=LAST, present="1", rasa_keep="0.3"))["retention"] == 0.3


def test_a_pack_without_its_model_shows_what_the_run_measured(pool, cache, monkeypatch):
    monkeypatch.setattr("gprune.app.ui.packed.lacking", lambda run: "Needs the model.")
    app, run = opened(tour=LAST, present="1"), the_run(cache)
    text, _ = story.on_unseen(run)
    (points,) = (one["points"] for one in curve(app)["series"] if one["name"] == "GPrune")
    expected = run.load(stages.perplexity, "gprune", text).perplexity
    assert not pool.questions and [point["y"] for point in points] == [pytest.approx(expected, rel=1e-6)]
