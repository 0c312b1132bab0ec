"""The plane of both quantiles: how much is adapted anywhere, and where the present lines stand."""

from __future__ import annotations

from typing import Any

import streamlit as st

from gprune.analysis import thresholds
from gprune.analysis.signs import percent
from gprune.study import ReliabilitySettings
from gprune.views.frame import address, derived, selection
from gprune.views.frame.card import card
from gprune.views.frame.loaders import Run
from gprune.views.frame.picture import shown
from gprune.views.reliability import controls
from gprune.views.reliability import whatif_charts as figures
from gprune.views.reliability.pictures import LEVELS, RANGES, told


def show(run: Run, settings: ReliabilitySettings) -> None:
    """Draws the card.

    Args:
        run: the run.
        settings: the rule as it stands.
    """
    with card("rasa_grid", "How much is adapted under other quantiles?", run) as drawn:
        statistics, adapted = derived.preview(run, settings)
        if settings.selection != "drift_and_score":
            st.info("Both lines decide only where modules are adapted by drift and score.")
            return
        reach = address.segmented("Range of both quantiles", RANGES, "rasa_range", "near")
        levels = LEVELS[reach]
        counts = thresholds.grid(statistics, levels, levels)
        present = settings.drift_quantile, settings.score_quantile
        share = adapted.adapted.mean()
        drawn.title(f"{percent(share, 1)} of the modules are adapted at {present[0]:.3f} / {present[1]:.3f}")
        drawn.chart(
            shown(
                "quantiles",
                figures.grid(levels, counts, len(adapted.adapted), present),
                span=reach,
                **told(run, settings),
            ),
            "Share of modules adapted. Ring: the present lines; stars: the paper's. A click sets both lines.",
            alt=f"{percent(share, 1)} of the modules are adapted with the present lines",
            table=lambda: figures.grid_table(levels, counts),
            on_point=_set,
        )


def _set(point: dict[str, Any]) -> None:
    """Sets both lines to a clicked cell."""
    found = selection.custom_data(point)
    if len(found) >= 2:
        controls.put(round(float(found[0]), 3), round(float(found[1]), 3))
