"""Questions to the live worker and its answers, which are sent between app and worker. Needs no torch.

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
"""minimum number of measured windows for a verdict, unless the text has fewer: the standard error of fewer is too
uncertain"""
NO_DIFFERENCE = "no measurable difference"
MOST_WRITTEN = 48
"""default number of tokens of a continuation"""
Phase = Literal["cold", "loading", "warm", "fitting", "waiting", "ended"]
Progress = Literal["open", "complete", "dropped", "failed"]


@dataclass(frozen=True, slots=True)
class Question:
    """A request for the losses of a model on the windows of a text."""

    text: str
    """evaluation text of the study; empty if `role` names a calibration text"""
    method: str = "gprune"
    """method whose repairs apply, one of METHODS or EXPERT_METHODS in gprune.study.methods; `dense` has no masks"""
    masks: PruningMasks | None = None
    """units that are kept; None stands for the run's masks of this method"""
    fitted: bool = True
    """whether the weights that the run has fitted to its own masks are used, if `masks` are these masks; False while a
    reader varies masks, so that no value includes a fit and all are comparable"""
    repair: RepairSettings | None = None
    """repair to fit to these masks instead of the run's own repair; None keeps the run's own repair, see `fitted`"""
    role: str = ""
    """primary, auxiliary or substitute: the windows are the sequences that the run has drawn from this text"""
    neuron: tuple[int, int] | None = None
    """layer and index of a single neuron to silence in the dense model"""
    expert: tuple[int, int] | None = None
    """index of the mixture and of the expert that is removed if the method keeps it, and kept if it removes it"""


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
    """A typed text that models continue, or a message that they answer."""

    typed: str
    most: int = MOST_WRITTEN
    """maximum number of tokens to generate; at most half of the model's context length"""
    temperature: float = 0.0
    """divisor of the logits before a token is sampled; 0 selects the most likely token"""
    seed: int = 0
    """seed of the sampling; all models get the same random numbers"""
    is_chat: bool = False
    """whether the text is a user message, rendered by the chat template of the tokenizer"""


@dataclass(frozen=True, slots=True)
class Neuron:
    """A neuron of the dense model: its activations on passages or on a text, or else the tokens that it promotes."""

    layer: int
    neuron: int
    role: str = ""
    """calibration text of the activations: primary, auxiliary or substitute; empty to ask for the promoted tokens"""
    passages: tuple[tuple[int, int, int], ...] = ()
    """index of the sequence, and of its first and last token; empty for activations on the whole text"""


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
    """A token as text. If several tokens encode one character, the first has the text of the character."""

    text: str
    """empty for the further tokens of a character"""
    number: int = 1
    """position among the tokens of the character, from 1"""
    count: int = 1
    """number of tokens of the character"""


@dataclass(frozen=True, slots=True, eq=False)
class TokenLosses:
    """The tokens of a passage, and the losses of one model."""

    pieces: tuple[Piece, ...]
    """the tokens, in order"""
    losses: Array
    """(tokens,) negative log-likelihood in nats; NaN for the first, which nothing precedes"""
    total: int
    """number of tokens of the passage; larger than the number of pieces if not all are read"""
    context_length: int = 0
    """context length of the model; 0 if it is unknown"""


@dataclass(frozen=True, slots=True, eq=False)
class Continuation:
    """A continuation so far."""

    text: str
    ids: tuple[int, ...]
    """its tokens"""
    complete: bool
    """True if the model has ended it, or it has the requested length"""
    read: int
    """number of tokens of the prompt that were read, counted from its end"""
    total: int
    """number of tokens of the prompt"""
    pieces: tuple[Piece, ...] = ()
    """the tokens as text"""
    divergences: Array = field(default_factory=lambda: np.empty(0))
    """(tokens,) KL(pruned || dense) in nats of the next-token distributions at temperature 1, given the prompt and the
    tokens before; 0 for the dense model"""


@dataclass(frozen=True, slots=True, eq=False)
class PassageActivations:
    """Passages with the activations of a neuron, in the order of `Neuron.passages`."""

    passages: tuple[tuple[Sequence[Piece], Array], ...]
    """tokens of each, and (tokens,) inputs of down_proj"""


@dataclass(frozen=True, slots=True, eq=False)
class TextActivations:
    """The activations of a neuron on a text so far."""

    values: Array
    """(tokens,) float32 inputs of down_proj"""
    sequences: int
    """number of sequences that were read, from the first"""
    goal: int
    """number of sequences to read"""
    total: int
    """number of sequences that the run has drawn"""

    @property
    def complete(self) -> bool:
        """True if `goal` sequences are read."""
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
    """Answers to a TokenQuestion so far, one for each model in the order of the request."""

    progress: Progress
    """see Answer"""
    answers: tuple[TokenAnswer | None, ...]
    """None for a model that has not answered yet"""
    problem: str = ""
    """one sentence that says what went wrong and what to do"""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Losses of a question and of its base so far, one for each window; NaN if a window is not measured.

    Question and base are measured on the same windows in a fixed random order, so the first windows represent the
    whole text. Only windows that are measured for both are compared.
    """

    identity: str
    method: str
    """as in the question"""
    text: str
    """as in the question"""
    progress: Progress
    """open: more windows will come; complete: all are there; dropped: a newer question replaced it, or no page
    reads it; failed: see `problem`"""
    losses: Array = field(default_factory=lambda: np.empty(0))
    """(windows,) mean negative log-likelihood, nats per token; empty while the number of windows is not known"""
    base: Array = field(default_factory=lambda: np.empty(0))
    """(windows,) losses of the base"""
    problem: str = ""
    """one sentence that says what went wrong and what to do"""

    @property
    def windows(self) -> int:
        """Number of windows of the text; 0 while it is not known."""
        return len(self.losses)

    @property
    def done(self) -> int:
        """Number of windows that are measured for question and base."""
        return int(self._both.sum())

    @property
    def difference(self) -> Difference | None:
        """Difference from the base over the windows measured for both; None if there is no such window."""
        both = self._both
        return over_windows(self.losses[both], self.base[both]) if both.any() else None

    @property
    def perplexity(self) -> float:
        """Perplexity over the windows measured for both; NaN if there is no such window."""
        return _perplexity(self.losses[self._both])

    @property
    def base_perplexity(self) -> float:
        """The base's perplexity over the same windows."""
        return _perplexity(self.base[self._both])

    @property
    def verdict(self) -> str:
        """One phrase: `no measurable difference`, `perplexity 3.20% higher (± 0.80%)`, or `too early to tell`."""
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
    """cold: no question was asked; loading: the worker reads the model; warm: it answers; fitting: it fits
    weights first; waiting: another task runs first; ended: the process has ended, and the next question
    starts another"""
    reason: str = ""
    """one sentence that explains the phase to the reader; empty if there is nothing to explain"""
    pid: int | None = None
    share: float = 0.0
    """finished share of the fit, in [0, 1]"""


def verdict(difference: Difference | None, done: int, windows: int) -> str:
    """Describe a difference over the `done` windows measured so far; it is None before the first window."""
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
