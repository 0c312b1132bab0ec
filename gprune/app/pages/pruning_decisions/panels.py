"""The figures of the page by name, each from a run and what can be set beside its card."""

import numpy as np

from gprune.analysis import ablation_effect
from gprune.analysis import decisions as analysis
from gprune.analysis.verdict import budget_title, own_method
from gprune.app.pages.pruning_decisions import charts
from gprune.app.ui import derived_cache
from gprune.app.ui.chart_style import METHOD_LABELS, label
from gprune.app.ui.panel import Panel, panel
from gprune.app.ui.unit import NOTHING, Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import PruningMasks
from gprune.study.settings import require, require_choice

BINS = 5
"""drift bins of the modules"""
MOST_BINS = 10
_READS = {"base": "pd_base", "bins": "pd_bins"}


@panel("retention", "pd_budget", "Retention by drift of the modules", reads=_READS)
def retention(run: Run, *, base: str = "", bins: int = BINS) -> Panel:
    """Share of neurons kept by drift of the modules, GPrune's and a baseline's."""
    named, result = _binned(run, base, bins)
    return Panel(
        charts.retention(result, named),
        analysis.total_sentence(result, label(named)),
        title=budget_title(result, label(named)),
        table=lambda: analysis.bin_table(result, label(named)),
        how=f"Modules are sorted by the mean rank drift of their neurons and cut into {len(result.names)} "
        "bins of equally many modules; retention is pooled over a bin's neurons.",
    )


@panel("overlap", "pd_jaccard", "Which neurons are chosen differently?", reads=_READS)
def overlap(run: Run, *, base: str = "", bins: int = BINS) -> Panel:
    """How far the neurons kept are those of a baseline, by drift of the modules."""
    named, result = _binned(run, base, bins)
    title = (
        f"Overlap with {label(named)} goes from {result.jaccard[0]:.2f} in the most stable modules to "
        f"{result.jaccard[-1]:.2f} in the most unstable"
    )
    return Panel(
        charts.jaccard(result, named),
        "Neurons kept by both over neurons kept by either; near the dashed line, chance alone does it.",
        title=title if len(result.jaccard) > 1 else "",
        table=lambda: analysis.bin_table(result, label(named)),
        how="Dashed: what two independent choices of these sizes would share. Near it the two methods chose "
        "unrelated neurons.",
    )


@panel("shares", "pd_shares", "Who keeps the neurons?", reads=_READS)
def shares(run: Run, *, base: str = "", bins: int = BINS) -> Panel:
    """How the neurons of a bin divide between GPrune and a baseline."""
    named, result = _binned(run, base, bins)
    return Panel(
        charts.shares(result, named),
        "How the neurons of a bin divide between the two methods.",
        table=lambda: analysis.bin_table(result, label(named)),
    )


@panel("neurons_kept", "pd_neurons", "Neurons kept, layer by layer")
def neurons_kept(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """Share of each layer's neurons that every method keeps."""
    return _by_layer(run, "neurons", "FFN neurons of each layer.", selected)


@panel("groups_kept", "pd_heads", "Attention kept, layer by layer")
def groups_kept(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """Share of each layer's key/value groups that every method keeps."""
    return _by_layer(run, "heads", "Key/value groups, each with its query heads.", selected)


def _by_layer(run: Run, part: str, caption: str, selected: Selection) -> Panel:
    masks = drawn_masks(run)
    if len(masks) > charts.MOST_LINES:
        caption += " Forms and controls are drawn when their name is clicked."
    named = {label(method): mask for method, mask in masks.items()}
    figure = charts.by_layer(masks, part, selected)
    return Panel(figure, caption, table=lambda: analysis.layer_table(named))


@panel("scales", "pd_scales", "Learned scales, layer by layer")
def scales(run: Run) -> Panel:
    """Histogram of the scales of GPrune's kept neurons by layer."""
    found = run.load(stages.scales, "gprune")
    kept = found.ffn[found.ffn != 0]
    return Panel(
        charts.scales(found),
        "Factors of the kept FFN neurons, learned after masks and repair with every weight fixed.",
        title=f"Half of the kept neurons are scaled by {np.quantile(kept, 0.25):.3f} to {np.quantile(kept, 0.75):.3f}",
        how="A factor multiplies the neuron's column of down_proj. Away from the dashed line the neuron counts more, "
        "or less, than in the dense model.",
    )


@panel("parts", "pd_acting", "What does each part of GPrune do?")
def parts(run: Run) -> Panel:
    """Share of the decisions that would be others without a part of GPrune."""
    found = derived_cache.acting(run)
    idle = [part for part, share in found.decisions_changed.items() if share < ablation_effect.LEAST]
    return Panel(
        charts.acting(found),
        "Share of the decisions on neurons that would be others without a part; left of the dashed line "
        "nothing should be credited to it.",
        title=f"{' and '.join(idle)} {'acts' if len(idle) == 1 else 'act'} on next to no decision" if idle else "",
        table=lambda: ablation_effect.effect_table(found),
        how="Each part is taken away alone from the run's own decision, at the same retention, and all else "
        "stays: without RASA every module is scored from A, without MSL all thresholds are as they started, "
        "without BCM the neurons of a layer are ranked in one list.",
    )


@panel("explained", "pd_explained", "Do the modules explain the drift?")
def explained(run: Run) -> Panel:
    """Share of the drift's variance that lies between modules."""
    found = derived_cache.acting(run).drift_explained
    return Panel(
        charts.explained(found),
        "Share of the variance of rank drift within layers that lies between modules: what knowing a "
        "neuron's module says of its drift.",
        title=f"The modules explain {100 * found.modules:.0f} % of the drift's variance, random ones "
        f"{100 * found.random:.0f} %",
        table=lambda: ablation_effect.explained_table(found),
        how="Random modules of the same sizes explain a little by chance. Where the initialization explains "
        "more than the modules, the refinement has given up part of what the split by drift had found.",
    )


def bases(run: Run) -> list[str]:
    """The masks that GPrune's can be held against."""
    return [name for name in run.masked if name != "gprune"]


def base_of(run: Run, base: str) -> str:
    """The baseline that is meant, where none is named.

    Raises SettingsError where the run has no such masks, MissingResultError where it has none at all.
    """
    found = bases(run)
    if base and found:
        require_choice("base", base, tuple(found))
        return base
    if base:
        return base
    own = own_method(run.study.metric)
    run.require(found, stages.masks, own)
    return own if own in found else found[0]


def _binned(run: Run, base: str, bins: int) -> tuple[str, analysis.Bins]:
    named = base_of(run, base)
    return named, binned(run, named, bins)


def binned(run: Run, base: str, bins: int) -> analysis.Bins:
    """Both methods by drift of the modules."""
    require(1 <= bins <= MOST_BINS, "bins", bins, f"1 to {MOST_BINS}")
    drift, partition = run.key(stages.drift), run.key(stages.partition)
    ours, other = run.key(stages.masks), run.key(stages.masks, base)
    return derived_cache.decision_bins(run.root, drift, partition, ours, other, bins)


def drawn_masks(run: Run) -> dict[str, PruningMasks]:
    """The masks that are there, by method."""
    masks = {method: mask for method, mask in run.masks().items() if method in METHOD_LABELS}
    return run.require(masks, stages.masks)
