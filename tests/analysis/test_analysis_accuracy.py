"""Which figure of a task counts under each rule, and the mean over tasks, against hand computation."""

import math

import pytest

from gprune.analysis.accuracy import mean_accuracy, metric_of, reported, reported_error
from gprune.records import Accuracy
from gprune.system.errors import SettingsError

NAN = math.nan


def measured(acc: float, acc_norm: float, chance: float = 0.25) -> Accuracy:
    """Errors are a tenth of the figures, so that each is known by its value."""
    return Accuracy("task", acc, acc_norm, acc / 10, acc_norm / 10, 100, 0, chance, "1.0", "data")


# The rules of section 4 and of the appendix on fixed-metric accuracy.
@pytest.mark.parametrize(
    ("acc", "acc_norm", "rule", "metric"),
    [
        (0.6, 0.5, "max", "acc"),
        (0.5, 0.6, "max", "acc_norm"),
        (0.5, 0.5, "max", "acc"),
        (0.6, NAN, "max", "acc"),
        (0.6, 0.5, "fixed", "acc_norm"),
        (0.5, 0.6, "fixed", "acc_norm"),
        (0.6, NAN, "fixed", "acc"),
        (0.0, 0.0, "fixed", "acc_norm"),
    ],
)
def test_the_rule_chooses_the_figure_and_its_error(acc, acc_norm, rule, metric):
    accuracy = measured(acc, acc_norm)
    expected = acc if metric == "acc" else acc_norm
    assert metric_of(accuracy, rule) == metric
    assert reported(accuracy, rule) == expected
    assert reported_error(accuracy, rule) == expected / 10


def test_mean_weighs_tasks_equally_whatever_their_size():
    tasks = [measured(0.6, NAN, 0.5), measured(0.4, 0.2, 0.25), measured(0.1, 0.3, 0.2)]
    highest, fixed = mean_accuracy(tasks, "max"), mean_accuracy(iter(tasks), "fixed")
    assert highest.value == pytest.approx((0.6 + 0.4 + 0.3) / 3, rel=1e-12)
    assert fixed.value == pytest.approx((0.6 + 0.2 + 0.3) / 3, rel=1e-12)
    assert highest.error == pytest.approx(math.sqrt(0.06**2 + 0.04**2 + 0.03**2) / 3, rel=1e-12)
    assert fixed.error == pytest.approx(math.sqrt(0.06**2 + 0.02**2 + 0.03**2) / 3, rel=1e-12)
    assert (highest.chance, highest.tasks) == (pytest.approx(0.95 / 3, rel=1e-12), 3)
    mean = mean_accuracy([measured(0.4, 0.5)], "max")
    assert (mean.value, mean.error, mean.chance, mean.tasks) == (0.5, 0.05, 0.25, 1)
    with pytest.raises(SettingsError, match="at least one task"):
        mean_accuracy([], "max")
    with pytest.raises(SettingsError, match=r"one of max, fixed \(got 'best'\)"):
        reported(measured(0.5, 0.5), "best")
