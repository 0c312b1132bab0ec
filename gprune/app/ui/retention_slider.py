"""How much is kept: the slider, and its place in the address, that Tune and a slide share."""

from gprune.app.ui import url_state
from gprune.pipeline.runs.opened import Run

KEEP = "rasa_keep"
"""how much is kept, in the address"""
LEAST, MOST = 0.05, 0.98


def draw(run: Run) -> float:
    """Draws the slider, which begins at the retention of the run; the fraction that is chosen."""
    return url_state.slider(
        "Decoder weights kept", KEEP, run.study.retention, LEAST, MOST, 0.01, format="percent"
    )


def chosen(run: Run) -> float:
    """The fraction that is chosen, from the address."""
    return url_state.number(KEEP, run.study.retention, LEAST, MOST)
