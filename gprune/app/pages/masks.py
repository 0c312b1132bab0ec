"""Page *Masks*: retention by drift (Fig. 3), and the units that each method keeps."""

import streamlit as st

from gprune.analysis import published
from gprune.analysis.verdict import own_method
from gprune.app.figures import masks as figures
from gprune.app.ui import address, frame, selection
from gprune.app.ui import card as cards
from gprune.app.ui.chart_style import METHOD_LABELS, label
from gprune.app.ui.derived_cache import budget_warning, default_baseline
from gprune.app.ui.text import escape, escape_error
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.system.errors import MethodError


@frame.declare_page(
    "Pruning decisions",
    "Where did the budget go, and which neurons were chosen differently from the baseline?",
    "Pruning decisions are shown by modules of neurons; Experts shows what each method removes.",
)
def show_decisions(run: Run) -> None:
    """Draw the page."""
    base, bins = _choose_baseline(run)
    left, right = st.columns(2)
    with left, cards.card_of(figures.retention, run) as card:
        _show_retention(run, card, base, bins)
    with right, cards.card_of(figures.overlap, run) as card:
        card.show(figures.overlap(run, base=base, bins=bins))
        card.published(published.JACCARD, run.study)
    if frame.is_rest_deferred():
        return
    left, right = st.columns(2)
    with left, cards.card_of(figures.layers_kept, run) as card:
        _show_layers(run, card)
    with right:
        cards.panel_card(figures.parts, run)


def _show_layers(run: Run, card: cards.Card) -> None:
    """Draw the share of each layer that GPrune keeps, or the learned scales of the kept units."""
    units = [*figures.UNITS, *([figures.SCALES] if run.study.repair.scaled else [])]
    unit = address.segmented_control("Unit", units, "pd_unit", figures.NEURONS)
    if unit == figures.SCALES:
        card.show(figures.scales(run))
        return
    selected = selection.current_selection(run)
    card.show(figures.layers_kept(run, unit=unit, selected=selected), on_point=selection.select_mark)


def _choose_baseline(run: Run) -> tuple[str, int]:
    # these baselines can be chosen before the run has computed its masks
    names = figures.base_methods(run) or ["flap", "wanda_sp"]
    labels = {name: label(name) for name in names}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        base = address.selectbox("Baseline", labels, "pd_base", default_baseline(run, names), width=200)
        bins = address.slider("Drift bins", "pd_bins", figures.BINS, 3, figures.MOST_BINS, 1, width=240)
    if base != own_method(run.study.metric):
        st.caption(
            f"GPrune uses {escape(label(run.study.metric))} in this run, so the comparison with {METHOD_LABELS[base]} "
            "also reflects the difference of the metrics, not only the restructured ranking."
        )
    return base, bins


def _show_retention(run: Run, card: cards.Card, base: str, bins: int) -> None:
    result = figures.bin_decisions(run, base, bins)
    if warning := budget_warning(run, "gprune", base):
        st.warning(warning, icon=":material/warning:")
    if len(result.names) < bins:
        st.caption(f"The run has only {len(result.names)} modules, so there are {len(result.names)} bins.")
    card.show(figures.retention(run, base=base, bins=bins))
    card.published(published.RETENTION, run.study)


@frame.declare_page(
    "Mask atlas",
    "Where does a method keep more than another, and which units depend on the calibration text?",
    "The mask atlas shows neurons; Experts shows what each method removes.",
)
def show_atlas(run: Run) -> None:
    """Draw the page."""
    options = _choose_masks(run)
    left, right = st.columns(2)
    with left, cards.card_of(figures.atlas, run) as card:
        _compare_methods(run, card, options)
    with right, cards.card_of(figures.atlas_texts, run) as card:
        _compare_texts(run, card, {name: value for name, value in options.items() if name != "base"})
    if frame.is_rest_deferred():
        return
    masks = {name: options[name] for name in ("method", "base") if name in options}
    cards.panel_card(figures.atlas_groups, run, selection.select_mark, **masks)


def _choose_masks(run: Run) -> dict[str, str]:
    try:
        labels = figures.mask_labels(run)
        default, _ = figures.choose_masks(run, "", "")
    except MissingResultError:
        # each card says what is missing
        return {}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        method = address.selectbox("Method", labels, "atlas_method", default, width=200)
        baselines = {name: title for name, title in labels.items() if name != method}
        base = ""
        if baselines:
            default_base = figures.choose_masks(run, method, "")[1]
            base = address.selectbox("Baseline", baselines, "atlas_base", default_base, width=200)
        color = address.segmented_control("Colour", figures.COLORS, "atlas_shown", figures.CHANGE)
    return {"method": method, "base": base, "shown": color}


def _compare_methods(run: Run, card: cards.Card, options: dict[str, str]) -> None:
    method, base = figures.choose_masks(run, options.get("method", ""), options.get("base", ""))
    if method == base:
        st.info("This card compares the masks of two methods; this run has one.", icon=":material/hourglass_empty:")
        return
    if warning := budget_warning(run, method, base):
        st.warning(warning, icon=":material/warning:")
    card.show(figures.atlas(run, **options, selected=selection.current_selection(run)), on_point=selection.select_mark)


def _compare_texts(run: Run, card: cards.Card, options: dict[str, str]) -> None:
    try:
        panel = figures.atlas_texts(run, **options, selected=selection.current_selection(run))
    except MethodError as error:
        st.info(
            f"{escape_error(error)}. Start a run with the texts exchanged, or choose another method, such as FLAP.",
            icon=":material/info:",
        )
        return
    card.show(panel, on_point=selection.select_mark)
