"""The rule of the lab as a reader sets it: one pair of quantiles, of which sliders and fields are views."""

from dataclasses import replace
from typing import Any

import streamlit as st

from gprune.app.ui import buttons, url_state
from gprune.pipeline.runs.opened import Run
from gprune.study import ReliabilitySettings

DRIFT, SCORE, SCALE, SELECTION = "rasa_qd", "rasa_qs", "rasa_scale", "rasa_selection"
KEEP, LEAST, MOST = "rasa_keep", 0.05, 0.98
"""key of the retention in the address, and its range"""
STEP = 0.005
PRESETS: dict[str, tuple[float, float, str, str]] = {
    "Paper, LLaMA2: 0.90 / 0.90": (0.90, 0.90, "drift_and_score", "raw"),
    "Paper, Vicuna: 0.90 / 0.85": (0.90, 0.85, "drift_and_score", "raw"),
    "Drift only": (0.90, 0.90, "drift", ""),
    "None": (0.90, 0.90, "none", ""),
}
SELECTIONS = {
    "drift_and_score": "drift and score (paper)",
    "drift": "drift only",
    "none": "none",
}
RANDOM = {"random": "random modules (control)"}
"""offered only for a run that selects at random"""
_SCALES = ("raw", "standardized")


def settings(run: Run) -> ReliabilitySettings:
    """The rule as it stands; the run's own where nothing else was asked for."""
    own = run.study.reliability
    chosen: dict[str, Any] = {
        "drift_quantile": url_state.number(DRIFT, own.drift_quantile, 0.0, 1.0),
        "score_quantile": url_state.number(SCORE, own.score_quantile, 0.0, 1.0),
        "score_scale": url_state.choice(SCALE, _SCALES, own.score_scale),
        "selection": url_state.choice(SELECTION, selections(run), own.selection),
    }
    return replace(own, **chosen)


def retention(run: Run) -> float:
    """Return the chosen retention, that of the run where none was chosen."""
    return url_state.number(KEEP, run.study.retention, LEAST, MOST)


def retention_slider(run: Run) -> float:
    """Draw the slider of the retention and return its value."""
    return url_state.slider("Decoder weights kept", KEEP, run.study.retention, LEAST, MOST, 0.01, format="percent")


def put(drift: float, score: float, selection: str = "", scale: str = "") -> None:
    """Sets the lines, and rule and scale where they are given; for callbacks."""
    values: dict[str, Any] = {DRIFT: float(drift), SCORE: float(score)}
    if selection in SELECTIONS | RANDOM:
        values[SELECTION] = selection
    if scale in _SCALES:
        values[SCALE] = scale
    url_state.put_all(values)


def presets(run: Run) -> None:
    """Buttons that set the lines and the rule, each with a key of the keyboard."""
    own = run.study.reliability
    with st.container(horizontal=True, vertical_alignment="center"):
        for number, (name, preset) in enumerate(PRESETS.items(), start=1):
            buttons.act(name, f"rasa_preset_{name}", "", put, *preset, shortcut=f"Alt+{number}")
        defaults = own.drift_quantile, own.score_quantile, own.selection, own.score_scale
        buttons.act("This run's own", "rasa_preset_own", "", put, *defaults, type="tertiary", shortcut="Alt+0")


def fields(run: Run) -> None:
    """The quantiles as sliders and as fields to type in, and the variants of the rule."""
    own = run.study.reliability
    left, right = st.columns(2)
    with left:
        _level("γ_drift: quantile of the drift line", DRIFT, own.drift_quantile)
    with right:
        _level("γ_score: quantile of the score line", SCORE, own.score_quantile)
    with st.container(horizontal=True):
        url_state.segmented(
            "Mean score", _SCALES, SCALE, own.score_scale,
            help="raw as in the paper, or standardized within the layer",
        )  # fmt: skip
        url_state.segmented("Adapt by", selections(run), SELECTION, own.selection)


def _level(label: str, key: str, default: float) -> None:
    """One quantile as a slider and a number field."""
    wide, narrow = st.columns([4, 1], vertical_alignment="bottom")
    with wide:
        url_state.slider(label, key, default, 0.0, 1.0, STEP, format="%.3f")
    with narrow:
        url_state.number_field(label, key, default, 0.0, 1.0, STEP, format="%.3f", label_visibility="collapsed")


def selections(run: Run) -> dict[str, str]:
    """Return the rules that the page offers by their labels; random modules only if the run selects them."""
    return SELECTIONS | RANDOM if run.study.reliability.selection == "random" else SELECTIONS
