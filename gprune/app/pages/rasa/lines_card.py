"""The card with the lines: modules by drift and score, the counts, and the way to a run of its own."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import streamlit as st

from gprune.analysis import thresholds
from gprune.analysis.formatting import percent
from gprune.app.pages.rasa import controls, panels
from gprune.app.pages.rasa.threshold_lines import Lines, draw
from gprune.app.ui import buttons, derived_cache, faults, selection, url_state, work
from gprune.app.ui.card import card_of
from gprune.app.ui.panel import Panel
from gprune.app.ui.text import short
from gprune.pipeline.runs.opened import Run
from gprune.pruning.rasa import prefers_auxiliary
from gprune.records import AdaptedScores
from gprune.study import ReliabilitySettings, Study

_MARK = ", RASA "
"""stands in a study's name between its own part and the thresholds"""


def show(run: Run, settings: ReliabilitySettings, on_select: Callable[[], None]) -> None:
    """Draws the card."""
    with card_of(panels.modules, run) as drawn:
        found = derived_cache.preview(run, settings)
        log = url_state.flag("rasa_log", True)
        shown = panels.modules(run, log=log, **panels.told(run, settings))
        drawn.title(shown.title)
        controls.presets(run)
        log = log and settings.score_scale == "raw"
        _scatter(run, settings, found, log, on_select)
        drawn.tools(caption=shown.caption, how=shown.how)
        controls.fields(run)
        _tiles(found.counts)
        _compare_scales(run, settings, found.adapted)
        _prune(run, settings)
        with st.container(horizontal=True):
            if settings.score_scale == "raw":
                url_state.toggle("Log scale of the score", "rasa_log", True)
            figure = url_state.toggle("As a figure", "rasa_figure", help="The same for a paper: its camera writes SVG.")
        drawn.offers(shown)
        if figure:
            drawn.show(Panel(shown.figure, shown.caption))


def _scatter(
    run: Run,
    settings: ReliabilitySettings,
    found: thresholds.Decision,
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


def _tiles(counts: thresholds.Counts) -> None:
    tiles = (
        ("Modules adapted", f"{counts.adapted} / {counts.modules}"),
        ("Neurons in them", f"{counts.neurons:,} ({percent(counts.neurons / counts.all_neurons, 1)})"),
        ("Adapted, stay on A", f"{counts.from_primary}"),
        ("Re-scored from B", f"{counts.from_auxiliary}"),
        ("Neurons re-scored", f"{counts.rescored:,} ({percent(counts.rescored / counts.all_neurons, 1)})"),
    )
    with st.grid(5, min_column_width=120):
        for name, value in tiles:
            st.metric(name, value)


def _compare_scales(run: Run, settings: ReliabilitySettings, adapted: AdaptedScores) -> None:
    if settings.selection != "drift_and_score":
        return
    other: Any = "standardized" if settings.score_scale == "raw" else "raw"
    _, under_other = derived_cache.preview(run, replace(settings, score_scale=other))
    same = int((adapted.adapted & under_other.adapted).sum())
    if not (adapted.adapted.any() or under_other.adapted.any()):
        return
    jaccard = thresholds.overlap(adapted.adapted, under_other.adapted)
    st.caption(
        f"With {other} scores {int(under_other.adapted.sum())} modules would be adapted, {same} of them the "
        f"same (Jaccard {jaccard:.2f})."
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
    if buttons.pressed("Prune with these thresholds", key="rasa_prune", type="primary", icon=":material/cut:"):
        with faults.shown():
            if work.start(run.root, changed_study(run, settings)) is not None:
                st.rerun(scope="app")
    st.caption("Starts a job for the changed study; calibration, drift and modules are reused.")
