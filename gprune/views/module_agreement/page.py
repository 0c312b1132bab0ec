"""Module agreement (Fig. 1b): do the modules survive a change of the texts, and better than FANG's groups?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from gprune import stages
from gprune.analysis import agreement as analysis
from gprune.analysis import published
from gprune.analysis.signs import percent
from gprune.comparisons import COMPARISONS, FANG
from gprune.errors import GpruneError, SettingsError
from gprune.modularization.agreement import matched_overlap
from gprune.study import Study
from gprune.views.frame import address, derived, frame, press, selection, tables, text_picker, work
from gprune.views.frame.card import Card, card
from gprune.views.frame.commands import command
from gprune.views.frame.loaders import Run
from gprune.views.frame.text import plain, said
from gprune.views.module_agreement import charts as figures
from gprune.views.module_agreement import pictures
from gprune.views.module_agreement.pictures import (
    MEASURES,
    MOST_MODULES,
    both_sides,
    confusion,
    sides_of,
)

FAR_APART = 1.5
"""two partitions whose module counts differ by more than this factor are hard to compare"""

_CAPTIONS = {
    "ari": "0 is what chance gives, 1 are identical modules; legend: mean ± standard deviation over layers.",
    "overlap": "Share of neurons that keep their module; legend: mean ± standard deviation over layers.",
}
_HOW = {
    "ari": "Adjusted Rand Index of two partitions of a layer: 0 is chance, 1 identical.",
    "overlap": "Share of neurons that keep their module after the best one-to-one matching of modules. It is "
    "not corrected for chance, which is higher where there are fewer modules.",
}
_CONTROLS = (
    "Dashed and hollow: controls. The same texts with another seed of k-means say how much of the agreement "
    "the shared seed makes; the start of the modularization alone says what its refinement adds."
)


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "Module agreement", "Do the modules survive when one calibration text is replaced by another?"
    )
    run = frame.require_run()
    if run is None:
        return
    if run.study.substitute or run.study.metric == "twflap" or "fang" in run.study.methods:
        _cards(run)
    if not run.study.substitute:
        with card("ma_missing", "A third text is missing", run):
            _third_text(run)
    with card("ma_published", "What the paper reports", run) as drawn:
        _published(run, drawn)


def _cards(run: Run) -> None:
    """Everything that is drawn from the agreement."""
    with card("ma_lines", "Agreement of the modules, layer by layer", run) as drawn:
        _lines(run, drawn)
        _fang(run)
    with card("ma_confusion", "Which modules share their neurons?", run) as drawn:
        _confusion(run, drawn)
    # the names of the comparisons are long
    left, right = st.columns([3, 2])
    with left, card("ma_summary", "Mean and standard deviation over layers", run) as drawn:
        _summary(run, drawn)
    with right, card("ma_counts", "How many modules does each layer have?", run) as drawn:
        _counts(run, drawn)


def _chooser(run: Run) -> tuple[str, list[str]]:
    """Which measure is drawn, and of which comparisons: all where none is chosen."""
    names = run.agreement().comparisons
    default = analysis.default_choice(names, run.study.metric)
    # below each other: the names of the comparisons need the whole width
    measure = address.segmented("Measure", MEASURES, "ma_measure", "ari")
    chosen = address.multiselect(
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
    drawn.title(analysis.headline(record))
    drawn.chart(
        pictures.agreement(run, measure=measure, comparisons=tuple(chosen), selected=selection.current(run)),
        _CAPTIONS[measure],
        table=lambda: analysis.layer_table(record),
        how=f"{_HOW[measure]} {_texts(run)}. {_CONTROLS}",
        on_point=selection.of_point,
    )
    if sentence := derived.seed_sentence(record):
        st.caption(sentence)
    if measure == "ari":
        _warn_of_counts(run, chosen)


def _texts(run: Run) -> str:
    roles = zip("ABC", (run.study.primary, run.study.auxiliary, run.study.substitute), strict=True)
    return ", ".join(f"{letter} = {plain(text)}" for letter, text in roles if text)


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
    if work.is_live(run):
        return
    study = run.study
    if "fang" not in study.methods:
        study = study.with_settings({"methods": [*study.methods, "fang"]})
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            "FANG's functional groups, which the paper sets the modules against, were not computed in this "
            "run.",
            width="stretch",
        )
        if press.pressed("Compute with FANG", key="ma_fang", icon=":material/play_arrow:"):
            if work.start(run.root, study) is not None:
                st.rerun()


def _confusion(run: Run, drawn: Card) -> None:
    there = both_sides(run)
    if not there:
        st.info("The partitions behind the agreement are not in this run.", icon=":material/info:")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = address.selectbox(
            "Comparison", {name: _title(name) for name in there}, "ma_pair", next(iter(there)), width=420
        )
        first, second = there[name]
        layer = selection.layer_field(run, "ma_layer", len(first.counts))
    shared = confusion(first, second, layer)
    overlap = matched_overlap(first.labels[layer], second.labels[layer])
    labels = COMPARISONS[name].first.label, COMPARISONS[name].second.label
    drawn.title(f"Layer {layer}: {percent(overlap)} of the neurons keep their module, {plain(_title(name))}")
    drawn.chart(
        pictures.shared_neurons(run, comparison=name, layer=layer),
        "A bright diagonal means that modules survive, a bright column that one module swallows others.",
        table=lambda: pd.DataFrame(shared.counts, shared.rows, shared.columns).reset_index(names="module"),
        how=f"Each row is a module of {labels[0]}; colour is the share of its neurons that is in a module of "
        f"{labels[1]}. The {MOST_MODULES} largest matches stand by themselves; +n gathers n others.",
    )


def _summary(run: Run, drawn: Card) -> None:
    table = analysis.summary(run.agreement())
    short = ("ARI", "± ARI", "overlap", "± overlap")
    columns: dict[str, Any] = {
        name: st.column_config.NumberColumn(label, format="%.3f", width=width, help=name)
        for name, label, width in zip(table.columns[1:], short, (58, 62, 66, 76), strict=True)
    }
    columns["comparison"] = st.column_config.Column(width=268)
    tables.show(table, column_config=columns, alt="mean and deviation of every comparison")
    drawn.tools(lambda: table, switch=False)


def _counts(run: Run, drawn: Card) -> None:
    partition = run.load(stages.partition)
    counts = partition.counts
    least, most = counts.min(), counts.max()
    each = f"{least} to {most}" if most > least else f"{most}"
    drawn.title(f"{partition.modules} modules, {each} a layer")
    drawn.chart(
        pictures.module_counts(run, selected=selection.current(run)),
        f"Grey: chosen by the silhouette; blue: after the split and the refinement (profile: "
        f"{plain(partition.profile)}).",
        table=lambda: figures.count_table(partition),
    )


def _published(run: Run, drawn: Card) -> None:
    drawn.published(published.SWAP, run.study)
    st.caption(
        "Under substitution of one text (LLaMA2-7B, FLAP, 32 layers), mean and standard deviation over "
        "layers:"
    )
    table = published.substitution()
    tables.show(table, alt="published module agreement")


def _third_text(run: Run) -> None:
    st.info(
        "Agreement means: replace one of the two calibration texts by a third and see whether the modules "
        "stay. "
        "This study has only two; its field `substitute` is empty.",
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
    if press.pressed(
        "Compute with this third text", key="ma_start", icon=":material/play_arrow:", type="primary"
    ):
        if work.start(run.root, study) is not None:
            st.rerun()
