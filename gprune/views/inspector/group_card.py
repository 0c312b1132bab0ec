"""A module or a layer: its members, its scores on every text, its repeatability, and what RASA did."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from gprune import records, stages
from gprune.analysis import inspection
from gprune.records import Array
from gprune.views.frame import selection
from gprune.views.frame.card import Card
from gprune.views.frame.chart_style import called
from gprune.views.frame.loaders import Run
from gprune.views.frame.picture import shown as as_drawn
from gprune.views.frame.selection import Selection
from gprune.views.inspector import charts, pictures

MOST_ROWS = 2000
"""of a table on the page"""
_ROWS = 360
"""pixels of a table of members"""


def draw(run: Run, drawn: Card, unit: Selection) -> None:
    """Draws the card of a module, or of a layer.

    Args:
        run: the run.
        drawn: its card.
        unit: what is inspected.

    Raises:
        MissingResultError: the run has no scores yet.
    """
    layer = unit.layer or 0
    standings = pictures.standings(run, layer)
    table = _modules(run, layer)
    if unit.module is None:
        members = np.ones(len(next(iter(standings.values())).score), dtype=bool)
        rows = table
    else:
        members = np.asarray(run.load(stages.partition).labels[layer]) == unit.module
        rows = table[table["module"] == unit.module] if table is not None else None
    drawn.title(_title(unit, int(members.sum()), rows))
    _numbers(run, unit, members, rows)
    scores = {letter: np.asarray(found.score)[members] for letter, found in standings.items()}
    figure = charts.score_histograms(scores, {})
    drawn.chart(
        as_drawn("score_histograms", figure, layer=layer, module=unit.module),
        "Share of its neurons by score; the same bins on every text.",
        alt=f"scores of {unit.words}",
        table=lambda: _members(run, unit, members),
    )
    shown = table if unit.module is None and table is not None else _members(run, unit, members)
    name = "modules" if unit.module is None and table is not None else "members"
    selection.table(
        shown.head(MOST_ROWS), f"{drawn.key}_{name}", height=_ROWS, alt=f"the {name} of {unit.words}"
    )
    thinned = ""
    if len(shown) > MOST_ROWS:
        thinned = (
            f" {MOST_ROWS:,} of {len(shown):,} shown, most important on A first, as more draw slowly; "
            "the CSV holds all."
        )
    st.caption(
        "Choose a row to inspect it; u is how far local ranks move between halves, less is better." + thinned
    )


def _title(unit: Selection, members: int, rows: pd.DataFrame | None) -> str:
    if unit.module is None:
        count = "" if rows is None else f", {len(rows)} modules"
        return f"Layer {unit.layer}: {members:,} neurons{count}"
    did = ""
    if rows is not None and "RASA" in rows:
        did = f", by RASA {rows['RASA'].iloc[0]}"
    return f"Module {unit.module} of layer {unit.layer}: {members:,} neurons{did}"


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
        for name, mask in _kept(run, unit.layer or 0).items():
            share = float(np.mean(np.asarray(mask)[members]))
            st.metric(f"{name} keeps", f"{100 * share:.1f} %", border=True, width="content")


def _kept(run: Run, layer: int) -> dict[str, Array]:
    """(neurons,) bool of a layer, by what the first two methods are called: GPrune and the plain form."""
    wanted = [name for name in ("gprune", run.study.metric) if name in run.masked]
    return {called(name): np.asarray(run.load(stages.masks, name).ffn[layer]) for name in wanted}


def _modules(run: Run, layer: int) -> pd.DataFrame | None:
    """The modules of a layer; None where there are none."""
    if not run.has(stages.partition):
        return None
    statistics: records.ModuleStatistics | None = None
    adapted: records.AdaptedScores | None = None
    if run.has(stages.modules):
        statistics = run.load(stages.modules)
    if run.has(stages.adapted):
        adapted = run.load(stages.adapted)
    kept = {f"{name} keeps": mask for name, mask in _kept(run, layer).items()}
    return inspection.module_table(run.load(stages.partition), layer, statistics, adapted, kept)


def _members(run: Run, unit: Selection, members: Array) -> pd.DataFrame:
    """One row a neuron, the most important on A first."""
    layer, found = unit.layer or 0, np.flatnonzero(members)
    table = pd.DataFrame({"layer": layer, "neuron": found})
    for letter, standing in pictures.standings(run, layer).items():
        table[f"rank on {letter}"] = np.asarray(standing.rank)[found]
    if run.has(stages.drift):
        table["drift"] = np.asarray(run.load(stages.drift).magnitude[layer])[found]
    for name, mask in _kept(run, layer).items():
        table[name] = mask[found]
    return table.sort_values("rank on A", ascending=False, kind="stable").reset_index(drop=True)
