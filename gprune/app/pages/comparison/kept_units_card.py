"""The card of kept units: what the pinned method and another one both keep, in total and by layer."""

from typing import Any

import streamlit as st

from gprune.analysis import kept_units
from gprune.analysis.comparison import Line
from gprune.analysis.kept_units import KINDS, NEURONS
from gprune.app.pages.comparison import panels
from gprune.app.pages.comparison.lines import Shown
from gprune.app.pages.comparison.panels import comparable, default_of
from gprune.app.ui import selection, tables, url_state
from gprune.app.ui.card import Card
from gprune.app.ui.text import plain
from gprune.pipeline.runs.opened import Run


def show(run: Run, drawn: Card, shown: Shown) -> None:
    """Draws the table of both kinds of units and the bars of one.

    Raises:
        StoreError: masks are damaged.
    """
    pinned, lines = comparable(shown)
    others = {key: shown.names[line.name] for key, line in lines.items()}
    if pinned is None or not others:
        st.info("Needs the masks of two methods on the same model.", icon=":material/hourglass_empty:")
        return
    ours = default_of(lines)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        key = url_state.selectbox(
            f"Beside {plain(shown.names[pinned.name])}", others, "cp_other", ours, width=260
        )
        kind = url_state.segmented("Units by layer", KINDS, "cp_kind", NEURONS)
    asked: dict[str, Any] = {"other": "" if key == ours else key, "kind": kind}
    _draw(run, drawn, (pinned, lines[key]), shown, asked)


def _draw(run: Run, drawn: Card, pair: tuple[Line, Line], shown: Shown, asked: dict[str, Any]) -> None:
    masks = panels.both_masks(shown, *pair)
    if masks is None:
        st.info("These masks are of models of another shape.", icon=":material/hourglass_empty:")
        return
    names = shown.names[pair[0].name], shown.names[pair[1].name]
    found = {name: kept_units.overlap(*masks, name) for name in KINDS}
    options = asked | panels.asked_of(run, shown)
    made = panels.kept_units_by_layer(run, **options, selected=selection.current(run), _shown=shown)
    drawn.title(made.title)
    three = st.column_config.NumberColumn(format="%.3f")
    tables.show(
        kept_units.total_table(found, *names),
        column_config={"Jaccard": three, "by chance": three},
        alt=f"units kept by {names[0]} and {names[1]}",
    )
    drawn.show(made)
