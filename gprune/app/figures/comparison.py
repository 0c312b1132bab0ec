"""Figures of Compare: perplexities, paired changes, the Pareto chart, tried candidates and recovery.

A *line* is one row of the comparison: a method of a run, or of several runs that differ only in their seed. It is named
by its run and method.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gprune.analysis import choices, thresholds
from gprune.analysis import comparison as analysis
from gprune.analysis import decision as decisions
from gprune.analysis import recovery as recovered_models
from gprune.analysis import speed as speeds
from gprune.analysis.choices import Candidate
from gprune.analysis.comparison import DENSE, MethodResult, Row, change
from gprune.analysis.decision import COSTS, PARAMETERS, Option
from gprune.analysis.formatting import percent
from gprune.analysis.paired_test import Difference, Measurement, in_percent, interval_in_percent
from gprune.analysis.verdict import (
    OURS,
    Expected,
    compare_runs,
    is_comparable,
    leading_pair,
    missing_methods,
    rank_lines,
)
from gprune.app.ui import derived_cache, marks, story
from gprune.app.ui.chart_style import (
    GREY,
    METHOD_COLORS,
    METHOD_LABELS,
    METHOD_SYMBOLS,
    control_label,
    label,
    log_ticks,
    style,
)
from gprune.app.ui.panel import OF_BOTH, Panel, panel
from gprune.app.ui.text import escape, in_figure, short_text
from gprune.data.texts.holdout import HoldoutStatus
from gprune.pipeline import runs as run_records
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run, all_runs
from gprune.pipeline.stages.results import repair_label
from gprune.records import Choice, Perplexity
from gprune.store import Store
from gprune.study import Study
from gprune.study.methods import ALL_METHODS, METHODS, RECOMMENDED
from gprune.study.settings import require, require_choice
from gprune.system.errors import MethodError, SettingsError, StoreError
from gprune.system.safe_parsing import quote

LINES: dict[str, Any] = {"runs": (), "methods": (), "together": True, "pinned": ""}
"""options that select the compared lines, with their defaults: every method of the run"""
ROW_PIXELS = 34
RUN_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#A05A3B")
"""colours of the runs if several are compared; the symbol then stands for the method"""
MOST_RUNS = 40
"""maximum number of runs that are compared by default; the newest are chosen"""
LIMIT = 1.5
"""default limit on the perplexity, as a multiple of the dense model's"""
_FRONT_SIZE, _DOMINATED_SIZE = 13, 8
"""sizes in pixels of marks on the Pareto front and of the other marks"""
_MOST_NAMES = 4
"""maximum number of models on the front whose names are written next to their marks"""
_NEAR_LIMIT = 0.75
"""share of the limit from which a name is written below its mark, so that it does not cover the line of the limit"""
_EXPENSIVE = 0.9
"""share of the dense model's cost above which a name is written to the left of its mark"""
_MARK_SIZE = (0.02, 0.045)
"""width and height of a mark, in shares of the axes"""
_COST_HOW = {
    "parameters": "parameters include the embeddings.",
    "time": "the time per token is measured while decoding, on the machine of the run. Models without a measured time "
    "are left out.",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The methods of some runs, ready to be compared."""

    runs: list[Run]
    rows: list[Row]
    """every method of every run"""
    results: list[MethodResult]
    """the lines: seeds are joined, and a baseline with equal results in several runs appears once"""
    shared: frozenset[tuple[str, str]]
    """names of the lines that are left out because an earlier run has the same model"""
    names: dict[tuple[str, str], str]
    """label of each line, by its name"""
    baseline: MethodResult
    """line that the others are compared with"""
    options: Mapping[str, Any]
    """settings that differ from their defaults, as options of the figures"""
    statuses: Mapping[str, Mapping[str, HoldoutStatus]]
    """relation of each run's evaluation texts to its calibration texts, by run"""

    @property
    def expected(self) -> Expected:
        """Names of the lines that must be measured on each text before a claim is made, by text."""
        by_text = story.expected_results(self.runs, self.options["methods"])
        return {text: [line for line in lines if line not in self.shared] for text, lines in by_text.items()}

    @property
    def missing(self) -> list[str]:
        """Methods that are not yet measured on every text."""
        expected = self.expected
        return list(dict.fromkeys(m for text in expected for m in missing_methods(self.results, text, expected)))

    def ranking(self, text: str) -> dict[tuple[str, str], int]:
        """Return the ranks of the pruned models on a text, by the name of the line."""
        return rank_lines(self.results, (text,), self.expected)

    def sorted_on(self, text: str) -> list[MethodResult]:
        """Return the lines sorted by perplexity on a text; lines without one come last."""
        return sorted(self.results, key=lambda result: (not np.isfinite(result.mean(text)), result.mean(text)))

    @property
    def texts(self) -> list[str]:
        """The evaluation texts, unseen ones first."""
        return sorted(analysis.texts(self.rows), key=lambda text: self.relation_label(text) != "unseen")

    def status(self, text: str) -> HoldoutStatus | None:
        """Return the relation of a text to the calibration texts of the first run that measures it."""
        return next((by_text[text] for by_text in self.statuses.values() if text in by_text), None)

    def text_name(self, text: str) -> str:
        """Return the short name that the first run with this evaluation text uses for it."""
        run = next((run for run in self.runs if text in run.study.evaluation.texts), self.runs[0])
        return short_text(run.study, text)

    def relation_label(self, text: str) -> str:
        """Return `unseen`, `in-domain` or another relation of a text to the calibration texts; all if runs differ."""
        statuses = [by_text[text] for by_text in self.statuses.values() if text in by_text]
        return " / ".join(dict.fromkeys("in-domain" if status.related else status.brief for status in statuses))

    def color(self, result: MethodResult) -> str:
        """Return the colour of a line: of its method, or of its run if several are compared; grey if runs share it."""
        runs = list(dict.fromkeys(other.name[0] for other in self.results if other.method != DENSE))
        if len(runs) < 2:
            return METHOD_COLORS.get(result.method, GREY)
        if result.method == DENSE or any(method == result.method for _, method in self.shared):
            return GREY
        return RUN_COLORS[runs.index(result.name[0]) % len(RUN_COLORS)]

    def finding(self, text: str) -> str:
        """Return a sentence on how the leading models of the first two runs differ on a text; empty for one run."""
        leading = _leading_lines(self.runs)
        pair = [result for result in self.results if result.name in leading and result.by_seed(text)][:2]
        if len(pair) < 2 or self.missing:
            return ""
        return compare_runs(pair[0], pair[1], text, [self.names[result.name] for result in pair], self.text_name(text))


def comparison_of(
    run: Run, runs: tuple[str, ...] = (), methods: tuple[str, ...] = (), together: bool = True, pinned: str = ""
) -> Comparison:
    """Compare the methods of a run, or of several runs of its cache.

    If `together`, a single run is joined with the runs that differ only in their seed, as on the overview.
    Raises StoreError for an unknown run, MissingResultError if no run has a perplexity, and SettingsError for a
    name of the wrong type or an unknown method or line.
    """
    compared_runs = with_seeds([_run_named(run, name) for name in runs] or [run], together)
    rows = measured_rows(compared_runs)
    for method in methods:
        require_choice("methods", method, tuple(dict.fromkeys(row.method for row in rows)))
    return compare(compared_runs, rows, methods, together=together, pinned=pinned)


def with_seeds(runs: list[Run], together: bool = True) -> list[Run]:
    """Return the runs to compare: if `together`, a single run with those that differ only in their seed."""
    return story.seed_runs(runs[0]) if together and len(runs) == 1 else runs


def _run_named(run: Run, name: Any) -> Run:
    """Return the run with this name in the cache of `run`."""
    if not isinstance(name, str):
        raise SettingsError(f"runs must be names of runs (got {quote(name)})")
    readable, damaged = all_runs(run.root)
    match = next((other for other in readable if other.name == name), None)
    if match is None:
        run_records.require_record(Store(Path(run.root)), name)
        reasons = {other.name: other.reason for other in damaged}
        raise StoreError(reasons.get(name, f"the run {quote(name)} has just appeared: try again"))
    return match


def compare(
    runs: list[Run], rows: list[Row], methods: Sequence[str] = (), *, together: bool = True, pinned: str = ""
) -> Comparison:
    """Compare the rows of `measured_rows`; empty `methods` stand for all.

    `pinned` is the baseline as `METHOD@RUN`; if empty, it is the metric's own method. `together` joins runs that
    differ only in their seed. Raises SettingsError if `pinned` is not a line.
    """
    rows = [row for row in rows if row.method in methods] if methods else rows
    groups = analysis.seed_groups({run.name: run.study for run in runs})
    joined = together and analysis.has_several_seeds(groups)
    all_lines = analysis.lines(rows, groups if joined else None)
    results = _distinct_models(all_lines, _leading_lines(runs))
    options, default = baseline_options(results, runs[0].study)
    require_choice("pinned", pinned or default, tuple(options))
    return Comparison(
        runs, rows, results, frozenset(result.name for result in all_lines) - {result.name for result in results},
        _label_lines(results, runs), options[pinned or default],
        {"methods": tuple(methods), "together": together, "pinned": pinned if pinned != default else ""},
        {run.name: story.holdout_statuses(run) for run in runs},
    )  # fmt: skip


def measured_rows(runs: list[Run]) -> list[Row]:
    """Return a row for every method of some runs, including those that failed.

    Raises MissingResultError if no run has a perplexity.
    """
    rows = analysis.rows([cell for run in runs for cell in derived_cache.measurements(run)])
    if not rows:
        raise MissingResultError("the perplexity of any method")
    return rows + [row for run in runs for row in analysis.unavailable(run.name, derived_cache.unavailable(run))]


def _leading_lines(runs: Iterable[Run]) -> set[tuple[str, str]]:
    """Return the name of the line of each run that its sentences are about."""
    return {(run.name, leading_pair(run.study)[0]) for run in runs}


def _distinct_models(results: list[MethodResult], leading: set[tuple[str, str]]) -> list[MethodResult]:
    """Return the lines without duplicates: baselines of several runs with identical measured values."""
    models: dict[tuple[Any, ...], MethodResult] = {}
    for result in results:
        cells = [(text, cell.perplexity, cell.window_label) for row in result.rows for text, cell in row.cells.items()]
        # leading models are kept apart, even if their values are identical
        run = result.name[0] if result.name in leading else ""
        models.setdefault((result.method, result.retention, run, *cells), result)
    return list(models.values())


def baseline_options(results: list[MethodResult], study: Study) -> tuple[dict[str, MethodResult], str]:
    """Return the possible baselines by the key `METHOD@RUN`, and the default key: that of the metric's own method."""
    measured = [result for result in results if any(row.cells for row in result.rows)] or results
    options = {f"{result.method}@{result.name[0]}": result for result in measured}
    default = leading_pair(study)[1]
    return options, next((key for key, result in options.items() if result.method == default), next(iter(options)))


def _label_lines(results: list[MethodResult], compared_runs: list[Run]) -> dict[tuple[str, str], str]:
    """Return the label of each line: its method, and the settings in which the lines of this method differ."""
    runs, names = {run.name: run for run in compared_runs}, {}
    for method in dict.fromkeys(result.method for result in results):
        descriptions = {result.name: _describe_line(result, runs) for result in results if result.method == method}
        is_different = [len(set(column)) > 1 for column in zip(*descriptions.values(), strict=True)]
        for name, (title, *settings) in descriptions.items():
            # the title of a tuned run already contains its rule
            parts = [title, *("" if setting in title else setting for setting in settings)]
            difference = ", ".join(part for part, differs in zip(parts, is_different, strict=True) if differs and part)
            names[name] = f"{control_label(method)} · {difference}" if difference else control_label(method)
    labels = list(names.values())
    return {
        name: f"{text} (run {list(runs).index(name[0]) + 1})" if labels.count(text) > 1 else text
        for name, text in names.items()
    }


def _describe_line(result: MethodResult, runs: dict[str, Run]) -> tuple[str, ...]:
    """Return the title of a line's run, and its settings as phrases in a fixed order."""
    run = runs[result.rows[0].run]
    study, count = run.study, len(result.seeds)
    method = ALL_METHODS[result.method]
    adapts = method.masks == OURS or method.scoring == "adapted"
    seeds = f"{count} seeds" if count > 1 else f"seed {study.seed}"
    widths = "equal widths" if study.sparsity.equal else "free widths"
    repaired = repair_label(study) or "own repair"
    kept, rule = f"keep {percent(study.retention)}", thresholds.describe_rule(study.reliability) if adapts else ""
    return run.title or run.name, kept, label(study.metric), rule, widths, repaired, seeds


def options_of(run: Run, compared: Comparison) -> dict[str, Any]:
    """Return the options with which a figure of `run` shows this comparison."""
    names, default = (
        tuple(other.name for other in runs) for runs in (compared.runs, with_seeds([run], compared.options["together"]))
    )
    return {"runs": () if names == default else names, **compared.options}


def _options_per_text(run: Run, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the options in an address: once for its text or, if it names none of the texts, once for each text."""
    reads = {"methods": "cp_methods", "together": "cp_seeds", "pinned": "cp_pinned"}
    options = {option: values[key] for option, key in reads.items() if values.get(key) not in (None, "", [])}
    runs = tuple(values.get("cp_runs") or ())
    options |= {"runs": runs} if runs not in ((), (run.name,)) else {}
    texts = comparison_of(run, **options).texts
    text = values.get("cp_text")
    return [{"text": text} | options for text in ([text] if text in texts else texts)]


@panel("perplexity", "cp_charts", "Perplexity on a log axis", group=LINES, reads=_options_per_text, units=OF_BOTH)
def perplexity(run: Run, *, text: str = "", _compared: Comparison | None = None, **choice_options: Any) -> Panel:
    """Perplexity of every method on a text, by default an unseen text."""
    compared = _compared or comparison_of(run, **choice_options)
    text = text or compared.texts[0]
    require_choice("text", text, tuple(compared.texts))
    return Panel(
        plot_perplexities(compared, text),
        "Whiskers are each method's own 95% interval; the dotted line is the dense model.",
        alt=f"perplexity of every method on {compared.text_name(text)}",
        table=lambda: analysis.long_table(compared.rows, None, METHOD_LABELS),
        how="Whiskers are each method's own 95% interval, over windows or over the n seeds; a single value has none. "
        "All methods of a run read the same windows, so use the paired differences in the table, not the overlap "
        "of whiskers.",
    )


@panel("differences", "cp_changes", "Difference from the baseline", group=LINES, reads=_options_per_text, units=OF_BOTH)
def differences(run: Run, *, text: str = "", _compared: Comparison | None = None, **choice_options: Any) -> Panel:
    """Difference of every method from the baseline on a text, by default an unseen text."""
    compared = _compared or comparison_of(run, **choice_options)
    text = text or compared.texts[0]
    require_choice("text", text, tuple(compared.texts))
    figure = plot_changes(compared, text)
    name = compared.names[compared.baseline.name]
    if figure is None:
        raise MethodError(f"no other method was measured on the windows of {name}")
    return Panel(
        figure,
        f"Marks left of the line are better than {escape(name)}. Whiskers are the paired 95% interval.",
        title=f"Difference from {escape(name)}",
        table=lambda: analysis.long_table(compared.rows, compared.baseline.name, METHOD_LABELS),
        how="Both methods read the same windows, so the difference is computed window by window. Its error is far "
        "smaller than the error of either perplexity. Pale marks have an interval that contains 0, or another "
        "retention. With several seeds, the error over seeds is added in quadrature. Methods measured on other "
        "windows are left out.",
    )


def plot_perplexities(compared: Comparison, text: str) -> go.Figure:
    """Plot the perplexity of each line with its own interval; the dense model is a dotted line."""
    results = [result for result in compared.sorted_on(text) if result.by_seed(text)]
    figure, axis_values = go.Figure(), list[float]()
    for result in results:
        value, margin = result.mean(text), result.margin(text)
        hover = f"%{{x:.2f}}{f' ± {margin:.2f}' if np.isfinite(margin) else ''}<extra></extra>"
        _add_interval_mark(figure, result, compared, value, (value - margin, value + margin), hover)
        axis_values += [value - margin, value, value + margin]
        if result.method == DENSE:
            figure.add_vline(value, line={"color": GREY, "dash": "dot", "width": 1.5})
    return _style_rows(figure, results, compared, "perplexity (log scale)").update_xaxes(**log_axis(axis_values))


def plot_changes(compared: Comparison, text: str) -> go.Figure | None:
    """Plot the paired change of each line against the baseline, or None if nothing can be compared."""
    figure, results = go.Figure(), list[MethodResult]()
    for result in compared.sorted_on(text):
        difference = change_of(compared, result, text)
        if isinstance(difference, Difference) and np.isfinite(difference.change):
            value, ends = 100 * difference.change, tuple(100 * end for end in difference.interval)
            hover = f"%{{x:+.2f}}% {interval_in_percent(difference, 2)}<extra>{difference.verdict}</extra>"
            is_pale = difference.close or not is_comparable(result, compared.baseline, text)
            _add_interval_mark(figure, result, compared, value, ends, hover, is_pale)
            results.append(result)
    if not results:
        return None
    figure.add_vline(0, line={"color": GREY, "width": 1.5})
    return _style_rows(figure, results, compared, "perplexity change (%)").update_xaxes(nticks=4)


def change_of(compared: Comparison, result: MethodResult, text: str) -> Difference | str | None:
    """Return the difference of a line from the baseline, or the reason why there is none.

    None for the baseline itself, and for a line that is not measured on the text.
    """
    is_skipped = result is compared.baseline or not result.by_seed(text)
    return None if is_skipped else change(result, compared.baseline, text)


def _add_interval_mark(
    figure: go.Figure, result: MethodResult, compared: Comparison, value: float, ends: Sequence[float], hover: str,
    is_pale: bool = False,
) -> None:  # fmt: skip
    """Add the mark of a line at `value`, with whiskers to the `ends` of its interval."""
    symbol = METHOD_SYMBOLS.get(result.method, "circle")
    look = {"color": compared.color(result), "symbol": symbol, "size": 11, "opacity": 0.45 if is_pale else 1.0}
    name, low, high = _row_name(compared, result), np.array([ends[0]]), np.array([ends[1]])
    whiskers = marks.error_bars(np.array([value]), low, high, 1.5, width=5)
    marks.add_points(figure, [value], [name], look, f"%{{y}}: {hover}", error_x=whiskers, showlegend=False)


def _style_rows(figure: go.Figure, results: list[MethodResult], compared: Comparison, axis_title: str) -> go.Figure:
    style(figure, axis_title, "", 96 + ROW_PIXELS * len(results))
    return order_rows(figure, [_row_name(compared, result) for result in results])


def _row_name(compared: Comparison, result: MethodResult) -> str:
    """Return the label of a line for a figure in two lines: method and settings, or the two halves of a long name."""
    name = in_figure(compared.names[result.name])
    return name.replace(" · ", "<br>") if " · " in name else name.replace(", ", ",<br>", 1)


def order_rows(figure: go.Figure, names: list[str]) -> go.Figure:
    """Put rows from the top in the order of their names."""
    return figure.update_yaxes(type="category", categoryorder="array", categoryarray=names[::-1], automargin=True)


def similar_runs(run: Run, runs: Iterable[Run]) -> list[Run]:
    """Return the run, and other complete and visible runs of its dense model and precision.

    Runs without the perplexity of a pruned model are left out; those with a measured speed come first.
    """
    inputs = run.graph.inputs
    candidates = [
        other
        for other in runs
        if (other.name == run.name or (other.complete and not other.about.hidden))
        and (other.graph.inputs.model, other.graph.inputs.precision) == (inputs.model, inputs.precision)
        and _has_pruned_perplexity(other)
    ]
    # of equal models only the first is shown, and only a timed run has a cost in time
    return sorted(candidates[:MOST_RUNS], key=lambda other: other.study.evaluation.speed == "none") or [run]


def _has_pruned_perplexity(run: Run) -> bool:
    # the perplexity of the dense model alone gives no mark
    pruned = [name for name in run.study.methods if name != DENSE]
    return any(run.has(stages.perplexity, name, text) for text in run.study.evaluation.texts[:1] for name in pruned)


def _trade_off_options(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Yield the options of the Pareto chart that an address sets."""
    keys = {"runs": "dc_runs", "text": "cp_text", "cost": "dc_cost", "most": "dc_most"}
    options = {option: values[key] for option, key in keys.items() if values.get(key) not in (None, "", [])}
    yield options | ({"runs": tuple(options["runs"])} if "runs" in options else {})


@panel("trade_off", "dc_front", "Perplexity against cost", reads=_trade_off_options, units=OF_BOTH)
def trade_off(
    run: Run,
    *,
    runs: tuple[str, ...] = (),
    text: str = "",
    cost: str = PARAMETERS,
    most: float = LIMIT,
    _compared: Comparison | None = None,
) -> Panel:
    """Perplexity of pruned models against their cost, over the runs of one dense model.

    `most` is the limit on the perplexity, as a multiple of the dense model's.
    """
    require_choice("cost", cost, tuple(COSTS))
    require(most >= 1, "most", most, "1 or more times the dense perplexity")
    compared = _compared or similar_comparison(run, runs)
    require_choice("text", text or compared.texts[0], tuple(compared.texts))
    text = text or compared.texts[0]
    models = pareto_options(compared, text, cost)
    if not models:
        raise MissingResultError("a pruned model whose cost is known, and the dense model on the same windows")
    front, name = [model for model in models if model.front], escape(compared.text_name(text))
    return Panel(
        plot_front(models, compared.names, cost, most),
        f"{describe_cheapest(models, compared, cost, most)} Large marks are Pareto-optimal: better on {name} "
        "than every cheaper model, beyond noise. Overlapping marks are moved right. Whiskers: paired 95% intervals.",
        title=f"{len(front)} of {len(models)} models {'are' if front[1:] else 'is'} Pareto-optimal on {name}",
        alt=f"on the front: {', '.join(compared.names[model.line.name] for model in front)}",
        table=lambda: decisions.option_table(models, compared.names, cost, _line_settings(compared)),
        how="Each mark is a method of a run. Perplexity is relative to the dense model’s on the same windows; "
        f"{_COST_HOW[cost]} Small, pale marks are dominated: another model costs less and is no worse beyond "
        "noise, or costs the same and is better. Costs that differ only in digits that are not shown count as equal.",
    )


def similar_comparison(run: Run, runs: tuple[str, ...] = ()) -> Comparison:
    """Compare some runs, by default all of the same dense model."""
    names = runs or tuple(other.name for other in similar_runs(run, all_runs(run.root)[0]))
    return comparison_of(run, runs=() if names == (run.name,) else names)


def pareto_options(compared: Comparison, text: str, cost: str) -> list[Option]:
    """Return the models with their loss on a text and their relative cost; `cost` is one of COSTS.

    Raises MissingResultError while a method is not measured on the text.
    """
    if missing := missing_methods(compared.results, text, compared.expected):
        raise MissingResultError(f"the perplexity of {', '.join(map(label, missing))} on {compared.text_name(text)}")
    costs = _relative_sizes(compared) if cost == PARAMETERS else _relative_times(compared)
    return decisions.options(compared.results, [text], costs)


def _relative_sizes(compared: Comparison) -> dict[tuple[str, str], float]:
    """Return the parameters of each line over those of the dense model, where known."""
    dense = next((row.parameters for row in compared.rows if row.method == DENSE and row.parameters), 0)
    return {
        result.name: result.rows[0].parameters / dense
        for result in compared.results
        if dense and result.rows[0].parameters
    }


def _relative_times(compared: Comparison) -> dict[tuple[str, str], float]:
    """Return the time per token of each line over that of the dense model, where measured."""
    rows = {
        run.name: list(run.load(stages.speed).rows)
        for run in compared.runs
        if run.study.evaluation.speed != "none" and run.has(stages.speed)
    }
    ratios = {
        result.name: speeds.ratio_of(rows[result.name[0]], result.method)[0]
        for result in compared.results
        if result.name[0] in rows
    }
    return {name: 1 / ratio for name, ratio in ratios.items() if ratio > 0}


def describe_cheapest(models: list[Option], compared: Comparison, cost: str, most: float) -> str:
    """Return a sentence on the cheapest model whose perplexity is at most `most` times the dense model's."""
    model = decisions.cheapest(models, most)
    if model is None:
        closest = min(models, key=lambda other: other.loss.nats)
        name = escape(compared.names[closest.line.name])
        return (
            f"No model stays within {most:.3g}× the dense perplexity. The closest is {name}, at {closest.ratio:.2f}×."
        )
    return (
        f"**{escape(compared.names[model.line.name])}** is the cheapest within {most:.3g}× the dense perplexity: "
        f"{model.cost:.2f}× the {COSTS[cost]}, {model.ratio:.2f}× the perplexity."
    )


def _line_settings(compared: Comparison) -> dict[tuple[str, str], dict[str, str]]:
    """Return the settings of each line that the table of the Pareto chart shows."""
    studies = {run.name: run.study for run in compared.runs}
    return {
        result.name: {
            "primary": short_text(study, study.primary),
            "auxiliary": short_text(study, study.auxiliary),
            "widths": study.sparsity.widths,
            "repair": repair_label(study) or "the method’s own",
        }
        for result in compared.results
        for study in [studies[result.name[0]]]
    }


def plot_front(models: list[Option], names: Mapping[tuple[str, str], str], cost: str, most: float) -> go.Figure:
    """Plot perplexity against cost, both over the dense model's; models on the front are joined, the others pale.

    `cost` is one of COSTS; the horizontal line is at `most` times the dense perplexity.
    """
    figure = go.Figure()
    front = [model for model in models if model.front]
    step = {"color": GREY, "width": 1.5, "shape": "hv"}
    marks.add_guide(figure, [model.cost for model in front], [model.ratio for model in front], step)
    positions = _spread_costs(models)
    for method in dict.fromkeys(model.line.method for model in models):
        members = [model for model in models if model.line.method == method]
        x = [positions[model.line.name] for model in members]
        _add_marks(figure, method, members, x, names, front, most)
    star = {"color": GREY, "symbol": "star", "size": _FRONT_SIZE}
    marks.add_points(figure, [1.0], [1.0], star, "the dense model<extra></extra>", name="dense")
    figure.add_hline(y=most, line={"color": GREY, "dash": "dot", "width": 1.5})
    # annotations of a logarithmic axis are placed by the exponent
    position = {"x": 1, "xref": "paper", "xanchor": "right", "y": math.log10(most), "yanchor": "bottom"}
    figure.add_annotation(text=f"limit {most:g}×", showarrow=False, **position)
    figure.update_annotations(font={"size": 13})
    style(figure, f"{COSTS[cost]} (× dense)", "perplexity (× dense, log scale)", 400)
    ends = (model.ratio * (1 + sign * np.nan_to_num(model.loss.nats_margin)) for model in models for sign in (-1, 1))
    return figure.update_yaxes(**log_axis([1.0, most, *ends]))


def _spread_costs(models: list[Option]) -> dict[tuple[str, str], float]:
    """Return the cost at which each mark is drawn: a mark or whisker that would cover another is moved right."""
    heights = [math.log(model.ratio) for model in models]
    # the axes reach at least to the dense model, at cost 1 and log ratio 0
    width = _MARK_SIZE[0] * (1 - min(model.cost for model in models))
    height = _MARK_SIZE[1] * (max(*heights, 0) - min(*heights, 0))
    positions, used = dict[tuple[str, str], float](), list[tuple[float, float, float]]()
    # marks on the front come first, so they are not moved
    for model, y in sorted(zip(models, heights, strict=True), key=lambda pair: not pair[0].front):
        x, reach = model.cost, height / 2 + float(np.nan_to_num(model.loss.nats_margin))
        while any(abs(x - other) < 0.99 * width and abs(y - middle) < reach + extent for other, middle, extent in used):
            x += width
        positions[model.line.name] = x
        used.append((x, y, reach))
    return positions


def _add_marks(
    figure: go.Figure, method: str, models: list[Option], x: list[float], names: Mapping[tuple[str, str], str],
    front: list[Option], most: float,
) -> None:  # fmt: skip
    """Add the marks of the models of one method at the costs `x`.

    Unless the front has many models, names that the legend lacks are written next to its marks; of models of one cost,
    only the best one has its name written.
    """
    best_of_cost = {round(model.cost, 2): model for model in sorted(front, key=lambda model: -model.loss.nats)}
    has_name = best_of_cost.values() if len(front) <= _MOST_NAMES else ()
    named, entry = [(model, in_figure(names[model.line.name])) for model in models], in_figure(label(method))
    look = {
        "color": METHOD_COLORS.get(method, GREY),
        "symbol": METHOD_SYMBOLS.get(method, "circle"),
        "size": [_FRONT_SIZE if model.front else _DOMINATED_SIZE for model in models],
        "opacity": [1.0 if model.front else 0.75 for model in models],
    }
    text_options = {
        "text": [name * (model in has_name and name != entry) for model, name in named],
        "textposition": [_name_side(model, most, model in front[1:-1]) for model in models],
        "textfont": {"size": 13},
    }
    whiskers = {"array": [model.loss.nats_margin * model.ratio for model in models], "thickness": 1}
    hover = "%{customdata[0]}: %{y:.2f}× the dense perplexity at %{customdata[1]:.3f}× the cost<extra></extra>"
    hover_data = [[name, model.cost] for model, name in named]
    trace_options = {"mode": "markers+text", "name": entry, "customdata": hover_data}
    marks.add_points(
        figure, x, [model.ratio for model in models], look, hover, error_y=whiskers, **text_options, **trace_options
    )


def _name_side(model: Option, most: float, is_inner: bool) -> str:
    """Return the side of a mark on which its name covers neither the line of the front nor that of the limit."""
    height = "bottom" if _NEAR_LIMIT * most < model.ratio <= most else "top"
    return f"{height} {'left' if is_inner or model.cost > _EXPENSIVE else 'right'}"


@panel("recovery", "cp_recovery", "After recovery", reads={"text": "cp_recovery_text"})
def recovery(run: Run, *, text: str = "") -> Panel:
    """Perplexity of every pruned method before and after its recovery, by default on the first text."""
    if not stages.recovers(run.study):
        raise MethodError("this run has no recovery: its recovery.kind is none")
    recoveries = find_recoveries(run)
    if not recoveries:
        raise MissingResultError("the perplexity of a recovered method")
    texts = tuple(dict.fromkeys(model.text for model in recoveries))
    require_choice("text", text or texts[0], texts)
    models = recovered_models.recoveries_on(recoveries, text or texts[0])
    first = next((model for model in models if model.method == OURS), models[0])
    has_dense = DENSE in run.study.methods and run.has(stages.perplexity, DENSE, first.text)
    dense = run.load(stages.perplexity, DENSE, first.text).perplexity if has_dense else None
    return Panel(
        plot_recovery(models, dense, short_text(run.study, first.text)),
        f"Trained by {escape(stages.recovery_label(run.graph))}. Hollow: before; filled: after; dotted: dense.",
        title=f"Recovery changes the perplexity of {escape(label(first.method))} from {first.before.perplexity:.2f} "
        f"to {first.after.perplexity:.2f} on {escape(short_text(run.study, first.text))}",
        alt=f"perplexity of every method before and after recovery on {short_text(run.study, first.text)}",
        table=lambda: recovered_models.recovery_table(recoveries, label),
        how="Every pruned model is distilled from the dense one with the same steps and sequences, and measured on "
        "the same windows. Compare recovered models only with recovered models. Changes are paired by window "
        "(95% interval).",
    )


def find_recoveries(run: Run) -> list[recovered_models.Recovered]:
    """Return the perplexity before and after recovery of each method on each text, unseen texts first.

    Methods and texts that are not measured both before and after are left out.

    Raises StoreError if a result is damaged.
    """
    if not stages.recovers(run.study):
        return []
    statuses, graph = story.holdout_statuses(run), run.graph
    pairs = (
        (stages.perplexity(graph, name, text), stages.recovered_perplexity(graph, name, text))
        for text in sorted(run.study.evaluation.texts, key=lambda text: not statuses[text].unseen)
        for name in run.study.methods
        if METHODS[name].decision != "none"
    )
    return [
        recovered_models.Recovered(*(_measurement(run, stage) for stage in pair))
        for pair in pairs
        if all(map(run.has_result, pair))
    ]


def _measurement(run: Run, stage: stages.Stage[Perplexity]) -> Measurement:
    text = run.study.evaluation.texts[stage.id.item or 0]
    # retention and parameters are not needed here
    return derived_cache.measurement(run, stage.id.method, text, stage, float("nan"), 0)


def plot_recovery(models: list[recovered_models.Recovered], dense: float | None, text: str) -> go.Figure:
    """Plot the perplexity before and after recovery, one row per method; the dense model is a dotted line."""
    figure, names = go.Figure(), [in_figure(label(model.method)) for model in models]
    for model, name in zip(models, names, strict=True):
        color = METHOD_COLORS.get(model.method, GREY)
        marks.add_curve(
            figure, [model.before.perplexity, model.after.perplexity], [name, name], name,
            {"color": color, "width": 2}, "%{y}: %{x:.2f}<extra>%{customdata}</extra>", mode="lines+markers",
            marker={"color": color, "size": 11, "symbol": ["circle-open", "circle"]}, showlegend=False,
            customdata=["before", f"after recovery, {in_percent(model.change)}"],
        )  # fmt: skip
    if dense is not None:
        figure.add_vline(dense, line={"color": GREY, "dash": "dot", "width": 1.5})
    axis = f"perplexity on {in_figure(text)} (log scale, lower is better)"
    style(figure, axis, "", 96 + ROW_PIXELS * len(models))
    values = [value for model in models for value in (model.before.perplexity, model.after.perplexity)]
    return order_rows(figure, names).update_xaxes(**log_axis([*values, *([] if dense is None else [dense])]))


@panel("choice", "cp_choice", "Candidates tried")
def choice(run: Run) -> Panel:
    """The candidates from which a repair, or masks and repair, were chosen, with the measured value of each."""
    choices_by_method = find_choices(run)
    if not choices_by_method:
        raise MethodError("this run chooses nothing by measurement, or has not reached that stage")
    candidates = choices.candidates_of(choices_by_method, lambda word: stages.describe_candidate(run.graph, word))
    first = next(iter(choices_by_method.values()))
    winners = [f"{METHODS[candidate.method].label}: {candidate.repair}" for candidate in candidates if candidate.chosen]
    recipe = next((candidate for candidate in candidates if candidate.chosen and candidate.method == RECOMMENDED), None)
    if recipe is not None:
        # the recommended recipe chooses masks as well as a repair
        winners = [f"masks of {METHODS[recipe.masks].label}, {recipe.repair}"]
    return Panel(
        plot_candidates(candidates),
        f"Each mark is a candidate; the filled mark was chosen. The value is {choices.describe_criterion(first)} on "
        f"{first.sequences} held-out sequences of each text.",
        title=f"Candidates tried; chosen on held-out text: {escape('; '.join(winners[:3]))}",
        table=lambda: choices.candidate_table(candidates),
        how="Left is better. The reference, 1, is the same masks without repair; for the recommended recipe it is "
        "the masks of the first method without repair. The sequences share no tokens with the calibration sequences. "
        "Divergence is from the dense model, on text that it generated with another seed. No evaluation text is used. "
        "The best of several candidates wins partly by luck, so another may be best on unseen text.",
    )


def find_choices(run: Run) -> dict[str, Choice]:
    """Return the choices of a run by method; of methods with equal masks, only the first is included."""
    by_method = {name: stages.find_choice(run.results, name) for name in run.study.methods}
    # reversed, so that the first method with these masks is stored last
    first_methods = {ALL_METHODS[name].masks: name for name in reversed(by_method)}
    return {
        name: choice for name, choice in by_method.items() if choice and first_methods[ALL_METHODS[name].masks] == name
    }


def plot_candidates(candidates: list[Candidate]) -> go.Figure:
    """Plot the measured value of each candidate, one row per method; the filled mark was chosen."""
    figure = go.Figure()
    for masks in dict.fromkeys(candidate.masks for candidate in candidates):
        members = [candidate for candidate in candidates if candidate.masks == masks and np.isfinite(candidate.number)]
        color = METHOD_COLORS.get(masks, GREY)
        look = {
            "color": color,
            "size": [14 if candidate.chosen else 10 for candidate in members],
            "symbol": ["circle" if candidate.chosen else "circle-open" for candidate in members],
            "line": {"color": color, "width": 2},
        }
        x, y = [candidate.number for candidate in members], [METHODS[candidate.method].label for candidate in members]
        hover, name = "%{text}: %{x:.3f}<extra>%{fullData.name}</extra>", f"masks of {METHODS[masks].label}"
        marks.add_points(figure, x, y, look, hover, name=name, text=[candidate.repair for candidate in members])
    rows = list(dict.fromkeys(METHODS[candidate.method].label for candidate in candidates))
    figure.add_vline(x=1, line={"color": GREY, "dash": "dot", "width": 1.5})
    style(figure, "value relative to the reference (log scale)", "", 150 + 2 * ROW_PIXELS * len(rows))
    numbers = [candidate.number for candidate in candidates if np.isfinite(candidate.number)]
    return order_rows(figure, rows).update_xaxes(**log_axis([1.0, *numbers]))


def log_axis(values: Iterable[float]) -> dict[str, Any]:
    """Return a log axis for the finite positive values: its range, and ticks that stay readable."""
    positive = [value for value in values if np.isfinite(value) and value > 0]
    if not positive:
        return {"type": "log"}
    low, high = math.log10(min(positive)), math.log10(max(positive))
    # 6% of the range at each end, and at least 0.04 decades
    margin = max(0.06 * (high - low), 0.04)
    return {"range": [low - margin, high + margin]} | log_ticks(10 ** (low - margin), 10 ** (high + margin))
