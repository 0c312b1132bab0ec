"""Tab *Module agreement* (Fig. 1b): modules under a change of the texts, compared with FANG's groups."""

from typing import Any

import numpy as np
import streamlit as st

from gprune.analysis import agreement as analysis
from gprune.analysis import published
from gprune.app.figures import module_agreement as figures
from gprune.app.ui import card as cards
from gprune.app.ui import derived_cache, frame, job_runs, rest_of_page, selection, tables, text_picker, url_state, work
from gprune.app.ui.commands import command
from gprune.app.ui.text import plain, said
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages.comparisons import COMPARISONS, FANG
from gprune.study import Study
from gprune.system.errors import GpruneError, SettingsError

_LARGEST_RATIO = 1.5
"""two partitions whose module counts differ by more than this factor are hard to compare"""


@frame.page("Module agreement", "Do the modules survive when one calibration text is replaced by another?")
def show(run: Run) -> None:
    """Draw the page."""
    if run.study.substitute or run.study.metric == "twflap" or "fang" in run.study.methods:
        with cards.card_of(figures.agreement, run) as card:
            _show_agreement(run, card)
            _offer_fang(run)
        if rest_of_page.waits():
            return
        with cards.card_of(figures.shared_neurons, run) as card:
            _show_shared_neurons(run, card)
        # the names of the comparisons are long
        left, right = st.columns([3, 2])
        with left, cards.card("ma_summary", "Mean and standard deviation over layers", run) as card:
            _show_summary(run, card)
        with right:
            cards.panel_card(figures.module_counts, run)
    if not run.study.substitute:
        with cards.card("ma_missing", "A third text is missing", run):
            _offer_third_text(run)
    with cards.card("ma_published", "What the paper reports", run) as card:
        card.published(published.SWAP, run.study)
        st.caption(
            "Under substitution of one text (LLaMA2-7B, FLAP, 32 layers), mean and standard deviation over layers:"
        )
        tables.show(published.substitution(), alt="published module agreement")


def _show_agreement(run: Run, card: cards.Card) -> None:
    record = run.agreement()
    default = analysis.default_choice(record.comparisons, run.study.metric)
    # below each other: the names of the comparisons need the whole width
    measure = url_state.segmented("Measure", figures.MEASURES, "ma_measure", "ari")
    chosen = url_state.multiselect(
        "Comparisons",
        {name: COMPARISONS[name].title for name in record.comparisons},
        "ma_pairs",
        default,
        help="FANG groups the neurons of one text alone; A, B and C are the calibration texts of this run.",
    )
    names = tuple(name for name in record.comparisons if name in chosen) or tuple(record.comparisons)
    panel = figures.agreement(run, measure=measure, comparisons=names, selected=selection.current(run))
    card.show(panel, on_point=selection.of_point)
    if sentence := derived_cache.seed_sentence(record):
        st.caption(sentence)
    if measure == "ari":
        _warn_of_counts(run, names)


def _warn_of_counts(run: Run, names: tuple[str, ...]) -> None:
    counts: dict[bool, list[float]] = {True: [], False: []}
    for name in names:
        pair = figures.partition_pair(run, name)
        if pair is None:
            continue
        first, second = (partition.counts for partition in pair)
        counts[COMPARISONS[name].fang] += [float(np.median(first)), float(np.median(second))]
        ratio, layer = analysis.widest_gap(first, second)
        if ratio > _LARGEST_RATIO:
            st.warning(
                f"{plain(COMPARISONS[name].title)}: layer {layer} has {first[layer]} modules on one side and "
                f"{second[layer]} on the other; ARI is then hard to compare.",
                icon=":material/balance:",
            )
    if not (counts[True] and counts[False]):
        return
    groups, modules = (float(np.median(counts[fang])) for fang in (True, False))
    if max(groups, modules) > _LARGEST_RATIO * min(groups, modules):
        st.warning(
            f"FANG has {groups:.0f} groups in a layer and BCM {modules:.0f} modules: ARI corrects both for "
            "chance, but coarse and fine partitions are still hard to compare.",
            icon=":material/balance:",
        )


def _offer_fang(run: Run) -> None:
    if any(COMPARISONS[name].kind == FANG for name in run.agreement().comparisons) or job_runs.is_live(run):
        return
    study = run.study
    if "fang" not in study.methods:
        study = study.with_settings({"methods": [*study.methods, "fang"]})
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            "FANG's functional groups, which the paper sets the modules against, were not computed in this run.",
            width="stretch",
        )
        work.start_button("Compute with FANG", "ma_fang", run.root, study)


def _show_shared_neurons(run: Run, card: cards.Card) -> None:
    pairs = figures.partition_pairs(run)
    if not pairs:
        st.info("The partitions behind the agreement are not in this run.", icon=":material/info:")
        return
    titles = {name: COMPARISONS[name].title for name in pairs}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = url_state.selectbox("Comparison", titles, "ma_pair", next(iter(pairs)), width=420)
        layer = selection.layer_field(run, "ma_layer", len(pairs[name][0].counts))
    card.show(figures.shared_neurons(run, comparison=name, layer=layer))


def _show_summary(run: Run, card: cards.Card) -> None:
    table = analysis.summary(run.agreement())
    headings = ("ARI", "± ARI", "overlap", "± overlap")
    columns: dict[str, Any] = {
        name: st.column_config.NumberColumn(heading, format="%.3f", width=width, help=name)
        for name, heading, width in zip(table.columns[1:], headings, (58, 62, 66, 76), strict=True)
    }
    columns["comparison"] = st.column_config.Column(width=268)
    card.table(
        table,
        column_config=columns,
        alt="mean and deviation of every comparison",
        how="Each row compares two partitions of the same neurons. ARI and overlap are means over layers, ± "
        "their deviation: 1 is the same modules, an ARI of 0 is chance. Another seed says what to expect of "
        "the same text.",
    )


def _offer_third_text(run: Run) -> None:
    st.info(
        "Agreement means: replace one of the two calibration texts by a third and see whether the modules "
        "stay. This study has only two; its field `substitute` is empty.",
        icon=":material/info:",
    )
    text = text_picker.pick("Third text C", "ma_substitute", run.study.to_dict().get("substitute") or "")
    try:
        study: Study = run.study.with_settings({"substitute": text})
        if not text:
            raise SettingsError("choose a third text first")
    except GpruneError as error:
        st.caption(said(error))
        return
    st.code(command(study), language="bash", wrap_lines=True)
    st.caption("Finished stages are reused: only what needs the third text is computed.")
    work.start_button("Compute with this third text", "ma_start", run.root, study, type="primary")
