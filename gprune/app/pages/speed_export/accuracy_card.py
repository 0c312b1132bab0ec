"""The card of zero-shot accuracy: every task and method, both figures, chance, and what was left out."""

import math

import pandas as pd
import streamlit as st

from gprune.analysis import accuracy
from gprune.analysis.paired_test import half_interval
from gprune.app.ui import offered_job, tables, url_state
from gprune.app.ui.card import Card
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import plain
from gprune.app.ui.titles import called
from gprune.evaluation.protocol import Stamp, of_accuracy
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Accuracy

_RULE_HELP = (
    "max: the higher of raw and length-normalised accuracy of each task, as in the paper's tables. fixed: "
    "the normalised one where the task has it (appendix, robustness to the evaluation protocol). Both come "
    "from one measurement; max is the more favourable one by construction."
)
NORMALISED = "ⁿ"
"""marks figures that are length-normalised"""


def draw(drawn: Card, run: Run) -> None:
    """Draws the card."""
    found = accuracies(run)
    if not any(found.values()):
        offered_job.tasks_left_out(run)
        offered_job.tasks(run, "sx_tasks")
        return
    rule = url_state.radio(
        "Figure that counts", accuracy.RULES, "sx_rule", accuracy.RULES[0], horizontal=True, help=_RULE_HELP
    )
    drawn.title(_finding(found, rule))
    with st.container(horizontal=True, gap="xsmall"):
        if run.measured.limit:
            st.badge(
                f"limited to {run.measured.limit} documents a task",
                color="orange",
                help="Not comparable with accuracies of whole tasks, nor with the paper's.",
            )
    tables.show(summary(found, rule), alt="accuracy of every task and method")
    st.caption(
        f"Percent right ± the 95 % interval over documents, higher is better; {NORMALISED} marks "
        "length-normalised figures. A method near chance, the accuracy of guessing, has learned nothing of a "
        "task. All methods answer the same documents: overlapping errors do not decide whether two differ. "
        "A task that names another metric of lm-eval is in the mean only if that is a share."
    )
    tables.stamps(protocols(run, found, rule))
    drawn.tools(
        lambda: details(found, rule),
        how="A row a task, a column a method. Compare a method with the dense model and with chance; which "
        "questions moved is on the tab Changed answers.",
    )
    offered_job.tasks_left_out(run)


def accuracies(run: Run) -> dict[str, dict[str, Accuracy]]:
    """The accuracies of a run that are there, by method and task."""
    tasks = [task for task in run.measured.tasks if task in run.graph.inputs.tasks]
    return {
        method: {
            task: run.load(stages.accuracy, method, task) for task in tasks if run.has(stages.accuracy, method, task)
        }
        for method in run.study.methods
    }


def protocols(run: Run, found: dict[str, dict[str, Accuracy]], rule: str) -> list[Stamp]:
    """By what protocols the accuracies were measured."""
    precision = run.graph.inputs.precision
    return [
        of_accuracy(each, run.results.details(stages.accuracy(run.graph, method, task)), rule, precision)
        for method, tasks in found.items()
        for task, each in tasks.items()
    ]


def _finding(found: dict[str, dict[str, Accuracy]], rule: str) -> str:
    means = {method: accuracy.mean_accuracy(tasks.values(), rule) for method, tasks in found.items() if tasks}
    means = {method: mean for method, mean in means.items() if mean.tasks}
    if not means:
        return "Measured tasks"
    parts = [f"{plain(label(method))} {100 * mean.value:.1f} %" for method, mean in means.items()]
    first = next(iter(means.values()))
    many = f"Mean of {first.tasks} tasks" if first.tasks > 1 else "Accuracy"
    guessing = "" if math.isnan(first.chance) else f"; guessing {100 * first.chance:.1f} %"
    return f"{many}: {', '.join(parts[:4])}{guessing}"


def summary(found: dict[str, dict[str, Accuracy]], rule: str) -> pd.DataFrame:
    """Tasks by methods under one rule, text cells, the mean of the tasks last where there are several."""
    methods = [method for method in found if found[method]]
    tasks = list(dict.fromkeys(task for method in methods for task in found[method]))
    lines = []
    for task in tasks:
        one = next(found[method][task] for method in methods if task in found[method])
        cells = {label(method): _cell(found[method].get(task), rule) for method in methods}
        metric = "" if one.metric == "acc" else f" ({one.metric}{'' if one.higher_is_better else ', lower is better'})"
        lines.append(
            {"task": called(task) + metric, "documents": f"{one.samples:,}", "chance": _percent(one.chance)} | cells
        )
    shares = len({task for method in methods for task, each in found[method].items() if each.is_share})
    if shares > 1:
        lines.append(_mean_line(found, methods, shares, rule))
    return pd.DataFrame(lines)


def _mean_line(found: dict[str, dict[str, Accuracy]], methods: list[str], tasks: int, rule: str) -> dict[str, str]:
    line = {"task": f"mean of {tasks} tasks", "documents": "", "chance": ""}
    for method in methods:
        mean = accuracy.mean_accuracy(found[method].values(), rule)
        whole = mean.tasks == tasks
        line["chance"] = line["chance"] or (_percent(mean.chance) if whole else "")
        line[label(method)] = _points(mean.value, mean.error) if whole else "–"
    return line


def _cell(measured: Accuracy | None, rule: str) -> str:
    if measured is None:
        return "–"
    mark = NORMALISED if accuracy.metric_of(measured, rule) == "acc_norm" else ""
    value, error = accuracy.reported(measured, rule), accuracy.reported_error(measured, rule)
    if not measured.is_share:
        return f"{value:.4g}"
    return f"{_points(value, error)}{mark}"


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}"


def _points(value: float, error: float) -> str:
    if value != value:
        return "–"
    # documents are many: the quantile is that of the normal distribution
    margin = half_interval(error, math.inf)
    return f"{100 * value:.1f}" + ("" if margin != margin else f" ± {100 * margin:.1f}")


def details(found: dict[str, dict[str, Accuracy]], rule: str) -> pd.DataFrame:
    """One line a task and method with both figures, as numbers in [0, 1]."""
    lines = [
        {
            "task": called(task),
            "method": label(method),
            "acc": each.acc,
            "acc s.e.": each.acc_error,
            "acc_norm": each.acc_norm,
            "acc_norm s.e.": each.acc_norm_error,
            "counts": accuracy.metric_of(each, rule),
            "chance": each.chance,
            "documents": each.samples,
            "version": each.version,
        }
        for method, tasks in found.items()
        for task, each in tasks.items()
    ]
    return pd.DataFrame(lines).sort_values("task", kind="stable")
