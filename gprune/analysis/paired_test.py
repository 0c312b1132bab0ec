"""Test differences of perplexity, paired by window.

All methods are evaluated on the same windows. A paired test therefore takes the standard error over the differences of
the losses of each window.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from gprune.analysis.formatting import format_signed, percent
from gprune.evaluation.protocol import Stamp
from gprune.records import Array

LEVEL = 0.95
"""confidence level of all intervals; a difference is not significant if its interval contains 0"""
INTERVAL = f"{percent(LEVEL)} interval"
"""label of an interval"""
BETTER, WORSE, NOISE = "better", "worse", "within noise"
_SYMMETRIC_LIMIT = 0.1
"""largest half interval in nats for which the interval of the ratio of perplexities is written as ±

Up to it, both ends are about equally far from the ratio: exp(0.1) - 1 and 1 - exp(-0.1) differ by a tenth.
"""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Perplexity of one method of a run on one text."""

    run: str
    method: str
    """name of the method, one of gprune.study.methods.ALL_METHODS"""
    text: str
    """evaluation text"""
    perplexity: float
    """lower is better; infinite on overflow"""
    standard_error: float
    """standard error of the perplexity over windows"""
    windows: int
    """number of windows"""
    length: int
    """tokens per window"""
    retention: float
    """kept fraction of the prunable weights; 1 for the dense model, NaN if unknown"""
    parameters: int
    """parameters of the model; 0 if unknown"""
    model: str
    """fingerprint of the dense model"""
    content: str = ""
    """fingerprint of tokenizer and evaluation text; empty if unknown"""
    losses: Array = field(default_factory=lambda: np.empty(0), compare=False)
    """(windows,) mean negative log-likelihood of each window, nats per token; empty if unknown"""
    stamp: Stamp | None = None
    """evaluation protocol, or None if unknown"""

    @property
    def margin(self) -> float:
        """Return half the width of the confidence interval of the perplexity over its windows, or NaN if unknown."""
        return half_interval(self.standard_error, self.windows - 1)

    @property
    def window_label(self) -> str:
        """Return the number and length of the windows as text; perplexities are comparable if it is equal."""
        return f"{self.windows} windows of {self.length} tokens"


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of two mean losses with its standard error."""

    nats: float
    """first mean loss minus the second, nats per token; positive if the first is worse"""
    nats_error: float
    """standard error of `nats`; infinite if unknown"""
    paired: bool
    """whether both use the same windows, so that the error is computed from the difference of each window"""
    freedom: float = math.inf
    """degrees of freedom of the error: n - 1 for a mean over n windows"""

    @property
    def change(self) -> float:
        """Return the relative change of perplexity, exp(nats) - 1."""
        with np.errstate(over="ignore"):
            return float(np.expm1(self.nats))

    @property
    def error(self) -> float:
        """Return the standard error of the change (delta method), or NaN if the change is not finite."""
        return (1.0 + self.change) * self.nats_error if np.isfinite(self.change) else float("nan")

    @property
    def nats_margin(self) -> float:
        """Return half the width of the confidence interval of `nats`, or NaN if the error is unknown."""
        return half_interval(self.nats_error, self.freedom)

    @property
    def margin(self) -> float:
        """Return half the width of the confidence interval of the change (delta method), or NaN if unknown."""
        return (1.0 + self.change) * self.nats_margin if np.isfinite(self.change) else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """Return the ends of the confidence interval of the change; NaN if unknown.

        They are the ends of the interval of `nats`, transformed to relative changes of perplexity.
        """
        with np.errstate(over="ignore"):
            low, high = np.expm1([self.nats - self.nats_margin, self.nats + self.nats_margin])
        return float(low), float(high)

    @property
    def close(self) -> bool:
        """Return True if the interval of the difference contains 0 or is unknown."""
        return not abs(self.nats) > self.nats_margin

    @property
    def verdict(self) -> str:
        """Return BETTER or WORSE (a lower perplexity is better), or NOISE if the difference is not significant."""
        return NOISE if self.close else BETTER if self.nats < 0 else WORSE


def half_interval(error: float, freedom: float) -> float:
    """Return half the width of the confidence interval of a mean: the t quantile times its standard error.

    NaN if the error is not finite or there are no degrees of freedom, for example with one window.
    """
    return error * _t_quantile(freedom) if math.isfinite(error) and freedom > 0 else float("nan")


@lru_cache(maxsize=1024)
def _t_quantile(freedom: float) -> float:
    # scipy.special is faster to import than scipy.stats
    from scipy.special import ndtri, stdtrit

    upper = (1.0 + LEVEL) / 2
    return float(stdtrit(freedom, upper) if math.isfinite(freedom) else ndtri(upper))


def joint_freedom(errors: Sequence[float], freedoms: Sequence[float]) -> float:
    """Return the degrees of freedom of independent errors added in quadrature (Welch-Satterthwaite)."""
    variances = [(error**2, freedom) for error, freedom in zip(errors, freedoms, strict=True) if error > 0]
    # the formula needs at least one error above 0, and only finite errors with degrees of freedom
    if not variances or not all(math.isfinite(variance) and freedom > 0 for variance, freedom in variances):
        return max(freedoms)
    return sum(variance for variance, _ in variances) ** 2 / sum(
        variance**2 / freedom for variance, freedom in variances
    )


def same_windows(first: Measurement, second: Measurement) -> bool:
    """Return True if two perplexities use the same windows of one text and the loss of each window is known."""
    if (first.text, first.window_label) != (second.text, second.window_label):
        return False
    if not len(first.losses) == len(second.losses) == first.windows:
        return False
    # without a fingerprint of the text, only measurements of one run are known to use the same text
    same_source = bool(first.content) or first.run == second.run
    return same_source and first.content == second.content


def difference(first: Measurement, second: Measurement) -> Difference:
    """Return the mean loss of the first minus that of the second, with its standard error.

    If both use the same windows, the error is the standard error of the mean over the differences of each window. Else
    both standard errors are added in quadrature.
    """
    if same_windows(first, second):
        return over_windows(first.losses, second.losses)
    values = np.array([first.perplexity, second.perplexity])
    errors = np.array([first.standard_error, second.standard_error])
    with np.errstate(invalid="ignore"):
        first_log, second_log = np.log(values)
        # standard errors of the logarithms, by the delta method
        log_errors = errors / values
        error, nats = float(np.hypot(*log_errors)), float(first_log - second_log)
    freedom = joint_freedom(log_errors.tolist(), (first.windows - 1, second.windows - 1))
    return Difference(nats, error if np.isfinite(error) else np.inf, False, freedom)


def over_windows(first: Array, second: Array) -> Difference:
    """Return the mean difference of (windows,) losses in nats per token; the error is infinite for one window."""
    differences = first - second
    return Difference(float(differences.mean()), _sem(differences), True, len(differences) - 1)


def why_unpaired(first: Measurement, second: Measurement) -> str:
    """Return the reason why two perplexities cannot be paired; empty if they can."""
    if same_windows(first, second):
        return ""
    if first.window_label != second.window_label:
        return f"{first.window_label} against {second.window_label}"
    if not len(first.losses) == len(second.losses) == first.windows:
        return "the losses of single windows are not known"
    return "another text of this name, or another tokenizer"


def difference_over_seeds(first: Mapping[int, Measurement], second: Mapping[int, Measurement]) -> Difference | str:
    """Return the mean loss of the first minus that of the second over seeds, or the reason why there is none.

    Runs with the same seed are paired; if one side has one run, it is paired with all runs of the other. For the
    standard error see `over_seeds_and_windows`.
    """
    if len(first) == 1 or len(second) == 1:
        pairs = [(cell, other_cell) for cell in first.values() for other_cell in second.values()]
    else:
        pairs = [(first[seed], second[seed]) for seed in first if seed in second]
    if not pairs:
        return "no seed in common" if first and second else "not measured"
    # the windows must be the same within each pair and over all seeds
    reason = next(filter(None, (why_unpaired(*pair) for pair in pairs)), "")
    reason = reason or next(filter(None, (why_unpaired(pairs[0][0], cell) for cell, _ in pairs)), "")
    if reason:
        return reason
    with np.errstate(invalid="ignore"):
        return over_seeds_and_windows(np.stack([cell.losses - other_cell.losses for cell, other_cell in pairs]))


def over_seeds_and_windows(differences: Array) -> Difference:
    """Return the mean of (seeds, windows) loss differences on windows that all seeds share.

    The standard error over windows (of the means over seeds) and that over seeds (of the means over windows) are added
    in quadrature. With one seed, only the former is used.
    """
    errors = (_sem(differences.mean(axis=0)), _sem(differences.mean(axis=1)) if len(differences) > 1 else 0.0)
    freedom = joint_freedom(errors, (differences.shape[1] - 1, len(differences) - 1))
    return Difference(float(differences.mean()), math.hypot(*errors), True, freedom)


def in_percent(difference: Difference) -> str:
    """Format a difference as the relative change of perplexity with its interval.

    For example `−3.1 ± 0.4%`, or `+158.6% (+5.8 to +532.2%)` if the interval is asymmetric.
    """
    interval = interval_in_percent(difference, 1)
    if not interval.startswith("±"):
        return f"{format_signed(difference.change, '.1%')} {interval}".strip()
    return f"{format_signed(100 * difference.change, '.1f')} {interval}"


def interval_in_percent(difference: Difference, digits: int) -> str:
    """Format the interval of a change of perplexity: `± 0.4%`, or `(+5.8 to +532.2%)` if it is asymmetric.

    An asymmetric interval is not written as ±, which could include 0 although the interval does not. The result is
    empty if the interval is unknown.
    """
    if not np.isfinite(difference.margin):
        return ""
    # ± is written only if it includes 0 exactly when the interval of the test does
    if difference.nats_margin <= _SYMMETRIC_LIMIT and difference.close == (abs(difference.change) <= difference.margin):
        return f"± {percent(difference.margin, digits)}"
    low, high = (format_signed(100 * end, f".{digits}f") for end in difference.interval)
    return f"({low} to {high}%)"


def over_texts(differences: Sequence[Difference]) -> Difference:
    """Return the mean of differences over texts with equal weights.

    The errors of the texts are averaged and not added in quadrature, because they may be fully correlated: a seed can
    change the loss on all texts in the same way.
    """
    nats = float(np.mean([item.nats for item in differences]))
    error = float(np.mean([item.nats_error for item in differences]))
    return Difference(nats, error, all(item.paired for item in differences), min(item.freedom for item in differences))


def _sem(values: Array) -> float:
    """Return the standard error of the mean of values; infinity for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")
