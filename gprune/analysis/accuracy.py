"""Select the reported accuracy of a zero-shot task, and compute the mean over tasks.

The paper's tables report the higher of acc and acc_norm (rule ``max``). Its appendix repeats them with a fixed metric
per task, acc_norm if it exists and acc otherwise (rule ``fixed``). Both follow from one measurement, so the rule is
selected for display. ``max`` is more favourable, because the better metric can differ between models.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gprune.data.published import RULES
from gprune.records import Accuracy

__all__ = ["RULES", "MeanAccuracy", "mean_accuracy", "metric_of", "reported_accuracy", "reported_error"]


@dataclass(frozen=True, slots=True)
class MeanAccuracy:
    """The mean over tasks under one rule."""

    value: float
    """unweighted mean over tasks, in [0, 1]"""
    error: float
    """standard error of the mean, for tasks measured independently of each other"""
    chance: float
    """mean accuracy of guessing over the same tasks"""
    tasks: int
    """number of tasks"""


def metric_of(accuracy: Accuracy, rule: str) -> str:
    """Return the name of the metric that a rule reports for a task: acc, acc_norm, or the task's own metric.

    If both are equal, the rule `max` reports acc.
    """
    if math.isnan(accuracy.acc_norm):
        return accuracy.metric
    if rule == "fixed":
        return "acc_norm"
    return "acc_norm" if accuracy.acc_norm > accuracy.acc else "acc"


def reported_accuracy(accuracy: Accuracy, rule: str) -> float:
    """Return the accuracy that a rule reports for a task, in [0, 1]."""
    return accuracy.acc_norm if metric_of(accuracy, rule) == "acc_norm" else accuracy.acc


def reported_error(accuracy: Accuracy, rule: str) -> float:
    """Return the standard error of the reported accuracy."""
    return accuracy.acc_norm_error if metric_of(accuracy, rule) == "acc_norm" else accuracy.acc_error


def mean_accuracy(accuracies: Iterable[Accuracy], rule: str) -> MeanAccuracy:
    """Return the unweighted mean over tasks, as in the paper's tables.

    Only tasks whose metric is a share of right answers and better if higher are used; NaN if there are none.
    """
    shares = [accuracy for accuracy in accuracies if accuracy.is_share and accuracy.higher_is_better]
    count = len(shares)
    if not count:
        return MeanAccuracy(math.nan, math.nan, math.nan, 0)
    variance = sum(reported_error(accuracy, rule) ** 2 for accuracy in shares)
    return MeanAccuracy(
        value=sum(reported_accuracy(accuracy, rule) for accuracy in shares) / count,
        error=math.sqrt(variance) / count,
        chance=sum(accuracy.chance for accuracy in shares) / count,
        tasks=count,
    )
