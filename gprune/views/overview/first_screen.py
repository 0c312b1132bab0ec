"""The first screen of the overview: the run in one sentence, and the three figures behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from gprune import stages
from gprune.analysis import cost
from gprune.analysis.comparison import DENSE, Row, obstacles
from gprune.analysis.drift import distribution_table
from gprune.analysis.neurons import Movers
from gprune.analysis.paired import Measurement, difference
from gprune.analysis.signs import signed
from gprune.analysis.stamps import lines
from gprune.errors import GpruneError
from gprune.views.frame import selection, story, tour, work
from gprune.views.frame.card import Card, card
from gprune.views.frame.chart_style import METHOD_LABELS, called, label, waiting
from gprune.views.frame.loaders import MissingResultError, Run
from gprune.views.frame.picture import Picture
from gprune.views.frame.text import plain, said, short
from gprune.views.overview import pictures

NARROWEST = 245
"""pixels of a figure before the three stand below each other"""


def show(run: Run) -> None:
    """Draws the sentence and the figures."""
    _headline(run)
    # in the order of the argument: ranks move, more than noise moves them, and that is what it costs
    with st.grid(3, min_column_width=NARROWEST):
        with card("ov_slope", "Neurons that move most", run) as drawn:
            _slope(run, drawn)
        with card("ov_survival", "More than noise?", run) as drawn:
            _survival(run, drawn)
        with card("ov_cost", "What pruning costs", run) as drawn:
            _cost(run, drawn)


def _headline(run: Run) -> None:
    try:
        found = story.headline(run)
    except GpruneError as error:
        st.error(said(error), icon=":material/error:")
        return
    with st.container(key="ov_headline", gap="xsmall"):
        left, right = st.columns([5, 1.25], vertical_alignment="center")
        left.markdown(f"## {plain(found.sentence)}")
        with right:
            tour.begin_button()
        st.caption(plain(found.detail))


def _draw(
    drawn: Card,
    figure: Picture,
    caption: str,
    alt: str,
    table: Callable[[], pd.DataFrame],
    how: str,
    on_point: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """A chart whose tools fit into a third of the page; the switch to its table comes when it is large."""
    drawn.chart(figure, caption, alt, on_point=on_point)
    drawn.tools(table, switch=drawn.maximised, how=how)


def _wait(run: Run, key: str) -> None:
    """Draws empty axes while the drift is being computed; the browser loads Plotly meanwhile."""
    if not run.has(stages.drift) and work.is_live(run):
        sentence = "Drawn here in a moment"
        st.plotly_chart(waiting(sentence), key=key, config={"displayModeBar": False}, alt=sentence)


def _slope(run: Run, drawn: Card) -> None:
    _wait(run, "ov_slope_waiting")
    found = story.movers(run)
    chosen = selection.current(run)
    drawn.title(f"Layer {found.layer}, selected" if chosen else f"Layer {found.layer} moves most")
    _draw(
        drawn,
        pictures.movers(run, selected=chosen),
        f"{len(found.neurons)} of {found.width:,} neurons; half of all move less than {found.median:.3f}.",
        _moves(found),
        found.table,
        _slope_how(run, found, bool(chosen)),
        on_point=selection.of_point,
    )


def _moves(found: Movers) -> str:
    up = int((found.second > found.first).sum())
    return (
        f"of the {len(found.neurons)} neurons that move most in layer {found.layer}, {up} rank higher on B "
        f"and {len(found.neurons) - up} higher on A"
    )


def _slope_how(run: Run, found: Movers, chosen: bool) -> str:
    which = "the selected layer" if chosen else "the layer whose neurons drift most (median)"
    return (
        f"Each line is a neuron of layer {found.layer}, {which}: left its rank when importance is measured "
        f"on A = {plain(run.study.primary)}, right on B = {plain(run.study.auxiliary)}. They are the largest "
        "moves of the layer and not typical of it; the next figure shows all neurons. Click a mark to select "
        "its neuron on every page."
    )


def _survival(run: Run, drawn: Card) -> None:
    _wait(run, "ov_survival_waiting")
    curves = story.curves(run)
    cross, _, *floors = curves
    floor = max(curve.median for curve in floors)
    # a metric that reads no text gives both texts the same ranks
    times = cross.median / floor if floor > 0 else float("inf" if cross.median > 0 else "nan")
    drawn.title(f"Drift {times:.1f} × the noise" if 1.5 <= times < 1000 else _hardly(times))
    _draw(
        drawn,
        pictures.noise(run),
        f"Median d {cross.median:.3f} across texts, {floor:.3f} re-sampled; shaded: above the noise.",
        f"median drift {cross.median:.3f} across texts, {floor:.3f} re-sampled",
        lambda: distribution_table(curves),
        "How many neurons of all layers move by d or more of their layer’s ranking. Grey: the same "
        "between two halves of one text, which is what noise alone does. The page Rank drift has more.",
    )


def _hardly(times: float) -> str:
    if times != times:
        return "Half of all neurons do not move"
    return "Little above the noise" if times < 1.5 else "All above the noise"


def _cheapest(cells: list[Measurement]) -> str:
    """Which pruned model costs least; none where the two best are too close to call."""
    pruned = sorted((cell for cell in cells if cell.method != DENSE), key=lambda cell: cell.perplexity)
    if len(pruned) < 2:
        return "What pruning costs"
    best, second = pruned[:2]
    if obstacles([Row(cell.run, cell.method, cell.retention, 0, {cell.text: cell}) for cell in pruned]):
        return "What pruning costs"
    return "Too close to call" if difference(second, best).close else f"{called(best.method)} costs least"


def _cost(run: Run, drawn: Card) -> None:
    text, cells = story.on_unseen(run)
    found = cost.costs(cells)
    if not found:
        raise MissingResultError("the perplexity of the dense model")
    standing = story.standings(run)[text]
    named = plain(short(text))
    drawn.title(_cheapest(cells))
    waited = [name for name in run.study.methods if name not in {cell.method for cell in cells}]
    coming = (
        f" Still to come: {plain(', '.join(map(label, waited)))}." if waited and not story.ended(run) else ""
    )
    _draw(
        drawn,
        pictures.cost(run),
        f"Perplexity on {named} ({plain(standing.brief)}), ± 2 standard errors.{coming}",
        ", ".join(f"{label(each.method)} {signed(each.ratio - 1, '.0%')}" for each in found),
        lambda: cost.table(found, METHOD_LABELS),
        "Perplexity says how much a model is surprised by a text; lower is better. All methods read the "
        "same windows, so the bars are those of the windows’ differences from the dense model. "
        f"{plain(standing.sentence)}. Protocol: {plain('; '.join(lines(cell.stamp for cell in cells)))}.",
    )
