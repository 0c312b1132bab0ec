"""The figures of the page by name, each from a run and what can be set beside its card."""

import numpy as np
import pandas as pd

from gprune.analysis import cost as analysis
from gprune.analysis.drift import distribution_table
from gprune.analysis.formatting import signed
from gprune.analysis.neurons import Movers
from gprune.analysis.verdict import missing_methods, rank_lines, winners
from gprune.app.pages.overview import charts
from gprune.app.ui import derived_cache, marks, story
from gprune.app.ui.chart_style import METHOD_LABELS, called, label
from gprune.app.ui.panel import Panel, panel
from gprune.app.ui.text import plain, short
from gprune.app.ui.unit import NOTHING, Selection
from gprune.evaluation.protocol import lines
from gprune.pipeline.runs.opened import MissingResultError, Run


@panel("layers", "ov_strip", "Layer by layer")
def layers(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """Drift, agreement and retention of every layer as one heat map."""
    rows = derived_cache.layer_strip(run)
    table = pd.DataFrame({"layer": np.arange(len(next(iter(rows.values()))))} | rows)
    return Panel(
        charts.strip(rows, selected),
        "Each row is one quantity between 0 and 1, each column a layer. Click a cell to select its layer.",
        alt="heat map of drift, agreement and retention by layer",
        table=lambda: table,
        how="Drift is a share of the ranking, the kept rows are shares of the layer’s units, and Jaccard "
        f"compares the kept neurons with those of {plain(label(run.study.metric))}.",
    )


@panel("movers", "ov_slope", "Neurons that move most")
def movers(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """The neurons whose rank moves most, in the selected layer or else in the one that drifts most."""
    found = story.movers_of(run, selected.layer, selected.neuron)
    which = "the selected layer" if selected else "the layer whose neurons drift most (median)"
    return Panel(
        marks.slopes(found, charts.FIRST_SCREEN, selected.neuron),
        f"{len(found.neurons)} of {found.width:,} neurons; half of all move less than {found.median:.3f}.",
        title=f"Layer {found.layer}, selected" if selected else f"Layer {found.layer} moves most",
        alt=_moves(found),
        table=found.table,
        how=f"Each line is a neuron of layer {found.layer}, {which}: left its rank when importance is "
        f"measured on A = {plain(run.study.primary)}, right on B = {plain(run.study.auxiliary)}. They are "
        "the largest moves of the layer and not typical of it; the next figure shows all neurons. Click a "
        "mark to select its neuron on every page.",
    )


def _moves(found: Movers) -> str:
    up = int((found.second > found.first).sum())
    return (
        f"of the {len(found.neurons)} neurons that move most in layer {found.layer}, {up} rank higher on B "
        f"and {len(found.neurons) - up} higher on A"
    )


@panel("noise", "ov_survival", "More than noise?")
def noise(run: Run) -> Panel:
    """The drift beside what sampling alone does."""
    curves = story.curves(run)
    cross, _, *floors = curves
    floor = max(curve.median for curve in floors)
    # a metric that reads no text gives both texts the same ranks
    times = cross.median / floor if floor > 0 else float("inf" if cross.median > 0 else "nan")
    return Panel(
        charts.survival(curves),
        f"Median drift by {plain(label(run.study.metric))}: {cross.median:.3f} from A to B, {floor:.3f} "
        "re-sampled; shaded: above sampling noise.",
        title=f"Median rank shift {times:.1f} × sampling noise" if 1.5 <= times < 1000 else _hardly(times),
        alt=f"median drift {cross.median:.3f} across texts, {floor:.3f} re-sampled",
        table=lambda: distribution_table(curves),
        how="How many neurons of all layers move by d or more of their layer’s ranking. Grey: the same "
        "between two halves of one text, which is what noise alone does. The tab Rank drift has more.",
    )


def _hardly(times: float) -> str:
    if times != times:
        return "Half of all neurons do not move"
    return "Little above sampling noise" if times < 1.5 else "All above sampling noise"


@panel("cost", "ov_cost", "What pruning costs")
def cost(run: Run) -> Panel:
    """Perplexity of every method on a text that was not calibrated on, where there is one."""
    text, cells = story.on_unseen(run)
    found = analysis.costs(cells)
    if not found:
        raise MissingResultError("the perplexity of the dense model")
    standing = story.standings(run)[text]
    waited = [] if story.ended(run) else missing_methods(story.lines_of(run), text, story.expected([run]))
    coming = f" Still to come: {plain(', '.join(map(label, waited)))}." if waited else ""
    return Panel(
        charts.costs(found),
        f"Perplexity on {plain(short(text))} ({plain(standing.brief)}), "
        f"whiskers: 95 % interval, paired over windows.{coming}",
        title=_cheapest(run, text),
        alt=", ".join(f"{label(each.method)} {signed(each.ratio - 1, '.0%')}" for each in found),
        table=lambda: analysis.cost_table(found, METHOD_LABELS),
        how="Perplexity says how much a model is surprised by a text; lower is better. All methods read the "
        "same windows, so the bars are those of the windows’ differences from the dense model. "
        f"{plain(standing.sentence)}. Protocol: {plain('; '.join(lines(cell.stamp for cell in cells)))}.",
    )


def _cheapest(run: Run, text: str) -> str:
    """Which pruned model costs least; that of the card where that cannot be claimed."""
    best = [called(name[1]) for name in winners(rank_lines(story.lines_of(run), [text], story.expected([run])))]
    return f"{' or '.join(best)}: too close to call" if best[1:] else f"{best[0]} costs least" if best else ""
