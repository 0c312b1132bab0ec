"""The figures of the page by name, each from a run and what can be set beside its card."""

from __future__ import annotations

import plotly.graph_objects as go

from gprune import stages
from gprune.analysis.headline import OURS
from gprune.records import Array
from gprune.views.frame import slope, story
from gprune.views.frame.loaders import MissingResultError, Run
from gprune.views.frame.picture import picture
from gprune.views.frame.selection import NOTHING, Selection
from gprune.views.help import charts

_HEIGHT = 300


@picture("neuron")
def neuron(run: Run, *, selected: Selection = NOTHING) -> go.Figure:
    """One neuron among those of its layer that move most: the selected one, or a telling one."""
    found = story.example_of(run, selected)
    return slope.slopes(story.movers_of(run, found.layer, found.neuron), _HEIGHT, found.neuron)


@picture("kept_by_both")
def kept_by_both(run: Run) -> go.Figure:
    """Neurons kept by GPrune, by the method that it is held against, and by both."""
    other = story.rival(run)
    if other is None:
        raise MissingResultError(stages.masks(run.graph).title)
    ours, base = (run.load(stages.masks, name).ffn for name in (OURS, other))
    return shared(ours, base, other)


def shared(ours: Array, base: Array, other: str) -> go.Figure:
    """The figure from the masks of both methods."""
    both = int((ours & base).sum())
    return charts.kept(both, int(ours.sum()) - both, int(base.sum()) - both, other)
