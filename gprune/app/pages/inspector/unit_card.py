"""One neuron: its rank and scores on every text, its drift, its module, who keeps it and who is near."""

import numpy as np
import pandas as pd
import streamlit as st

from gprune.analysis import inspection
from gprune.analysis.formatting import percent
from gprune.analysis.inspection import LayerRanks
from gprune.analysis.thresholds import KEPT, OUTCOMES
from gprune.app.pages.inspector import panels
from gprune.app.ui import buttons, selection, url_state
from gprune.app.ui.card import Card
from gprune.app.ui.chart_style import called
from gprune.app.ui.text import plain
from gprune.app.ui.unit import Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Array

MOST_ROWS = 2000
"""of a table on the page"""
NEAREST = 8
_AMONG = {"module": "Its module", "layer": "Its layer"}


def draw_group(run: Run, drawn: Card, unit: Selection) -> None:
    """Draws the card of a module, or of a layer; MissingResultError where the run has no scores yet."""
    shown = panels.score_histograms(run, layer=unit.layer, module=unit.module)
    members, rows = panels.members_of(run, unit)
    drawn.title(shown.title)
    _group_numbers(run, unit, members, rows)
    drawn.show(shown)
    table = rows if unit.module is None else None
    listed = table if table is not None else panels.members_table(run, unit, members)
    name = "modules" if table is not None else "members"
    selection.table(listed.head(MOST_ROWS), f"{drawn.key}_{name}", height=360, alt=f"the {name} of {unit.words}")
    thinned = ""
    if len(listed) > MOST_ROWS:
        thinned = (
            f" {MOST_ROWS:,} of {len(listed):,} shown, most important on A first, as more draw slowly; "
            "the CSV holds all."
        )
    st.caption("Select a row to inspect it; u is how far local ranks move between halves, less is better." + thinned)


def _group_numbers(run: Run, unit: Selection, members: Array, rows: pd.DataFrame | None) -> None:
    """Drift, repeatability on both texts and what RASA did; of a layer the means over its modules."""
    of = "" if unit.module is not None else ", mean of modules"
    with st.container(horizontal=True):
        if run.has(stages.drift):
            moved = np.asarray(run.load(stages.drift).magnitude[unit.layer])[members]
            st.metric("Median drift A|B", f"{np.median(moved):.3f}", border=True, width="content")
        if rows is not None and "u on A" in rows:
            for letter in "AB":
                st.metric(f"u on {letter}{of}", f"{rows[f'u on {letter}'].mean():.3f}", border=True, width="content")
        if rows is not None and "RASA" in rows and unit.module is None:
            adapted = int((rows["RASA"] != OUTCOMES[KEPT]).sum())
            st.metric("Adapted modules", f"{adapted} of {len(rows)}", border=True, width="content")
        for name, mask in panels.kept_by(run, unit.layer or 0).items():
            share = float(np.mean(np.asarray(mask)[members]))
            st.metric(f"{name} keeps", f"{100 * share:.1f} %", border=True, width="content")


def draw(run: Run, drawn: Card, unit: Selection) -> None:
    """Draws the card of a neuron."""
    layer, neuron = unit.layer or 0, unit.neuron or 0
    standings = panels.standings(run, layer)
    shown = panels.neuron_ranks(run, layer=layer, neuron=neuron)
    drawn.title(shown.title)
    labels = _labels(run, layer)
    _numbers(run, standings, layer, neuron, labels)
    _kept(run, layer, neuron)
    drawn.show(shown)


def _labels(run: Run, layer: int) -> Array | None:
    """(neurons,) modules of a layer; None where the run has none."""
    partition = run.find(stages.partition)
    return None if partition is None else np.asarray(partition.labels[layer])


def _numbers(run: Run, standings: dict[str, LayerRanks], layer: int, neuron: int, labels: Array | None) -> None:
    with st.container(horizontal=True):
        for letter, found in standings.items():
            st.metric(f"Score on {letter}", f"{found.score[neuron]:.4g}", border=True, width="content")
        if run.has(stages.drift):
            moved = np.asarray(run.load(stages.drift).magnitude[layer])
            above = inspection.percentile(float(moved[neuron]), moved)
            note = f"More than {percent(above, 1)} of its layer"
            if labels is not None:
                inside = moved[labels == labels[neuron]]
                note += f", {percent(inspection.percentile(float(moved[neuron]), inside), 1)} of its module"
            st.metric("Drift A|B", f"{moved[neuron]:.3f}", border=True, width="content")
            st.metric("Drift percentile", f"{100 * above:.1f}", border=True, width="content", help=note + ".")
        if labels is not None:
            size = int((labels == labels[neuron]).sum())
            st.metric("Module", f"{labels[neuron]} ({size:,})", border=True, width="content",
                      help="Its module within the layer, and how many neurons that has.")  # fmt: skip
    if labels is not None:
        buttons.act(
            f"Inspect module {labels[neuron]}", f"ins_to_module_{layer}_{neuron}", "arrow_upward",
            selection.select, layer, int(labels[neuron]), type="tertiary",
        )  # fmt: skip


def _kept(run: Run, layer: int, neuron: int) -> None:
    """Which methods keep it, one badge each."""
    masks = run.masks()
    if not masks:
        return
    with st.container(horizontal=True, gap="xsmall"):
        for name, mask in masks.items():
            kept = bool(mask.ffn[layer, neuron])
            scales = run.find(stages.scales, name) if kept and run.study.repair.scaled else None
            scaled = f", scale {scales.ffn[layer, neuron]:.3f}" if scales is not None else ""
            st.badge(
                plain(f"{called(name)}: {'kept' if kept else 'removed'}{scaled}"),
                icon=":material/check:" if kept else ":material/close:",
                color="green" if kept else "grey",
            )


def draw_near(run: Run, unit: Selection, key: str) -> None:
    """Draws the neurons whose ranks on all texts are nearest to its own; `key` is of the neuron's card."""
    layer, neuron, labels = unit.layer or 0, unit.neuron or 0, _labels(run, unit.layer or 0)
    among = "layer"
    if labels is not None:
        among = url_state.segmented("Nearest neighbours in", _AMONG, f"{key}_near", "module")
    profiles = panels.profiles(run, layer)
    members = np.ones(profiles.shape[1], dtype=bool)
    if among == "module" and labels is not None:
        members = labels == labels[neuron]
    found, distance = inspection.neighbours(profiles, neuron, members, NEAREST)
    letters = list(panels.standings(run, layer))
    table = pd.DataFrame({"layer": layer, "neuron": found, "distance": distance})
    for letter, ranks in zip(letters, profiles, strict=True):
        table[f"rank on {letter}"] = ranks[found]
    if labels is not None:
        table.insert(1, "module", labels[found])
    selection.table(table, f"{key}_near_rows", alt="the neurons nearest to it", height="content")
    st.caption(f"By the Euclidean distance between ranks on {', '.join(letters)}. Choose a row to inspect it.")
