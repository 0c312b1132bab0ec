"""The figure of a zero-shot task that counts, and the mean over tasks.

The paper's tables take the higher of acc and acc_norm (rule ``max``); its appendix repeats them with one
figure fixed for each task, acc_norm where it exists and acc otherwise (rule ``fixed``). Both follow from one
measurement, so the rule is chosen when figures are shown. ``max`` is the more favourable one by construction:
which of the two is higher can differ from model to model.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gprune.data.published import RULES
from gprune.records import Accuracy
from gprune.system.errors import SettingsError

__all__ = ["RULES", "MeanAccuracy", "mean_accuracy", "metric_of", "reported", "reported_error"]


@dataclass(frozen=True, slots=True)
class MeanAccuracy:
    """The mean over tasks under one rule."""

    value: float
    """unweighted mean over tasks, in [0, 1]"""
    error: float
    """its standard error, for tasks measured independently of each other"""
    chance: float
    """the same mean of the accuracies of guessing"""
    tasks: int
    """number of tasks"""


def metric_of(accuracy: Accuracy, rule: str) -> str:
    """Return the figure of a task that counts, acc or acc_norm; under max acc where both are equal.

    Raises SettingsError where the rule is neither max nor fixed.
    """
    if rule not in RULES:
        raise SettingsError(f"the rule for accuracy must be one of {', '.join(RULES)} (got {rule!r})")
    if math.isnan(accuracy.acc_norm):
        return "acc"
    if rule == "fixed":
        return "acc_norm"
    return "acc_norm" if accuracy.acc_norm > accuracy.acc else "acc"


def reported(accuracy: Accuracy, rule: str) -> float:
    """The accuracy of a task that counts, in [0, 1]; for rule and errors see `metric_of`."""
    return accuracy.acc if metric_of(accuracy, rule) == "acc" else accuracy.acc_norm


def reported_error(accuracy: Accuracy, rule: str) -> float:
    """The standard error of the figure that counts; for rule and errors see `metric_of`."""
    return accuracy.acc_error if metric_of(accuracy, rule) == "acc" else accuracy.acc_norm_error


def mean_accuracy(accuracies: Iterable[Accuracy], rule: str) -> MeanAccuracy:
    """The mean over tasks, each of equal weight as in the paper's tables.

    Raises SettingsError where the rule is not known, or there is no task.
    """
    measured = list(accuracies)
    if not measured:
        raise SettingsError("a mean accuracy needs at least one task: measure some, or leave the mean out")
    count = len(measured)
    variance = sum(reported_error(accuracy, rule) ** 2 for accuracy in measured)
    return MeanAccuracy(
        value=sum(reported(accuracy, rule) for accuracy in measured) / count,
        error=math.sqrt(variance) / count,
        chance=sum(accuracy.chance for accuracy in measured) / count,
        tasks=count,
    )
