"""The last slide: the retention curve, measured and live, with the line of the chosen retention."""

import base64

import numpy as np
import pytest
from app_driver import charts, opened
from fake_pool import FakePool
from synthetic_run import the_run

from gprune.app.pages.rasa import RETENTIONS
from gprune.app.ui import story
from gprune.app.ui.slides import SLIDES
from gprune.pipeline import stages

pytestmark = pytest.mark.slow
LAST = str(len(SLIDES))


@pytest.fixture
def pool(monkeypatch, name):
    """A model loses 0.1 / retention nats more than the dense one, alternating by 0.01."""
    base, wiggle = np.linspace(3, 5, 40), np.tile([0.01, -0.01], 20)
    created = FakePool(lambda question, _: (base + 0.1 / question.masks.retention + wiggle, base))
    return created.installed(monkeypatch)


def curve(app):
    """The points of GPrune, as retention and perplexity, and the figure."""
    (figure,) = charts(app)
    gprune = next(trace for trace in figure["data"] if trace["name"].startswith("GPrune"))
    return list(map(float, gprune["x"])), values(gprune["y"]), figure


def values(entries):
    """The numbers of a trace, which Plotly may send as bytes."""
    if isinstance(entries, dict):
        return np.frombuffer(base64.b64decode(entries["bdata"]), entries["dtype"]).tolist()
    return [float(entry) for entry in entries]


def heading(app):
    return next(item.value for item in app.markdown if item.value.startswith("# ")).replace("\\", "")


def test_the_curve_has_live_points_of_gprune_and_its_rival_and_the_sentence_follows_the_slider(pool, cache):
    app = opened(slide=LAST)
    (levels, perplexities, _), run = curve(app), the_run(cache)
    text, _ = story.headline_results(run)
    assert {question.text for question, _ in pool.asked} == {text}
    assert {question.method for question, _ in pool.asked} == {"gprune", story.main_baseline(run)}
    assert not app.exception and not app.error and "At 50% retention" in heading(app)
    assert levels == sorted({*RETENTIONS, run.study.retention})
    app = opened(slide=LAST, rasa_keep="0.35")
    ends = [value for level, value in zip(levels, perplexities, strict=True) if level in (0.3, 0.4)]
    # halfway between two points on the log axis
    assert f"to about {np.sqrt(np.prod(ends)):.1f} with GPrune" in heading(app)
    assert heading(app).startswith("# At 35% retention")


def test_a_pack_without_its_model_shows_what_the_run_measured(pool, cache, monkeypatch):
    monkeypatch.setattr("gprune.app.ui.run_status.missing_inputs", lambda run: "Needs the model.")
    app, run = opened(slide=LAST), the_run(cache)
    text, _ = story.headline_results(run)
    expected = run.load(stages.perplexity, "gprune", text).perplexity
    assert not pool.asked and curve(app)[1] == [pytest.approx(expected, rel=1e-6)]
    assert "perplexity on" in heading(app) and "is not known" in heading(opened(slide=LAST, rasa_keep="0.35"))
