"""Questions to the live worker and its answers, which travel between the two processes. Needs no torch.

There are four kinds: the perplexity of masks, the losses of a text, a continuation, and facts of one neuron.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from gprune.analysis.formatting import percent
from gprune.analysis.paired_test import Difference, interval_in_percent, over_windows
from gprune.records import Array, PruningMasks
from gprune.study import RepairSettings

FEWEST_WINDOWS = 8
"""with fewer windows out of more, a standard error is itself too uncertain to call anything"""
NO_DIFFERENCE = "no measurable difference"
MOST_WRITTEN = 40
"""tokens of a continuation"""
Phase = Literal["cold", "loading", "warm", "fitting", "waiting", "ended"]
Progress = Literal["open", "complete", "dropped", "failed"]


@dataclass(frozen=True, slots=True)
class Question:
    """A request for the losses of a model on the windows of a text."""

    text: str
    """evaluation text, one of those of the study; empty if `role` says which text it is"""
    method: str = "gprune"
    """whose repairs it has, one of gprune.study.methods.METHODS; `dense` has no masks"""
    masks: PruningMasks | None = None
    """units that are kept; None means those that the run has decided on for this method"""
    fitted: bool = True
    """whether weights that were fitted to the run's masks take part, where these are the masks; not where one
    plays with masks, so that all figures on the way are alike"""
    repair: RepairSettings | None = None
    """fitted to these very masks, in place of what the run does to the weights that they keep; None leaves
    these as the run has them, see `fitted`"""
    role: str = ""
    """calibration text, primary, auxiliary or substitute, whose windows are the sequences that were drawn"""
    neuron: tuple[int, int] | None = None
    """layer and index of the one neuron that is silent where the method is `dense`"""


@dataclass(frozen=True, slots=True)
class Passage:
    """A window of an evaluation text, or a typed text, to read token by token."""

    text: str = ""
    """evaluation text of the study; empty if the passage was typed"""
    window: int = 0
    """index of the window, from 0"""
    typed: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A typed text that models continue."""

    typed: str
    most: int = MOST_WRITTEN
    """tokens written at most"""
    temperature: float = 0.0
    """divisor of the logits before a token is sampled; 0 takes the likeliest"""
    seed: int = 0
    """of the samples; all models get the same random numbers"""


@dataclass(frozen=True, slots=True)
class Neuron:
    """A neuron of the dense model: its activations on passages or on a text, or else the tokens that it promotes."""

    layer: int
    neuron: int
    role: str = ""
    """calibration text, primary, auxiliary or substitute, of which the activations are; empty for the tokens"""
    passages: tuple[tuple[int, int, int], ...] = ()
    """sequence, first and last token of each, from 0; empty for all of the text"""


TokenQuestion = Passage | Prompt | Neuron


@dataclass(frozen=True, slots=True, eq=False)
class WindowLosses:
    """Losses of one model on the windows of a text, NaN if they are not measured yet."""

    losses: Array
    """(windows,) mean negative log-likelihood, nats per token"""

    @property
    def done(self) -> int:
        """Number of windows that are measured."""
        return int(np.isfinite(self.losses).sum())

    @property
    def complete(self) -> bool:
        """True if every window is measured."""
        return self.done == len(self.losses)


@dataclass(frozen=True, slots=True)
class Piece:
    """A token as text. A character of several tokens is one piece."""

    text: str
    """empty if an earlier token of the same characters has it"""
    place: int = 1
    """index among the tokens that share the text, from 1"""
    of: int = 1
    """number of tokens that share it"""


@dataclass(frozen=True, slots=True, eq=False)
class TokenLosses:
    """A passage as one model reads it."""

    pieces: tuple[Piece, ...]
    """the tokens, in order"""
    losses: Array
    """(tokens,) negative log-likelihood in nats; NaN for the first, which nothing precedes"""
    total: int
    """tokens that the passage has; more than there are pieces where not all are read"""
    places: int = 0
    """positions of the model; 0 if it does not say"""


@dataclass(frozen=True, slots=True, eq=False)
class Continuation:
    """A continuation so far."""

    text: str
    ids: tuple[int, ...]
    """its tokens"""
    complete: bool
    """True if the model has ended it, or it has the requested length"""
    read: int
    """tokens of the prompt that were read, the last ones"""
    total: int
    """tokens that the prompt has"""


@dataclass(frozen=True, slots=True, eq=False)
class PassageActivations:
    """Passages with the activations of a neuron, in the order of the question."""

    passages: tuple[tuple[Sequence[Piece], Array], ...]
    """tokens of each, and (tokens,) inputs of down_proj"""


@dataclass(frozen=True, slots=True, eq=False)
class TextActivations:
    """The activations of a neuron on a text so far."""

    values: Array
    """(tokens,) float32 inputs of down_proj"""
    sequences: int
    """that were read, the first ones"""
    goal: int
    """that are to be read"""
    total: int
    """that the run has drawn"""

    @property
    def complete(self) -> bool:
        """True if all sequences that are to be read are read."""
        return self.sequences >= self.goal


@dataclass(frozen=True, slots=True, eq=False)
class PromotedTokens:
    """Tokens by the logit that an activation of 1 adds to them on the direct path."""

    promoted: tuple[tuple[str, float], ...]
    """tokens as text and their logits, the most promoted first"""
    suppressed: tuple[tuple[str, float], ...]
    """the most suppressed first"""


TokenAnswer = TokenLosses | Continuation | PassageActivations | TextActivations | PromotedTokens


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Answers to a TokenQuestion so far, one for each model in the order of the question."""

    progress: Progress
    """see Answer"""
    answers: tuple[TokenAnswer | None, ...]
    """None if a model has not had its turn"""
    problem: str = ""
    """one sentence that says what went wrong and what to do"""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Losses so far, one for each window, NaN if it has not been measured.

    Question and base are measured on the same windows, in a random order that never changes, so that the first
    ones stand for all of the text; only windows that both have are compared.
    """

    identity: str
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
    """(windows,) the same of the base"""
    problem: str = ""
    """one sentence that says what went wrong and what to do"""

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
        """Difference from the base over the windows measured for both; None before the first window."""
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
        """One phrase: `no measurable difference`, `perplexity 3.20% higher (± 0.80%)`, or too early."""
        return verdict(self.difference, self.done, self.windows)

    @property
    def _both(self) -> Array:
        if len(self.losses) != len(self.base):
            return np.zeros(len(self.losses), dtype=bool)
        both: Array = np.isfinite(self.losses) & np.isfinite(self.base)
        return both


@dataclass(frozen=True, slots=True)
class WorkerState:
    """State of the worker of a run."""

    phase: Phase
    """cold: nothing was asked; loading: it reads the model; warm: it answers; fitting: it repairs weights
    first, see the reason; waiting: its turn is not yet, see the reason; ended: it has gone, see the reason,
    and the next question starts another"""
    reason: str = ""
    """one sentence for people; empty if there is nothing to explain"""
    pid: int | None = None
    share: float = 0.0
    """of the fit that is done, in [0, 1]"""


def verdict(difference: Difference | None, done: int, windows: int) -> str:
    """Describe a difference over the windows measured so far, None before the first."""
    if difference is None or (done < FEWEST_WINDOWS and done < windows):
        return f"too early to tell: {done} of {windows} windows" if windows else "too early to tell"
    if difference.close:
        return NO_DIFFERENCE
    direction = "higher" if difference.nats > 0 else "lower"
    interval = interval_in_percent(difference, 2).strip("()")
    return f"perplexity {percent(abs(difference.change), 2)} {direction} ({interval})"


def _perplexity(losses: Array) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(losses.mean())) if len(losses) else float("nan")
