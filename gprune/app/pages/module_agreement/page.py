"""Module agreement (Fig. 1b): do the modules survive a change of the texts, and better than FANG's groups?"""

from typing import Any

import numpy as np
import streamlit as st

from gprune.analysis import agreement as analysis
from gprune.analysis import published
from gprune.app.pages.module_agreement import panels
from gprune.app.pages.module_agreement.panels import MEASURES, both_sides, sides_of
from gprune.app.ui import (
    derived_cache,
    frame,
    job_runs,
    rest_of_page,
    selection,
    tables,
    text_picker,
    url_state,
    work,
)
from gprune.app.ui.card import Card, card, card_of, panel_card
from gprune.app.ui.commands import command
from gprune.app.ui.text import plain, said
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages.comparisons import COMPARISONS, FANG
from gprune.study import Study
from gprune.system.errors import GpruneError, SettingsError

FAR_APART = 1.5
"""two partitions whose module counts differ by more than this factor are hard to compare"""


@frame.page("Module agreement", "Do the modules survive when one calibration text is replaced by another?")
def show(run: Run) -> None:
    """Draws the page."""
    if run.study.substitute or run.study.metric == "twflap" or "fang" in run.study.methods:
        _agreement(run)
        if rest_of_page.waits():
            return
        _details(run)
    if not run.study.substitute:
        with card("ma_missing", "A third text is missing", run):
            _third_text(run)
    with card("ma_published", "What the paper reports", run) as drawn:
        _published(run, drawn)


def _agreement(run: Run) -> None:
    with card_of(panels.agreement, run) as drawn:
        _lines(run, drawn)
        _fang(run)


def _details(run: Run) -> None:
    with card_of(panels.shared_neurons, run) as drawn:
        _confusion(run, drawn)
    # the names of the comparisons are long
    left, right = st.columns([3, 2])
    with left, card("ma_summary", "Mean and standard deviation over layers", run) as drawn:
        _summary(run, drawn)
    with right:
        panel_card(panels.module_counts, run)


def _chooser(run: Run) -> tuple[str, list[str]]:
    """Which measure is drawn, and of which comparisons: all where none is chosen."""
    names = run.agreement().comparisons
    default = analysis.default_choice(names, run.study.metric)
    # below each other: the names of the comparisons need the whole width
    measure = url_state.segmented("Measure", MEASURES, "ma_measure", "ari")
    chosen = url_state.multiselect(
        "Comparisons",
        {name: _title(name) for name in names},
        "ma_pairs",
        default,
        help="FANG groups the neurons of one text alone; A, B and C are the calibration texts of this run.",
    )
    return measure, [name for name in names if name in chosen] or list(names)


def _title(name: str) -> str:
    return COMPARISONS[name].title


def _lines(run: Run, drawn: Card) -> None:
    record = run.agreement()
    measure, chosen = _chooser(run)
    shown = panels.agreement(run, measure=measure, comparisons=tuple(chosen), selected=selection.current(run))
    drawn.show(shown, on_point=selection.of_point)
    if sentence := derived_cache.seed_sentence(record):
        st.caption(sentence)
    if measure == "ari":
        _warn_of_counts(run, chosen)


def _warn_of_counts(run: Run, chosen: list[str]) -> None:
    """Says where module counts are so different that levels of agreement are hard to compare."""
    typical: dict[bool, list[float]] = {True: [], False: []}
    for name in chosen:
        sides = sides_of(run, name)
        if sides is None:
            continue
        first, second = (partition.counts for partition in sides)
        typical[COMPARISONS[name].fang] += [float(np.median(first)), float(np.median(second))]
        ratio, layer = analysis.widest_gap(first, second)
        if ratio > FAR_APART:
            st.warning(
                f"{plain(_title(name))}: layer {layer} has {first[layer]} modules on one side and "
                f"{second[layer]} on the other; ARI is then hard to compare.",
                icon=":material/balance:",
            )
    if not (typical[True] and typical[False]):
        return
    groups, modules = (float(np.median(typical[fang])) for fang in (True, False))
    if max(groups, modules) > FAR_APART * min(groups, modules):
        st.warning(
            f"FANG has {groups:.0f} groups in a layer and BCM {modules:.0f} modules: ARI corrects both for "
            "chance, but coarse and fine partitions are still hard to compare.",
            icon=":material/balance:",
        )


def _fang(run: Run) -> None:
    """Where FANG's groups are not in the agreement, says so and offers to compute them."""
    if any(COMPARISONS[name].kind == FANG for name in run.agreement().comparisons):
        return
    if job_runs.is_live(run):
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


def _confusion(run: Run, drawn: Card) -> None:
    there = both_sides(run)
    if not there:
        st.info("The partitions behind the agreement are not in this run.", icon=":material/info:")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = url_state.selectbox(
            "Comparison", {name: _title(name) for name in there}, "ma_pair", next(iter(there)), width=420
        )
        layer = selection.layer_field(run, "ma_layer", len(there[name][0].counts))
    drawn.show(panels.shared_neurons(run, comparison=name, layer=layer))


def _summary(run: Run, drawn: Card) -> None:
    table = analysis.summary(run.agreement())
    short = ("ARI", "± ARI", "overlap", "± overlap")
    columns: dict[str, Any] = {
        name: st.column_config.NumberColumn(label, format="%.3f", width=width, help=name)
        for name, label, width in zip(table.columns[1:], short, (58, 62, 66, 76), strict=True)
    }
    columns["comparison"] = st.column_config.Column(width=268)
    drawn.table(
        table,
        column_config=columns,
        alt="mean and deviation of every comparison",
        how="Each row compares two partitions of the same neurons. ARI and overlap are means over layers, ± "
        "their deviation: 1 is the same modules, an ARI of 0 is chance. Another seed says what to expect of "
        "the same text.",
    )


def _published(run: Run, drawn: Card) -> None:
    drawn.published(published.SWAP, run.study)
    st.caption("Under substitution of one text (LLaMA2-7B, FLAP, 32 layers), mean and standard deviation over layers:")
    table = published.substitution()
    tables.show(table, alt="published module agreement")


def _third_text(run: Run) -> None:
    st.info(
        "Agreement means: replace one of the two calibration texts by a third and see whether the modules "
        "stay. This study has only two; its field `substitute` is empty.",
        icon=":material/info:",
    )
    chosen = text_picker.pick("Third text C", "ma_substitute", run.study.to_dict().get("substitute") or "")
    try:
        study: Study = run.study.with_settings({"substitute": chosen})
        if not chosen:
            raise SettingsError("choose a third text first")
    except GpruneError as error:
        st.caption(said(error))
        return
    st.code(command(study), language="bash", wrap_lines=True)
    st.caption("Finished stages are reused: only what needs the third text is computed.")
    work.start_button("Compute with this third text", "ma_start", run.root, study, type="primary")
