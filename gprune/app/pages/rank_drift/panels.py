"""The figures of the page by name, each from a run and what can be set beside its card."""

from gprune.analysis import drift as analysis
from gprune.analysis.verdict import drift_title
from gprune.app.pages.rank_drift import charts
from gprune.app.ui import derived_cache
from gprune.app.ui.panel import Panel, in_range, panel
from gprune.app.ui.text import plain
from gprune.app.ui.unit import NOTHING, Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.study.settings import require, require_choice

SURVIVAL, HISTOGRAM = "survival", "histogram"
FINE = 200
"""bins behind the curve"""
BINS, MOST_BINS = 50, 1000
_CAPTIONS = {
    SURVIVAL: "How many neurons move by d or more; shaded is what lies above the re-sampling floor (grey).",
    HISTOGRAM: "Share of the neurons by how far their rank moves; grey is what re-sampling one text does.",
}


@panel(
    "drift",
    "rd_histogram",
    "Rank drift of all neurons",
    reads={"form": "rd_form", "bins": "rd_bins", "log": "rd_log"},
)
def drift(run: Run, *, form: str = SURVIVAL, bins: int = BINS, log: bool = False) -> Panel:
    """How many neurons move how far: as a curve, or as a histogram of some bins."""
    require_choice("form", form, (SURVIVAL, HISTOGRAM))
    require(1 <= bins <= MOST_BINS, "bins", bins, f"1 to {MOST_BINS}")
    curves = derived_cache.drift_curves(run.root, run.key(stages.drift), bins if form == HISTOGRAM else FINE)
    cross, _, floor, _ = curves
    return Panel(
        charts.histogram(curves, log) if form == HISTOGRAM else charts.survival(curves),
        _CAPTIONS[form],
        title=drift_title(curves),
        how=_how(run),
        alt=f"median drift {cross.median:.3f} across texts, {floor.median:.3f} re-sampled",
        table=lambda: analysis.distribution_table(curves),
    )


def _how(run: Run) -> str:
    neurons = run.load(stages.drift).magnitude.size
    return (
        f"The drift d of a neuron is how far its rank within the layer moves when the importance scores "
        f"({plain(run.study.metric)}) come from B = {plain(run.study.auxiliary)} instead of "
        f"A = {plain(run.study.primary)}; {neurons:,} FFN neurons. Grey: two disjoint halves of one text, "
        "what noise alone does. Dashed: halves of A against halves of B, equal in size to the grey ones. "
        "ρ is the Spearman correlation, median over layers."
    )


@panel("drift_by_layer", "rd_layers", "Which layers drift?")
def drift_by_layer(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """Layer by drift bin: share of the layer's neurons."""
    key = run.key(stages.drift)
    table = derived_cache.drift_layers(run.root, key)
    worst = int(table["median drift A|B"].to_numpy().argmax())
    most = table["median drift A|B"][worst]
    return Panel(
        charts.layers(derived_cache.drift_by_layer(run.root, key, 40), selected),
        "Each row is a layer; colour is the share of its neurons. Click one to select it.",
        title=f"Layer {worst} drifts most: median d {most:.3f}" if len(table) > 1 else "",
        table=lambda: table,
    )


@panel("correlation", "rd_correlation", "How well do the ranks agree, layer by layer?")
def correlation(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """Spearman correlation of the ranks in every layer."""
    table = derived_cache.drift_layers(run.root, run.key(stages.drift))
    return Panel(
        charts.correlations(table, selected),
        "Spearman correlation of the ranks in each layer; grey is what re-sampling one text leaves.",
        table=lambda: table,
    )


@panel("ranks", "rd_joint", "Rank on A against rank on B", reads={"layer": "layer"})
def ranks(run: Run, *, layer: int | None = None, selected: Selection = NOTHING) -> Panel:
    """Rank on A against rank on B of one layer: the middle one where none is named."""
    scores = [run.load(stages.scores, role).ffn for role in stages.PAIR]
    place = in_range("layer", layer, len(scores[0]))
    modules = run.load(stages.partition).labels[place] if run.has(stages.partition) else None
    rho = float(run.load(stages.drift).correlation[place])
    return Panel(
        charts.joint(scores[0][place], scores[1][place], place, modules, selected),
        "On the dashed line a neuron has the same rank on both texts; 1 = most important.",
        title=f"Rank on A against rank on B in layer {place}: Spearman {rho:.2f}",
    )
