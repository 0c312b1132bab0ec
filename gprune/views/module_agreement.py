"""Module agreement (Fig. 1b): do the modules survive a change of the calibration texts?"""

from __future__ import annotations

import streamlit as st

from gprune import records
from gprune.analysis import agreement as analysis
from gprune.analysis import published
from gprune.errors import GpruneError, SettingsError
from gprune.study import Study
from gprune.views import derived, frame, texts, work
from gprune.views.card import Card, card
from gprune.views.charts import agreement as figures
from gprune.views.commands import command
from gprune.views.loaders import Run
from gprune.views.text import plain


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "Module agreement", "Do the modules survive when one calibration text is replaced by another?"
    )
    run = frame.require_run()
    if run is None:
        return
    if not run.study.substitute:
        with card("ma_missing", "A third text is missing", run):
            _third_text(run)
    else:
        with card("ma_ari", "Agreement of the modules, layer by layer", run) as drawn:
            _measure(run, drawn, "ari")
        with card("ma_overlap", "Matched overlap, layer by layer", run) as drawn:
            _measure(run, drawn, "overlap")
        with card("ma_summary", "Mean and standard deviation over layers", run) as drawn:
            _summary(run, drawn)
        with card("ma_counts", "How many modules does each layer have?", run) as drawn:
            _counts(run, drawn)
    with card("ma_published", "What the paper reports", run) as drawn:
        _published(run, drawn)


def _measure(run: Run, drawn: Card, measure: str) -> None:
    record = run.load("agreement", records.Agreement)
    sentence = derived.seed_sentence(record) if measure == "ari" else ""
    if measure == "ari":
        drawn.title(analysis.headline(record))
        caption = (
            f"Adjusted Rand Index of two partitions of a layer: 0 is chance, 1 identical (A = "
            f"{plain(run.study.primary)}, "
            f"B = {plain(run.study.auxiliary)}, C = {plain(run.study.substitute)}). Legend: mean ± standard "
            "deviation "
            "over layers. Grey controls: the same texts with another seed, and the start of the "
            "modularization "
            "alone, which a shared seed makes agree."
        )
    else:
        caption = (
            "Share of neurons that keep their module after the best one-to-one matching of modules; "
            "not corrected for chance."
        )
    drawn.chart(
        figures.lines(record, measure),
        f"{caption} {sentence}".strip(),
        table=lambda: analysis.layer_table(record),
    )


def _summary(run: Run, drawn: Card) -> None:
    table = analysis.summary(run.load("agreement", records.Agreement))
    decimals = st.column_config.NumberColumn(format="%.3f")
    columns = {name: decimals for name in table.columns[1:]}
    st.dataframe(table, hide_index=True, column_config=columns, alt="mean and deviation of every comparison")
    drawn.tools(lambda: table, switch=False)


def _counts(run: Run, drawn: Card) -> None:
    partition = run.load("partition", records.Partition)
    counts = partition.counts
    drawn.title(f"{partition.modules} modules, {counts.min()} to {counts.max()} a layer")
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
    st.caption(
        "FANG's functional groups are not computed in this version: its figures above are the paper's."
    )


def _third_text(run: Run) -> None:
    st.info(
        "Agreement means: replace one of the two calibration texts by a third and see whether the modules "
        "stay. "
        "This study has only two; its field `substitute` is empty.",
        icon=":material/info:",
    )
    chosen = texts.pick("Third text C", "ma_substitute", run.study.to_dict().get("substitute") or "")
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
