"""The lab and the tab Mask editor with their weights repaired: what is asked and shown, in which words."""

import numpy as np
import pytest
from app_driver import plain_words, show
from fake_pool import FakePool

from gprune.app.preview import Answer, Question, WorkerState
from gprune.app.ui import asking

pytestmark = pytest.mark.slow

WORSE, REPAIRED, BY_BASE = 0.2, 0.35, 0.25
"""nats that the masks cost, that their repair gains, and that the repair of the base gains"""


def losses_of(question):
    """Other masks lose more on every window, and repaired ones less."""
    dense = 4 + np.random.default_rng(0).normal(0, 0.5, 40)
    if question.method == "dense":
        return dense
    is_run = question.masks is None
    noise = np.random.default_rng(1 + is_run + 2 * bool(question.repair)).normal(0, 0.01, 40)
    gain = (BY_BASE if is_run else REPAIRED) if question.repair else 0.0
    return dense + 0.5 + (0 if is_run else WORSE) - gain + noise


@pytest.fixture
def pool(monkeypatch):
    created = FakePool(lambda question, base: (losses_of(question), losses_of(base or Question("", "dense"))))
    return created.installed(monkeypatch)


def difference(pool, ending):
    """The difference, in nats, that was asked for under a name that ends so."""
    return pool.latest(next(name for name in pool.names if name.endswith(ending))).difference


def test_the_labs_choice_is_shown_before_and_after_its_repair_against_the_run_repaired_alike(cache, pool):
    address = {"rasa_live": "1", "rasa_keep": "0.4"}
    app = show("rasa", cache, address)
    assert not any(question.repair for question, _ in pool.asked)
    app.toggle(key="rasa_repair_toggle").set_value(True).run()
    after = [(question, base) for question, base in pool.asked if question.repair]
    texts = {question.text for question, _ in pool.asked}
    assert len(after) == 3 * len(texts)
    for question, base in after:
        assert (question.repair.kind, question.repair.texts) == ("least_squares_bias", "both")
        assert base.repair == (question.repair if (question.masks is None) != (base.masks is None) else None)
    message = plain_words(app)
    assert "Repaired by least squares with a bias on A and B, fitted to both sets of masks" in message
    gain, base_gain = (difference(pool, location) for location in (":gain", ":base gain"))
    assert gain.nats == pytest.approx(-REPAIRED, abs=0.01)
    assert f"The repair: perplexity {-gain.change:.2%}" in message
    assert f"for this run: perplexity {-base_gain.change:.2%}" in message
    both = difference(pool, ":repaired")
    assert both.nats == pytest.approx(WORSE - REPAIRED + BY_BASE, abs=0.01)
    assert f"{both.nats:+.4f} ± {both.nats_margin:.4f} nats/token, 95% interval, paired over windows" in message
    titles = [metric.label for metric in app.metric]
    assert [title for title in titles if title.startswith("repaired, on")] == [
        f"repaired, on {text}".replace("-", "\\-") for text in ("python-reference", "science-docs")
    ]
    assert not app.exception and not app.error


def test_the_dense_model_has_no_weights_to_repair(cache, pool):
    show("rasa", cache, {"rasa_live": "1", "rasa_against": "dense", "rasa_repair": "1"})
    assert not any(question.method == "dense" for question, _ in pool.asked)
    bases = {(base.method, base.repair) for question, base in pool.asked if base and question.repair}
    assert ("dense", None) in bases and not any(repair for _, repair in bases)


def test_what_is_being_fitted_is_a_bar_with_its_layer(cache, pool):
    pool.progress = "open"
    pool.status = WorkerState("fitting", "The worker is repairing the kept weights: layer 3 of 6", 1, 1 / 3)
    app = show("rasa", cache, {"rasa_live": "1", "rasa_repair": "1"})
    (bar,) = app.get("progress")
    assert bar.proto.text.replace("\\", "") == pool.status.reason and bar.proto.value == 33


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
