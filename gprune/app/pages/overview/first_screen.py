"""The first screen of the overview: the run in one sentence, and the three figures behind it."""

import streamlit as st

from gprune.app.pages.overview import panels
from gprune.app.ui import job_runs, selection, story, tour
from gprune.app.ui.card import card_of
from gprune.app.ui.chart_style import waiting
from gprune.app.ui.text import plain, said
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.system.errors import GpruneError

NARROWEST = 245
"""pixels of a figure before the three stand below each other"""


def show(run: Run) -> None:
    """Draws the sentence and the figures."""
    _headline(run)
    # in the order of the argument: ranks move, more than noise moves them, and that is what it costs
    with st.grid(3, min_column_width=NARROWEST):
        with card_of(panels.movers, run) as drawn:
            _wait(run, "ov_slope_waiting")
            shown = panels.movers(run, selected=selection.current(run))
            drawn.show(shown, on_point=selection.of_point, narrow=True)
        with card_of(panels.noise, run) as drawn:
            _wait(run, "ov_survival_waiting")
            drawn.show(panels.noise(run), narrow=True)
        with card_of(panels.cost, run) as drawn:
            drawn.show(panels.cost(run), narrow=True)


def _headline(run: Run) -> None:
    try:
        found = story.headline(run)
    except GpruneError as error:
        st.error(said(error), icon=":material/error:")
        return
    with st.container(key="ov_headline", gap="xsmall"):
        left, right = st.columns([5, 1.25], vertical_alignment="center")
        left.markdown(f"## {plain(found.sentence)}")
        with right:
            tour.begin_button()
        st.caption(plain(found.detail))


def _wait(run: Run, key: str) -> None:
    """Draws empty axes while the drift is being computed; the browser loads Plotly meanwhile."""
    if not run.has(stages.drift) and job_runs.is_live(run):
        sentence = "Drawn here in a moment"
        st.plotly_chart(waiting(sentence), key=key, config={"displayModeBar": False}, alt=sentence)
