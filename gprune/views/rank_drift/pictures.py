"""The figures of the page by name, each from a run and what can be set beside its card."""

from __future__ import annotations

import plotly.graph_objects as go

from gprune import stages
from gprune.settings import require, require_choice
from gprune.views.frame import derived
from gprune.views.frame.loaders import Run
from gprune.views.frame.picture import in_range, picture
from gprune.views.frame.selection import NOTHING, Selection
from gprune.views.rank_drift import charts

SURVIVAL, HISTOGRAM = "survival", "histogram"
FINE = 200
"""bins behind the curve"""
BINS, MOST_BINS = 50, 1000


@picture("drift")
def drift(run: Run, *, form: str = SURVIVAL, bins: int = BINS, log: bool = False) -> go.Figure:
    """How many neurons move how far: as a curve, or as a histogram of some bins."""
    require_choice("form", form, (SURVIVAL, HISTOGRAM))
    require(1 <= bins <= MOST_BINS, "bins", bins, f"1 to {MOST_BINS}")
    curves = derived.drift_curves(run.root, run.key(stages.drift), bins if form == HISTOGRAM else FINE)
    return charts.histogram(curves, log) if form == HISTOGRAM else charts.survival(curves)


@picture("drift_by_layer")
def drift_by_layer(run: Run, *, selected: Selection = NOTHING) -> go.Figure:
    """Layer by drift bin: share of the layer's neurons."""
    return charts.layers(derived.drift_by_layer(run.root, run.key(stages.drift), 40), selected)


@picture("correlation")
def correlation(run: Run, *, selected: Selection = NOTHING) -> go.Figure:
    """Spearman correlation of the ranks in every layer."""
    return charts.correlations(derived.drift_layers(run.root, run.key(stages.drift)), selected)


@picture("ranks")
def ranks(run: Run, *, layer: int | None = None, selected: Selection = NOTHING) -> go.Figure:
    """Rank on A against rank on B of one layer: the middle one where none is named."""
    scores = [run.load(stages.scores, role).ffn for role in stages.PAIR]
    place = in_range("layer", layer, len(scores[0]))
    modules = run.load(stages.partition).labels[place] if run.has(stages.partition) else None
    return charts.joint(scores[0][place], scores[1][place], place, modules, selected)
