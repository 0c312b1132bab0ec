"""Measurements of a model (section 4)."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from gprune.records.base import Array, Record, real


@dataclass(frozen=True, slots=True, eq=False)
class Perplexity(Record):
    """Perplexity of one model on one text under a named preset; lower is better."""

    text: str
    """name of the text in the study"""
    preset: str
    """name of the window preset: 128, 2048 or custom"""
    length: int
    """tokens per window"""
    windows: int
    """number of windows"""
    perplexity: float
    """exp of the mean negative log-likelihood over length - 1 predictions per window"""
    standard_error: float
    """standard error of the perplexity, from the variance over windows (delta method)"""
    losses: Annotated[Array, real("windows")]
    """(windows,) mean negative log-likelihood of each window, nats per token"""


@dataclass(frozen=True, slots=True, eq=False)
class TextOverlap(Record):
    """Share of an evaluated text with verbatim overlap with the calibration sets of A and B."""

    text: str
    """name of the text in the study"""
    run: int
    """number of consecutive tokens that are compared"""
    windows: int
    """number of windows"""
    share: Annotated[Array, real("texts", within=(0, 1))]
    """(texts,) share of the windows' token runs that occur in the calibration set of A, and of B"""
    drawn: Annotated[Array, real("texts", within=(0, 1))]
    """(texts,) sampled share of each calibration text: the expected overlap with a copy of it"""


@dataclass(frozen=True, slots=True, eq=False)
class Accuracy:
    """Metrics of one model on one task; the reported metric, acc or acc_norm, is selected for display."""

    task: str
    """name of the task in the study"""
    acc: float
    """share of documents whose most likely choice is right, in [0, 1]; or the main value of another `metric`"""
    acc_norm: float
    """accuracy with log-likelihoods divided by the length of the choice, or NaN if the task has none"""
    acc_error: float
    """standard error of acc"""
    acc_norm_error: float
    """standard error of acc_norm, or NaN if the task has none"""
    samples: int
    """number of evaluated documents"""
    limit: int
    """maximum number of documents in the study; 0 for all"""
    chance: float
    """accuracy of guessing: the mean over documents of 1 / choices, or NaN without choices"""
    version: str
    """version of the task and of lm-eval"""
    data: str
    """SHA-256 of the task's documents"""
    metric: str = "acc"
    """lm-eval's name of the main metric, for example `exact_match,strict-match`"""
    metrics: dict[str, float] = field(default_factory=dict)
    """all metrics of the task, by lm-eval's name"""
    is_share: bool = True
    """whether the main metric is a mean over documents of values in [0, 1]"""
    few_shot: int = 0
    """examples before each question"""
    higher_is_better: bool = True
    """whether higher values of the main metric are better"""
    chat_template: bool = False
    """whether the questions are written with the tokenizer's chat template"""
    decoding: str = ""
    """how answers are generated, for example `greedy, at most 256 tokens`; empty if none are"""
    mean_tokens: float = float("nan")
    """mean length of the generated answers in tokens; NaN if none are"""
    cut_share: float = float("nan")
    """share of generated answers that the limit of tokens ended"""
    loop_share: float = float("nan")
    """share of generated answers that end in repetition"""
    ability: str = ""
    """ability that the task's metadata names, such as arithmetic; empty if they name none"""


@dataclass(frozen=True, slots=True, eq=False)
class Throughput:
    """Tokens per second of models that were measured together (appendix, practical inference speedup)."""

    setting: str
    """dtype, device, batch, prompt, new tokens and repetitions in one line"""
    machine: str
    """processor or GPU, and its threads"""
    rows: tuple[dict[str, Any], ...]
    """for each model and phase (prefill, decode, total): median, spread, ratio to the first model, memory"""
