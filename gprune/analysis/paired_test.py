"""Tests whether one perplexity is better than another, beyond the noise of its windows.

All methods read the same windows, so a difference is judged by the windows' differences (paired).
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
"""how much every interval that is shown holds; a difference whose interval holds 0 is too close to call"""
INTERVAL = f"{percent(LEVEL)} interval"
"""what an interval is called wherever one is shown"""
BETTER, WORSE, NOISE = "better", "worse", "within noise"
_EVEN = 0.1
"""half an interval in nats up to which its ends are about as far from the change, to a tenth"""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One perplexity of one method of one run."""

    run: str
    """the run it belongs to"""
    method: str
    """name of the method, one of gprune.study.methods.METHODS"""
    text: str
    """evaluation text"""
    perplexity: float
    """lower is better; infinite where it overflows"""
    standard_error: float
    """over windows, carried to perplexity"""
    windows: int
    """windows measured"""
    length: int
    """tokens of one window"""
    retention: float
    """kept fraction of the decoder's weights; 1 for the dense model, NaN if it is not known"""
    parameters: int
    """parameters of the model; 0 if not known"""
    model: str
    """fingerprint of the dense model behind it"""
    content: str = ""
    """fingerprint of tokenizer and evaluation text; empty if not known"""
    losses: Array = field(default_factory=lambda: np.empty(0), compare=False)
    """(windows,) mean negative log-likelihood of each window, nats per token; empty if not known"""
    stamp: Stamp | None = None
    """by what protocol it was measured, or None if not known"""

    @property
    def margin(self) -> float:
        """Return half the interval of the perplexity over its windows, or NaN if not known."""
        return half_interval(self.standard_error, self.windows - 1)

    @property
    def windows_read(self) -> str:
        """Return the windows in words; equal for two comparable perplexities."""
        return f"{self.windows} windows of {self.length} tokens"


@dataclass(frozen=True, slots=True)
class Difference:
    """One perplexity against another, on the scale of the mean loss."""

    nats: float
    """difference of the mean losses, nats per token; positive where the first is worse"""
    nats_error: float
    """its standard error; infinite where it is not known"""
    paired: bool
    """whether both were measured on the same windows; the error is then that of the windows' differences"""
    freedom: float = math.inf
    """degrees of freedom of the error: of a mean over n windows n - 1"""

    @property
    def change(self) -> float:
        """Return the relative change of perplexity: its ratio less 1."""
        with np.errstate(over="ignore"):
            return float(np.expm1(self.nats))

    @property
    def error(self) -> float:
        """Return the standard error of the change (delta method), or NaN if the change is not finite."""
        return (1.0 + self.change) * self.nats_error if np.isfinite(self.change) else float("nan")

    @property
    def nats_margin(self) -> float:
        """Return half the interval of the difference in nats per token, or NaN if its error is not known."""
        return half_interval(self.nats_error, self.freedom)

    @property
    def margin(self) -> float:
        """Return half the interval of the change (delta method), or NaN if not known."""
        return (1.0 + self.change) * self.nats_margin if np.isfinite(self.change) else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """Return the ends of the change's interval; it contains 0 if the difference's does; NaN if not known."""
        with np.errstate(over="ignore"):
            low, high = np.expm1([self.nats - self.nats_margin, self.nats + self.nats_margin])
        return float(low), float(high)

    @property
    def close(self) -> bool:
        """Return True if the interval of the difference contains 0 or is not known."""
        return not abs(self.nats) > self.nats_margin

    @property
    def verdict(self) -> str:
        """Return BETTER or WORSE (a lower perplexity is better), or NOISE if the two are too close."""
        return NOISE if self.close else BETTER if self.nats < 0 else WORSE


def half_interval(error: float, freedom: float) -> float:
    """Return half the interval around a mean: the t quantile times its standard error.

    NaN if the error is not finite or there are no degrees of freedom, as of a single window: then there
    is no interval to show.
    """
    return error * _quantile(freedom) if math.isfinite(error) and freedom > 0 else float("nan")


@lru_cache(maxsize=1024)
def _quantile(freedom: float) -> float:
    # scipy.special is imported, because scipy.stats is slow to import
    from scipy.special import ndtri, stdtrit

    upper = (1.0 + LEVEL) / 2
    return float(stdtrit(freedom, upper) if math.isfinite(freedom) else ndtri(upper))


def joint_freedom(errors: Sequence[float], freedoms: Sequence[float]) -> float:
    """Return the degrees of freedom of errors in quadrature, by Welch and Satterthwaite."""
    variances = [(error**2, freedom) for error, freedom in zip(errors, freedoms, strict=True) if error > 0]
    if not variances or not all(math.isfinite(variance) and freedom > 0 for variance, freedom in variances):
        return max(freedoms)
    return sum(variance for variance, _ in variances) ** 2 / sum(
        variance**2 / freedom for variance, freedom in variances
    )


def same_windows(first: Measurement, second: Measurement) -> bool:
    """Return True if two perplexities were measured on the same windows, with the loss of each window known."""
    if (first.text, first.windows_read) != (second.text, second.windows_read):
        return False
    if not len(first.losses) == len(second.losses) == first.windows:
        return False
    same_source = bool(first.content) or first.run == second.run
    return same_source and first.content == second.content


def difference(first: Measurement, second: Measurement) -> Difference:
    """Return the loss of the first over the second: paired if the windows are the same.

    The difference of the mean losses and its standard error: that of the mean of the windows' differences, or
    both standard errors in quadrature where the windows differ.
    """
    if same_windows(first, second):
        return over_windows(first.losses, second.losses)
    values = np.array([first.perplexity, second.perplexity])
    errors = np.array([first.standard_error, second.standard_error])
    with np.errstate(invalid="ignore"):
        first_log, second_log = np.log(values)
        logs = errors / values
        error, nats = float(np.hypot(*logs)), float(first_log - second_log)
    freedom = joint_freedom(logs.tolist(), (first.windows - 1, second.windows - 1))
    return Difference(nats, error if np.isfinite(error) else np.inf, False, freedom)


def over_windows(first: Array, second: Array) -> Difference:
    """Return the loss of the first over the second, from the (windows,) losses of both in nats per token.

    The mean of the windows' differences and its standard error, infinite with a single window.
    """
    differences = first - second
    return Difference(float(differences.mean()), _error(differences), True, len(differences) - 1)


def why_unpaired(first: Measurement, second: Measurement) -> str:
    """Return why the difference of two perplexities means nothing; empty if both read the same windows."""
    if same_windows(first, second):
        return ""
    if first.windows_read != second.windows_read:
        return f"{first.windows_read} against {second.windows_read}"
    if not len(first.losses) == len(second.losses) == first.windows:
        return "the losses of single windows are not known"
    return "another text of this name, or another tokenizer"


def difference_over_seeds(first: Mapping[int, Measurement], second: Mapping[int, Measurement]) -> Difference | str:
    """Return the loss of the first over the second on the windows that both read, averaged over seeds.

    Runs of the same seed are compared; where one side has one run only, it is compared with all of the other.
    The difference with its standard error (see `over_both`), or why there is none.
    """
    if len(first) == 1 or len(second) == 1:
        pairs = [(cell, other_cell) for cell in first.values() for other_cell in second.values()]
    else:
        pairs = [(first[seed], second[seed]) for seed in first if seed in second]
    if not pairs:
        return "no seed in common" if first and second else "not measured"
    reason = next(filter(None, (why_unpaired(*pair) for pair in pairs)), "")
    reason = reason or next(filter(None, (why_unpaired(pairs[0][0], cell) for cell, _ in pairs)), "")
    if reason:
        return reason
    with np.errstate(invalid="ignore"):
        return over_both(np.stack([cell.losses - other_cell.losses for cell, other_cell in pairs]))


def over_both(differences: Array) -> Difference:
    """Return the mean of (seeds, windows) loss differences on windows that all seeds share.

    Its standard error is that over windows (of the seeds' mean) and that over seeds in quadrature, the former
    alone for one seed.
    """
    errors = _error(differences.mean(axis=0)), _error(differences.mean(axis=1)) if len(differences) > 1 else 0.0
    freedom = joint_freedom(errors, (differences.shape[1] - 1, len(differences) - 1))
    return Difference(float(differences.mean()), math.hypot(*errors), True, freedom)


def in_percent(difference: Difference) -> str:
    """Format a difference as a change of perplexity with its interval: `−3.1 ± 0.4%`, or with both ends."""
    interval = interval_in_percent(difference, 1)
    if not interval.startswith("±"):
        return f"{format_signed(difference.change, '.1%')} {interval}".strip()
    return f"{format_signed(100 * difference.change, '.1f')} {interval}"


def interval_in_percent(difference: Difference, digits: int) -> str:
    """Format the interval of a change of perplexity: `± 0.4%`; empty if not known.

    From end to end, `(+5.8 to +532.2%)`, where it is far from even around the change: there ± could hold 0
    although the interval does not.
    """
    if not np.isfinite(difference.margin):
        return ""
    if difference.nats_margin <= _EVEN and difference.close == (abs(difference.change) <= difference.margin):
        return f"± {percent(difference.margin, digits)}"
    low, high = (format_signed(100 * end, f".{digits}f") for end in difference.interval)
    return f"({low} to {high}%)"


def over_texts(differences: Sequence[Difference]) -> Difference:
    """Return the mean of differences over texts of equal weight.

    Its error is the mean of theirs: what a seed does to one text it may do to all.
    """
    nats = float(np.mean([item.nats for item in differences]))
    error = float(np.mean([item.nats_error for item in differences]))
    return Difference(nats, error, all(item.paired for item in differences), min(item.freedom for item in differences))


def _error(values: Array) -> float:
    """Return the standard error of a mean; infinity for one value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")
