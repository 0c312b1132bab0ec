"""The scatter of modules with two draggable threshold lines; while a line moves, the browser counts the modules.

The lines show the same pair of quantiles as the sliders. Their position is sent to the browser with the data, and a
callback receives it when a line is released.
"""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from gprune.analysis import thresholds
from gprune.app.ui import components
from gprune.app.ui.chart_style import GREY, TEXT_A, TEXT_B
from gprune.app.ui.marks import RING
from gprune.records import Array, ModuleStatistics

SCRIPTS = ("moving.js", "counting.js", "drawing.js")
"""files that are joined into one JavaScript module"""
_COMPONENT = st.components.v2.component(
    "gprune_threshold_lines",
    html=components.read_asset("threshold_lines.html"),
    css=components.read_asset("threshold_lines.css"),
    js="\n".join(map(components.read_asset, SCRIPTS)),
)
STEPS = 200
"""number of steps between the quantiles 0 and 1"""
COLORS = (GREY, TEXT_A, TEXT_B)
"""colours of modules that are unchanged, adapted but still scored from A, and re-scored from B"""


@dataclass(frozen=True, slots=True)
class Lines:
    """Positions of the lines and the rule that they belong to."""

    drift_quantile: float
    """in [0, 1]"""
    score_quantile: float
    """in [0, 1]"""
    selection: str
    """the rule that selects modules; it has lines if it is drift_and_score or drift"""
    log: bool
    """whether the score is drawn on a log scale"""
    texts: tuple[str, ...]
    """names of the primary and the auxiliary text"""


def draw(
    statistics: ModuleStatistics,
    from_auxiliary: Array,
    lines: Lines,
    selected: int,
    alt: str,
    *,
    key: str,
    on_lines: Callable[[float, float], None],
    on_module: Callable[[int], None],
) -> None:
    """Draw the scatter of modules with its draggable lines.

    `from_auxiliary` is (modules,) bool, True for modules that are scored from B if adapted; `selected` is an index
    over the modules of all layers, -1 for none. `on_lines` receives both quantiles when a line is released, and
    `on_module` the index of a clicked module.
    """

    def handle_release() -> None:
        message = st.session_state[key].get("lines")
        sent = message if isinstance(message, dict) else {}
        drift, score = (_snap_quantile(sent.get(name)) for name in ("drift", "score"))
        if drift is not None and score is not None:
            on_lines(drift, score)

    def handle_click() -> None:
        index = st.session_state[key].get("module")
        if isinstance(index, (int, float)) and 0 <= index < len(statistics.size):
            on_module(int(index))

    _COMPONENT(
        key=key,
        data=_data(statistics, from_auxiliary, lines, selected, alt),
        height="content",
        on_lines_change=handle_release,
        on_module_change=handle_click,
    )


def _snap_quantile(value: object) -> float | None:
    """Return a quantile from the browser as a multiple of 1 / STEPS; None if it is not in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        return None
    return round(value * STEPS) / STEPS


def _data(statistics: ModuleStatistics, from_auxiliary: Array, lines: Lines, selected: int, alt: str) -> dict[str, Any]:
    """Return the data for the browser; module values are typed arrays, so that its counts equal Python's."""
    arrays = {
        "drift": statistics.drift.astype("<f8"),
        "score": statistics.score.astype("<f8"),
        "size": statistics.size.astype("<i4"),
        "layer": statistics.layer.astype("<i4"),
        "number": thresholds.labels_within_layer(statistics.layer).astype("<i4"),
        "u_primary": statistics.u_primary.astype("<f8"),
        "u_auxiliary": statistics.u_auxiliary.astype("<f8"),
        "from_auxiliary": np.asarray(from_auxiliary).astype("u1"),
    }
    raw = {name: values.tobytes() for name, values in arrays.items()}
    return {
        **{name: base64.b64encode(content).decode("ascii") for name, content in raw.items()},
        "digest": hashlib.sha256(b"".join(raw.values())).hexdigest()[:16],
        "drift_quantile": lines.drift_quantile,
        "score_quantile": lines.score_quantile,
        "selection": lines.selection,
        "log": lines.log,
        "texts": list(lines.texts),
        "selected": selected,
        "colors": list(COLORS),
        "ring": RING,
        "alt": alt,
    }
