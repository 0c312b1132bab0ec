"""The card of kept units: what the pinned method and another one both keep, in total and by layer."""

from __future__ import annotations

import streamlit as st

from gprune import stages
from gprune.analysis import kept_units
from gprune.analysis.comparison import DENSE, Line
from gprune.analysis.kept_units import KINDS, NEURONS
from gprune.methods import METHODS
from gprune.records import PruningMasks
from gprune.views.comparison import charts as figures
from gprune.views.comparison.chosen import Shown
from gprune.views.frame import address, tables
from gprune.views.frame.card import Card
from gprune.views.frame.loaders import Run
from gprune.views.frame.text import in_figure, plain


def show(drawn: Card, shown: Shown) -> None:
    """Draws the table of both kinds of units and the bars of one.

    Raises:
        StoreError: masks are damaged.
    """
    pruned = {f"{line.method}@{line.name[0]}": line for line in shown.lines if _masks(line, shown.runs)}
    lines = list(pruned.values())
    pinned = next((line for line in lines if line is shown.pinned), next(iter(lines), None))
    others = {
        key: shown.names[line.name]
        for key, line in pruned.items()
        if pinned is not None and line is not pinned and _model(line, shown) == _model(pinned, shown)
    }
    if pinned is None or not others:
        st.info("Needs the masks of two methods on the same model.", icon=":material/hourglass_empty:")
        return
    ours = next((key for key in others if pruned[key].method == "gprune"), next(iter(others)))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        key = address.selectbox(
            f"Beside {plain(shown.names[pinned.name])}", others, "cp_other", ours, width=260
        )
        kind = address.segmented("Units by layer", KINDS, "cp_kind", NEURONS)
    _draw(drawn, pinned, pruned[key], kind, shown)


def _draw(drawn: Card, first: Line, second: Line, kind: str, shown: Shown) -> None:
    one, other = (_masks(line, shown.runs) for line in (first, second))
    if one is None or other is None or one.ffn.shape != other.ffn.shape:
        st.info("These masks are of models of another shape.", icon=":material/hourglass_empty:")
        return
    names = shown.names[first.name], shown.names[second.name]
    found = {name: kept_units.overlap(one, other, name) for name in KINDS}
    known = found[kind]
    drawn.title(
        f"{plain(names[1])} and {plain(names[0])} share {KINDS[kind]} at a Jaccard of {known.jaccard:.2f}, "
        f"where chance gives {known.chance:.2f}"
    )
    three = st.column_config.NumberColumn(format="%.3f")
    tables.show(
        kept_units.total_table(found, *names),
        column_config={"Jaccard": three, "by chance": three},
        alt=f"units kept by {names[0]} and {names[1]}",
    )
    drawn.chart(
        figures.kept(known, (first.method, second.method), (in_figure(names[0]), in_figure(names[1])), kind),
        f"Of each layer's {KINDS[kind]}: kept by both or by one only; the rest is kept by neither.",
        table=lambda: kept_units.layer_table(known, *names),
        by_layer=True,
        how="The Jaccard index is what both keep among what either keeps. By chance: what choices that do "
        "not depend on each other, of the same sizes in every layer, would share. Methods that differ in "
        "bias compensation only have the same masks. Of several seeds the first is shown.",
    )


def _home(line: Line, runs: list[Run]) -> Run:
    return next(run for run in runs if run.name == line.rows[0].run)


def _masks(line: Line, runs: list[Run]) -> PruningMasks | None:
    """The masks of a line's first run; None where there are none."""
    run, name = _home(line, runs), METHODS[line.method].masks
    if line.method == DENSE or not run.has(stages.masks, name):
        return None
    return run.load(stages.masks, name)


def _model(line: Line, shown: Shown) -> str:
    run = _home(line, shown.runs)
    return run.graph.inputs.model or run.study.model
