"""The slides: the tour for an audience, one sentence and one figure that fill the window.

A slide is a step of the tour whose address says `present=1`. It stands in the place of the page of its step,
which Escape gives back.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from gprune.app.ui import assets, faults, present, slide_foot, tour
from gprune.app.ui.panel import Panel, PanelFunction
from gprune.pipeline.runs.opened import MissingResultError, Run

_LETTERS = 21
_FEW = 4
_BESIDE = {"orientation": "v", "x": 1.01, "xanchor": "left", "y": 1.0, "yanchor": "top"}
"""a longer legend stands beside the figure, which is wide, and not below it"""
_GROWN = 1.7
"""factor by which lines and marks are larger"""


def on() -> bool:
    """Return True if a step of the tour is presented."""
    return present.on() and tour.under_way() > 0


@dataclass(frozen=True, slots=True)
class SlideFigures:
    """The figures of the slides."""

    panels: Mapping[str, PanelFunction[...]]
    """the figures of all pages by name"""
    retention_curve: Callable[[Run], None]
    """draws the figure of the last slide"""


def show(run: Run | None, figures: SlideFigures) -> None:
    """Draws the slide."""
    number = tour.under_way()
    step = tour.STEPS[number - 1]
    # whoever ends presenting goes on where the slide was
    tour.stay(number)
    assets.look("slides")
    assets.install("slide_keys")
    with st.container(key="slide", gap="small"):
        st.markdown(f":blue-badge[{number} / {len(tour.STEPS)}] {step.title}")
        with faults.shown():
            st.markdown(f"# {tour.told(step.sentence, run)}")
            with st.container(key="slide_figure"):
                # the sentence names a result that is missing
                with contextlib.suppress(MissingResultError):
                    if run is not None and step.figure:
                        _figure(step.figure, figures.panels[step.figure](run))
                    elif run is not None:
                        figures.retention_curve(run)
        _foot(number)


def _figure(name: str, panel: Panel) -> None:
    st.plotly_chart(
        grown(panel.figure),
        key=f"slide_{name}",
        height="stretch",
        config={"displayModeBar": False},
        alt=panel.alt or panel.caption,
    )


def grown(figure: go.Figure) -> go.Figure:
    """A figure that takes the height of its frame, its letters, lines and marks as an audience sees them."""
    made = present.enlarged(figure, _LETTERS).update_layout(height=None, title=None)
    if made.layout.legend.orientation != "h" or len(made.data) > _FEW:
        made.update_layout(legend=_BESIDE)
    for trace in made.data:
        # bars and maps have no width or size of their own
        for part, size in (("line", "width"), ("marker", "size")):
            drawn: Any = getattr(trace, part, None)
            value = getattr(drawn, size, None)
            if isinstance(value, int | float):
                drawn[size] = value * _GROWN
    return made


def _foot(number: int) -> None:
    """The way on: for those who use a pointer, and by the keys of a presenter."""
    slide_foot.draw([step.title for step in tour.STEPS], number, key="slide_foot", on_slide=tour.go)
