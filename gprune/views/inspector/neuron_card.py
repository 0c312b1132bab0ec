"""One neuron: its rank and scores on every text, its drift, its module, who keeps it and who is near."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from gprune import stages
from gprune.analysis import inspection
from gprune.analysis.inspection import Standing
from gprune.analysis.signs import percent
from gprune.records import Array
from gprune.views.frame import address, selection
from gprune.views.frame.card import Card
from gprune.views.frame.chart_style import called
from gprune.views.frame.loaders import Run
from gprune.views.frame.picture import shown as as_drawn
from gprune.views.frame.selection import Selection
from gprune.views.frame.text import plain
from gprune.views.inspector import charts, pictures

NEAREST = 8
_AMONG = {"module": "Its module", "layer": "Its layer"}


def draw(run: Run, drawn: Card, unit: Selection) -> None:
    """Draws the card of a neuron.

    Args:
        run: the run.
        drawn: its card.
        unit: the neuron.
    """
    layer, neuron = unit.layer or 0, unit.neuron or 0
    standings = pictures.standings(run, layer)
    drawn.title(f"Neuron {neuron} of layer {layer}: {_finding(standings, neuron)}")
    labels = _labels(run, layer)
    _numbers(run, standings, layer, neuron, labels)
    _kept(run, layer, neuron)
    figure = charts.rank_on_texts(standings, neuron, pictures.drawn_names(run))
    drawn.chart(
        as_drawn("neuron_ranks", figure, layer=layer, neuron=neuron),
        pictures.not_parts(run) or "Whiskers: the range of its rank over halves of that text alone.",
        alt=_finding(standings, neuron),
        table=lambda: _table(standings, neuron),
        how="Ranks run from 0 to 1 within the layer. A half is half of the shards, which are neighbours; "
        "every starting point is taken. A half is noisier than the text, so the whiskers are wide.",
    )
    _near(run, unit, drawn.key, labels)


def _finding(standings: dict[str, Standing], neuron: int) -> str:
    ranks = ", ".join(f"{found.rank[neuron]:.2f} on {letter}" for letter, found in standings.items())
    return f"rank {ranks}"


def _labels(run: Run, layer: int) -> Array | None:
    """(neurons,) modules of a layer; None where the run has none."""
    if not run.has(stages.partition):
        return None
    return np.asarray(run.load(stages.partition).labels[layer])


def _numbers(run: Run, standings: dict[str, Standing], layer: int, neuron: int, labels: Array | None) -> None:
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
        st.button(
            f"Inspect module {labels[neuron]}",
            key=f"ins_to_module_{layer}_{neuron}",
            type="tertiary",
            icon=":material/arrow_upward:",
            on_click=selection.select,
            args=(layer, int(labels[neuron])),
        )


def _kept(run: Run, layer: int, neuron: int) -> None:
    """Which methods keep it, one badge each."""
    masks = run.masks()
    if not masks:
        return
    with st.container(horizontal=True, gap="xsmall"):
        for name, mask in masks.items():
            kept = bool(mask.ffn[layer, neuron])
            st.badge(
                plain(f"{called(name)}: {'kept' if kept else 'removed'}"),
                icon=":material/check:" if kept else ":material/close:",
                color="green" if kept else "grey",
            )


def _table(standings: dict[str, Standing], neuron: int) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "text": letter,
                "score": found.score[neuron],
                "rank": found.rank[neuron],
                "lowest on a half": found.low[neuron],
                "highest on a half": found.high[neuron],
            }
            for letter, found in standings.items()
        ]
    )


def _near(run: Run, unit: Selection, key: str, labels: Array | None) -> None:
    """The neurons whose ranks on all texts are nearest to its own."""
    layer, neuron = unit.layer or 0, unit.neuron or 0
    among = "layer"
    if labels is not None:
        among = address.segmented("Nearest neighbours in", _AMONG, f"{key}_near", "module")
    profiles = pictures.profiles(run, layer)
    members = np.ones(profiles.shape[1], dtype=bool)
    if among == "module" and labels is not None:
        members = labels == labels[neuron]
    found, distance = inspection.neighbours(profiles, neuron, members, NEAREST)
    letters = list(pictures.standings(run, layer))
    table = pd.DataFrame({"layer": layer, "neuron": found, "distance": distance})
    for letter, ranks in zip(letters, profiles, strict=True):
        table[f"rank on {letter}"] = ranks[found]
    if labels is not None:
        table.insert(1, "module", labels[found])
    selection.table(table, f"{key}_near_rows", alt="the neurons nearest to it", height="content")
    st.caption(
        f"By the Euclidean distance between ranks on {', '.join(letters)}. Choose a row to inspect it."
    )
