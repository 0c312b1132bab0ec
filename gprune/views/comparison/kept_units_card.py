"""The card of kept units: what the pinned method and another one both keep, in total and by layer."""

from __future__ import annotations

from typing import Any

import streamlit as st

from gprune.analysis import kept_units
from gprune.analysis.comparison import Line
from gprune.analysis.kept_units import KINDS, NEURONS
from gprune.views.comparison.chosen import Shown
from gprune.views.comparison.pictures import (
    asked_of,
    comparable,
    default_of,
    kept_units_by_layer,
    masks_of,
)
from gprune.views.frame import address, selection, tables
from gprune.views.frame.card import Card
from gprune.views.frame.loaders import Run
from gprune.views.frame.text import plain


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
        key = address.selectbox(
            f"Beside {plain(shown.names[pinned.name])}", others, "cp_other", ours, width=260
        )
        kind = address.segmented("Units by layer", KINDS, "cp_kind", NEURONS)
    asked: dict[str, Any] = {"other": "" if key == ours else key, "kind": kind}
    _draw(run, drawn, (pinned, lines[key]), shown, asked)


def _draw(run: Run, drawn: Card, pair: tuple[Line, Line], shown: Shown, asked: dict[str, Any]) -> None:
    first, second, kind = *pair, asked["kind"]
    one, other = (masks_of(line, shown.runs) for line in (first, second))
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
        kept_units_by_layer(run, **asked, **asked_of(run, shown), selected=selection.current(run)),
        f"Of each layer's {KINDS[kind]}: kept by both or by one only; the rest is kept by neither.",
        table=lambda: kept_units.layer_table(known, *names),
        how="The Jaccard index is what both keep among what either keeps. By chance: what choices that do "
        "not depend on each other, of the same sizes in every layer, would share. Methods that differ in "
        "bias compensation only have the same masks. Of several seeds the first is shown.",
    )
