"""Page *Drift*: rank drift (Fig. 1a) and module agreement (Fig. 1b) under a change of the texts."""

import math
from functools import partial

import numpy as np
import streamlit as st

from gprune.analysis import agreement as agreement_analysis
from gprune.analysis import published
from gprune.app.figures import drift as figures
from gprune.app.figures import experts
from gprune.app.ui import address, components, derived_cache, frame, selection, tables, work
from gprune.app.ui import card as cards
from gprune.app.ui.commands import command
from gprune.app.ui.text import escape, escape_error, name_texts
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages.rasa import COMPARISONS
from gprune.study import Study
from gprune.system.errors import GpruneError, SettingsError

_FORMS = {figures.HISTOGRAM: "Histogram", figures.SURVIVAL: "Cumulative share"}
_MOST_ROWS = 50
"""number of neurons in the table of those that shift most; its CSV has more"""
_FORMS_OF_COLUMNS = dict.fromkeys(("drift d", "rank on A", "rank on B", "A resampled", "B resampled"), "%.3f")


@frame.declare_page(
    "Rank drift", "Which ranks shift when the calibration text changes, and is the shift above resampling noise?"
)
def show_ranks(run: Run) -> None:
    """Draw the page."""
    if run.study.prunes_experts:
        _show_experts(run)
        return
    with cards.card_of(figures.drift, run) as card:
        _show_distribution(run, card)
    left, right = st.columns(2)
    with left:
        cards.panel_card(figures.drift_by_layer, run, selection.select_mark)
    if frame.is_rest_deferred():
        return
    with right, cards.card_of(figures.ranks, run) as card:
        layers = len(run.load(stages.scores, "primary").ffn)
        layer = selection.layer_field(run, "rd_layer", layers, figures.most_drifting_layer(run))
        card.show(
            figures.ranks(run, layer=layer, selected=selection.current_selection(run)), on_point=selection.select_mark
        )
    with cards.card("rd_top", "The neurons that shift most", run) as card:
        _show_top_neurons(run, card)


def _show_experts(run: Run) -> None:
    labels = experts.criterion_labels(run)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        criterion = address.segmented_control("Criterion", labels, "xp_criterion", next(iter(labels)))
        form = address.segmented_control("Form", _FORMS, "rd_form", figures.HISTOGRAM)
    left, right = st.columns(2)
    with left, cards.card_of(experts.expert_drift, run) as card:
        cards.await_drift(run, "rd_waiting", "Computing the drift of every expert")
        card.show(experts.expert_drift(run, criterion=criterion, form=form))
    with right, cards.card_of(experts.expert_drift_by_layer, run) as card:
        card.show(experts.expert_drift_by_layer(run, criterion=criterion))


def _show_distribution(run: Run, card: cards.Card) -> None:
    cards.await_drift(run, "rd_waiting", "Computing the drift of every neuron")
    # raises MissingResultError before any field is drawn
    run.key(stages.drift)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        form = address.segmented_control("Form", _FORMS, "rd_form", figures.HISTOGRAM)
        bins, log = figures.BINS, False
        if form == figures.HISTOGRAM:
            bins = address.slider("Bins", "rd_bins", figures.BINS, 20, 100, 10, width=240)
            log = address.toggle("Log scale", "rd_log")
    card.show(figures.drift(run, form=form, bins=bins, log=log))
    card.published(published.DRIFT, run.study)


def _show_top_neurons(run: Run, card: cards.Card) -> None:
    primary, auxiliary = (run.key(stages.scores, role) for role in stages.PAIR)
    read_rows = partial(derived_cache.drift_top, run.root, run.key(stages.drift), primary, auxiliary)
    table = read_rows(_MOST_ROWS)
    card.set_title(f"The {len(table)} neurons that shift most")
    columns = [name for name in table.columns if "score" not in name and name != "signed drift"]
    selection.draw_table(
        table[columns], "rd_top_rows", height=440, forms=_FORMS_OF_COLUMNS,
        heading=partial(name_texts, settings=run.study), alt="neurons with the largest drift",
    )  # fmt: skip
    st.caption("Rank 1 is the most important neuron of a layer. Select a row to select its neuron on every page.")
    card.tools(
        lambda: read_rows(derived_cache.MOST_TABLE_ROWS),
        switch=False,
        how="A neuron that also shifts between halves of one text (last columns) is noisy rather than "
        "sensitive to the text. The CSV holds the first 2,000, with their scores.",
    )


_LARGEST_RATIO = 1.5
"""partitions whose numbers of modules differ by more than this factor are hard to compare"""


@frame.declare_page(
    "Module agreement",
    "Do the modules survive when one calibration text is replaced by another?",
    "Modules are groups of neurons.",
)
def show_agreement(run: Run) -> None:
    """Draw the page."""
    if run.study.substitute or run.study.metric == "twflap" or "fang" in run.study.methods:
        with cards.card_of(figures.agreement, run) as card:
            _show_agreement(run, card)
        if frame.is_rest_deferred():
            return
        left, right = st.columns(2)
        with left:
            cards.panel_card(figures.module_counts, run)
        with right, cards.card_of(figures.explained, run) as card:
            if math.isnan(derived_cache.ablation_effects(run).drift_explained.modules):
                st.caption("Every neuron has the same drift, so there is nothing to explain.")
            else:
                card.show(figures.explained(run))
    if not run.study.substitute:
        with cards.card("ma_missing", "A third text is missing", run) as card:
            _offer_third_text(run)
            _show_published(run, card)


def _show_agreement(run: Run, card: cards.Card) -> None:
    record = run.agreement()
    default = agreement_analysis.default_choice(record.comparisons, run.study.metric)
    # the names of the comparisons need the whole width of the card
    chosen = address.multiselect(
        "Comparisons",
        {name: name_texts(COMPARISONS[name].title, run.study) for name in record.comparisons},
        "ma_pairs",
        default,
        help="FANG groups the neurons by one text alone.",
    )
    names = tuple(name for name in record.comparisons if name in chosen) or tuple(record.comparisons)
    panel = figures.agreement(run, comparisons=names, selected=selection.current_selection(run))
    card.show(panel, on_point=selection.select_mark)
    if sentence := derived_cache.seed_sentence(record):
        st.caption(sentence)
    _warn_of_counts(run, names)
    _show_published(run, card)


def _show_published(run: Run, card: cards.Card) -> None:
    card.published(published.SWAP, run.study)
    with st.expander("Published agreement", icon=":material/menu_book:"):
        st.caption("One text replaced (LLaMA2-7B, FLAP, 32 layers): mean and standard deviation over layers.")
        tables.show(published.substitution(), alt="published module agreement")


def _warn_of_counts(run: Run, names: tuple[str, ...]) -> None:
    """Warn if the compared partitions have very different numbers of modules per layer."""
    bcm_counts, fang_counts = list[float](), list[float]()
    for name in names:
        pair = figures.partition_pair(run, name)
        if pair is None:
            continue
        first, second = (partition.counts for partition in pair)
        counts = fang_counts if COMPARISONS[name].fang else bcm_counts
        counts += [float(np.median(first)), float(np.median(second))]
        ratio, layer = agreement_analysis.largest_count_ratio(first, second)
        if ratio > _LARGEST_RATIO:
            st.warning(
                f"{escape(name_texts(COMPARISONS[name].title, run.study))}: layer {layer} has {first[layer]} modules "
                f"on one side and {second[layer]} on the other, so ARI is hard to compare.",
                icon=":material/balance:",
            )
    if not (fang_counts and bcm_counts):
        return
    groups, modules = float(np.median(fang_counts)), float(np.median(bcm_counts))
    if max(groups, modules) > _LARGEST_RATIO * min(groups, modules):
        st.warning(
            f"FANG has {groups:.0f} groups per layer; the modules number about {modules:.0f} (median). ARI corrects "
            "for chance, but partitions of such different size are hard to compare.",
            icon=":material/balance:",
        )


def _offer_third_text(run: Run) -> None:
    st.info(
        "Agreement replaces one of the two calibration texts with a third and checks whether the modules stay the "
        "same. This study has no third text: its field `substitute` is empty.",
        icon=":material/info:",
    )
    text = components.pick_text("Third text C", "ma_substitute", run.study.to_dict().get("substitute") or "")
    try:
        study: Study = run.study.with_settings({"substitute": text})
        if not text:
            raise SettingsError("choose a third text first")
    except GpruneError as error:
        st.caption(escape_error(error))
        return
    st.code(command(study), language="bash", wrap_lines=True)
    st.caption("Finished stages are reused; only stages that need the third text run.")
    work.start_button("Compute with this third text", "ma_start", run.root, study, type="primary")
