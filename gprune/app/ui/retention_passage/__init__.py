"""A passage that the browser colours anew while the retention is dragged, from losses that are all there.

The slider stops only at retentions at which a model has read the passage; where it is let go comes back
through a callback.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from gprune.app.ui import dragging
from gprune.records import Array

_COMPONENT = dragging.component(
    "gprune_retention_passage",
    Path(__file__).parent,
    "../tokens/colours.js",
    "retention_passage.js",
    looks=("../tokens/tokens.css",),
)


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """The passage as a pruned model reads it at one retention."""

    retention: float
    """fraction of the decoder's weights kept"""
    losses: Array
    """(tokens,) losses in nats, NaN where there is none"""
    label: str
    """what the model is called, with its retention"""
    change: str
    """how much worse it is than the dense model, in words"""


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """What is drawn."""

    tokens: tuple[str, ...]
    """ready to be shown"""
    dense: Array
    """(tokens,) losses of the dense model in nats, NaN where there is none"""
    levels: tuple[Level, ...]
    """at least one, by retention"""
    retention: float
    """where the slider stands; where there is no such level, it stands at the nearest"""
    reach: tuple[float, float]
    """the ends of the slider"""
    limit: float
    """nats at which the colours end"""
    told: str
    """what stands below the passage"""


def draw(shown: Shown, *, key: str, fills: bool, on_retention: Callable[[float], None]) -> None:
    """Draws slider and passage; `on_retention` is told at which of the levels the slider is let go.

    It `fills` its frame, in letters that fit, or is as high as it is and scrolls. The slider goes with every
    other line of the retention that is dragged on the page.
    """

    def released() -> None:
        lines = st.session_state[key].get("lines")
        value = lines.get("retention") if isinstance(lines, dict) else None
        # what a browser sends may be anything
        found = next((level.retention for level in shown.levels if level.retention == value), None)
        if found is not None:
            on_retention(found)

    sent, height = data(shown) | {"fills": fills}, "stretch" if fills else "content"
    _COMPONENT(key=key, data=sent, height=height, on_lines_change=released)


def data(shown: Shown) -> dict[str, Any]:
    """What the browser is sent: strings, and losses as float32, level by level."""
    return {
        "tokens": list(shown.tokens),
        "dense": _packed(shown.dense),
        "losses": _packed(np.concatenate([level.losses for level in shown.levels])),
        "levels": [{"retention": one.retention, "label": one.label, "change": one.change} for one in shown.levels],
        "retention": min((one.retention for one in shown.levels), key=lambda at: abs(at - shown.retention)),
        "reach": list(shown.reach),
        "limit": shown.limit,
        "told": shown.told,
    }


def _packed(values: Array) -> str:
    return base64.b64encode(np.asarray(values).astype("<f4").tobytes()).decode("ascii")
