"""The figures of the page by name, each from a run and what can be set beside its card."""

import pandas as pd

from gprune import records
from gprune.analysis import agreement as analysis
from gprune.analysis.formatting import percent
from gprune.analysis.verdict import agreement_title
from gprune.app.pages.module_agreement import charts
from gprune.app.ui import marks
from gprune.app.ui.panel import Panel, in_range, panel
from gprune.app.ui.text import plain
from gprune.app.ui.unit import NOTHING, Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import AGREEMENT_TITLE, MissingResultError, Run
from gprune.pipeline.stages.comparisons import COMPARISONS
from gprune.pruning.modules.agreement import contingency, matched_overlap
from gprune.study.settings import require_choice

MOST_MODULES = 24
"""modules of a confusion matrix that are shown by themselves"""
MEASURES = {"ari": "Adjusted Rand Index", "overlap": "Matched overlap"}
_CAPTIONS = {
    "ari": "0 is what chance gives, 1 are identical modules; legend: mean ± standard deviation over layers.",
    "overlap": "Share of neurons that keep their module; legend: mean ± standard deviation over layers.",
}
_HOW = {
    "ari": "Adjusted Rand Index of two partitions of a layer: 0 is chance, 1 identical.",
    "overlap": "Share of neurons that keep their module after the best one-to-one matching of modules. It is "
    "not corrected for chance, which is higher where there are fewer modules.",
}
_CONTROLS = (
    "Dashed and hollow: controls. The same texts with another seed of k-means say how much of the agreement "
    "the shared seed makes; the start of the modularization alone says what its refinement adds."
)


@panel(
    "agreement",
    "ma_lines",
    "Agreement of the modules, layer by layer",
    reads={"measure": "ma_measure", "comparisons": "ma_pairs"},
)
def agreement(
    run: Run, *, measure: str = "ari", comparisons: tuple[str, ...] = (), selected: Selection = NOTHING
) -> Panel:
    """How far the modules of every layer agree; without comparisons those of the paper."""
    found = run.agreement()
    require_choice("measure", measure, tuple(MEASURES))
    for name in comparisons:
        require_choice("comparisons", name, found.comparisons)
    wanted = comparisons or analysis.default_choice(found.comparisons, run.study.metric)
    chosen = [name for name in found.comparisons if name in wanted] or list(found.comparisons)
    return Panel(
        charts.lines(found, measure, chosen, selected),
        _CAPTIONS[measure],
        title=agreement_title(found),
        table=lambda: analysis.layer_table(found),
        how=f"{_HOW[measure]} {_texts(run)}. {_CONTROLS}",
    )


def _texts(run: Run) -> str:
    roles = zip("ABC", (run.study.primary, run.study.auxiliary, run.study.substitute), strict=True)
    return ", ".join(f"{letter} = {plain(text)}" for letter, text in roles if text)


@panel(
    "shared_neurons",
    "ma_confusion",
    "Which modules share their neurons?",
    reads={"comparison": "ma_pair", "layer": "layer"},
)
def shared_neurons(run: Run, *, comparison: str = "", layer: int | None = None) -> Panel:
    """Which modules of two partitions share their neurons, in the middle layer where none is named."""
    there = both_sides(run)
    if not there:
        raise MissingResultError(AGREEMENT_TITLE)
    name = comparison or next(iter(there))
    require_choice("comparison", name, tuple(there))
    first, second = there[name]
    place = in_range("layer", layer, len(first.counts))
    sides = first.labels[place], second.labels[place]
    shared = analysis.confusion(contingency(*sides), MOST_MODULES)
    labels = COMPARISONS[name].first.label, COMPARISONS[name].second.label
    return Panel(
        charts.confusion(shared, *labels),
        "A bright diagonal means that modules survive, a bright column that one module swallows others.",
        title=f"Layer {place}: {percent(matched_overlap(*sides))} of the neurons keep their module, "
        f"{plain(COMPARISONS[name].title)}",
        table=lambda: pd.DataFrame(shared.counts, shared.rows, shared.columns).reset_index(names="module"),
        how=f"Each row is a module of {labels[0]}; colour is the share of its neurons that is in a module of "
        f"{labels[1]}. The {MOST_MODULES} largest matches stand by themselves; +n gathers n others.",
    )


@panel("module_counts", "ma_counts", "How many modules does each layer have?")
def module_counts(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """How many modules each layer has."""
    partition = run.load(stages.partition)
    figure = charts.counts(partition)
    marks.layer_line(figure, selected)
    least, most = partition.counts.min(), partition.counts.max()
    each = f"{least} to {most}" if most > least else f"{most}"
    return Panel(
        figure,
        f"Grey: chosen by the silhouette; blue: after the split and the refinement (profile: "
        f"{plain(partition.profile)}).",
        title=f"{partition.modules} modules, {each} a layer",
        table=lambda: charts.count_table(partition),
    )


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
