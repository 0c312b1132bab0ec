"""The lab and the tab Mask editor with their weights repaired: what is asked and shown, in which words."""

import numpy as np
import pytest
from app_driver import show, words

from gprune.app import preview
from gprune.app.preview import Answer, WorkerState
from gprune.app.ui import asking

pytestmark = pytest.mark.slow

WORSE, REPAIRED, BY_BASE = 0.2, 0.35, 0.25
"""nats that the masks cost, that their repair gains, and that the repair of the base gains"""


class RepairingPool:
    """Answers at once: other masks lose more on every window, and repaired ones less."""

    def __init__(self):
        self.asked, self.state_ = {}, WorkerState("warm")

    def ask(self, source, question, owner, base=None):
        return self.ask_many(source, [question], owner, base)[0]

    def ask_many(self, source, questions, owner, base=None):
        names = [f"{owner} {location}" for location in range(len(questions))]
        self.asked |= {name: (question, base) for name, question in zip(names, questions, strict=True)}
        return names

    def latest(self, identity):
        question, base = self.asked[identity]
        sides = [self.losses(item) for item in (question, base or preview.Question(question.text, "dense"))]
        return Answer(identity, question.method, question.text, "complete", *sides)

    def losses(self, question):
        if question.method == "dense":
            return 4 + np.random.default_rng(0).normal(0, 0.5, 40)
        is_run = question.masks is None
        dense = self.losses(preview.Question(question.text, "dense"))
        noise = np.random.default_rng(1 + is_run + 2 * bool(question.repair)).normal(0, 0.01, 40)
        gain = (BY_BASE if is_run else REPAIRED) if question.repair else 0.0
        return dense + 0.5 + (0 if is_run else WORSE) - gain + noise

    def state(self, source):
        return self.state_


@pytest.fixture
def pool(monkeypatch):
    created = RepairingPool()
    monkeypatch.setattr(preview, "pool", lambda: created)
    return created


def differences(pool, ending):
    """Of the answers that end so, in nats, by the end of the owner's name."""
    return next(pool.latest(name).difference for name in pool.asked if ending in name)


def test_the_labs_choice_is_shown_before_and_after_its_repair_against_the_run_repaired_alike(cache, pool):
    address = {"rasa_live": "1", "rasa_keep": "0.4"}
    app = show("reliability", cache, address)
    assert not any(question.repair for question, _ in pool.asked.values())
    app.toggle(key="rasa_repair_toggle").set_value(True).run()
    after = [(question, base) for question, base in pool.asked.values() if question.repair]
    texts = {question.text for question, _ in pool.asked.values()}
    assert len(after) == 3 * len(texts)
    for question, base in after:
        assert (question.repair.kind, question.repair.texts) == ("least_squares_bias", "both")
        assert base.repair == (question.repair if (question.masks is None) != (base.masks is None) else None)
    message = words(app).replace("\\", "")
    assert "Repaired by least squares with a bias on A and B, fitted to both sets of masks" in message
    gain, base_gain = (differences(pool, location) for location in (":gain", ":base gain"))
    assert gain.nats == pytest.approx(-REPAIRED, abs=0.01)
    assert f"The repair: perplexity {-gain.change:.2%}" in message
    assert f"for this run: perplexity {-base_gain.change:.2%}" in message
    both = differences(pool, ":repaired")
    assert both.nats == pytest.approx(WORSE - REPAIRED + BY_BASE, abs=0.01)
    assert f"{both.nats:+.4f} ± {both.nats_margin:.4f} nats/token, 95% interval, paired over windows" in message
    titles = [metric.label for metric in app.metric]
    assert [title for title in titles if title.startswith("repaired, on")] == [
        f"repaired, on {text}".replace("-", "\\-") for text in ("python-reference", "science-docs")
    ]
    assert not app.exception and not app.error


def test_the_dense_model_has_no_weights_to_repair(cache, pool):
    show("reliability", cache, {"rasa_live": "1", "rasa_against": "dense", "rasa_repair": "1"})
    assert not any(question.method == "dense" for question, _ in pool.asked.values())
    bases = {(base.method, base.repair) for question, base in pool.asked.values() if base and question.repair}
    assert ("dense", None) in bases and not any(repair for _, repair in bases)


def test_what_is_being_fitted_is_a_bar_with_its_layer(cache, pool, monkeypatch):
    pool.state_ = WorkerState("fitting", "The worker is repairing the kept weights: layer 3 of 6", 1, 1 / 3)
    full = pool.latest

    def open_(identity):
        result = full(identity)
        return Answer(result.identity, result.method, result.text, "open", result.losses, result.base)

    monkeypatch.setattr(pool, "latest", open_)
    app = show("reliability", cache, {"rasa_live": "1", "rasa_repair": "1"})
    (bar,) = app.get("progress")
    assert bar.proto.text.replace("\\", "") == pool.state_.reason and bar.proto.value == 33


def test_the_sentence_says_what_is_within_the_noise_and_what_is_too_early():
    base = np.linspace(3, 5, 40)
    wiggle = np.tile([0.01, -0.01], 20)

    def answer(change, done=40):
        losses = base + change + wiggle
        losses[done:] = np.nan
        return Answer("a", "gprune", "t", "open", losses, base)

    message = asking.describe_gain(answer(0.0), answer(-0.5), answer(0.0), "FLAP itself")
    assert message.startswith("**The repair: perplexity 39.3") and "lower (± " in message
    assert "; for FLAP itself: no measurable difference (" in message
    assert message.endswith(". Both repaired: no measurable difference.")
    early = asking.describe_gain(answer(0.0), answer(-0.5, 3), None, "the dense model")
    assert early == "**The repair: too early to tell: 3 of 40 windows**."
    assert "Measuring" in asking.describe_gain(answer(0.0), None, None, "x")
