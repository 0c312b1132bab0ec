"""Measurements of a model (section 4)."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from gprune.records.base import Array, Record, real


@dataclass(frozen=True, slots=True, eq=False)
class Perplexity(Record):
    """Perplexity of one model on one text under a named preset; lower is better."""

    text: str
    """the evaluation text, as typed"""
    preset: str
    """name of the window preset: 128, 2048 or custom"""
    length: int
    """tokens per window"""
    windows: int
    """windows measured"""
    perplexity: float
    """exp of the mean negative log-likelihood over length - 1 predictions a window"""
    standard_error: float
    """standard error of the mean over windows, carried to perplexity (delta method)"""
    losses: Annotated[Array, real("windows")]
    """(windows,) mean negative log-likelihood of each window, nats per token"""


@dataclass(frozen=True, slots=True, eq=False)
class TextOverlap(Record):
    """Share of an evaluated text with verbatim overlap with the calibration sets of A and B."""

    text: str
    """the evaluation text, as typed"""
    run: int
    """tokens of a run that is looked for"""
    windows: int
    """windows evaluated"""
    share: Annotated[Array, real("texts", within=(0, 1))]
    """(texts,) share of the windows' runs that occur in the set of A, and of B, in [0, 1]"""
    drawn: Annotated[Array, real("texts", within=(0, 1))]
    """(texts,) share of the calibration text that was drawn, which a copy of it would overlap by"""


@dataclass(frozen=True, slots=True, eq=False)
class Accuracy:
    """Figures of one model on one task; which of acc and acc_norm counts is chosen when shown."""

    task: str
    """the task as asked for"""
    acc: float
    """share of documents whose most likely choice is right, in [0, 1]; the main figure of another `metric`"""
    acc_norm: float
    """the same with log-likelihoods divided by the choice's length, or NaN if the task has none"""
    acc_error: float
    """standard error of acc"""
    acc_norm_error: float
    """standard error of acc_norm, or NaN if the task has none"""
    samples: int
    """documents measured"""
    limit: int
    """documents asked for at most; 0 = all"""
    chance: float
    """accuracy of guessing: the mean over documents of 1 / choices, or NaN if nothing is chosen"""
    version: str
    """version of the task and of lm-eval"""
    data: str
    """SHA-256 of the task's documents as read"""
    metric: str = "acc"
    """lm-eval's name of the main figure, as `exact_match,strict-match`"""
    metrics: dict[str, float] = field(default_factory=dict)
    """every figure of the task, by lm-eval's name"""
    is_share: bool = True
    """whether the main figure is a mean over documents of values in [0, 1]"""
    few_shot: int = 0
    """examples before each question"""
    higher_is_better: bool = True
    """whether more of the main figure is better"""


@dataclass(frozen=True, slots=True, eq=False)
class Throughput:
    """Tokens a second of models measured side by side in one run (appendix, practical inference speedup)."""

    setting: str
    """number type, device, batch, prompt, new tokens and repetitions in one line"""
    machine: str
    """processor or GPU, and its threads"""
    rows: tuple[dict[str, Any], ...]
    """for each model its prefill, decode and whole run: median, spread, ratio to the first model, memory"""
