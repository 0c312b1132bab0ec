"""Tab *Pruning decisions* (Fig. 3): retention by drift, and the neurons chosen differently from a baseline."""

import math

import streamlit as st

from gprune.analysis import decisions as analysis
from gprune.analysis import published
from gprune.analysis.verdict import own_method
from gprune.app.figures import pruning_decisions as figures
from gprune.app.ui import card as cards
from gprune.app.ui import derived_cache, frame, rest_of_page, selection, url_state
from gprune.app.ui.chart_style import METHOD_LABELS, label
from gprune.app.ui.masks import budget_warning, default_baseline
from gprune.app.ui.text import plain
from gprune.pipeline.runs.opened import Run


@frame.page(
    "Pruning decisions", "Where did the budget go, and which neurons were chosen differently from the baseline?"
)
def show(run: Run) -> None:
    """Draw the page."""
    base, bins = _show_controls(run)
    left, right = st.columns(2)
    with left, cards.card_of(figures.retention, run) as card:
        _show_retention(run, card, base, bins)
    with right, cards.card_of(figures.overlap, run) as card:
        card.show(figures.overlap(run, base=base, bins=bins))
        card.published(published.JACCARD, run.study)
    if rest_of_page.waits():
        return
    cards.panel_card(figures.shares, run, base=base, bins=bins)
    left, right = st.columns(2)
    with left:
        cards.panel_card(figures.neurons_kept, run, selection.of_point)
    with right:
        cards.panel_card(figures.groups_kept, run, selection.of_point)
    if run.study.repair.scaled:
        cards.panel_card(figures.scales, run)
    left, right = st.columns(2)
    with left, cards.card_of(figures.parts, run) as card:
        _warn(derived_cache.acting(run).of_parts)
        card.show(figures.parts(run))
    with right, cards.card_of(figures.explained, run) as card:
        effect = derived_cache.acting(run)
        if math.isnan(effect.drift_explained.modules):
            st.caption("Every neuron drifts alike here, so there is nothing to explain.")
        else:
            _warn(effect.of_modules)
            card.show(figures.explained(run))


def _warn(sentences: tuple[str, ...]) -> None:
    for sentence in sentences:
        st.warning(f"{plain(sentence[:1].upper() + sentence[1:])}.", icon=":material/warning:")


def _show_controls(run: Run) -> tuple[str, int]:
    # before the masks are there the usual baselines can be chosen already
    names = figures.baselines(run) or ["flap", "wanda_sp"]
    labels = {name: label(name) for name in names}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        base = url_state.selectbox("Baseline", labels, "pd_base", default_baseline(run, names), width=200)
        bins = url_state.slider("Drift bins", "pd_bins", figures.BINS, 3, figures.MOST_BINS, 1, width=240)
    if base != own_method(run.study.metric):
        st.caption(
            f"GPrune scored with {plain(label(run.study.metric))} in this run: against {METHOD_LABELS[base]} the "
            "metric differs too, not only the restructured ranking."
        )
    return base, bins


def _show_retention(run: Run, card: cards.Card, base: str, bins: int) -> None:
    result = figures.bin_decisions(run, base, bins)
    if warning := budget_warning(run, "gprune", base):
        st.warning(warning, icon=":material/warning:")
    if len(result.names) < bins:
        st.caption(f"The run has only {len(result.names)} modules, so there are {len(result.names)} bins.")
    card.show(figures.retention(run, base=base, bins=bins))
    if direction := analysis.direction_sentence(result):
        st.caption(direction)
    card.published(published.RETENTION, run.study)
