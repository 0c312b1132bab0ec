"""Answers: on which tasks can the rows of a table be compared, and what are their means under both rules?

Section 4 (rule `max`) and appendix, robustness to the evaluation protocol (rule `fixed`). Both follow from
one measurement; a mean is over the tasks that all rows with accuracies have, so that no row is spared a hard
task.
"""

from collections.abc import Callable
from typing import Any

import pandas as pd

from gprune.analysis import accuracy
from gprune.analysis import tables as derived
from gprune.experiments.reproduction.lookup import Answer
from gprune.records import Accuracy

MEAN = derived.ACCURACY


def common(answers: tuple[Answer, ...]) -> tuple[str, ...]:
    """Tasks that every row with accuracies has, in the order of the first such row."""
    measured = [[found.task for found in answer.accuracies] for answer in answers if answer.accuracies]
    return tuple(task for task in (measured[0] if measured else ()) if all(task in names for names in measured))


def ruled(metric: str, rule: str) -> str:
    """A metric's name with its rule, where it is an accuracy: `accuracy (max)`."""
    return f"{metric} ({rule})" if metric.startswith(MEAN) else metric


def columns(answer: Answer, names: tuple[str, ...], rule: str, error: bool = False) -> dict[str, float]:
    """Mean accuracy and that of every task, or their errors, in points, as in gprune.analysis.tables."""
    chosen = _chosen(answer, names)
    if not chosen:
        return {}
    mean = accuracy.mean_accuracy(chosen, rule)
    of_task = accuracy.reported_error if error else accuracy.reported
    found = {MEAN: 100.0 * (mean.error if error else mean.value)}
    return found | {f"{MEAN}:{one.task}": 100.0 * of_task(one, rule) for one in chosen}


def shown(answer: Answer, names: tuple[str, ...], each: str = "") -> dict[str, float]:
    """Mean accuracies under both rules, and under one rule, if it is named, those of every task."""
    means = {
        ruled(MEAN, rule): value
        for rule in accuracy.RULES
        for metric, value in columns(answer, names, rule).items()
        if metric == MEAN
    }
    single = columns(answer, names, each) if each else {}
    return means | {metric: value for metric, value in single.items() if metric != MEAN}


def under_both(make: Callable[[pd.DataFrame], pd.DataFrame], frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """A derived table with a `metric` column under both rules; what no rule touches is there once."""
    parts = []
    for index, (rule, frame) in enumerate(frames.items()):
        made = make(frame)
        if "metric" not in made.columns:
            continue
        kept = made if index == 0 else made[made["metric"].astype(str).str.startswith(MEAN)]
        parts.append(kept.assign(metric=[ruled(str(metric), rule) for metric in kept["metric"]]))
    filled = [part for part in parts if len(part)]
    if filled:
        return pd.concat(filled, ignore_index=True)
    return parts[0] if parts else make(next(iter(frames.values())))


def without_singles(made: pd.DataFrame) -> pd.DataFrame:
    """The rows of a derived table but those of single tasks."""
    return made[[not is_single(str(metric)) for metric in made["metric"]]]


def is_single(metric: str) -> bool:
    """Whether a metric is the accuracy of a single task."""
    return metric.startswith(f"{MEAN}:")


def table(answers: tuple[Answer, ...], names: tuple[str, ...]) -> pd.DataFrame:
    """Mean accuracies in full: one line a row and rule, with standard error and chance, in points."""
    lines: list[dict[str, Any]] = []
    for index, answer in enumerate(answers):
        chosen = _chosen(answer, names)
        for rule in accuracy.RULES if chosen else ():
            mean = accuracy.mean_accuracy(chosen, rule)
            line = {"row": index + 1, **answer.row.labels, "method id": answer.row.method_id, "rule": rule}
            line |= {"mean accuracy": 100.0 * mean.value, "standard error": 100.0 * mean.error}
            lines.append(line | {"chance": 100.0 * mean.chance, "tasks": " ".join(names), "run": answer.run})
    return pd.DataFrame(lines)


def notes(answers: tuple[Answer, ...], names: tuple[str, ...]) -> list[str]:
    """What a reader must know of the accuracies of a table."""
    rows = [answer for answer in answers if answer.accuracies]
    found = [
        f"not measured: {task}: {reason}"
        for task, reason in dict(one for answer in answers for one in answer.missing_tasks).items()
    ]
    if not rows:
        return found
    measured = dict.fromkeys(task.task for answer in rows for task in answer.accuracies)
    left = [task for task in measured if task not in names]
    if left:
        found.append(f"not in the means, since not every row has them: {', '.join(left)}")
    if names:
        found += _about(rows, names)
    filled = sum(answer.filled for answer in answers)
    if len(rows) < filled:
        found.append(
            f"{filled - len(rows)} of {filled} rows have no accuracy: their studies measure no tasks "
            "(--tasks has all studies measure them)"
        )
    return found


def _about(rows: list[Answer], names: tuple[str, ...]) -> list[str]:
    """What the means are of, and what guessing would score."""
    every = [_chosen(answer, names) for answer in rows]
    chance = accuracy.mean_accuracy(every[0], accuracy.RULES[0]).chance
    guessing = f"; guessing scores {100.0 * chance:.1f}" if chance == chance else ""
    limits = sorted({found.limit for chosen in every for found in chosen})
    size = ", ".join(f"at most {limit} documents of each" if limit else "all documents" for limit in limits)
    many = f"{len(names)} task{'s' if len(names) > 1 else ''}"
    return [
        f"accuracy in points, the mean over {many} ({', '.join(names)}; {size}){guessing}",
        "max: the higher of acc and acc_norm of each task; fixed: acc_norm where the task has it, else acc",
    ]


def _chosen(answer: Answer, names: tuple[str, ...]) -> list[Accuracy]:
    return [found for found in answer.accuracies if found.task in names]
