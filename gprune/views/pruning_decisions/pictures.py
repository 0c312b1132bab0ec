"""The figures of the page by name, each from a run and what can be set beside its card."""

from __future__ import annotations

import plotly.graph_objects as go

from gprune import stages
from gprune.analysis import decisions as analysis
from gprune.records import PruningMasks
from gprune.settings import require, require_choice
from gprune.views.frame import derived
from gprune.views.frame.chart_style import METHOD_LABELS
from gprune.views.frame.loaders import MissingResultError, Run
from gprune.views.frame.picture import picture
from gprune.views.frame.selection import NOTHING, Selection
from gprune.views.pruning_decisions import charts

BINS = 5
"""drift bins of the modules"""
MOST_BINS = 10


@picture("retention")
def retention(run: Run, *, base: str = "", bins: int = BINS) -> go.Figure:
    """Share of neurons kept by drift of the modules, GPrune's and a base method's."""
    named = base_of(run, base)
    return charts.retention(binned(run, named, bins), named)


@picture("overlap")
def overlap(run: Run, *, base: str = "", bins: int = BINS) -> go.Figure:
    """How far the neurons kept are those of a base method, by drift of the modules."""
    named = base_of(run, base)
    return charts.jaccard(binned(run, named, bins), named)


@picture("shares")
def shares(run: Run, *, base: str = "", bins: int = BINS) -> go.Figure:
    """How the neurons of a bin divide between GPrune and a base method."""
    named = base_of(run, base)
    return charts.shares(binned(run, named, bins), named)


@picture("neurons_kept")
def neurons_kept(run: Run, *, selected: Selection = NOTHING) -> go.Figure:
    """Share of each layer's neurons that every method keeps."""
    return charts.by_layer(drawn_masks(run), "neurons", selected)


@picture("groups_kept")
def groups_kept(run: Run, *, selected: Selection = NOTHING) -> go.Figure:
    """Share of each layer's key/value groups that every method keeps."""
    return charts.by_layer(drawn_masks(run), "heads", selected)


@picture("parts")
def parts(run: Run) -> go.Figure:
    """Share of the decisions that would be others without a part of GPrune."""
    return charts.acting(derived.acting(run))


@picture("explained")
def explained(run: Run) -> go.Figure:
    """Share of the drift's variance that lies between modules."""
    found = derived.acting(run).drift_explained
    return charts.explained(found)


def bases(run: Run) -> list[str]:
    """The masks that GPrune's can be held against."""
    return [name for name in run.masked if name != "gprune"]


def preferred(run: Run) -> str:
    """The method that decides by the run's own metric."""
    return {"twflap": "fang"}.get(run.study.metric, run.study.metric)


def base_of(run: Run, base: str) -> str:
    """The base method that is meant, where none is named.

    Raises:
        SettingsError: the run has no such masks.
        MissingResultError: it has none at all.
    """
    found = bases(run)
    if base and found:
        require_choice("base", base, tuple(found))
        return base
    if base:
        return base
    own = preferred(run)
    if not found:
        raise MissingResultError(stages.masks(run.graph, own).title)
    return own if own in found else found[0]


def binned(run: Run, base: str, bins: int) -> analysis.Bins:
    """Both methods by drift of the modules."""
    require(1 <= bins <= MOST_BINS, "bins", bins, f"1 to {MOST_BINS}")
    drift, partition = run.key(stages.drift), run.key(stages.partition)
    ours, other = run.key(stages.masks), run.key(stages.masks, base)
    return derived.decision_bins(run.root, drift, partition, ours, other, bins)


def drawn_masks(run: Run) -> dict[str, PruningMasks]:
    """The masks that are there, by method."""
    masks = {method: mask for method, mask in run.masks().items() if method in METHOD_LABELS}
    if not masks:
        raise MissingResultError(stages.masks(run.graph).title)
    return masks
