"""The plane of both quantiles: how much is adapted anywhere, and where the present lines stand."""

from typing import Any

import streamlit as st

from gprune.app.pages.rasa import controls, panels
from gprune.app.ui import derived_cache, selection, url_state
from gprune.app.ui.card import card_of
from gprune.pipeline.runs.opened import Run
from gprune.study import ReliabilitySettings


def show(run: Run, settings: ReliabilitySettings) -> None:
    """Draws the card."""
    with card_of(panels.quantiles, run) as drawn:
        derived_cache.preview(run, settings)
        if settings.selection != "drift_and_score":
            st.info("Both lines decide only where modules are adapted by drift and score.")
            return
        reach = url_state.segmented("Range of both quantiles", panels.RANGES, "rasa_range", "near")
        drawn.show(panels.quantiles(run, span=reach, **panels.told(run, settings)), on_point=_set)


def _set(point: dict[str, Any]) -> None:
    """Sets both lines to a clicked cell."""
    found = selection.custom_data(point)
    if len(found) >= 2:
        controls.put(round(float(found[0]), 3), round(float(found[1]), 3))
