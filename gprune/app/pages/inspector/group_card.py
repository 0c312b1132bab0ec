"""A module or a layer: its members, its scores on every text, its repeatability, and what RASA did."""

import numpy as np
import pandas as pd
import streamlit as st

from gprune.app.pages.inspector import panels
from gprune.app.ui import selection
from gprune.app.ui.card import Card
from gprune.app.ui.unit import Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Array

MOST_ROWS = 2000
"""of a table on the page"""
_ROWS = 360
"""pixels of a table of members"""


def draw(run: Run, drawn: Card, unit: Selection) -> None:
    """Draws the card of a module, or of a layer.

    Raises:
        MissingResultError: the run has no scores yet.
    """
    shown = panels.score_histograms(run, layer=unit.layer, module=unit.module)
    members, rows = panels.members_of(run, unit)
    drawn.title(shown.title)
    _numbers(run, unit, members, rows)
    drawn.show(shown)
    table = rows if unit.module is None else None
    listed = table if table is not None else panels.members_table(run, unit, members)
    name = "modules" if table is not None else "members"
    selection.table(
        listed.head(MOST_ROWS), f"{drawn.key}_{name}", height=_ROWS, alt=f"the {name} of {unit.words}"
    )
    thinned = ""
    if len(listed) > MOST_ROWS:
        thinned = (
            f" {MOST_ROWS:,} of {len(listed):,} shown, most important on A first, as more draw slowly; "
            "the CSV holds all."
        )
    st.caption(
        "Choose a row to inspect it; u is how far local ranks move between halves, less is better." + thinned
    )


def _numbers(run: Run, unit: Selection, members: Array, rows: pd.DataFrame | None) -> None:
    """Drift, repeatability on both texts and what RASA did; of a layer the means over its modules."""
    of = "" if unit.module is not None else ", mean of modules"
    with st.container(horizontal=True):
        if run.has(stages.drift):
            moved = np.asarray(run.load(stages.drift).magnitude[unit.layer])[members]
            st.metric("Median drift A|B", f"{np.median(moved):.3f}", border=True, width="content")
        if rows is not None and "u on A" in rows:
            for letter in "AB":
                st.metric(
                    f"u on {letter}{of}", f"{rows[f'u on {letter}'].mean():.3f}", border=True, width="content"
                )
        if rows is not None and "RASA" in rows and unit.module is None:
            adapted = int((rows["RASA"] != "left alone").sum())
            st.metric("Adapted modules", f"{adapted} of {len(rows)}", border=True, width="content")
        for name, mask in panels.kept_by(run, unit.layer or 0).items():
            share = float(np.mean(np.asarray(mask)[members]))
            st.metric(f"{name} keeps", f"{100 * share:.1f} %", border=True, width="content")
