"""The settings of every stage, with the paper's values as defaults (appendix, detailed settings).

What the paper leaves open carries our default; every field says what it means.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, TypeVar

from gprune.system import limits
from gprune.system.errors import SettingsError
from gprune.system.limits import (
    MOST_ALIGNMENT,
    MOST_BATCH,
    MOST_CONTEXTS,
    MOST_COUNT,
    MOST_LENGTH,
    MOST_POSITIONS,
    require_affordable,
    require_length,
)
from gprune.system.safe_parsing import json_file, path, quoted, refused_as

T = TypeVar("T")

PRESET_LENGTHS = {"128": 128, "2048": 2048}


def read(place: str | Path, name: str, make: Callable[[Any], T], *, pipe: bool = False) -> T:
    """What a JSON file of settings holds.

    Args:
        place: the file.
        name: what it is, as `study file`.
        make: checks its values and makes the settings of them; may raise SettingsError.
        pipe: whether it may be a pipe, as `<(...)` and `/dev/stdin` are.

    Raises:
        SettingsError: the file is missing, is not JSON, or its values are refused.
    """
    what = f"the {name} {quoted(str(place))}"
    with refused_as(SettingsError):
        try:
            values = json_file(path(str(place), f"the {name}"), what, pipe=pipe)
        except FileNotFoundError as error:
            raise SettingsError(f"{what} cannot be read: there is no such file") from error
    try:
        return make(values)
    except SettingsError as error:
        raise SettingsError(f"{what.removeprefix('the ')}: {error}") from error


def require_object(values: Any, name: str) -> dict[str, Any]:
    """Values that must be an object of JSON.

    Args:
        values: as they were read.
        name: what they are, as `a sweep`.

    Raises:
        SettingsError: they are something else.
    """
    if not isinstance(values, dict):
        raise SettingsError(f"{name} must be an object with named fields (got {quoted(values)})")
    return values


def require(condition: bool, name: str, value: object, rule: str) -> None:
    """Checks one rule.

    Raises:
        SettingsError: it does not hold; the message names the setting, the rule and the value.
    """
    if not condition:
        raise SettingsError(f"{name} must be {rule} (got {quoted(value)})")


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Checks that a setting is one of a few words.

    Raises:
        SettingsError: it is not.
    """
    if value not in choices:
        raise SettingsError(f"{name} must be one of {', '.join(choices)} (got {quoted(value)})")


def require_whole(**values: object) -> None:
    """Checks that settings are whole numbers, before their rules compare them.

    Args:
        values: by the names of the settings.

    Raises:
        SettingsError: one is something else.
    """
    for name, value in values.items():
        require(isinstance(value, Integral) and not isinstance(value, bool), name, value, "a whole number")


def require_choices(settings: Any, where: str = "") -> None:
    """Checks every field whose type is a ``Literal`` of a few words.

    Args:
        settings: an instance of a dataclass.
        where: what stands before the fields' names in the message.

    Raises:
        SettingsError: a field holds another word.
    """
    for name, choices in _choices(settings.__class__).items():
        require_choice(where + name, getattr(settings, name), choices)


@cache
def _choices(kind: Any) -> dict[str, tuple[str, ...]]:
    hints = typing.get_type_hints(kind)
    return {name: typing.get_args(hint) for name, hint in hints.items() if typing.get_origin(hint) is Literal}


@dataclass(frozen=True, slots=True)
class CalibrationSettings:
    """How the calibration sets are drawn and what is measured on them."""

    samples: int = 2048
    """sequences drawn from each text (paper: 2048)"""
    length: int = 128
    """tokens of each sequence (paper: 128)"""
    shards: int = 8
    """disjoint groups of sequences kept apart, for the re-sampling control and the repeatability"""
    batch: int = 16
    """sequences of one forward pass; changes speed, not results"""
    flap_variant: Literal["paper", "released"] = "paper"
    """fluctuation of FLAP: plain token variance, or the recursion of the released code"""
    square_head_score: bool = True
    """square FLAP's o_proj channel scores once more, as its released code does"""
    positions: int = 8
    """strongest positions kept for each neuron and text; 0 keeps none; changes no other result"""

    def __post_init__(self) -> None:
        """Checks every field."""
        require_choices(self, "calibration.")
        require(self.samples >= 2, "calibration.samples", self.samples, "at least 2")
        require(self.length >= 2, "calibration.length", self.length, "at least 2 tokens")
        even = self.shards >= 2 and self.shards % 2 == 0
        require(even, "calibration.shards", self.shards, "an even number of at least 2")
        rule = f"at least calibration.shards ({self.shards}), so that no shard is empty"
        require(self.samples >= self.shards, "calibration.samples", self.samples, rule)
        require(self.shards <= 16, "calibration.shards", self.shards, "at most 16")
        require(1 <= self.batch <= MOST_BATCH, "calibration.batch", self.batch, f"1 to {MOST_BATCH}")
        rule = f"0 to {MOST_POSITIONS}"
        require(0 <= self.positions <= MOST_POSITIONS, "calibration.positions", self.positions, rule)
        require_length("calibration.length", self.length)
        asked = {"calibration.samples": self.samples, "calibration.length": self.length}
        require_affordable(limits.MOST_TOKENS, "tokens of each text", asked)


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """The kinds of context behind token-weighted FLAP and FANG's groups (section 4, base metrics)."""

    count: int = 7
    """context clusters of each layer (FANG: 7)"""
    dimensions: int = 64
    """principal components the tokens are clustered in (FANG: 64); clamped to what there is"""
    tokens: int = 16384
    """tokens that the clusters are made from, rounded up to whole sequences"""
    temperature: float = 1.0
    """of the token weights; distances between contexts have a mean of 1"""
    clustering: Literal["balanced", "released"] = "balanced"
    """clusters of equal size, or as FANG's code has them: within 40 % of that, the best of several starts"""
    module_profile: Literal["dominant", "mixed"] = "dominant"
    """a module of GPrune weights tokens by the context it stands out in, or by a mixture of all of them"""

    def __post_init__(self) -> None:
        """Checks every field."""
        where = "contexts."
        require_choices(self, where)
        require(2 <= self.count <= MOST_CONTEXTS, where + "count", self.count, f"2 to {MOST_CONTEXTS}")
        valid = 1 <= self.dimensions <= MOST_COUNT
        require(valid, where + "dimensions", self.dimensions, "at least 1, and a number of 31 bits")
        require(self.tokens >= 2, where + "tokens", self.tokens, "at least 2")
        asked = {where + "tokens": self.tokens}
        require_affordable(limits.MOST_CONTEXT_TOKENS, "tokens in memory at once", asked)
        require(self.temperature > 0, where + "temperature", self.temperature, "positive")


@dataclass(frozen=True, slots=True)
class BaselineSettings:
    """What the baselines of section 4 leave open."""

    taylor_samples: int = 10
    """sequences of LLM-Pruner's gradient (LLM-Pruner: 10)"""
    taylor_length: int = 64
    """tokens of each of them (LLM-Pruner: 64)"""
    taylor_text: str = ""
    """text of this gradient, cut as LLM-Pruner's code cuts (it reads bookcorpus); empty: the primary text"""
    fang_grouping: Literal["balanced", "released"] = "balanced"
    """group sizes that differ by one at most, or the released code's, for widths that divide evenly only"""

    def __post_init__(self) -> None:
        """Checks every field."""
        where = "baselines."
        require_choices(self, where)
        require(self.taylor_samples >= 1, where + "taylor_samples", self.taylor_samples, "at least 1")
        require(self.taylor_length >= 2, where + "taylor_length", self.taylor_length, "at least 2")
        require_length(where + "taylor_length", self.taylor_length)
        asked = {where + "taylor_samples": self.taylor_samples, where + "taylor_length": self.taylor_length}
        require_affordable(limits.MOST_TOKENS, "tokens of gradients", asked)


@dataclass(frozen=True, slots=True)
class ModularizationSettings:
    """Behavior-consistent modularization (BCM), section 3.1."""

    kind: Literal["refined", "initialization", "random"] = "refined"
    """refined is the paper's; initialization stops before the refinement; random is equal-size modules"""
    candidates: tuple[int, ...] = (16, 24, 32, 40, 48)
    """module counts tried by the silhouette (paper: 16, 24, 32, 40, 48); clamped to an eighth of the width"""
    restarts: int = 3
    """k-means starts for each candidate count; the best silhouette wins"""
    seeding: Literal["plain", "greedy"] = "plain"
    """k-means++ draws each centroid once, or several times and takes the best: better silhouettes"""
    split_fraction: float = 0.2
    """share of modules with the largest drift variation that are split in two (paper: 20 %)"""
    pair_weight: float = 0.1
    """weight of the pairwise dispersion term of the quartile of most dispersed modules"""
    repulsion_weight: float = 0.1
    """weight of the repulsion between centroids"""
    consistency_weight: float = 1.0
    """weight of the rank-drift consistency, divided by the layer's variance of each drift coordinate"""
    learning_rate: float = 0.02
    """Adam step size of the centroids"""
    steps: int = 150
    """refinement steps"""
    temperature: float = 1.0
    """softmax temperature of the memberships (paper: none, that is 1)"""
    direction: Literal["auto", "preset", "magnitude", "direction"] = "auto"
    """auto applies the paper's admission rule; preset its outcome for the metric; the others force it"""

    def __post_init__(self) -> None:
        """Checks every field."""
        where = "modularization."
        require_choices(self, where)
        valid = bool(self.candidates) and all(isinstance(k, int) and k >= 2 for k in self.candidates)
        require(valid, where + "candidates", self.candidates, "module counts of at least 2")
        valid = max(self.candidates) <= limits.MOST_MODULES
        require(
            valid, where + "candidates", self.candidates, f"module counts of at most {limits.MOST_MODULES}"
        )
        require(self.restarts >= 1, where + "restarts", self.restarts, "at least 1")
        asked = {where + "restarts": self.restarts, "candidates": len(self.candidates)}
        require_affordable(limits.MOST_CLUSTERINGS, "k-means runs in every layer", asked)
        require(0 <= self.split_fraction <= 1, where + "split_fraction", self.split_fraction, "in [0, 1]")
        for name in ("pair_weight", "repulsion_weight", "consistency_weight"):
            require(getattr(self, name) >= 0, where + name, getattr(self, name), "0 or more")
        require(self.learning_rate > 0, where + "learning_rate", self.learning_rate, "positive")
        require(self.steps >= 0, where + "steps", self.steps, "0 or more")
        asked = {where + "steps": self.steps}
        require_affordable(limits.MOST_STEPS, "steps over all neurons of every layer", asked)
        require(self.temperature > 0, where + "temperature", self.temperature, "positive")


@dataclass(frozen=True, slots=True)
class ReliabilitySettings:
    """Reliability-aware score adaptation (RASA), section 3.2."""

    selection: Literal["drift_and_score", "drift", "random", "none"] = "drift_and_score"
    """which modules are adapted; drift_and_score is the paper's"""
    source: Literal["repeatability", "random"] = "repeatability"
    """how the scoring text of an adapted module is chosen; repeatability is the paper's"""
    drift_quantile: float = 0.90
    """gamma_drift: a module at or above this quantile of drift is sensitive (paper: 0.90)"""
    score_quantile: float = 0.90
    """gamma_score: at or below this quantile of score a module is weakly supported (paper: 0.90)"""
    score_scale: Literal["raw", "standardized"] = "raw"
    """mean raw score as in the paper, or of scores standardised within the layer"""

    def __post_init__(self) -> None:
        """Checks every field."""
        where = "reliability."
        require_choices(self, where)
        for name in ("drift_quantile", "score_quantile"):
            require(0 <= getattr(self, name) <= 1, where + name, getattr(self, name), "in [0, 1]")


@dataclass(frozen=True, slots=True)
class SparsitySettings:
    """Modular sparsity learning (MSL), section 3.3."""

    epochs: int = 2
    """passes over both calibration sets (paper: 2 to 3)"""
    batch: int = 32
    """sequences of one step, a quarter from each of the subsets A', A'', B', B''"""
    supervision: Literal["adaptive", "primary", "dual"] = "adaptive"
    """cross-entropy of the FFN thresholds: the paper's adaptive rule, A only, or both always"""
    distillation_weight: float = 1.0
    """weight of the distillation from the dense model, on both texts"""
    distillation_temperature: float = 1.0
    """temperature of the distillation"""
    learning_rate: float = 0.05
    """Adam step size of the thresholds, with cosine decay"""
    penalty: float = 100.0
    """rho of the augmented Lagrangian"""
    dual_rate: float = 0.1
    """the multiplier grows by dual_rate * rho * g each step"""
    surrogate: Literal["long_tailed", "identity", "sigmoid"] = "long_tailed"
    """straight-through derivative of the step function"""
    bias_compensation: bool = False
    """add the removed units' mean contribution to the bias, as FLAP does (paper: off for GPrune)"""
    attention: Literal["own", "gprune"] = "own"
    """whose key/value groups the controls keep: each its own, or GPrune's, at the same retention in all"""
    alignment: int = 1
    """FFN widths are multiples of this, for hardware that likes it; of every method (8 to 256; 1 = any)"""

    def __post_init__(self) -> None:
        """Checks every field."""
        where = "sparsity."
        require_choices(self, where)
        require(self.epochs >= 0, where + "epochs", self.epochs, "0 or more")
        passes = "passes over both texts, each forward and backward through the whole model"
        require_affordable(limits.MOST_EPOCHS, passes, {where + "epochs": self.epochs})
        require(self.batch <= MOST_BATCH, where + "batch", self.batch, f"at most {MOST_BATCH}")
        valid = self.batch >= 4 and self.batch % 4 == 0
        require(valid, where + "batch", self.batch, "a multiple of 4, one quarter for each subset")
        for name in ("distillation_weight", "penalty", "dual_rate"):
            require(getattr(self, name) >= 0, where + name, getattr(self, name), "0 or more")
        for name in ("distillation_temperature", "learning_rate"):
            require(getattr(self, name) > 0, where + name, getattr(self, name), "positive")
        require(
            1 <= self.alignment <= MOST_ALIGNMENT,
            where + "alignment",
            self.alignment,
            f"1 to {MOST_ALIGNMENT}",
        )


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """What the pruned models are measured on."""

    texts: tuple[str, ...] = ()
    """texts whose perplexity is measured, by name or file"""
    preset: str = "128"
    """window preset: 128 (the paper's), 2048, or a number of tokens for a custom window"""
    windows: int | None = None
    """windows measured at most; null measures all"""
    batch: int = 16
    """windows, or choices of a task, of one forward pass; changes speed, not results"""
    tasks: tuple[str, ...] = ()
    """zero-shot tasks: the paper's seven, those of the demo suite (demo_...), or own .jsonl files"""
    limit: int | None = None
    """documents of each task at most; null measures all"""
    task_folder: str = ""
    """folder with local files of the seven tasks, as docs/tasks.md has them; empty reads them from the hub"""
    speed: Literal["none", "auto", "cpu", "gpu"] = "none"
    """measure tokens a second of every method side by side: gpu is the paper's setting, cpu a small one"""

    def __post_init__(self) -> None:
        """Checks every field."""
        require_choices(self, "evaluation.")
        # "²" counts as a digit and is no number; int() refuses thousands of digits
        digits = self.preset.isascii() and self.preset.isdecimal() and len(self.preset) <= 9
        valid = digits and 2 <= int(self.preset) <= MOST_LENGTH
        rule = f"128, 2048 or another number of tokens from 2 to {MOST_LENGTH}"
        require(valid, "evaluation.preset", self.preset, rule)
        enough = self.windows is None or 1 <= self.windows <= MOST_COUNT
        require(enough, "evaluation.windows", self.windows, "at least 1, or null for all")
        require(1 <= self.batch <= MOST_BATCH, "evaluation.batch", self.batch, f"1 to {MOST_BATCH}")
        some = self.limit is None or 1 <= self.limit <= MOST_COUNT
        require(some, "evaluation.limit", self.limit, "at least 1, or null for all")
        different = len(set(self.tasks)) == len(self.tasks)
        require(different, "evaluation.tasks", self.tasks, "tasks that differ from each other")
        distinct = len(set(self.texts)) == len(self.texts)
        require(distinct, "evaluation.texts", self.texts, "texts that differ from each other")

    @property
    def length(self) -> int:
        """Tokens of one window."""
        return int(self.preset)
