"""Module agreement (Fig. 1b): do the modules survive a change of the texts, and better than FANG's groups?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from gprune import records, stages
from gprune.analysis import agreement as analysis
from gprune.analysis import published
from gprune.comparisons import COMPARISONS, FANG
from gprune.errors import GpruneError, SettingsError
from gprune.modularization.agreement import contingency, matched_overlap
from gprune.study import Study
from gprune.views.frame import derived, frame, text_picker, work
from gprune.views.frame.card import Card, card
from gprune.views.frame.commands import command
from gprune.views.frame.loaders import Run
from gprune.views.frame.text import plain
from gprune.views.module_agreement import charts as figures

MOST_MODULES = 24
"""modules of a confusion matrix that are shown by themselves"""
FAR_APART = 1.5
"""two partitions whose module counts differ by more than this factor are hard to compare"""


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
    with card("ma_ari", "Agreement of the modules, layer by layer", run) as drawn:
        _chooser(run)
        _measure(run, drawn, "ari")
        _fang(run)
    with card("ma_overlap", "Matched overlap, layer by layer", run) as drawn:
        _measure(run, drawn, "overlap")
    with card("ma_confusion", "Which modules share their neurons?", run) as drawn:
        _confusion(run, drawn)
    with card("ma_summary", "Mean and standard deviation over layers", run) as drawn:
        _summary(run, drawn)
    with card("ma_counts", "How many modules does each layer have?", run) as drawn:
        _counts(run, drawn)


def _key(run: Run) -> str:
    """Key of the choice of comparisons, which starts anew for another run and for more comparisons."""
    return f"ma_pairs_{run.name}_{len(run.agreement().comparisons)}"


def _chooser(run: Run) -> None:
    """The choice of the comparisons that both charts draw."""
    names = run.agreement().comparisons
    st.multiselect(
        "Comparisons",
        names,
        analysis.default_choice(names, run.study.metric),
        key=_key(run),
        format_func=_title,
        help="FANG groups the neurons of one text alone; A, B and C are the calibration texts of this run.",
    )


def _title(name: str) -> str:
    return COMPARISONS[name].title


def _chosen(run: Run) -> list[str]:
    """Names that were chosen, in the order of the figure; all where none is."""
    names = run.agreement().comparisons
    chosen = st.session_state.get(_key(run)) or names
    return [name for name in names if name in chosen]


def _measure(run: Run, drawn: Card, measure: str) -> None:
    record, chosen = run.agreement(), _chosen(run)
    sentence = derived.seed_sentence(record) if measure == "ari" else ""
    if measure == "ari":
        drawn.title(analysis.headline(record))
        caption = (
            f"Adjusted Rand Index of two partitions of a layer: 0 is chance, 1 identical "
            f"({_texts(run)}). Legend: mean ± standard deviation over layers. Grey controls: the same texts "
            "with another seed, and the start of the modularization alone, which a shared seed makes agree."
        )
    else:
        caption = (
            "Share of neurons that keep their module after the best one-to-one matching of modules; "
            "not corrected for chance, which is higher where there are fewer modules."
        )
    drawn.chart(
        figures.lines(record, measure, chosen),
        f"{caption} {sentence}".strip(),
        table=lambda: analysis.layer_table(record),
    )
    if measure == "ari":
        _warn_of_counts(run, chosen)


def _texts(run: Run) -> str:
    roles = zip("ABC", (run.study.primary, run.study.auxiliary, run.study.substitute), strict=True)
    return ", ".join(f"{letter} = {plain(text)}" for letter, text in roles if text)


def _warn_of_counts(run: Run, chosen: list[str]) -> None:
    """Says where module counts are so different that levels of agreement are hard to compare."""
    typical: dict[bool, list[float]] = {True: [], False: []}
    for name in chosen:
        sides = _sides(run, name)
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


def _sides(run: Run, name: str) -> tuple[records.Partition, records.Partition] | None:
    """The two partitions of a comparison; None where one is not there."""
    comparison = COMPARISONS[name]
    found = [stages.side(run.graph, one) for one in (comparison.first, comparison.second)]
    if not all(run.there(stage) for stage in found):
        return None
    return run.read(found[0]), run.read(found[1])


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
        if st.button("Compute with FANG", key="ma_fang", icon=":material/play_arrow:"):
            work.start(run.root, study)
            st.rerun()


def _confusion(run: Run, drawn: Card) -> None:
    sides = {name: _sides(run, name) for name in run.agreement().comparisons}
    there = {name: found for name, found in sides.items() if found is not None}
    if not there:
        st.info("The partitions behind the agreement are not in this run.", icon=":material/info:")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("Comparison", list(there), key="ma_pair", format_func=_title, width=420)
        name = name if name in there else next(iter(there))
        first, second = there[name]
        most = len(first.counts) - 1
        layer = st.number_input("Layer", 0, most, most // 2, key="ma_layer", bind="query-params", width=160)
    layer = min(max(int(layer or 0), 0), most)
    shared = analysis.confusion(contingency(first.labels[layer], second.labels[layer]), MOST_MODULES)
    overlap = matched_overlap(first.labels[layer], second.labels[layer])
    labels = COMPARISONS[name].first.label, COMPARISONS[name].second.label
    drawn.title(f"Layer {layer}: {overlap:.0%} of the neurons keep their module, {plain(_title(name))}")
    drawn.chart(
        figures.confusion(shared, *labels),
        f"Each row is a module of {labels[0]}; colour is the share of its neurons that is in "
        f"a module of {labels[1]}. A bright diagonal means that modules survive, a bright "
        f"column that one module swallows others. The {MOST_MODULES} largest matches stand by themselves; "
        "+n gathers n others.",
        table=lambda: pd.DataFrame(shared.counts, shared.rows, shared.columns).reset_index(names="module"),
    )


def _summary(run: Run, drawn: Card) -> None:
    table = analysis.summary(run.agreement())
    decimals = st.column_config.NumberColumn(format="%.3f")
    columns = {name: decimals for name in table.columns[1:]}
    st.dataframe(table, hide_index=True, column_config=columns, alt="mean and deviation of every comparison")
    drawn.tools(lambda: table, switch=False)


def _counts(run: Run, drawn: Card) -> None:
    partition = run.load(stages.partition)
    counts = partition.counts
    least, most = counts.min(), counts.max()
    each = f"{least} to {most}" if most > least else f"{most}"
    drawn.title(f"{partition.modules} modules, {each} a layer")
    drawn.chart(
        figures.counts(partition),
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
    st.dataframe(table, hide_index=True, alt="published module agreement")


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
        st.caption(plain(error))
        return
    st.code(command(study), language="bash", wrap_lines=True)
    st.caption("Finished stages are reused: only what needs the third text is computed.")
    if st.button(
        "Compute with this third text", key="ma_start", icon=":material/play_arrow:", type="primary"
    ):
        work.start(run.root, study)
        st.rerun()
