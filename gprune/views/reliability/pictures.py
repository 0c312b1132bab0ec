"""The figures of the page by name, each from a run and what can be set beside its card."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from gprune import stages, whatif
from gprune.analysis import decisions, flips, thresholds
from gprune.records import PruningMasks
from gprune.settings import ReliabilitySettings, require_choice
from gprune.views.frame import derived
from gprune.views.frame.chart_style import label
from gprune.views.frame.loaders import MissingResultError, Run
from gprune.views.frame.picture import picture
from gprune.views.reliability import charts, lab, sets, sets_table, whatif_charts

BINS = 5
"""drift bins of the modules"""
RANGES = {"near": "0.80 to 0.95", "wide": "0 to 1"}
LEVELS = {"near": np.round(np.arange(0.80, 0.951, 0.01), 3), "wide": np.round(np.arange(0, 1.001, 0.05), 3)}


@picture("modules")
def modules(
    run: Run,
    *,
    log: bool = True,
    drift_quantile: float | None = None,
    score_quantile: float | None = None,
    score_scale: str = "",
    selection: str = "",
) -> go.Figure:
    """Modules by drift and score, with the lines of a rule; without one the run's own."""
    rule = rule_of(run, drift_quantile, score_quantile, score_scale, selection)
    statistics, adapted = derived.preview(run, rule)
    return charts.scatter(statistics, adapted, log and rule.score_scale == "raw", rule.selection)


@picture("adapted_by_layer")
def adapted_by_layer(
    run: Run,
    *,
    drift_quantile: float | None = None,
    score_quantile: float | None = None,
    score_scale: str = "",
    selection: str = "",
) -> go.Figure:
    """Adapted modules of every layer under a rule."""
    rule = rule_of(run, drift_quantile, score_quantile, score_scale, selection)
    statistics, adapted = derived.preview(run, rule)
    return charts.by_layer(thresholds.by_layer(statistics, adapted, len(adapted.scores)))


@picture("quantiles", clicked=True, at={"rasa_view": "sets"})
def quantiles(
    run: Run,
    *,
    span: str = "near",
    drift_quantile: float | None = None,
    score_quantile: float | None = None,
    score_scale: str = "",
    selection: str = "",
) -> go.Figure:
    """Share of modules adapted under every pair of quantiles."""
    rule = rule_of(run, drift_quantile, score_quantile, score_scale, selection)
    require_choice("span", span, tuple(RANGES))
    statistics, adapted = derived.preview(run, rule)
    counts = thresholds.grid(statistics, LEVELS[span], LEVELS[span])
    present = rule.drift_quantile, rule.score_quantile
    return whatif_charts.grid(LEVELS[span], counts, len(adapted.adapted), present)


@picture("changes")
def changes(
    run: Run,
    *,
    drift_quantile: float | None = None,
    score_quantile: float | None = None,
    score_scale: str = "",
    selection: str = "",
) -> go.Figure:
    """Neurons that a rule decides otherwise than the run, in every layer."""
    rule = rule_of(run, drift_quantile, score_quantile, score_scale, selection)
    now = lab.lab_masks(run, lab.choice(run, rule))
    return whatif_charts.flips_by_layer(flips.compare(lab.own_masks(run), now))


@picture("changed_retention")
def changed_retention(
    run: Run,
    *,
    base: str = "",
    drift_quantile: float | None = None,
    score_quantile: float | None = None,
    score_scale: str = "",
    selection: str = "",
) -> go.Figure:
    """Share of neurons kept by drift of the modules: the run, a rule and a base method."""
    rule = rule_of(run, drift_quantile, score_quantile, score_scale, selection)
    named = base_of(run, base)
    return whatif_charts.retention(*binned(run, rule, named), named)


@picture("changed_overlap")
def changed_overlap(
    run: Run,
    *,
    base: str = "",
    drift_quantile: float | None = None,
    score_quantile: float | None = None,
    score_scale: str = "",
    selection: str = "",
) -> go.Figure:
    """How far the neurons kept are those of a base method, in the run and under a rule."""
    rule = rule_of(run, drift_quantile, score_quantile, score_scale, selection)
    named = base_of(run, base)
    return whatif_charts.jaccard(*binned(run, rule, named), label(named))


@picture("kept", at={"rasa_view": "cost"})
def kept(
    run: Run,
    *,
    method: str = "gprune",
    retention: float | None = None,
    scoring: str = whatif.ADAPTED,
    drift_quantile: float | None = None,
    score_quantile: float | None = None,
    score_scale: str = "",
    selection: str = "",
) -> go.Figure:
    """Share of each layer's neurons that a choice of method, retention and text keeps."""
    rule = rule_of(run, drift_quantile, score_quantile, score_scale, selection)
    require_choice("scoring", scoring, tuple(whatif.TEXTS))
    require_choice("method", method, tuple(lab.methods(run)))
    level = run.study.retention if retention is None else retention
    study = run.study.with_settings({"retention": level})
    wanted = whatif.LabChoice(method, study.retention, scoring, rule)
    own, masks = lab.own_masks(run), lab.lab_masks(run, wanted)
    shares = decisions.layer_retention(own)[0], decisions.layer_retention(masks)[0]
    return whatif_charts.kept_by_layer(*shares, lab.described(run, wanted))


@picture("threshold_sets", at={"rasa_view": "sets"})
def threshold_sets(
    run: Run,
    *,
    drift_quantile: float | None = None,
    score_quantile: float | None = None,
    score_scale: str = "",
    selection: str = "",
) -> go.Figure:
    """Modules that each named threshold set adapts, beside the run's own and the present lines."""
    rule = rule_of(run, drift_quantile, score_quantile, score_scale, selection)
    return charts.sets(sets_table.table(run, rule, sets.kept(run.root)[0]))


def rule_of(
    run: Run, drift_quantile: float | None, score_quantile: float | None, score_scale: str, selection: str
) -> ReliabilitySettings:
    """A rule of which only some is given; the rest is the run's own.

    Raises:
        SettingsError: a value is not valid.
    """
    given = {
        "drift_quantile": drift_quantile,
        "score_quantile": score_quantile,
        "score_scale": score_scale or None,
        "selection": selection or None,
    }
    changes = {f"reliability.{name}": value for name, value in given.items() if value is not None}
    return run.study.with_settings(changes).reliability if changes else run.study.reliability


def told(run: Run, settings: ReliabilitySettings) -> dict[str, Any]:
    """A rule as options: what is not the run's own."""
    names = ("drift_quantile", "score_quantile", "score_scale", "selection")
    own = run.study.reliability
    return {name: getattr(settings, name) for name in names if getattr(settings, name) != getattr(own, name)}


def bases(run: Run) -> dict[str, str]:
    """The methods that GPrune can be held against, by name."""
    return {name: label(name) for name in run.masked if name != "gprune"}


def base_of(run: Run, base: str = "") -> str:
    """The base method that is meant, where none is named.

    Raises:
        SettingsError: the run has no such masks.
        MissingResultError: it has none at all.
    """
    found = bases(run)
    if not found:
        raise MissingResultError(stages.masks(run.graph, run.study.metric).title)
    if base:
        require_choice("base", base, tuple(found))
        return base
    return run.study.metric if run.study.metric in found else next(iter(found))


def binned(run: Run, settings: ReliabilitySettings, base: str) -> tuple[decisions.Bins, decisions.Bins]:
    """The run and a rule beside a base method, by drift of the modules."""
    own, now = lab.own_masks(run), lab.lab_masks(run, lab.choice(run, settings))
    drift, partition = run.load(stages.drift).magnitude, run.load(stages.partition)
    other = run.load(stages.masks, base)

    def against(masks: PruningMasks) -> decisions.Bins:
        return decisions.compare(drift, partition, masks, other, BINS)

    return against(own), against(now)
