"""What changes: the neurons that other thresholds decide differently, as far as that is known unlearned."""

from __future__ import annotations

import streamlit as st

from gprune.analysis import decisions, flips
from gprune.study import ReliabilitySettings
from gprune.views.frame import address
from gprune.views.frame.card import Card, card
from gprune.views.frame.loaders import Run
from gprune.views.frame.picture import call, shown
from gprune.views.reliability import lab, pictures
from gprune.views.reliability import whatif_charts as figures
from gprune.views.reliability.pictures import told

NOT_LEARNED = (
    "The thresholds of the modules were not learned anew: the run's own are shifted together until they meet "
    "the retention again. A run with this rule learns its own, and can decide otherwise."
)


def show(run: Run, settings: ReliabilitySettings) -> None:
    """Draws the card.

    Args:
        run: the run.
        settings: the rule as it stands.
    """
    with card("rasa_changes", "What changes?", run) as drawn:
        own = lab.own_masks(run)
        now = lab.lab_masks(run, lab.choice(run, settings))
        changed = flips.compare(own, now)
        drawn.title(flips.headline(changed))
        if changed.total or changed.heads:
            drawn.chart(
                shown("changes", figures.flips_by_layer(changed), **told(run, settings)),
                "Neurons that change sides in each layer, against the masks of this run.",
                alt=flips.headline(changed),
                table=lambda: flips.table(changed),
            )
        else:
            st.caption("With the lines where they are, the masks of this run come out again.")
        st.caption(NOT_LEARNED)
    with card("rasa_bins", "Where does the budget go?", run) as drawn:
        _bins(run, drawn, settings)


def _bins(run: Run, drawn: Card, settings: ReliabilitySettings) -> None:
    """Retention and Jaccard by drift bin, beside the run's own and the base method's."""
    bases = pictures.bases(run)
    if not bases:
        st.info("Needs the masks of a method to compare with.", icon=":material/hourglass_empty:")
        return
    first = pictures.base_of(run)
    base = address.selectbox("Compare with", bases, "rasa_base", first, width=260)
    before, after = pictures.binned(run, settings, base)
    asked = {"base": "" if base == first else base} | told(run, settings)
    drawn.offers(call("changed_retention", **asked))
    drawn.offers(call("changed_overlap", **asked))
    drawn.title(decisions.headline(after, bases[base]))
    left, right = st.columns(2)
    with left:
        st.plotly_chart(figures.retention(before, after, base), key="rasa_bins_retention")
    with right:
        st.plotly_chart(figures.jaccard(before, after, bases[base]), key="rasa_bins_jaccard")
    st.caption(
        "Modules sorted by drift, in bins of equal number: the share of neurons kept, and how far the kept "
        f"ones are those of {bases[base]}. Hollow: this run; filled: these thresholds, not learned anew."
    )
    drawn.tools(lambda: figures.bin_table(before, after, bases[base]))
