"""The figures of the page by name, each from a run and what can be set beside its card."""

from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from gprune.analysis import decisions, mask_diff, thresholds, verdict, whatif
from gprune.analysis.formatting import counted, percent
from gprune.app.pages.rasa import charts, lab
from gprune.app.ui import derived_cache
from gprune.app.ui.chart_style import label
from gprune.app.ui.panel import Panel, PanelFunction, panel
from gprune.app.ui.text import plain
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import PruningMasks
from gprune.study.settings import ReliabilitySettings, require_choice

P = ParamSpec("P")
BINS = 5
"""drift bins of the modules"""
RANGES = {"near": "0.80 to 0.95", "wide": "0 to 1"}
LEVELS = {"near": np.round(np.arange(0.80, 0.951, 0.01), 3), "wide": np.round(np.arange(0, 1.001, 0.05), 3)}
NOT_LEARNED = (
    "The thresholds of the modules were not learned anew: the run's own are shifted together until they meet "
    "the retention again. A run with this rule learns its own, and can decide otherwise."
)
DECIDED = "Decided from scores that are there."
RULE: dict[str, Any] = {"drift_quantile": None, "score_quantile": None, "score_scale": "", "selection": ""}
"""a rule as options: what is left out is the run's own"""
_READS = {
    "drift_quantile": "rasa_qd",
    "score_quantile": "rasa_qs",
    "score_scale": "rasa_scale",
    "selection": "rasa_selection",
}
_BINS = "Where does the budget go?"
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


def _rule_panel(
    name: str, card: str, heading: str, *, clicked: bool = False, **reads: str
) -> Callable[[Callable[P, Panel]], PanelFunction[P]]:
    """Declares a figure of a rule; `reads` says where an address holds its other options."""
    return panel(name, card, heading, clicked=clicked, reads=_READS | reads, group=RULE)


@_rule_panel("modules", "rasa_scatter", "Modules by drift and score", log="rasa_log")
def modules(run: Run, *, log: bool = True, **given: Any) -> Panel:
    """Modules by drift and score, with the lines of a rule; without one the run's own."""
    rule = rule_of(run, **given)
    found = derived_cache.preview(run, rule)
    statistics, adapted = found
    counts, logarithmic = found.counts, log and rule.score_scale == "raw"
    return Panel(
        charts.scatter(statistics, adapted, logarithmic, rule.selection),
        "Each mark is a module, its size the number of neurons; a click selects it.",
        title=f"{counts.adapted} of {counts.modules} modules are adapted, {counts.from_auxiliary} of them "
        "re-scored from B"
        if counts.adapted
        else f"None of the {counts.modules} modules is adapted",
        how=_RULES[rule.selection]
        + (" Modules with a score of zero cannot be drawn on a log scale." if logarithmic else "")
        + (f" {_HANDS}" if rule.selection in ("drift", "drift_and_score") else ""),
    )


@_rule_panel("adapted_by_layer", "rasa_layers", "Which layers are adapted?")
def adapted_by_layer(run: Run, **given: Any) -> Panel:
    """Adapted modules of every layer under a rule."""
    rule = rule_of(run, **given)
    statistics, adapted = derived_cache.preview(run, rule)
    counts = thresholds.by_layer(statistics, adapted, len(adapted.scores))
    caption = "No module of any layer is adapted with these settings, so there are no bars."
    if counts.sum():
        caption = (
            "Each bar counts the adapted modules of a layer, stacked by the text that scores them "
            f"(A = {plain(run.study.primary)}, B = {plain(run.study.auxiliary)})."
        )
    both = rule.selection == "drift_and_score" and rule.score_scale == "raw"
    how = (
        "One score line serves all layers: where raw scores differ much between layers, "
        "those with small scores fall below it as a whole."
    )
    return Panel(charts.by_layer(counts), caption, how=how if both else "")


@_rule_panel("quantiles", "rasa_grid", "How much is adapted under other quantiles?", clicked=True, span="rasa_range")
def quantiles(run: Run, *, span: str = "near", **given: Any) -> Panel:
    """Share of modules adapted under every pair of quantiles."""
    rule = rule_of(run, **given)
    require_choice("span", span, tuple(RANGES))
    statistics, adapted = derived_cache.preview(run, rule)
    counts = thresholds.grid(statistics, LEVELS[span], LEVELS[span])
    present = rule.drift_quantile, rule.score_quantile
    share = percent(adapted.adapted.mean(), 1)
    return Panel(
        charts.grid(LEVELS[span], counts, len(adapted.adapted), present),
        "Share of modules adapted. Ring: the present lines; stars: the paper's. A click sets both lines.",
        title=f"{share} of the modules are adapted at {present[0]:.3f} / {present[1]:.3f}",
        alt=f"{share} of the modules are adapted with the present lines",
        table=lambda: charts.grid_table(LEVELS[span], counts),
    )


@_rule_panel("changes", "rasa_changes", "What changes?")
def changes(run: Run, **given: Any) -> Panel:
    """Neurons that a rule decides otherwise than the run, in every layer."""
    changed = changed_by(run, rule_of(run, **given))
    return Panel(
        charts.flips_by_layer(changed),
        "Neurons that change sides in each layer, against the masks of this run.",
        title=mask_diff.flips_title(changed),
        alt=mask_diff.flips_title(changed),
        table=lambda: mask_diff.flip_table(changed),
    )


@_rule_panel("changed_retention", "rasa_bins", _BINS, base="rasa_base")
def changed_retention(run: Run, *, base: str = "", **given: Any) -> Panel:
    """Share of neurons kept by drift of the modules: the run, a rule and a baseline."""
    return _binned(run, base_of(run, base), rule_of(run, **given), overlap=False)


@_rule_panel("changed_overlap", "rasa_bins", _BINS, base="rasa_base")
def changed_overlap(run: Run, *, base: str = "", **given: Any) -> Panel:
    """How far the neurons kept are those of a baseline, in the run and under a rule."""
    return _binned(run, base_of(run, base), rule_of(run, **given), overlap=True)


def _binned(run: Run, base: str, rule: ReliabilitySettings, overlap: bool) -> Panel:
    """Retention or Jaccard by drift bin, beside the run's own and the baseline's."""
    before, after = binned(run, rule, base)
    name = bases(run)[base]
    return Panel(
        charts.jaccard(before, after, name) if overlap else charts.retention(before, after, base),
        "Modules sorted by drift, in bins of equal number: the share of neurons kept, and how far the kept "
        f"ones are those of {name}. Hollow: this run; filled: these thresholds, not learned anew.",
        title=verdict.budget_title(after, name),
        table=lambda: charts.bin_table(before, after, name),
    )


@_rule_panel(
    "kept", "rasa_keep", "What moves a model: retention, text, method",
    method="rasa_method", retention="rasa_keep", scoring="rasa_text",
)  # fmt: skip
def kept(
    run: Run,
    *,
    method: str = "gprune",
    retention: float | None = None,
    scoring: str = whatif.ADAPTED,
    **given: Any,
) -> Panel:
    """Share of each layer's neurons that a choice of method, retention and text keeps."""
    rule = rule_of(run, **given)
    require_choice("scoring", scoring, tuple(whatif.TEXTS))
    require_choice("method", method, tuple(lab.methods(run)))
    level = run.study.retention if retention is None else retention
    study = run.study.with_settings({"retention": level})
    wanted = whatif.LabChoice(method, study.retention, scoring, rule)
    own, masks = lab.own_masks(run), derived_cache.masks_of(run, wanted)
    shares = decisions.layer_retention(own)[0], decisions.layer_retention(masks)[0]
    changed = mask_diff.compare(own, masks)
    return Panel(
        charts.kept_by_layer(*shares, lab.described(run, wanted)),
        f"{counted(changed.total, 'neuron')} ({percent(changed.total / changed.neurons, 1)}) and "
        f"{counted(changed.heads, 'key/value group')} decided otherwise than in this run's GPrune "
        f"at {percent(run.study.retention)}.",
        title=f"{plain(label(method))} keeps {percent(masks.ffn.mean(), 1)} of the neurons and "
        f"{percent(masks.heads.mean(), 1)} of the key/value groups at {percent(masks.retention, 2)} of "
        "the weights",
        how=NOT_LEARNED if method == "gprune" else DECIDED,
        table=lambda: decisions.layer_table({"this run": own, "choice": masks}),
    )


def rule_of(run: Run, **given: Any) -> ReliabilitySettings:
    """A rule of which only some is given; the rest is the run's own.

    SettingsError where a value is not valid.
    """
    changes = {f"reliability.{name}": value for name, value in given.items() if value not in (None, "")}
    return run.study.with_settings(changes).reliability if changes else run.study.reliability


def told(run: Run, settings: ReliabilitySettings) -> dict[str, Any]:
    """A rule as options: what is not the run's own."""
    own = run.study.reliability
    return {name: getattr(settings, name) for name in RULE if getattr(settings, name) != getattr(own, name)}


def changed_by(run: Run, rule: ReliabilitySettings) -> mask_diff.Flips:
    """What a rule decides otherwise than the run."""
    return mask_diff.compare(lab.own_masks(run), derived_cache.masks_of(run, lab.choice(run, rule)))


def bases(run: Run) -> dict[str, str]:
    """The methods that GPrune can be held against, by name."""
    return {name: label(name) for name in run.masked if name != "gprune"}


def base_of(run: Run, base: str = "") -> str:
    """The baseline that is meant, where none is named.

    Raises SettingsError where the run has no such masks, MissingResultError where it has none at all.
    """
    found = run.require(bases(run), stages.masks, run.study.metric)
    if base:
        require_choice("base", base, tuple(found))
        return base
    return run.study.metric if run.study.metric in found else next(iter(found))


def binned(run: Run, settings: ReliabilitySettings, base: str) -> tuple[decisions.Bins, decisions.Bins]:
    """The run and a rule beside a baseline, by drift of the modules."""
    own, now = lab.own_masks(run), derived_cache.masks_of(run, lab.choice(run, settings))
    drift, partition = run.load(stages.drift).magnitude, run.load(stages.partition)
    other = run.load(stages.masks, base)

    def against(masks: PruningMasks) -> decisions.Bins:
        return decisions.compare(drift, partition, masks, other, BINS)

    return against(own), against(now)
