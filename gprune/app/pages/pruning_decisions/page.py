"""Pruning decisions (Fig. 3): where did the budget go, and which neurons were chosen differently?"""

import streamlit as st

from gprune.analysis import decisions as analysis
from gprune.analysis import published
from gprune.analysis.formatting import percent
from gprune.analysis.verdict import own_method
from gprune.app.pages.pruning_decisions import panels
from gprune.app.ui import derived_cache, frame, rest_of_page, selection, url_state
from gprune.app.ui.card import Card, card_of, panel_card
from gprune.app.ui.chart_style import METHOD_LABELS, label
from gprune.app.ui.text import plain
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run


@frame.page(
    "Pruning decisions",
    "Where did the budget go, and which neurons were chosen differently from the baseline?",
)
def show(run: Run) -> None:
    """Draws the page."""
    base, bins = _controls(run)
    left, right = st.columns(2)
    with left, card_of(panels.retention, run) as drawn:
        _retention(run, drawn, base, bins)
    with right, card_of(panels.overlap, run) as drawn:
        drawn.show(panels.overlap(run, base=base, bins=bins))
        drawn.published(published.JACCARD, run.study)
    if rest_of_page.waits():
        return
    panel_card(panels.shares, run, base=base, bins=bins)
    left, right = st.columns(2)
    with left:
        panel_card(panels.neurons_kept, run, selection.of_point)
    with right:
        panel_card(panels.groups_kept, run, selection.of_point)
    if run.study.repair.scaled:
        panel_card(panels.scales, run)
    left, right = st.columns(2)
    with left, card_of(panels.parts, run) as drawn:
        _warn(derived_cache.acting(run).of_parts)
        drawn.show(panels.parts(run))
    with right, card_of(panels.explained, run) as drawn:
        found = derived_cache.acting(run)
        if found.drift_explained.modules != found.drift_explained.modules:
            st.caption("Every neuron drifts alike here, so there is nothing to explain.")
        else:
            _warn(found.of_modules)
            drawn.show(panels.explained(run))


def _warn(sentences: tuple[str, ...]) -> None:
    for words in sentences:
        st.warning(f"{plain(words[:1].upper() + words[1:])}.", icon=":material/warning:")


def _controls(run: Run) -> tuple[str, int]:
    found = panels.bases(run)
    # before the masks are there the usual baselines can be chosen already
    choices = found or ["flap", "wanda_sp"]
    preferred = own_method(run.study.metric)
    default = choices.index(preferred) if preferred in choices else 0
    with st.container(horizontal=True, vertical_alignment="bottom"):
        named = {name: label(name) for name in choices}
        chosen = url_state.selectbox("Baseline", named, "pd_base", choices[default], width=200)
        bins = url_state.slider("Drift bins", "pd_bins", panels.BINS, 3, panels.MOST_BINS, 1, width=240)
    if chosen != preferred:
        st.caption(
            f"GPrune scored with {plain(label(run.study.metric))} in this run: against "
            f"{METHOD_LABELS[chosen]} the "
            "metric differs too, not only the restructured ranking."
        )
    return chosen, bins


def _retention(run: Run, drawn: Card, base: str, bins: int) -> None:
    result = panels.binned(run, base, bins)
    ours, other = (run.load(stages.masks, name) for name in ("gprune", base))
    gap = abs(ours.retention - other.retention)
    if gap > analysis.BUDGET_TOLERANCE:
        st.warning(
            f"The budgets differ: GPrune keeps {percent(ours.retention, 2)} of the decoder's weights, "
            f"{label(base)} {percent(other.retention, 2)}. Differences between the bars are partly that.",
            icon=":material/warning:",
        )
    if len(result.names) < bins:
        st.caption(f"The run has only {len(result.names)} modules, so there are {len(result.names)} bins.")
    drawn.show(panels.retention(run, base=base, bins=bins))
    if direction := analysis.direction_sentence(result):
        st.caption(direction)
    drawn.published(published.RETENTION, run.study)
