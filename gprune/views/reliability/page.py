"""RASA thresholds (section 3.2): which modules are sensitive and weakly supported, and what if?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from gprune.analysis import thresholds
from gprune.errors import GpruneError
from gprune.records import AdaptedScores, ModuleStatistics
from gprune.study import ReliabilitySettings
from gprune.views.frame import derived, frame, work
from gprune.views.frame.card import Card, card
from gprune.views.frame.loaders import Run
from gprune.views.frame.text import plain, short
from gprune.views.reliability import charts as figures

DRIFT, SCORE, SCALE, SELECTION = "rasa_qd", "rasa_qs", "rasa_scale", "rasa_selection"
_PRESETS: dict[str, tuple[float, float, str]] = {
    "Paper, LLaMA2: 0.90 / 0.90": (0.90, 0.90, "drift_and_score"),
    "Paper, Vicuna: 0.90 / 0.85": (0.90, 0.85, "drift_and_score"),
    "Drift only": (0.90, 0.90, "drift"),
    "None": (0.90, 0.90, "none"),
}
_SELECTIONS = {
    "drift_and_score": "drift and score (paper)",
    "drift": "drift only",
    "none": "none",
}

_SCALES = ["raw", "standardized"]
_RULES = {
    "drift_and_score": "In the shaded corner a module is at or above the drift line and at or below the "
    "score line: it is adapted, and scored from the text with the smaller u. "
    "The lines are quantiles over the modules of all layers.",
    "drift": "In the shaded region a module is at or above the drift line: it is adapted whatever its score, "
    "and scored from the text with the smaller u. The line is a quantile over the modules of all layers.",
    "none": "Nothing is adapted: every module keeps its scores from A, and no line applies.",
    "random": "As many modules as the paper's rule would adapt are drawn at random; no line applies.",
}
_MARK = ", RASA "
"""stands in a study's name between its own part and the thresholds"""


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "RASA thresholds",
        "Which modules are sensitive to the text and weakly supported by A, and what changes if the lines "
        "move?",
    )
    run = frame.require_run()
    if run is not None:
        _laboratory(run)


@st.fragment
def _laboratory(run: Run) -> None:
    """Everything that follows the sliders; a fragment, so that only this part is drawn anew."""
    with card("rasa_scatter", "Modules by drift and score", run) as drawn:
        settings = _controls(run)
        statistics, adapted = derived.preview(run, settings)
        _counts(drawn, statistics, adapted)
        asked = st.toggle("Log scale of the score", value=settings.score_scale == "raw", key="rasa_log")
        log = asked and settings.score_scale == "raw"
        drawn.chart(
            figures.scatter(statistics, adapted, log, settings.selection),
            "Each mark is a module, its size the number of neurons. "
            + _RULES[settings.selection]
            + (" Modules with a score of zero cannot be drawn on a log scale." if log else ""),
            alt=f"{int(adapted.adapted.sum())} of {len(adapted.adapted)} modules are adapted",
        )
        _compare_scales(run, settings, adapted)
        _prune(run, settings)
    with card("rasa_layers", "Which layers are adapted?", run) as drawn:
        statistics, adapted = derived.preview(run, settings)
        counts = thresholds.by_layer(statistics, adapted, len(adapted.scores))
        drawn.chart(figures.by_layer(counts), _layer_caption(run, settings, int(counts.sum())))
    with card("rasa_table", "Every module", run) as drawn:
        _table(run, drawn, settings)


def _layer_caption(run: Run, settings: ReliabilitySettings, adapted: int) -> str:
    """What the bars count; where there are none, that there are none."""
    if not adapted:
        return "No module of any layer is adapted with these settings, so there are no bars."
    sentence = (
        "Each bar counts the adapted modules of a layer, stacked by the text that scores them "
        f"(A = {plain(run.study.primary)}, B = {plain(run.study.auxiliary)})."
    )
    if settings.selection == "drift_and_score" and settings.score_scale == "raw":
        sentence += (
            " One score line serves all layers: where raw scores differ much between layers, "
            "those with small scores fall below it as a whole."
        )
    return sentence


def _controls(run: Run) -> ReliabilitySettings:
    """Sliders and number fields in step, presets, and the variants; never trusts a value from the URL."""
    own = run.study.reliability
    with st.container(horizontal=True, vertical_alignment="center"):
        for name, preset in _PRESETS.items():
            st.button(name, key=f"rasa_preset_{name}", on_click=_set, args=preset)
        defaults = own.drift_quantile, own.score_quantile, own.selection
        st.button("This run's own", key="rasa_preset_own", on_click=_set, args=defaults, type="tertiary")
    _begin(own)
    left, right = st.columns(2)
    with left:
        drift = _level("γ_drift: quantile of the drift line", DRIFT)
    with right:
        score = _level("γ_score: quantile of the score line", SCORE)
    with st.container(horizontal=True):
        scale = st.segmented_control(
            "Mean score",
            _SCALES,
            required=True,
            key=SCALE,
            bind="query-params",
            help="raw as in the paper, or standardized within the layer",
        )
        selection = st.segmented_control(
            "Adapt by",
            list(_SELECTIONS),
            required=True,
            format_func=_SELECTIONS.__getitem__,
            key=SELECTION,
            bind="query-params",
        )
    chosen: dict[str, Any] = {
        "drift_quantile": drift,
        "score_quantile": score,
        "score_scale": scale or own.score_scale,
        "selection": selection or own.selection,
    }
    return replace(own, **chosen)


def _begin(own: ReliabilitySettings) -> None:
    """Gives the widgets the run's own values at first, unless the address holds valid ones.

    They are set here and not as the widgets' defaults, because presets set them as well.
    """
    selection = own.selection if own.selection in _SELECTIONS else "drift_and_score"
    labels: tuple[tuple[str, Any, Any], ...] = (
        (DRIFT, own.drift_quantile, _is_level),
        (SCORE, own.score_quantile, _is_level),
        (SCALE, own.score_scale, _SCALES.__contains__),
        (SELECTION, selection, list(_SELECTIONS.values()).__contains__),
    )
    for key, value, valid in labels:
        if key not in st.session_state and not valid(st.query_params.get(key, "")):
            st.session_state[key] = value


def _is_level(typed: str) -> bool:
    """Whether text from the address is a quantile."""
    try:
        return 0.0 <= float(typed) <= 1.0
    except ValueError:
        return False


def _set(drift: float, score: float, selection: str) -> None:
    st.session_state[DRIFT], st.session_state[SCORE] = drift, score
    if selection in _SELECTIONS:
        st.session_state[SELECTION] = selection


def _level(label: str, key: str) -> float:
    """One quantile as a slider and a number field; the slider's value is the one that counts."""
    wide, narrow = st.columns([4, 1], vertical_alignment="bottom")
    with wide:
        value = float(st.slider(label, 0.0, 1.0, step=0.005, format="%.3f", key=key, bind="query-params"))
    exact = f"{key}_exact"
    st.session_state[exact] = value
    with narrow:
        st.number_input(
            label, 0.0, 1.0, step=0.005, format="%.3f", key=exact, label_visibility="collapsed",
            on_change=_copy, args=(exact, key),
        )  # fmt: skip
    return min(max(value, 0.0), 1.0)


def _copy(source: str, target: str) -> None:
    value = st.session_state.get(source)
    if value is not None:
        st.session_state[target] = float(value)


def _counts(drawn: Card, statistics: ModuleStatistics, adapted: AdaptedScores) -> None:
    counts = thresholds.count(statistics, adapted)
    drawn.title(
        f"{counts.adapted} of {counts.modules} modules are adapted, {counts.from_auxiliary} of them scored "
        "from B"
        if counts.adapted
        else f"None of the {counts.modules} modules is adapted"
    )
    tiles = (
        ("Modules adapted", f"{counts.adapted} / {counts.modules}"),
        ("Neurons in them", f"{counts.neurons:,} ({counts.neurons / counts.all_neurons:.1%})"),
        ("Scored from A", f"{counts.from_primary}"),
        ("Scored from B", f"{counts.from_auxiliary}"),
        ("Neurons re-scored", f"{counts.rescored:,} ({counts.rescored / counts.all_neurons:.1%})"),
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


def _prune(run: Run, settings: ReliabilitySettings) -> None:
    changes = {
        "reliability.drift_quantile": settings.drift_quantile,
        "reliability.score_quantile": settings.score_quantile,
        "reliability.score_scale": settings.score_scale,
        "reliability.selection": settings.selection,
        "name": _renamed(run, settings),
    }
    if settings == run.study.reliability:
        st.caption("These are the thresholds of this run.")
        return
    if st.button("Prune with these thresholds", key="rasa_prune", type="primary", icon=":material/cut:"):
        try:
            job = work.start(run.root, run.study.with_settings(changes))
        except GpruneError as error:
            st.error(plain(error), icon=":material/error:")
            return
        if job is not None:
            st.rerun(scope="app")
    st.caption("Starts a job for the changed study; calibration, drift and modules are reused.")


def _renamed(run: Run, settings: ReliabilitySettings) -> str:
    """Name of the changed study: the present one's, and the thresholds that set it apart."""
    name = run.study.name or short(run.study.model)
    return f"{name.split(_MARK)[0]}{_MARK}{thresholds.described(settings)}"


def _table(run: Run, drawn: Card, settings: ReliabilitySettings) -> None:
    statistics, adapted = derived.preview(run, settings)
    table = thresholds.table(statistics, adapted)
    decimals = st.column_config.NumberColumn(format="%.3f")
    columns = dict.fromkeys(("within-module drift", "u on A", "u on B"), decimals)
    columns["mean primary score"] = st.column_config.NumberColumn(format="%.3g")
    st.dataframe(
        table, hide_index=True, height=320, column_config=columns, alt="every module and its decision"
    )
    st.caption(
        "u is the expected discrepancy of the local ranks between disjoint halves of a text: smaller is "
        "steadier."
    )
    drawn.tools(lambda: table, switch=False)
