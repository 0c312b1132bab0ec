"""The figures of the page by name, each from a run and what can be set beside its card."""

from __future__ import annotations

import plotly.graph_objects as go

from gprune import records, stages
from gprune.analysis import agreement as analysis
from gprune.comparisons import COMPARISONS
from gprune.modularization.agreement import contingency
from gprune.settings import require_choice
from gprune.views.frame import marks
from gprune.views.frame.loaders import AGREEMENT_TITLE, MissingResultError, Run
from gprune.views.frame.picture import in_range, picture
from gprune.views.frame.selection import NOTHING, Selection
from gprune.views.module_agreement import charts

MOST_MODULES = 24
"""modules of a confusion matrix that are shown by themselves"""
MEASURES = {"ari": "Adjusted Rand Index", "overlap": "Matched overlap"}


@picture("agreement")
def agreement(
    run: Run, *, measure: str = "ari", comparisons: tuple[str, ...] = (), selected: Selection = NOTHING
) -> go.Figure:
    """How far the modules of every layer agree; without comparisons those of the paper."""
    found = run.agreement()
    require_choice("measure", measure, tuple(MEASURES))
    for name in comparisons:
        require_choice("comparisons", name, found.comparisons)
    wanted = comparisons or analysis.default_choice(found.comparisons, run.study.metric)
    chosen = [name for name in found.comparisons if name in wanted] or list(found.comparisons)
    return charts.lines(found, measure, chosen, selected)


@picture("shared_neurons")
def shared_neurons(run: Run, *, comparison: str = "", layer: int | None = None) -> go.Figure:
    """Which modules of two partitions share their neurons, in the middle layer where none is named."""
    there = both_sides(run)
    if not there:
        raise MissingResultError(AGREEMENT_TITLE)
    name = comparison or next(iter(there))
    require_choice("comparison", name, tuple(there))
    first, second = there[name]
    place = in_range("layer", layer, len(first.counts))
    labels = COMPARISONS[name].first.label, COMPARISONS[name].second.label
    return charts.confusion(confusion(first, second, place), *labels)


@picture("module_counts")
def module_counts(run: Run, *, selected: Selection = NOTHING) -> go.Figure:
    """How many modules each layer has."""
    figure = charts.counts(run.load(stages.partition))
    marks.layer_line(figure, selected)
    return figure


def both_sides(run: Run) -> dict[str, tuple[records.Partition, records.Partition]]:
    """The two partitions of every comparison of which both are there."""
    sides = {name: sides_of(run, name) for name in run.agreement().comparisons}
    return {name: found for name, found in sides.items() if found is not None}


def sides_of(run: Run, name: str) -> tuple[records.Partition, records.Partition] | None:
    """The two partitions of a comparison; None where one is not there."""
    comparison = COMPARISONS[name]
    found = [stages.side(run.graph, one) for one in (comparison.first, comparison.second)]
    if not all(run.there(stage) for stage in found):
        return None
    return run.read(found[0]), run.read(found[1])


def confusion(first: records.Partition, second: records.Partition, layer: int) -> analysis.Confusion:
    """How the modules of a layer share their neurons."""
    return analysis.confusion(contingency(first.labels[layer], second.labels[layer]), MOST_MODULES)
