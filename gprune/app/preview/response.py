"""Responses of the preview: losses so far, the paired difference from a base, and its verdict.

Both sides are measured on the same windows, and only windows that both sides have are compared (paired). The
windows are visited in a random order that never changes, so that the first ones stand for all of the text.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from gprune.analysis.formatting import percent
from gprune.analysis.paired_test import Difference, interval_in_percent, over_windows
from gprune.records import Array

FEWEST_WINDOWS = 8
"""with fewer windows out of more, a standard error is itself too uncertain to call anything"""
NO_DIFFERENCE = "no measurable difference"
Phase = Literal["cold", "loading", "warm", "fitting", "waiting", "ended"]
Progress = Literal["open", "complete", "dropped", "failed"]


@dataclass(frozen=True, slots=True)
class State:
    """State of the worker of a run."""

    phase: Phase
    """cold: none was asked for; loading: it reads the model; warm: it answers; fitting: it repairs weights
    first, see the reason; waiting: its turn is not yet, see the reason; ended: it has gone, see the reason,
    and the next question starts another"""
    reason: str = ""
    """one sentence for people, of what is fitted how far it is; empty where there is nothing to explain"""
    pid: int | None = None
    """its process, where it has one"""
    share: float = 0.0
    """of what is fitted, in [0, 1]"""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Losses so far, one for each window, NaN if it has not been measured."""

    identity: str
    """what it is asked for by"""
    method: str
    """as in the question"""
    text: str
    """as in the question"""
    progress: Progress
    """open: more windows will come; complete: all are there; dropped: something newer was asked, or nobody
    looks; failed: see `problem`"""
    losses: Array = field(default_factory=lambda: np.empty(0))
    """(windows,) mean negative log-likelihood, nats per token; no windows while their number is not known"""
    base: Array = field(default_factory=lambda: np.empty(0))
    """(windows,) the same of what it is compared with"""
    problem: str = ""
    """one sentence that says what went wrong and what to do; empty where nothing did"""

    @property
    def windows(self) -> int:
        """Windows in all; 0 while that is not known."""
        return len(self.losses)

    @property
    def done(self) -> int:
        """Windows that both sides have."""
        return int(self._both.sum())

    @property
    def difference(self) -> Difference | None:
        """How much worse than the base over the windows that both have; None before the first window.

        `nats` is the difference in log perplexity, `change` the relative change of perplexity, both with
        95 % intervals over windows (none with one), `close` whether that holds 0.
        """
        both = self._both
        return over_windows(self.losses[both], self.base[both]) if both.any() else None

    @property
    def perplexity(self) -> float:
        """Perplexity over the windows that both sides have; NaN before the first."""
        return _perplexity(self.losses[self._both])

    @property
    def base_perplexity(self) -> float:
        """The base's perplexity over the same windows."""
        return _perplexity(self.base[self._both])

    @property
    def verdict(self) -> str:
        """One phrase: `no measurable difference`, `perplexity 3.20 % higher (± 0.80 %)`, or too early."""
        return verdict(self.difference, self.done, self.windows)

    @property
    def _both(self) -> Array:
        if len(self.losses) != len(self.base):
            return np.zeros(len(self.losses), dtype=bool)
        both: Array = np.isfinite(self.losses) & np.isfinite(self.base)
        return both


def verdict(found: Difference | None, done: int, windows: int) -> str:
    """A difference over the windows measured so far, None before the first, in words."""
    if found is None or (done < FEWEST_WINDOWS and done < windows):
        return f"too early to tell: {done} of {windows} windows" if windows else "too early to tell"
    if found.close:
        return NO_DIFFERENCE
    direction = "higher" if found.nats > 0 else "lower"
    interval = interval_in_percent(found, 2).strip("()")
    return f"perplexity {percent(abs(found.change), 2)} {direction} ({interval})"


def _perplexity(losses: Array) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(losses.mean())) if len(losses) else float("nan")
