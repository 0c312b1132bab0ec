"""Page *Tune*: the RASA thresholds (section 3.2), what they change and cost, and the retention curve."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from gprune.analysis import thresholds, whatif
from gprune.analysis.formatting import percent
from gprune.app import preview
from gprune.app.figures import rasa as figures
from gprune.app.figures.rasa import CurvePoint
from gprune.app.preview import Answer, Question, Source
from gprune.app.ui import (
    address,
    asking,
    card,
    components,
    derived_cache,
    frame,
    run_status,
    selection,
    slides,
    story,
    threshold_lines,
    work,
)
from gprune.app.ui.chart_style import label
from gprune.app.ui.panel import Panel
from gprune.app.ui.text import escape, escape_error, short, text_names
from gprune.data.texts.holdout import unseen
from gprune.pipeline import eta, stages
from gprune.pipeline.runs.opened import Run
from gprune.pruning.rasa import prefers_auxiliary
from gprune.study import ReliabilitySettings, Study
from gprune.study.methods import BUILT_IN, METHODS
from gprune.system.errors import GpruneError
from gprune.system.units import duration

DRIFT, SCORE, SCALE, SELECTION = "rasa_qd", "rasa_qs", "rasa_scale", "rasa_selection"
"""address keys of the rule"""
KEEP, LEAST, MOST = "rasa_keep", 0.05, 0.98
"""address key of the retention, its minimum and maximum"""
LIVE, TEXTS, REFERENCE, CURVES, REPAIR = "rasa_live", "rasa_heldout", "rasa_against", "rasa_curves", "rasa_repair"
"""address keys of the live measurements"""
VALUE = "preview_value"
"""key of the container of the first live perplexity, by which benchmarks find it"""
STEP = 0.005
"""step of the quantile fields"""
PRESETS: dict[str, tuple[float, float, str, str]] = {
    "Paper, LLaMA2: 0.90 / 0.90": (0.90, 0.90, "drift_and_score", "raw"),
    "Paper, Vicuna: 0.90 / 0.85": (0.90, 0.85, "drift_and_score", "raw"),
    "Drift only": (0.90, 0.90, "drift", ""),
    "None": (0.90, 0.90, "none", ""),
}
"""drift quantile, score quantile, selection and score scale by name; an empty scale leaves the scale unchanged"""
SELECTIONS = {"drift_and_score": "drift and score", "drift": "drift only", "none": "none"}
RANDOM = {"random": "random modules (control)"}
RETENTIONS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
REFERENCES = {"gprune": "this run", "no_rasa": "no RASA", "flap": "FLAP", "dense": "dense model"}
_SCALES = ("raw", "standardized")
_RULE_SEPARATOR = ", RASA "
"""separates the name of a tuned study from the description of its rule"""
_CURVE_ALT = "perplexity of each method against retention"


@frame.declare_page(
    "RASA thresholds",
    "Which modules are adapted, and what changes if the lines move?",
    "This page tunes thresholds on modules of neurons; Experts shows the thresholds of this run.",
)
def show(run: Run) -> None:
    """Draw the page."""
    components.add_style("tune")
    rule = rule_in_address(run)
    retention = address.read_number(KEEP, run.study.retention, LEAST, MOST)
    with st.container(key="tune_workbench"):
        left, right = st.columns([3, 2])
    # the numbers first: they change when a line is released
    with right, st.container(key="tune_outcome"):
        _show_outcome(run, figures.adapted_choice(run, rule, retention))
    with left:
        _show_lines(run, rule)
    if frame.is_rest_deferred():
        return
    with card.card("rasa_curve_card", "Perplexity against retention", run) as curve_card:
        _show_curve(run, curve_card, figures.adapted_choice(run, rule, retention))


def rule_in_address(run: Run) -> ReliabilitySettings:
    """Return the rule in the address; missing values are those of the run's own rule."""
    default = run.study.reliability
    values: dict[str, Any] = {
        "drift_quantile": address.read_number(DRIFT, default.drift_quantile, 0.0, 1.0),
        "score_quantile": address.read_number(SCORE, default.score_quantile, 0.0, 1.0),
        "score_scale": address.read_option(SCALE, _SCALES, default.score_scale),
        "selection": address.read_option(SELECTION, _selections(run), default.selection),
    }
    return replace(default, **values)


def _selections(run: Run) -> dict[str, str]:
    # random modules are a control, so they are offered only for a run that uses them
    return SELECTIONS | RANDOM if run.study.reliability.selection == "random" else SELECTIONS


def set_rule(drift: float, score: float, selection: str = "", scale: str = "") -> None:
    """Set both quantiles and, unless empty, the selection and the score scale."""
    values = {DRIFT: float(drift), SCORE: float(score), SELECTION: selection, SCALE: scale}
    address.set_values({key: value for key, value in values.items() if value != ""})


def _show_lines(run: Run, rule: ReliabilitySettings) -> None:
    with card.card_of(figures.modules, run) as lines_card:
        log = address.read_flag("rasa_log", True)
        panel = figures.modules(run, log=log, **figures.rule_options(run, rule))
        lines_card.set_title(panel.title)
        _show_presets(run)
        _show_scatter(run, rule, log and rule.score_scale == "raw")
        _show_fields(run)
        lines_card.tools(panel.table, how=panel.how, caption=f"{panel.caption} {panel.action}")
        with st.container(horizontal=True):
            if rule.score_scale == "raw":
                address.toggle("Log scale of the score", "rasa_log", True)
            as_figure = address.toggle("Static figure", "rasa_figure", help="For a paper: the camera button saves SVG.")
        if as_figure:
            lines_card.show(Panel(panel.figure, panel.caption, code=panel.code))
        else:
            lines_card.note_panel(panel)


def _show_presets(run: Run) -> None:
    default = run.study.reliability
    default_rule = default.drift_quantile, default.score_quantile, default.selection, default.score_scale
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
        for number, (name, preset) in enumerate(PRESETS.items(), start=1):
            components.action_button(name, f"rasa_preset_{name}", "", set_rule, *preset, shortcut=f"Alt+{number}")
        components.action_button(
            "Restore thresholds", "rasa_preset_own", "", set_rule, *default_rule, type="tertiary", shortcut="Alt+0"
        )


def _show_scatter(run: Run, rule: ReliabilitySettings, log: bool) -> None:
    (statistics, adapted), names = derived_cache.preview(run, rule), tuple(text_names(run.study).values())
    selected = selection.current_selection(run)
    # modules are numbered over all layers: the number of the first module of each layer
    first_modules = np.searchsorted(statistics.layer, np.arange(len(adapted.scores)))
    index = -1
    if selected.layer is not None and selected.module is not None:
        index = int(first_modules[selected.layer]) + selected.module

    def select(module: int) -> None:
        layer = int(statistics.layer[module])
        selection.select(layer, module - int(first_modules[layer]))

    threshold_lines.draw(
        statistics,
        prefers_auxiliary(statistics, rule, run.study.seed),
        threshold_lines.Lines(rule.drift_quantile, rule.score_quantile, rule.selection, log, names),
        index,
        f"{int(adapted.adapted.sum())} of {len(adapted.adapted)} modules are adapted",
        key="rasa_lines",
        on_lines=set_rule,
        on_module=select,
    )


def _show_fields(run: Run) -> None:
    own_rule = run.study.reliability
    for name, key, own_value in (
        ("γ_drift: quantile of the drift line", DRIFT, own_rule.drift_quantile),
        ("γ_score: quantile of the score line", SCORE, own_rule.score_quantile),
    ):
        wide, narrow = st.columns([2, 1], vertical_alignment="bottom")
        with wide:
            address.slider(name, key, own_value, 0.0, 1.0, STEP, format="%.3f")
        with narrow:
            address.number_field(name, key, own_value, 0.0, 1.0, STEP, format="%.3f", label_visibility="collapsed")
    with st.container(horizontal=True):
        address.segmented_control(
            "Mean score", _SCALES, SCALE, own_rule.score_scale,
            help="raw as in the paper, or standardised within the layer",
        )  # fmt: skip
        address.segmented_control(
            "Adapt by", _selections(run), SELECTION, own_rule.selection, help="The paper adapts by drift and score."
        )


def _show_outcome(run: Run, choice: whatif.LabChoice) -> None:
    with card.card_of(figures.changes, run) as outcome_card:
        counts = derived_cache.preview(run, choice.settings).counts
        with st.container(horizontal=True):
            st.metric("Modules adapted", f"{counts.adapted} / {counts.modules}")
            st.metric("Neurons adapted", percent(counts.neurons / counts.all_neurons, 1), help=f"{counts.neurons:,}")
        retention = None if choice.retention == run.study.retention else choice.retention
        panel = figures.changes(run, retention=retention, **figures.rule_options(run, choice.settings))
        outcome_card.set_title(panel.title)
        outcome_card.note_panel(panel)
        st.plotly_chart(panel.figure, key="rasa_changes_chart", config={"displayModeBar": False}, alt=panel.title)
        _show_cost(run, choice)
        _show_start(run, choice)
        outcome_card.tools(panel.table, how=panel.how)


def _describe_texts(run: Run) -> dict[str, str]:
    """Return the label of every evaluation text: its name and its relation to the calibration texts."""
    study, statuses = run.study, story.holdout_statuses(run)
    return {
        text: f"{study.text_name(text)} ({'in-domain' if status.related else status.brief})"
        for text, status in statuses.items()
    }


def _show_cost(run: Run, choice: whatif.LabChoice) -> None:
    """Draw the live perplexity on each text, compared with the chosen reference."""
    statuses, names = story.holdout_statuses(run), _describe_texts(run)
    default = unseen(statuses) or list(names)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        against = {name: f"against {words}" for name, words in REFERENCES.items()}
        reference = address.selectbox(
            "Reference", against, REFERENCE, "gprune", width=165, label_visibility="collapsed"
        )
        live = address.toggle("Live", LIVE, asking.is_live_by_default(run, default))
        with st.popover("", type="tertiary", icon=":material/tune:", key="rasa_options", help="Texts and repair"):
            texts = address.multiselect("Texts", names, TEXTS, default)
            repair = asking.draw_switches(run, REPAIR, choice.method) if live else None
    if not asking.can_ask(run, live):
        st.caption("" if live else "Switch on “Live” to measure the perplexity of these masks.")
        return
    source, masks = Source(run.root, run.graph), derived_cache.masks_of(run, choice)
    identities, repaired = dict[str, str](), dict[str, asking.RepairedRequests]()
    for text in texts:
        owner, question = asking.owner(f"choice {text}"), Question(text, "gprune", masks, fitted=False)
        base = _reference_question(run, choice, reference, text, fitted=repair is None)
        identities[text] = preview.pool().ask(source, question, owner, base)
        if repair is not None:
            repaired[text] = asking.ask_repaired(source, question, base, owner, repair)
    repaired_identities = [identity for requests in repaired.values() for identity in requests.identities]
    all_identities = [*identities.values(), *repaired_identities]

    def draw(refining: bool) -> None:
        answers = {identity: preview.pool().latest(identity) for identity in all_identities}
        with st.container(horizontal=True):
            for position, (text, identity) in enumerate(identities.items()):
                _show_answer(
                    run.study.text_name(text), answers[identity], REFERENCES[reference], "" if position else VALUE
                )
        for text, request in repaired.items():
            asking.draw_repaired(run.study.text_name(text), request, answers, REFERENCES[reference])
        if refining:
            asking.draw_worker_state(run, "Measuring.")

    asking.draw_until_complete(lambda: asking.is_refining(all_identities), draw)


def _reference_question(run: Run, choice: whatif.LabChoice, reference: str, text: str, *, fitted: bool) -> Question:
    """Return the question for the perplexity of the reference, one of REFERENCES; `fitted`: with the run's repair."""
    if reference in ("gprune", "dense"):
        return Question(text, reference, fitted=fitted)
    if reference == "no_rasa":
        without = replace(choice, settings=replace(choice.settings, selection="none"))
        return Question(text, "gprune", derived_cache.masks_of(run, without), fitted=False)
    return Question(text, "flap", derived_cache.masks_of(run, replace_method(choice, "flap")), fitted=False)


def _show_answer(text: str, answer: Answer | None, reference: str, key: str) -> None:
    if answer is not None and answer.problem:
        st.error(f"{escape(text)}: {escape_error(answer.problem)}", icon=":material/error:")
        return
    with st.container(key=key or None, width="stretch"):
        if asking.draw_perplexity(f"perplexity on {escape(text)}", answer, "perplexity ") and answer is not None:
            st.caption(
                f"{reference}: {answer.base_perplexity:.2f}; {answer.done} of {answer.windows} windows"
                + (" …" if answer.progress == "open" else ""),
                help="95% interval, paired over windows.",
            )


def tuned_study(run: Run, choice: whatif.LabChoice) -> Study:
    """Return the run's study with the rule and retention of a choice, and a name that describes the rule."""
    study, rule = run.study, choice.settings
    if rule != study.reliability:
        name = (study.name or short(study.model)).split(_RULE_SEPARATOR)[0]
        settings = {f"reliability.{field}": getattr(rule, field) for field in figures.RULE}
        study = study.with_settings(settings | {"name": f"{name}{_RULE_SEPARATOR}{thresholds.describe_rule(rule)}"})
    if abs(choice.retention - study.retention) > 1e-9:
        study = replace(study, retention=choice.retention)
    return study


def _show_start(run: Run, choice: whatif.LabChoice) -> None:
    study = tuned_study(run, choice)
    if study == run.study:
        st.caption("These are the thresholds and the retention of this run.")
        return
    results = stages.Results(run.results.store, stages.Graph(study, run.graph.inputs))
    seconds = eta.missing_seconds(results.plan("all"), results)
    with st.container(horizontal=True, vertical_alignment="center"):
        start = components.button(
            "Prune with these thresholds", key="rasa_prune", type="primary", icon=":material/cut:"
        )
        if start and work.start(run.root, study) is not None:
            st.rerun()
        goal = f" at {percent(choice.retention)} retention" if study.retention != run.study.retention else ""
        st.caption(f"A new run{goal}" + ("." if seconds is None else f": about {duration(seconds)}."), width="stretch")


@dataclass(frozen=True, slots=True)
class CurveRequests:
    """Points of the retention curve that the worker can measure."""

    points: tuple[tuple[str, float], ...]
    """method and retention of each question"""
    questions: tuple[Question, ...]
    refused: dict[str, str]
    """the reason why a method lacks points, by method"""


def curve_requests(run: Run, choice: whatif.LabChoice, methods: Sequence[str], text: str) -> CurveRequests:
    """Return the questions for the curves of `methods` at RETENTIONS and at the retention of the choice."""
    points, questions, refused = list[tuple[str, float]](), list[Question](), dict[str, str]()
    for method in methods:
        for retention in sorted({choice.retention, *RETENTIONS}):
            point_choice = replace(replace_method(choice, method), retention=retention)
            try:
                questions.append(Question(text, method, derived_cache.masks_of(run, point_choice), fitted=False))
                points.append((method, retention))
            except GpruneError as error:
                refused[method] = str(error)
    return CurveRequests(tuple(points), tuple(questions), refused)


def replace_method(choice: whatif.LabChoice, method: str) -> whatif.LabChoice:
    """Return the choice for another method; one that does not learn thresholds is scored on A."""
    learned = METHODS[method].decision == "learned"
    return replace(choice, method=method, scoring=choice.scoring if learned else whatif.PRIMARY)


def offered_methods(run: Run) -> dict[str, str]:
    """Return the labels of the methods that can have live points, by name: GPrune, and methods without learning."""
    methods = {name: METHODS[name] for name in (*run.study.methods, *BUILT_IN)}
    masked = [name for name, method in methods.items() if method.decision != "none" and not method.learns]
    return {name: label(name) for name in ("gprune", *masked)}


def _show_curve(run: Run, curve_card: card.Card, choice: whatif.LabChoice) -> None:
    statuses, offered = story.holdout_statuses(run), offered_methods(run)
    text = next(iter(unseen(statuses) or run.study.evaluation.texts))
    texts = _describe_texts(run)
    pair = [method for method in ("gprune", story.main_baseline(run)) if method in offered]
    live = asking.is_live_by_default(run, [text])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = address.selectbox("Text", texts, "rasa_curve_text", text, width=260)
        address.slider(
            "Decoder weights kept", KEEP, run.study.retention, LEAST, MOST, 0.01, format="percent", width=260
        )
        methods = address.multiselect("Live points", offered, CURVES, pair if live else [], width=260)
    is_edited = choice.settings != run.study.reliability
    rule = figures.rule_options(run, choice.settings)
    panel = figures.measured_curve(run, text=text, retention=choice.retention, **rule)
    if not methods or not asking.can_ask(run, True):
        curve_card.show(panel)
        return
    curve_card.note_panel(panel)
    measured = figures.measured_points(derived_cache.measurements(run), text)
    # live points lack repairs that are fitted to the run's own masks
    measured = [point for point in measured if not preview.describe_left_out(run.graph, point[0])]
    requests = curve_requests(run, choice, methods, text)
    identities = preview.pool().ask_many(Source(run.root, run.graph), requests.questions, asking.owner("curve"))
    curve = dict(zip(requests.points, identities, strict=True))

    def draw(refining: bool) -> None:
        points = _combine_points(curve, measured)
        curve_card.show(figures.curve_panel(points, choice.retention, run.study.text_name(text), is_edited))
        for method, reason in requests.refused.items():
            st.caption(f"Points of {escape(label(method))} are missing: {escape_error(reason)}.")
        if refining:
            asking.draw_worker_state(run, "Measuring.")

    asking.draw_until_complete(lambda: asking.is_refining(identities), draw)
    if "gprune" in methods and (is_edited or abs(choice.retention - run.study.retention) > 1e-9):
        source = "the thresholds above" if is_edited else "the run's thresholds"
        st.caption(f"GPrune's live points use {source}, shifted to meet each retention. A full run may differ.")


def _combine_points(curve: dict[tuple[str, float], str], measured: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the live points with a measured window, and the run's measured points of the other methods.

    `curve` has the identity of each live question, by method and retention.
    """
    points = [
        (method, retention, answer)
        for (method, retention), identity in curve.items()
        if (answer := preview.pool().latest(identity)) is not None and answer.done
    ]
    live = {method for method, _, _ in points}
    return points + [point for point in measured if point[0] not in live]


def show_slide(run: Run, show_sentence: Callable[[str], None]) -> None:
    """Draw the last slide: the retention curves of GPrune and its main baseline on the headline's text.

    Calls `show_sentence` with the perplexity at the slider's retention if it differs from the run's. Raises
    MissingResultError if no pruned model is measured on that text.
    """
    text, _ = story.headline_results(run)
    points = figures.measured_points(derived_cache.measurements(run), text)
    methods = [method for method in ("gprune", story.main_baseline(run)) if method in run.methods_with_masks]
    retention = address.slider("Decoder weights kept", KEEP, run.study.retention, LEAST, MOST, 0.01, format="percent")

    def draw_curve(points: Sequence[CurvePoint]) -> None:
        if retention != run.study.retention:
            show_sentence(figures.describe_retention(points, retention, run.study.text_name(text)))
        figure = slides.enlarge_figure(figures.plot_retention_curve(points, retention))
        with st.container(key=slides.FRAME):
            st.plotly_chart(figure, key="slide_retention", height="stretch", alt=_CURVE_ALT, config=slides.NO_TOOLBAR)

    if run_status.missing_inputs(run) or not methods:
        draw_curve(points)
        return
    requests = curve_requests(run, figures.adapted_choice(run, run.study.reliability), methods, text)
    identities = preview.pool().ask_many(Source(run.root, run.graph), requests.questions, asking.owner("slide"))
    curve = dict(zip(requests.points, identities, strict=True))
    # live points lack repairs that are fitted to the run's own masks
    points = [point for point in points if point[0] in methods and not preview.describe_left_out(run.graph, point[0])]
    asking.draw_until_complete(
        partial(asking.is_refining, identities), lambda _: draw_curve(_combine_points(curve, points))
    )
