"""Figures of Compare: perplexities, paired changes, the Pareto chart, tried candidates and recovery."""

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
    is_same_budget,
    missing_methods,
    own_method,
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
from gprune.app.ui.panel import Panel, panel
from gprune.app.ui.text import escape, in_figure, short_text
from gprune.data.texts.holdout import HoldoutStatus
from gprune.pipeline import runs as run_records
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run, all_runs
from gprune.pipeline.stages.results import repair_label
from gprune.records import Choice, Perplexity
from gprune.store import Store
from gprune.study.methods import METHODS, RECOMMENDED
from gprune.study.settings import require, require_choice
from gprune.system.errors import MethodError, SettingsError, StoreError
from gprune.system.safe_parsing import quote

LINES: dict[str, Any] = {"runs": (), "methods": (), "together": True, "pinned": ""}
"""options that choose the compared lines; by default every method of the run"""
ROW_PIXELS = 34
RUN_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#A05A3B")
"""colours of runs where several are compared; the symbol then names the method"""
MOST_RUNS = 40
"""runs that are compared by default, the newest"""
LIMIT = 1.5
"""default limit, times the dense perplexity"""
_ON, _OFF = 13, 8
"""sizes of marks on the front and off it"""
_MOST_NAMES = 4
"""names that fit beside the marks of the front"""
_NEAR_LIMIT = 0.75
"""share of the limit from which a name is written below its mark, so that it does not cover the line of the limit"""
_EXPENSIVE = 0.9
"""share of the dense model's cost above which a name is written to the left of its mark"""
_MARK = (0.02, 0.045)
"""width and height of a mark, in shares of the axes"""
_COST_HOW = {
    "parameters": "parameters include the embeddings.",
    "time": "the time per token is measured while decoding, on the machine that the run names. Models without a time "
    "are left out.",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The methods of some runs, ready to be compared."""

    runs: list[Run]
    rows: list[Row]
    """every method of every run"""
    results: list[MethodResult]
    """the rows, with seeds together and a baseline that several runs share only once"""
    shared: frozenset[tuple[str, str]]
    """lines that are left out because an earlier run has the same model"""
    names: dict[tuple[str, str], str]
    """label of each line"""
    baseline: MethodResult
    options: Mapping[str, Any]
    """settings that differ from their defaults, as options of the figures"""
    statuses: Mapping[str, Mapping[str, HoldoutStatus]]
    """relation of each run's evaluation texts to its calibration texts, by run"""

    @property
    def expected(self) -> Expected:
        """Runs and methods that each text must have before anything is claimed."""
        by_text = story.expected_results(self.runs, self.options["methods"])
        return {text: [name for name in names if name not in self.shared] for text, names in by_text.items()}

    @property
    def missing(self) -> list[str]:
        """Methods that are not yet measured on every text."""
        expected = self.expected
        return list(dict.fromkeys(m for text in expected for m in missing_methods(self.results, text, expected)))

    def ranking(self, text: str) -> dict[tuple[str, str], int]:
        """Return the ranks of the pruned models on a text."""
        return rank_lines(self.results, (text,), self.expected)

    def sorted_on(self, text: str) -> list[MethodResult]:
        """Return the lines by their perplexity on a text, those without one last."""
        return sorted(self.results, key=lambda result: (not np.isfinite(result.mean(text)), result.mean(text)))

    @property
    def texts(self) -> list[str]:
        """The evaluation texts, unseen ones first."""
        return sorted(analysis.texts(self.rows), key=lambda text: self.chip(text) != "unseen")

    def status(self, text: str) -> HoldoutStatus | None:
        """Return the relation of a text to the calibration texts of the first run that measures it."""
        return next((of_run[text] for of_run in self.statuses.values() if text in of_run), None)

    def text_name(self, text: str) -> str:
        """Return the short name of a text: the one that the first run that measures it gives it."""
        run = next((run for run in self.runs if text in run.study.evaluation.texts), self.runs[0])
        return short_text(run.study, text)

    def chip(self, text: str) -> str:
        """Return `unseen`, `in-domain` or the relation of a text to the calibration texts; several by run."""
        statuses = [of_run[text] for of_run in self.statuses.values() if text in of_run]
        return " / ".join(dict.fromkeys("in-domain" if status.related else status.brief for status in statuses))

    def color(self, result: MethodResult) -> str:
        """Return the colour of a line: its run's where several runs are compared, grey if shared, else its method's."""
        runs = list(dict.fromkeys(other.name[0] for other in self.results if other.method != DENSE))
        if len(runs) < 2:
            return METHOD_COLORS.get(result.method, GREY)
        if result.method == DENSE or any(method == result.method for _, method in self.shared):
            return GREY
        return RUN_COLORS[runs.index(result.name[0]) % len(RUN_COLORS)]

    def finding(self, text: str) -> str:
        """Return a sentence on how the GPrune models of the first two runs differ on a text; empty for one run."""
        own = [result for result in self.results if result.method == OURS and result.by_seed(text)]
        if len(own) < 2 or self.missing:
            return ""
        return compare_runs(own[0], own[1], text, [self.names[result.name] for result in own[:2]], self.text_name(text))


def comparison_of(
    run: Run, runs: tuple[str, ...] = (), methods: tuple[str, ...] = (), together: bool = True, pinned: str = ""
) -> Comparison:
    """Compare the methods of a run, or of several runs of its cache.

    Raises StoreError for an unknown run and MissingResultError if none has a perplexity, SettingsError for a
    name of the wrong type or an unknown method or line.
    """
    chosen = [_run_named(run, name) for name in runs] or [run]
    rows = measured_rows(chosen)
    for method in methods:
        require_choice("methods", method, tuple(dict.fromkeys(row.method for row in rows)))
    return compare(chosen, rows, methods, together=together, pinned=pinned)


def _run_named(run: Run, name: Any) -> Run:
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
    chosen: list[Run], rows: list[Row], methods: Sequence[str] = (), *, together: bool = True, pinned: str = ""
) -> Comparison:
    """Compare the rows of `measured_rows`; empty `methods` stand for all.

    `pinned` names the baseline as `METHOD@RUN`, by default the metric's own method. `together` joins runs that
    differ only in their seed. Raises SettingsError for an unknown line.
    """
    rows = [row for row in rows if row.method in methods] if methods else rows
    groups = analysis.seed_groups({run.name: run.study for run in chosen})
    joined = together and analysis.has_several_seeds(groups)
    all_lines = analysis.lines(rows, groups if joined else None)
    results = _distinct_models(all_lines)
    options, default = baseline_options(results, chosen[0].study.metric)
    require_choice("pinned", pinned or default, tuple(options))
    return Comparison(
        chosen, rows, results, frozenset(result.name for result in all_lines) - {result.name for result in results},
        _label_lines(results, chosen), options[pinned or default],
        {"methods": tuple(methods), "together": together, "pinned": pinned if pinned != default else ""},
        {run.name: story.holdout_statuses(run) for run in chosen},
    )  # fmt: skip


def measured_rows(chosen: list[Run]) -> list[Row]:
    """Return every method of some runs, also those that failed. Raises MissingResultError without a perplexity."""
    rows = analysis.rows([cell for run in chosen for cell in derived_cache.measurements(run)])
    if not rows:
        raise MissingResultError("the perplexity of any method")
    return rows + [row for run in chosen for row in analysis.unavailable(run.name, derived_cache.unavailable(run))]


def _distinct_models(results: list[MethodResult]) -> list[MethodResult]:
    """Keep one line of a baseline for which several runs have measured identical values."""
    models: dict[tuple[Any, ...], MethodResult] = {}
    for result in results:
        cells = [(text, cell.perplexity, cell.window_label) for row in result.rows for text, cell in row.cells.items()]
        run = result.name[0] if result.method == OURS else ""
        models.setdefault((result.method, result.retention, run, *cells), result)
    return list(models.values())


def baseline_options(results: list[MethodResult], metric: str) -> tuple[dict[str, MethodResult], str]:
    """Return the lines that can be the baseline as `METHOD@RUN`, and the one of the metric's own method."""
    measured = [result for result in results if any(row.cells for row in result.rows)] or results
    options = {f"{result.method}@{result.name[0]}": result for result in measured}
    own = own_method(metric)
    return options, next((key for key, result in options.items() if result.method == own), next(iter(options)))


def _label_lines(results: list[MethodResult], chosen: list[Run]) -> dict[tuple[str, str], str]:
    """Label each line by its method, with the words that tell lines of one method apart."""
    runs, names = {run.name: run for run in chosen}, {}
    for method in dict.fromkeys(result.method for result in results):
        words = {result.name: _describe_line(result, runs) for result in results if result.method == method}
        differ = [len(set(column)) > 1 for column in zip(*words.values(), strict=True)]
        for name, (title, *settings) in words.items():
            # the title of a tuned run already contains its rule
            parts = [title, *("" if setting in title else setting for setting in settings)]
            tail = ", ".join(part for part, differs in zip(parts, differ, strict=True) if differs and part)
            names[name] = f"{control_label(method)} · {tail}" if tail else control_label(method)
    labels = list(names.values())
    return {
        name: f"{text} (run {list(runs).index(name[0]) + 1})" if labels.count(text) > 1 else text
        for name, text in names.items()
    }


def _describe_line(result: MethodResult, runs: dict[str, Run]) -> tuple[str, ...]:
    run = runs[result.rows[0].run]
    study, count, adapts = run.study, len(result.seeds), METHODS[result.method].masks == OURS
    seeds = f"{count} seeds" if count > 1 else f"seed {study.seed}"
    widths = "equal widths" if study.sparsity.equal else "free widths"
    repaired = repair_label(study) or "own repair"
    kept, rule = f"keep {percent(study.retention)}", thresholds.describe_rule(study.reliability) if adapts else ""
    return run.title or run.name, kept, label(study.metric), rule, widths, repaired, seeds


def options_of(run: Run, compared: Comparison) -> dict[str, Any]:
    """Return the comparison of a page as options of the figures."""
    names = tuple(other.name for other in compared.runs)
    return {"runs": () if names == (run.name,) else names, **compared.options}


def _for_texts(run: Run, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the options that an address sets, for its text or, without one, for every text."""
    reads = {"methods": "cp_methods", "together": "cp_seeds", "pinned": "cp_pinned"}
    options = {option: values[key] for option, key in reads.items() if values.get(key) not in (None, "", [])}
    runs = tuple(values.get("cp_runs") or ())
    options |= {"runs": runs} if runs not in ((), (run.name,)) else {}
    texts = comparison_of(run, **options).texts
    text = values.get("cp_text")
    return [{"text": text} | options for text in ([text] if text in texts else texts)]


@panel("perplexity", "cp_charts", "Perplexity on a log axis", group=LINES, reads=_for_texts)
def perplexity(run: Run, *, text: str = "", _compared: Comparison | None = None, **choice_options: Any) -> Panel:
    """Perplexity of every method on a text, by default an unseen one."""
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


@panel("differences", "cp_changes", "Difference from the baseline", group=LINES, reads=_for_texts)
def differences(run: Run, *, text: str = "", _compared: Comparison | None = None, **choice_options: Any) -> Panel:
    """Difference of every method from the baseline on a text, by default an unseen one."""
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
        "smaller than that of either perplexity. Pale marks have an interval that contains 0, or another "
        "retention. With several seeds, the error over seeds is added in quadrature. Methods measured on other "
        "windows are left out.",
    )


def plot_perplexities(compared: Comparison, text: str) -> go.Figure:
    """Plot the perplexity of each line with its own interval; the dense model is a dotted line."""
    results = [result for result in compared.sorted_on(text) if result.by_seed(text)]
    figure, limits = go.Figure(), list[float]()
    for result in results:
        value, margin = result.mean(text), result.margin(text)
        words = f"± {margin:.2f}" if np.isfinite(margin) else ""
        _interval_mark(figure, result, compared, value, (value - margin, value + margin), "%{x:.2f}", words)
        limits += [value - margin, value, value + margin]
        if result.method == DENSE:
            figure.add_vline(value, line={"color": GREY, "dash": "dot", "width": 1.5})
    return _style_rows(figure, results, compared, "perplexity (log scale)").update_xaxes(**log_axis(limits))


def plot_changes(compared: Comparison, text: str) -> go.Figure | None:
    """Plot the paired change of each line against the baseline, or None if nothing can be compared."""
    figure, results = go.Figure(), list[MethodResult]()
    for result in compared.sorted_on(text):
        gap = change_of(compared, result, text)
        if isinstance(gap, Difference) and np.isfinite(gap.change):
            pale, ends = (
                gap.close or not is_same_budget(result, compared.baseline),
                tuple(100 * x for x in gap.interval),
            )
            words = interval_in_percent(gap, 2)
            _interval_mark(figure, result, compared, 100 * gap.change, ends, "%{x:+.2f}%", words, gap.verdict, pale)
            results.append(result)
    if not results:
        return None
    figure.add_vline(0, line={"color": GREY, "width": 1.5})
    return _style_rows(figure, results, compared, "change (%)").update_xaxes(nticks=4)


def change_of(compared: Comparison, result: MethodResult, text: str) -> Difference | str | None:
    """Return the change of a line against the baseline, the reason for none, or None for the baseline itself."""
    same = result is compared.baseline or not result.by_seed(text)
    return None if same else change(result, compared.baseline, text)


def _interval_mark(
    figure: go.Figure, result: MethodResult, compared: Comparison, value: float, ends: Sequence[float], form: str,
    words: str,
    verdict: str = "", pale: bool = False,
) -> None:  # fmt: skip
    symbol = METHOD_SYMBOLS.get(result.method, "circle")
    look = {"color": compared.color(result), "symbol": symbol, "size": 11, "opacity": 0.45 if pale else 1.0}
    name, low, high = _row_name(compared, result), np.array([ends[0]]), np.array([ends[1]])
    whiskers = marks.error_bars(np.array([value]), low, high, 1.5, width=5)
    hover = f"%{{y}}: {form} {words}<extra>{verdict}</extra>"
    marks.add_points(figure, [value], [name], look, hover, error_x=whiskers, showlegend=False)


def _style_rows(figure: go.Figure, results: list[MethodResult], compared: Comparison, axis: str) -> go.Figure:
    style(figure, axis, "", 96 + ROW_PIXELS * len(results))
    return order_rows(figure, [_row_name(compared, result) for result in results])


def _row_name(compared: Comparison, result: MethodResult) -> str:
    return in_figure(compared.names[result.name]).replace(" · ", "<br>")


def order_rows(figure: go.Figure, names: list[str]) -> go.Figure:
    """Put rows from the top in the order of their names."""
    return figure.update_yaxes(type="category", categoryorder="array", categoryarray=names[::-1], automargin=True)


def similar_runs(run: Run, runs: Iterable[Run]) -> list[Run]:
    """Return the complete runs of the same dense model and precision that have a perplexity, timed ones first."""
    inputs = run.graph.inputs
    candidates = [
        other
        for other in runs
        if (other.name == run.name or (other.complete and not other.about.hidden))
        and (other.graph.inputs.model, other.graph.inputs.precision) == (inputs.model, inputs.precision)
        and _has_perplexity(other)
    ]
    # of equal models only the first is shown, and only a timed run has a cost in time
    return sorted(candidates[:MOST_RUNS], key=lambda other: other.study.evaluation.speed == "none") or [run]


def _has_perplexity(run: Run) -> bool:
    # every run has the perplexity of the dense model
    pruned = [name for name in run.study.methods if name != DENSE]
    return any(run.has(stages.perplexity, name, text) for text in run.study.evaluation.texts[:1] for name in pruned)


def _options_in(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    keys = {"runs": "dc_runs", "text": "cp_text", "cost": "dc_cost", "most": "dc_most"}
    options = {option: values[key] for option, key in keys.items() if values.get(key) not in (None, "", [])}
    yield options | ({"runs": tuple(options["runs"])} if "runs" in options else {})


@panel("trade_off", "dc_front", "Perplexity against cost", reads=_options_in)
def trade_off(
    run: Run,
    *,
    runs: tuple[str, ...] = (),
    text: str = "",
    cost: str = PARAMETERS,
    most: float = LIMIT,
    _compared: Comparison | None = None,
) -> Panel:
    """Perplexity of pruned models against their cost, over the runs of one dense model."""
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
        f"{describe_cheapest(models, compared, cost, most)} Joined marks are Pareto-optimal: better on {name} "
        "than every cheaper model, beyond noise. Overlapping marks are moved right. Whiskers: paired 95% intervals.",
        title=f"{len(front)} of {len(models)} models {'are' if front[1:] else 'is'} Pareto-optimal on {name}",
        alt=f"on the front: {', '.join(compared.names[model.line.name] for model in front)}",
        table=lambda: decisions.option_table(models, compared.names, cost, _settings(compared)),
        how="Each mark is a method of a run. Perplexity is relative to the dense model’s on the same windows; "
        f"{_COST_HOW[cost]} Small, pale marks are dominated: another model costs less and is no worse beyond "
        "noise, or costs the same and is better. Costs that print the same are equal.",
    )


def similar_comparison(run: Run, runs: tuple[str, ...] = ()) -> Comparison:
    """Compare some runs, by default all of the same dense model."""
    names = runs or tuple(other.name for other in similar_runs(run, all_runs(run.root)[0]))
    return comparison_of(run, runs=() if names == (run.name,) else names)


def pareto_options(compared: Comparison, text: str, cost: str) -> list[Option]:
    """Return the models with their loss on a text and their cost, one of COSTS.

    Raises MissingResultError while a method is not measured on the text.
    """
    if missing := missing_methods(compared.results, text, compared.expected):
        raise MissingResultError(f"the perplexity of {', '.join(map(label, missing))} on {compared.text_name(text)}")
    costs = _relative_sizes(compared) if cost == PARAMETERS else _relative_times(compared)
    return decisions.options(compared.results, [text], costs)


def _relative_sizes(compared: Comparison) -> dict[tuple[str, str], float]:
    dense = next((row.parameters for row in compared.rows if row.method == DENSE and row.parameters), 0)
    return {
        result.name: result.rows[0].parameters / dense
        for result in compared.results
        if dense and result.rows[0].parameters
    }


def _relative_times(compared: Comparison) -> dict[tuple[str, str], float]:
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
    """Return the cheapest model within a limit, in a sentence."""
    model = decisions.cheapest(models, most)
    if model is None:
        least = min(models, key=lambda other: other.loss.nats)
        name = escape(compared.names[least.line.name])
        return f"No model stays within {most:.3g}× the dense perplexity. The closest is {name}, at {least.ratio:.2f}×."
    return (
        f"**{escape(compared.names[model.line.name])}** is the cheapest within {most:.3g}× the dense perplexity: "
        f"{model.cost:.2f}× the {COSTS[cost]}, {model.ratio:.2f}× the perplexity."
    )


def _settings(compared: Comparison) -> dict[tuple[str, str], dict[str, str]]:
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
    x = _spread_costs(models)
    for method in dict.fromkeys(model.line.method for model in models):
        own = [model for model in models if model.line.method == method]
        costs = [x[model.line.name] for model in own]
        _add_marks(figure, method, own, costs, names, front[1:-1], len(front) <= _MOST_NAMES, most)
    star = {"color": GREY, "symbol": "star", "size": _ON}
    marks.add_points(figure, [1.0], [1.0], star, "the dense model<extra></extra>", name="dense")
    figure.add_hline(y=most, line={"color": GREY, "dash": "dot", "width": 1.5})
    # annotations of a logarithmic axis are placed by the exponent
    position = {"x": 1, "xref": "paper", "xanchor": "right", "y": math.log10(most), "yanchor": "bottom"}
    figure.add_annotation(text=f"limit {most:g}×", showarrow=False, **position)
    figure.update_annotations(font={"size": 13})
    style(figure, f"{COSTS[cost]} (× dense)", "perplexity (× dense, log scale)", 400)
    return figure.update_yaxes(**log_axis([1.0, most, *(model.ratio for model in models)]))


def _spread_costs(models: list[Option]) -> dict[tuple[str, str], float]:
    """Return where each mark is drawn: marks that would hide each other are moved to the right by a mark's width."""
    heights = [math.log(model.ratio) for model in models]
    width = _MARK[0] * (1 - min(model.cost for model in models))
    height = _MARK[1] * (max(*heights, 0) - min(*heights, 0))
    places, used = dict[tuple[str, str], float](), list[tuple[float, float]]()
    for model, y in sorted(zip(models, heights, strict=True), key=lambda pair: not pair[0].front):
        x = model.cost
        while any(abs(x - other) < width and abs(y - other_y) < height for other, other_y in used):
            x += width
        places[model.line.name] = x
        used.append((x, y))
    return places


def _add_marks(
    figure: go.Figure, method: str, own: list[Option], costs: list[float], names: Mapping[tuple[str, str], str],
    middle: list[Option], named: bool, most: float,
) -> None:  # fmt: skip
    labels = [in_figure(names[model.line.name]) for model in own]
    look = {
        "color": METHOD_COLORS.get(method, GREY),
        "symbol": METHOD_SYMBOLS.get(method, "circle"),
        "size": [_ON if model.front else _OFF for model in own],
        "opacity": [1.0 if model.front else 0.75 for model in own],
    }
    written = {
        "text": [name if model.front and named else "" for model, name in zip(own, labels, strict=True)],
        "textposition": [_name_side(model, most, model in middle) for model in own],
        "textfont": {"size": 13},
    }
    whiskers = {"array": [model.loss.nats_margin * model.ratio for model in own], "thickness": 1}
    hover = "%{customdata[0]}: %{y:.2f}× the dense perplexity at %{customdata[1]:.3f}× the cost<extra></extra>"
    exact = [[name, model.cost] for name, model in zip(labels, own, strict=True)]
    more = {"mode": "markers+text", "name": in_figure(label(method)), "customdata": exact}
    marks.add_points(figure, costs, [model.ratio for model in own], look, hover, error_y=whiskers, **written, **more)


def _name_side(model: Option, most: float, is_between: bool) -> str:
    height = "bottom" if _NEAR_LIMIT * most < model.ratio <= most else "top"
    return f"{height} {'left' if is_between or model.cost > _EXPENSIVE else 'right'}"


@panel("recovery", "cp_recovery", "After recovery", reads={"text": "cp_recovery_text"})
def recovery(run: Run, *, text: str = "") -> Panel:
    """Perplexity of every pruned method before and after its recovery, by default on the first text."""
    if not stages.recovers(run.study):
        raise MethodError("this run has no recovery: its recovery.kind is none")
    every = find_recoveries(run)
    if not every:
        raise MissingResultError("the perplexity of a recovered method")
    texts = tuple(dict.fromkeys(model.text for model in every))
    require_choice("text", text or texts[0], texts)
    models = recovered_models.recoveries_on(every, text or texts[0])
    first = next((model for model in models if model.method == OURS), models[0])
    has_dense = DENSE in run.study.methods and run.has(stages.perplexity, DENSE, first.text)
    dense = run.load(stages.perplexity, DENSE, first.text).perplexity if has_dense else None
    return Panel(
        plot_recovery(models, dense, short_text(run.study, first.text)),
        f"Trained by {escape(stages.recovery_label(run.graph))}. Hollow: before; filled: after; dotted: dense.",
        title=f"Recovery changes the perplexity of {escape(label(first.method))} from {first.before.perplexity:.2f} "
        f"to {first.after.perplexity:.2f} on {escape(short_text(run.study, first.text))}",
        alt=f"perplexity of every method before and after recovery on {short_text(run.study, first.text)}",
        table=lambda: recovered_models.recovery_table(every, label),
        how="Every pruned model is distilled from the dense one with the same steps and sequences, and measured on "
        "the same windows. Compare recovered models only with recovered models. Changes are paired by window "
        "(95% interval).",
    )


def find_recoveries(run: Run) -> list[recovered_models.Recovered]:
    """Return every method and text that was measured after recovery, unseen texts first.

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
    best = [f"{METHODS[candidate.method].label}: {candidate.repair}" for candidate in candidates if candidate.chosen]
    recipe = next((candidate for candidate in candidates if candidate.chosen and candidate.method == RECOMMENDED), None)
    if recipe is not None:
        best = [f"masks of {METHODS[recipe.masks].label}, {recipe.repair}"]
    return Panel(
        plot_candidates(candidates),
        f"Each mark is a candidate; the filled mark was chosen. The value is {choices.describe_criterion(first)} on "
        f"{first.sequences} held-out sequences of each text.",
        title=f"Candidates tried; chosen on held-out text: {escape('; '.join(best[:3]))}",
        table=lambda: choices.candidate_table(candidates),
        how="Left is better. The reference, 1, is the same masks without repair; for the recommended recipe it is "
        "the first method's. The sequences share no tokens with the calibration sequences. Divergence is from "
        "the dense model, on text that it generated with another seed. No evaluation text is used. The best of "
        "several candidates wins partly by luck, so another may be best on unseen text.",
    )


def find_choices(run: Run) -> dict[str, Choice]:
    """Return the choices of a run by method; of methods with equal masks, only the first is included."""
    by_method = {name: stages.find_choice(run.results, name) for name in run.study.methods}
    firsts = {METHODS[name].masks: name for name in reversed(by_method)}
    return {name: choice for name, choice in by_method.items() if choice and firsts[METHODS[name].masks] == name}


def plot_candidates(candidates: list[Candidate]) -> go.Figure:
    """Plot the measured value of each candidate, one row per method; the filled mark was chosen."""
    figure = go.Figure()
    for masks in dict.fromkeys(candidate.masks for candidate in candidates):
        own = [candidate for candidate in candidates if candidate.masks == masks and np.isfinite(candidate.number)]
        color = METHOD_COLORS.get(masks, GREY)
        look = {
            "color": color,
            "size": [14 if candidate.chosen else 10 for candidate in own],
            "symbol": ["circle" if candidate.chosen else "circle-open" for candidate in own],
            "line": {"color": color, "width": 2},
        }
        x, y = [candidate.number for candidate in own], [METHODS[candidate.method].label for candidate in own]
        hover, name = "%{text}: %{x:.3f}<extra>%{fullData.name}</extra>", f"masks of {METHODS[masks].label}"
        marks.add_points(figure, x, y, look, hover, name=name, text=[candidate.repair for candidate in own])
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
    margin = max(0.06 * (high - low), 0.04)
    return {"range": [low - margin, high + margin]} | log_ticks(10 ** (low - margin), 10 ** (high + margin))
