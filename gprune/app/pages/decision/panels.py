"""The figure of the page by name, from a run and what can be set beside its card."""

from collections.abc import Iterable, Mapping
from typing import Any

from gprune.analysis import decision as analysis
from gprune.analysis import speed as speeds
from gprune.analysis.comparison import DENSE
from gprune.analysis.decision import COSTS, PARAMETERS, Option
from gprune.analysis.verdict import missing_methods
from gprune.app.pages.comparison.lines import Shown, shown_of
from gprune.app.pages.decision import charts
from gprune.app.ui.chart_style import label
from gprune.app.ui.panel import Panel, panel
from gprune.app.ui.text import plain
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run, all_runs
from gprune.pipeline.stages.method_inputs import repair_label
from gprune.study import short
from gprune.study.settings import require, require_choice

MOST_RUNS = 40
"""runs that are set beside each other by themselves, the newest"""
LIMIT = 1.5
"""times the dense perplexity that is asked for first"""


def alike(run: Run, runs: Iterable[Run]) -> list[Run]:
    """The runs of the same dense model in the same precision that have come to a perplexity, newest first."""
    inputs = run.graph.inputs
    # what only measures another run stands with that one
    # and one that was not finished would keep all others from being compared
    listed = (one for one in runs if one.name == run.name or (one.complete and not (one.about.hidden or one.shown_by)))
    same = (one for one in listed if one.graph.inputs.model == inputs.model)
    known = [one for one in same if one.graph.inputs.precision == inputs.precision and _is_measured(one)]
    return known[:MOST_RUNS] or [run]


def _is_measured(run: Run) -> bool:
    """Whether it has a perplexity of its own: the dense model's is that of every run."""
    pruned = [name for name in run.study.methods if name != DENSE]
    first = run.study.evaluation.texts[:1]
    return any(run.has(stages.perplexity, name, text) for text in first for name in pruned)


def _asked(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    keys = {"runs": "dc_runs", "text": "dc_text", "cost": "dc_cost", "most": "dc_most"}
    found = {option: values[key] for option, key in keys.items() if values.get(key) not in (None, "", [])}
    yield found | ({"runs": tuple(found["runs"])} if "runs" in found else {})


@panel("trade_off", "dc_front", "Which models are worth taking", reads=_asked)
def trade_off(
    run: Run,
    *,
    runs: tuple[str, ...] = (),
    text: str = "",
    cost: str = PARAMETERS,
    most: float = LIMIT,
    _shown: Shown | None = None,
) -> Panel:
    """What pruned models lose against what they cost, over the runs of one dense model."""
    require_choice("cost", cost, tuple(COSTS))
    require(most >= 1, "most", most, "1 or more times the dense perplexity")
    shown = _shown or of_runs(run, runs)
    require_choice("text", text or shown.texts[0], tuple(shown.texts))
    found = options(shown, text or shown.texts[0], cost)
    if not found:
        raise MissingResultError("a pruned model whose cost is known, and the dense model on the same windows")
    best = [one for one in found if one.front]
    verb, read = "are" if best[1:] else "is", plain(short(text or shown.texts[0]))
    return Panel(
        charts.front(found, shown.names, cost, most),
        f"{answer(found, shown, cost, most)} Large, joined marks: each is better on {read} than every cheaper "
        f"model, beyond noise. Whiskers are the 95 % interval over windows, paired.",
        title=f"{len(best)} of {len(found)} models {verb} worth taking on {read}",
        alt=f"on the front: {', '.join(shown.names[one.line.name] for one in best)}",
        table=lambda: analysis.option_table(found, shown.names, cost, about(shown)),
        how="Each mark is a method of a run. Perplexity is set against the dense model’s on the same "
        f"windows; {_COST_HOW[cost]} Small, pale marks are dominated: another model costs less and is no worse "
        "beyond noise, or costs the same and is better. Costs that are printed alike are equal.",
    )


_COST_HOW = {
    "parameters": "parameters are all of the model’s, with its embeddings.",
    "time": "the time of a token is measured while decoding, on the machine that the run names; models that "
    "were not timed are left out.",
}


def of_runs(run: Run, runs: tuple[str, ...]) -> Shown:
    """What is compared: some runs, or all that are like the one at hand."""
    names = runs or tuple(one.name for one in alike(run, all_runs(run.root)[0]))
    return shown_of(run, runs=() if names == (run.name,) else names)


def options(shown: Shown, text: str, cost: str) -> list[Option]:
    """The models with their loss on a text and their cost, one of COSTS.

    MissingResultError while a method is not measured on the text.
    """
    if missing := missing_methods(shown.lines, text, shown.expected):
        raise MissingResultError(f"the perplexity of {', '.join(map(label, missing))} on {short(text)}")
    return analysis.options(shown.lines, [text], (_times if cost != PARAMETERS else _parameters)(shown))


def _parameters(shown: Shown) -> dict[tuple[str, str], float]:
    """Parameters over the dense model's, by line."""
    dense = next((row.parameters for row in shown.rows if row.method == DENSE and row.parameters), 0)
    return {line.name: line.rows[0].parameters / dense for line in shown.lines if dense and line.rows[0].parameters}


def _times(shown: Shown) -> dict[tuple[str, str], float]:
    """The time of a token over the dense model's, by line, where it was measured."""
    rows = {
        run.name: list(run.load(stages.speed).rows)
        for run in shown.runs
        if run.measured.speed != "none" and run.has(stages.speed)
    }
    ratios = {
        line.name: speeds.ratio_of(rows[line.rows[0].run], line.method)[0]
        for line in shown.lines
        if line.rows[0].run in rows
    }
    return {name: 1 / ratio for name, ratio in ratios.items() if ratio > 0}


def answer(found: list[Option], shown: Shown, cost: str, most: float) -> str:
    """The cheapest model within a limit, in a sentence."""
    one = analysis.cheapest(found, most)
    limit = f"{most:.3g} times the dense perplexity"
    if one is None:
        least = min(found, key=lambda each: each.loss.nats)
        return f"None stays within {limit}; {plain(shown.names[least.line.name])} is nearest, at {least.ratio:.2f}."
    return (
        f"Within {limit} the cheapest is **{plain(shown.names[one.line.name])}**: {one.cost:.2f} of the "
        f"dense model’s {COSTS[cost]}, {one.ratio:.2f} times its perplexity."
    )


def about(shown: Shown) -> dict[tuple[str, str], dict[str, str]]:
    """What tells the models apart, by line: calibration texts, widths and repair."""
    studies = {run.name: run.study for run in shown.runs}
    known = {line.name: studies[line.rows[0].run] for line in shown.lines}
    return {
        name: {
            "A": short(study.primary),
            "B": short(study.auxiliary),
            "widths": study.sparsity.widths,
            "repair": repair_label(study) or "the method’s own",
        }
        for name, study in known.items()
    }
