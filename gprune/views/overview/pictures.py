"""The figures of the page by name, each from a run and what can be set beside its card."""

from __future__ import annotations

import plotly.graph_objects as go

from gprune.analysis import cost as analysis
from gprune.views.frame import derived, slope, story
from gprune.views.frame.loaders import MissingResultError, Run
from gprune.views.frame.picture import picture
from gprune.views.frame.selection import NOTHING, Selection
from gprune.views.overview import charts


@picture("layers")
def layers(run: Run, *, selected: Selection = NOTHING) -> go.Figure:
    """Drift, agreement and retention of every layer as one heat map."""
    return charts.strip(derived.layer_strip(run), selected)


@picture("movers")
def movers(run: Run, *, selected: Selection = NOTHING) -> go.Figure:
    """The neurons whose rank moves most, in the selected layer or else in the one that drifts most."""
    found = story.movers_of(run, selected.layer, selected.neuron)
    return slope.slopes(found, charts.FIRST_SCREEN, selected.neuron)


@picture("noise")
def noise(run: Run) -> go.Figure:
    """The drift beside what sampling alone does."""
    return charts.survival(story.curves(run))


@picture("cost")
def cost(run: Run) -> go.Figure:
    """Perplexity of every method on a text that was not calibrated on, where there is one."""
    found = analysis.costs(story.on_unseen(run)[1])
    if not found:
        raise MissingResultError("the perplexity of the dense model")
    return charts.costs(found)
