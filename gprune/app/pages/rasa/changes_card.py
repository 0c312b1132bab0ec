"""What changes: the neurons that other thresholds decide differently, as far as that is known unlearned."""

import streamlit as st

from gprune.analysis import mask_diff
from gprune.app.pages.rasa import panels
from gprune.app.pages.rasa.panels import NOT_LEARNED, told
from gprune.app.ui import url_state
from gprune.app.ui.card import Card, card_of
from gprune.pipeline.runs.opened import Run
from gprune.study import ReliabilitySettings


def show(run: Run, settings: ReliabilitySettings) -> None:
    """Draws the card."""
    with card_of(panels.changes, run) as drawn:
        changed = panels.changed_by(run, settings)
        if changed.total or changed.heads:
            drawn.show(panels.changes(run, **told(run, settings)))
        else:
            drawn.title(mask_diff.headline(changed))
            st.caption("With the lines where they are, the masks of this run come out again.")
        st.caption(NOT_LEARNED)
    with card_of(panels.changed_retention, run) as drawn:
        _bins(run, drawn, settings)


def _bins(run: Run, drawn: Card, settings: ReliabilitySettings) -> None:
    """Retention and Jaccard by drift bin, beside the run's own and the base method's."""
    bases = panels.bases(run)
    if not bases:
        st.info("Needs the masks of a method to compare with.", icon=":material/hourglass_empty:")
        return
    first = panels.base_of(run)
    base = url_state.selectbox("Compare with", bases, "rasa_base", first, width=260)
    asked = {"base": "" if base == first else base} | told(run, settings)
    both = panels.changed_retention(run, **asked), panels.changed_overlap(run, **asked)
    drawn.title(both[0].title)
    for column, name, one in zip(st.columns(2), ("retention", "jaccard"), both, strict=True):
        drawn.offers(one)
        column.plotly_chart(one.figure, key=f"rasa_bins_{name}")
    st.caption(both[0].caption)
    drawn.tools(both[0].table)
