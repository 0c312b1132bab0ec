"""The card with the lines: modules by drift and score, the counts, and the way to a run of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import streamlit as st

from gprune.analysis import thresholds
from gprune.analysis.signs import percent
from gprune.errors import GpruneError
from gprune.records import AdaptedScores, ModuleStatistics
from gprune.reliability import prefers_auxiliary
from gprune.study import ReliabilitySettings, Study
from gprune.views.frame import address, derived, press, selection, work
from gprune.views.frame.card import Card, card
from gprune.views.frame.loaders import Run
from gprune.views.frame.picture import call
from gprune.views.frame.text import said, short
from gprune.views.reliability import charts as figures
from gprune.views.reliability import controls
from gprune.views.reliability.pictures import told
from gprune.views.reliability.threshold_lines import Lines, draw

_RULES = {
    "drift_and_score": "In the shaded corner a module is at or above the drift line and at or below the "
    "score line: it is adapted, and scored from the text with the smaller u. "
    "The lines are quantiles over the modules of all layers.",
    "drift": "In the shaded region a module is at or above the drift line: it is adapted whatever its score, "
    "and scored from the text with the smaller u. The line is a quantile over the modules of all layers.",
    "none": "Nothing is adapted: every module keeps its scores from A, and no line applies.",
    "random": "As many modules as the paper's rule would adapt are drawn at random; no line applies.",
}
_HANDS = (
    "Drag a line, or give it the focus (Tab) and press the arrow keys, Page Up, Page Down, Home or End. "
    "While it moves, the counts follow in the browser; the tiles below are counted anew when it is let go."
)
_CAPTION = "Each mark is a module, its size the number of neurons; a click selects it."
_MARK = ", RASA "
"""stands in a study's name between its own part and the thresholds"""


def show(run: Run, settings: ReliabilitySettings, on_select: Callable[[], None]) -> None:
    """Draws the card.

    Args:
        run: the run.
        settings: the rule as it stands.
        on_select: called after a module was selected.
    """
    with card("rasa_scatter", "Modules by drift and score", run) as drawn:
        statistics, adapted = derived.preview(run, settings)
        _title(drawn, statistics, adapted)
        controls.presets(run)
        log = address.flag("rasa_log", True) and settings.score_scale == "raw"
        _scatter(run, settings, (statistics, adapted), log, on_select)
        drawn.tools(caption=_CAPTION, how=_reading(settings, log))
        controls.fields(run)
        _tiles(statistics, adapted)
        _compare_scales(run, settings, adapted)
        _prune(run, settings)
        with st.container(horizontal=True):
            if settings.score_scale == "raw":
                address.toggle("Log scale of the score", "rasa_log", True)
            figure = address.toggle(
                "As a figure", "rasa_figure", help="The same for a paper: its camera writes SVG."
            )
        drawn.offers(call("modules", log=address.flag("rasa_log", True), **told(run, settings)))
        if figure:
            drawn.chart(figures.scatter(statistics, adapted, log, settings.selection), _CAPTION)


def _scatter(
    run: Run,
    settings: ReliabilitySettings,
    found: tuple[ModuleStatistics, AdaptedScores],
    log: bool,
    on_select: Callable[[], None],
) -> None:
    statistics, adapted = found
    chosen, start = selection.current(run), np.searchsorted(statistics.layer, np.arange(len(adapted.scores)))
    index = -1
    if chosen.layer is not None and chosen.module is not None:
        index = int(start[chosen.layer]) + chosen.module

    def select(module: int) -> None:
        layer = int(statistics.layer[module])
        selection.select(layer, module - int(start[layer]))
        on_select()

    levels = settings.drift_quantile, settings.score_quantile
    draw(
        statistics,
        prefers_auxiliary(statistics, settings, run.study.seed),
        Lines(*levels, settings.selection, log),
        index,
        f"{int(adapted.adapted.sum())} of {len(adapted.adapted)} modules are adapted",
        key="rasa_lines",
        on_lines=controls.put,
        on_module=select,
    )


def _reading(settings: ReliabilitySettings, log: bool) -> str:
    return (
        _RULES[settings.selection]
        + (" Modules with a score of zero cannot be drawn on a log scale." if log else "")
        + (f" {_HANDS}" if settings.selection in ("drift", "drift_and_score") else "")
    )


def _title(drawn: Card, statistics: ModuleStatistics, adapted: AdaptedScores) -> None:
    counts = thresholds.count(statistics, adapted)
    drawn.title(
        f"{counts.adapted} of {counts.modules} modules are adapted, {counts.from_auxiliary} of them scored "
        "from B"
        if counts.adapted
        else f"None of the {counts.modules} modules is adapted"
    )


def _tiles(statistics: ModuleStatistics, adapted: AdaptedScores) -> None:
    counts = thresholds.count(statistics, adapted)
    tiles = (
        ("Modules adapted", f"{counts.adapted} / {counts.modules}"),
        ("Neurons in them", f"{counts.neurons:,} ({percent(counts.neurons / counts.all_neurons, 1)})"),
        ("Scored from A", f"{counts.from_primary}"),
        ("Scored from B", f"{counts.from_auxiliary}"),
        ("Neurons re-scored", f"{counts.rescored:,} ({percent(counts.rescored / counts.all_neurons, 1)})"),
    )
    with st.grid(5, min_column_width=120):
        for name, value in tiles:
            st.metric(name, value)


def _compare_scales(run: Run, settings: ReliabilitySettings, adapted: AdaptedScores) -> None:
    if settings.selection != "drift_and_score":
        return
    other: Any = "standardized" if settings.score_scale == "raw" else "raw"
    _, under_other = derived.preview(run, replace(settings, score_scale=other))
    same = int((adapted.adapted & under_other.adapted).sum())
    if not (adapted.adapted.any() or under_other.adapted.any()):
        return
    jaccard = thresholds.overlap(adapted.adapted, under_other.adapted)
    st.caption(
        f"With {other} scores {int(under_other.adapted.sum())} modules would be adapted, {same} of them the "
        "same "
        f"(Jaccard {jaccard:.2f})."
    )


def changed_study(run: Run, settings: ReliabilitySettings) -> Study:
    """The run's study under other thresholds, with a name that says them."""
    name = run.study.name or short(run.study.model)
    return run.study.with_settings(
        {
            "reliability.drift_quantile": settings.drift_quantile,
            "reliability.score_quantile": settings.score_quantile,
            "reliability.score_scale": settings.score_scale,
            "reliability.selection": settings.selection,
            "name": f"{name.split(_MARK)[0]}{_MARK}{thresholds.described(settings)}",
        }
    )


def _prune(run: Run, settings: ReliabilitySettings) -> None:
    if settings == run.study.reliability:
        st.caption("These are the thresholds of this run.")
        return
    if press.pressed("Prune with these thresholds", key="rasa_prune", type="primary", icon=":material/cut:"):
        try:
            job = work.start(run.root, changed_study(run, settings))
        except GpruneError as error:
            st.error(said(error), icon=":material/error:")
            return
        if job is not None:
            st.rerun(scope="app")
    st.caption("Starts a job for the changed study; calibration, drift and modules are reused.")
