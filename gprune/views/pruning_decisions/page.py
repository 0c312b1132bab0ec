"""Pruning decisions (Fig. 3): where did the budget go, and which neurons were chosen differently?"""

from __future__ import annotations

import streamlit as st

from gprune import stages
from gprune.analysis import acting, acting_table, published
from gprune.analysis import decisions as analysis
from gprune.analysis.signs import percent
from gprune.views.frame import address, derived, frame, selection
from gprune.views.frame.card import Card, card
from gprune.views.frame.chart_style import METHOD_LABELS, label
from gprune.views.frame.loaders import Run
from gprune.views.frame.text import plain
from gprune.views.pruning_decisions import charts as figures
from gprune.views.pruning_decisions import pictures


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "Pruning decisions",
        "Where did the budget go, and which neurons were chosen differently from the base method?",
    )
    run = frame.require_run()
    if run is None:
        return
    base, bins = _controls(run)
    left, right = st.columns(2)
    with left, card("pd_budget", "Retention by drift of the modules", run) as drawn:
        _retention(run, drawn, base, bins)
    with right, card("pd_jaccard", "Which neurons are chosen differently?", run) as drawn:
        _jaccard(run, drawn, base, bins)
    with card("pd_shares", "Who keeps the neurons?", run) as drawn:
        _shares(run, drawn, base, bins)
    left, right = st.columns(2)
    with left, card("pd_neurons", "Neurons kept, layer by layer", run) as drawn:
        _layers(run, drawn, "neurons")
    with right, card("pd_heads", "Attention kept, layer by layer", run) as drawn:
        _layers(run, drawn, "heads")
    left, right = st.columns(2)
    with left, card("pd_acting", "What does each part of GPrune do?", run) as drawn:
        _acting(run, drawn)
    with right, card("pd_explained", "Do the modules explain the drift?", run) as drawn:
        _explained(run, drawn)


def _acting(run: Run, drawn: Card) -> None:
    found = derived.acting(run)
    idle = [part for part, share in found.decisions_changed.items() if share < acting.LEAST]
    if idle:
        drawn.title(f"{' and '.join(idle)} {'acts' if len(idle) == 1 else 'act'} on next to no decision")
    _warn(found.of_parts)
    drawn.chart(
        pictures.parts(run),
        "Share of the decisions on neurons that would be others without a part; left of the dashed line "
        "nothing should be credited to it.",
        table=lambda: acting_table.table(found),
        how="Each part is taken away alone from the run's own decision, at the same retention, and all else "
        "stays: without RASA every module is scored from A, without MSL all thresholds are as they started, "
        "without BCM the neurons of a layer are ranked in one list.",
    )


def _explained(run: Run, drawn: Card) -> None:
    acting_parts = derived.acting(run)
    found = acting_parts.drift_explained
    if found.modules != found.modules:
        st.caption("Every neuron drifts alike here, so there is nothing to explain.")
        return
    drawn.title(
        f"The modules explain {100 * found.modules:.0f} % of the drift's variance, random ones "
        f"{100 * found.random:.0f} %"
    )
    _warn(acting_parts.of_modules)
    drawn.chart(
        pictures.explained(run),
        "Share of the variance of rank drift within layers that lies between modules: what knowing a "
        "neuron's module says of its drift.",
        table=lambda: acting_table.explained_table(found),
        how="Random modules of the same sizes explain a little by chance. Where the initialization explains "
        "more than the modules, the refinement has given up part of what the split by drift had found.",
    )


def _warn(sentences: tuple[str, ...]) -> None:
    for words in sentences:
        st.warning(f"{plain(words[:1].upper() + words[1:])}.", icon=":material/warning:")


def _controls(run: Run) -> tuple[str, int]:
    found = pictures.bases(run)
    # before the masks are there the usual baselines can be chosen already
    choices = found or ["flap", "wanda_sp"]
    preferred = pictures.preferred(run)
    default = choices.index(preferred) if preferred in choices else 0
    with st.container(horizontal=True, vertical_alignment="bottom"):
        named = {name: label(name) for name in choices}
        chosen = address.selectbox("Base method", named, "pd_base", choices[default], width=200)
        bins = address.slider("Drift bins", "pd_bins", pictures.BINS, 3, pictures.MOST_BINS, 1, width=240)
    if chosen != preferred:
        st.caption(
            f"GPrune scored with {plain(label(run.study.metric))} in this run: against "
            f"{METHOD_LABELS[chosen]} the "
            "metric differs too, not only the restructured ranking."
        )
    return chosen, bins


def _retention(run: Run, drawn: Card, base: str, bins: int) -> None:
    result = pictures.binned(run, base, bins)
    ours, other = (run.load(stages.masks, name) for name in ("gprune", base))
    gap = abs(ours.retention - other.retention)
    if gap > analysis.BUDGET_TOLERANCE:
        st.warning(
            f"The budgets differ: GPrune keeps {percent(ours.retention, 2)} of the decoder's weights, "
            f"{label(base)} {percent(other.retention, 2)}. Differences between the bars are partly that.",
            icon=":material/warning:",
        )
    drawn.title(analysis.headline(result, label(base)))
    _fewer_bins(result, bins)
    drawn.chart(
        pictures.retention(run, base=base, bins=bins),
        analysis.total_sentence(result, label(base)),
        table=lambda: analysis.bin_table(result, label(base)),
        how=f"Modules are sorted by the mean rank drift of their neurons and cut into {len(result.names)} "
        "bins of equally many modules; retention is pooled over a bin's neurons.",
    )
    if direction := analysis.direction_sentence(result):
        st.caption(direction)
    drawn.published(published.RETENTION, run.study)


def _fewer_bins(result: analysis.Bins, bins: int) -> None:
    if len(result.names) < bins:
        st.caption(f"The run has only {len(result.names)} modules, so there are {len(result.names)} bins.")


def _jaccard(run: Run, drawn: Card, base: str, bins: int) -> None:
    result = pictures.binned(run, base, bins)
    if len(result.jaccard) > 1:
        drawn.title(
            f"Overlap with {label(base)} goes from {result.jaccard[0]:.2f} in the most stable modules to "
            f"{result.jaccard[-1]:.2f} in the most unstable"
        )
    drawn.chart(
        pictures.overlap(run, base=base, bins=bins),
        "Neurons kept by both over neurons kept by either; near the dashed line, chance alone does it.",
        table=lambda: analysis.bin_table(result, label(base)),
        how="Dashed: what two independent choices of these sizes would share. Near it the two methods chose "
        "unrelated neurons.",
    )
    drawn.published(published.JACCARD, run.study)


def _shares(run: Run, drawn: Card, base: str, bins: int) -> None:
    result = pictures.binned(run, base, bins)
    drawn.chart(
        pictures.shares(run, base=base, bins=bins),
        "How the neurons of a bin divide between the two methods.",
        table=lambda: analysis.bin_table(result, label(base)),
    )


def _layers(run: Run, drawn: Card, part: str) -> None:
    masks = pictures.drawn_masks(run)
    named = {label(method): mask for method, mask in masks.items()}
    caption = (
        "Key/value groups, each with its query heads." if part == "heads" else "FFN neurons of each layer."
    )
    if len(masks) > figures.MOST_LINES:
        caption += " Forms and controls are drawn when their name is clicked."
    made = pictures.groups_kept if part == "heads" else pictures.neurons_kept
    drawn.chart(
        made(run, selected=selection.current(run)),
        caption,
        table=lambda: analysis.layer_table(named),
        on_point=selection.of_point,
    )
