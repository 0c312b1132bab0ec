"""The chart of perplexity against retention, whose line sets how much is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
import streamlit as st

from gprune.analysis import whatif
from gprune.analysis.formatting import percent
from gprune.app.pages.rasa import lab, preview_curve, retention_line
from gprune.app.pages.rasa.preview_curve import Known
from gprune.app.pages.rasa.retention_card import KEEP, LEAST, MOST
from gprune.app.ui import tables, url_state
from gprune.app.ui.card import Card
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import plain, said
from gprune.pipeline.runs.opened import Run
from gprune.study.methods import METHODS
from gprune.system.errors import GpruneError

_CAPTION = "Hollow points still lack windows; bars are one standard error of the paired ratio to dense."
_HOW = (
    "Drag the line, or give it the focus (Tab) and press the arrow keys, Page Up, Page Down, Home or End; a "
    "click on a point takes its retention. While the line moves, each perplexity is read off the curve: "
    "interpolated on the log axis between two points, not measured. When it is let go, every method decides "
    "its masks anew at that retention. Points without a line are what this run has measured."
)
_SHIFTED = (
    "GPrune's thresholds are not learned anew at another retention: the run's own are shifted together until "
    "they meet it. The other methods decide anew from scores that are there."
)


def at_the_line(choice: whatif.LabChoice, method: str) -> whatif.LabChoice:
    """What a method of the curve decides at the line; baselines decide by A."""
    learned = METHODS[method].decision == "learned"
    return replace(choice, method=method, scoring=choice.scoring if learned else whatif.PRIMARY)


def show(
    run: Run,
    drawn: Card,
    choice: whatif.LabChoice,
    methods: Sequence[str],
    text: str,
    points: Sequence[Known],
    refused: Mapping[str, str],
) -> None:
    """Draws chart, what each method keeps at the line, and the numbers.

    `points` have at least one window each; `refused` says by method why it has not all of them.
    """
    st.markdown(f"**Perplexity on {plain(text)} against retention**")
    retention_line.draw(
        preview_curve.series(points),
        preview_curve.reference(points) if points else None,
        choice.retention,
        (LEAST, MOST),
        f"perplexity of {len({name for name, _, _ in points})} methods against retention",
        key="rasa_curve",
        on_retention=_keep,
    )
    drawn.tools(lambda: preview_curve.table(points), caption=_CAPTION, how=_HOW)
    refused = dict(refused) | _kept(run, choice, methods)
    for method, reason in refused.items():
        st.caption(f"Points of {plain(label(method))} are missing: {said(reason)}.")


def _keep(retention: float) -> None:
    url_state.put(KEEP, retention)


def _kept(run: Run, choice: whatif.LabChoice, methods: Sequence[str]) -> dict[str, str]:
    """Shows what the chosen methods keep at the line, decided anew; says why where one cannot."""
    rows, refused = list[dict[str, object]](), dict[str, str]()
    for method in methods:
        try:
            masks = lab.lab_masks(run, at_the_line(choice, method))
        except GpruneError as error:
            refused[method] = str(error)
            continue
        rows.append(
            {
                "method": label(method),
                "weights kept": masks.retention,
                "neurons kept": masks.ffn.mean(),
                "key/value groups kept": masks.heads.mean(),
            }
        )
    if rows:
        tables.show(
            pd.DataFrame(rows),
            alt=f"what each method keeps at {percent(choice.retention)}",
            shares=dict.fromkeys(list(rows[0])[1:], 2),
        )
    if "gprune" in methods and abs(choice.retention - run.study.retention) > 1e-9:
        st.caption(_SHIFTED)
    return refused
