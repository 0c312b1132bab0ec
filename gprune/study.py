"""A study: everything a result depends on, with the paper's values as defaults.

Settings hold no data; records hold no settings. A study is read from and written to JSON; every field of
the paper's hyperparameter table (appendix, Table "Principal hyperparameters") is here under the paper's
value, and what the paper leaves open carries our default. The command line and the app are built from
these fields.
"""

from __future__ import annotations

import difflib
import json
import types
import typing
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal

from gprune.errors import SettingsError

METRIC_NAMES = ("flap", "wanda_sp")
PRESET_LENGTHS = {"128": 128, "2048": 2048}


def _require(condition: bool, name: str, value: object, rule: str) -> None:
    if not condition:
        raise SettingsError(f"{name} must be {rule} (got {value!r})")


def _require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise SettingsError(f"{name} must be one of {', '.join(choices)} (got {value!r})")


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

    def __post_init__(self) -> None:
        """Checks every field."""
        _require(self.samples >= 2, "calibration.samples", self.samples, "at least 2")
        _require(self.length >= 2, "calibration.length", self.length, "at least 2 tokens")
        even = self.shards >= 2 and self.shards % 2 == 0
        _require(even, "calibration.shards", self.shards, "an even number of at least 2")
        rule = f"at least calibration.shards ({self.shards}), so that no shard is empty"
        _require(self.samples >= self.shards, "calibration.samples", self.samples, rule)
        _require(self.shards <= 16, "calibration.shards", self.shards, "at most 16")
        _require(self.batch >= 1, "calibration.batch", self.batch, "at least 1")
        _require_choice("calibration.flap_variant", self.flap_variant, ("paper", "released"))


@dataclass(frozen=True, slots=True)
class ModularizationSettings:
    """Behavior-consistent modularization (BCM), section 3.1."""

    kind: Literal["refined", "initialization", "random"] = "refined"
    """refined is the paper's; initialization stops before the refinement; random is equal-size modules"""
    candidates: tuple[int, ...] = (16, 24, 32, 40, 48)
    """module counts tried by the silhouette (paper: 16, 24, 32, 40, 48); clamped to an eighth of the width"""
    restarts: int = 3
    """k-means seeds for each candidate count; the best silhouette wins"""
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
        _require_choice(where + "kind", self.kind, ("refined", "initialization", "random"))
        valid = bool(self.candidates) and all(isinstance(k, int) and k >= 2 for k in self.candidates)
        _require(valid, where + "candidates", self.candidates, "module counts of at least 2")
        _require(self.restarts >= 1, where + "restarts", self.restarts, "at least 1")
        _require(0 <= self.split_fraction <= 1, where + "split_fraction", self.split_fraction, "in [0, 1]")
        for name in ("pair_weight", "repulsion_weight", "consistency_weight"):
            _require(getattr(self, name) >= 0, where + name, getattr(self, name), "0 or more")
        _require(self.learning_rate > 0, where + "learning_rate", self.learning_rate, "positive")
        _require(self.steps >= 0, where + "steps", self.steps, "0 or more")
        _require(self.temperature > 0, where + "temperature", self.temperature, "positive")
        _require_choice(where + "direction", self.direction, ("auto", "preset", "magnitude", "direction"))


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
        choices = ("drift_and_score", "drift", "random", "none")
        _require_choice(where + "selection", self.selection, choices)
        _require_choice(where + "source", self.source, ("repeatability", "random"))
        for name in ("drift_quantile", "score_quantile"):
            _require(0 <= getattr(self, name) <= 1, where + name, getattr(self, name), "in [0, 1]")
        _require_choice(where + "score_scale", self.score_scale, ("raw", "standardized"))


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

    def __post_init__(self) -> None:
        """Checks every field."""
        where = "sparsity."
        _require(self.epochs >= 0, where + "epochs", self.epochs, "0 or more")
        valid = self.batch >= 4 and self.batch % 4 == 0
        _require(valid, where + "batch", self.batch, "a multiple of 4, one quarter for each subset")
        _require_choice(where + "supervision", self.supervision, ("adaptive", "primary", "dual"))
        for name in ("distillation_weight", "penalty", "dual_rate"):
            _require(getattr(self, name) >= 0, where + name, getattr(self, name), "0 or more")
        for name in ("distillation_temperature", "learning_rate"):
            _require(getattr(self, name) > 0, where + name, getattr(self, name), "positive")
        _require_choice(where + "surrogate", self.surrogate, ("long_tailed", "identity", "sigmoid"))


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
    """windows of one forward pass; changes speed, not results"""

    def __post_init__(self) -> None:
        """Checks every field."""
        valid = self.preset.isdigit() and int(self.preset) >= 2
        rule = "128, 2048 or another number of tokens of at least 2"
        _require(valid, "evaluation.preset", self.preset, rule)
        enough = self.windows is None or self.windows >= 1
        _require(enough, "evaluation.windows", self.windows, "at least 1, or null for all")
        _require(self.batch >= 1, "evaluation.batch", self.batch, "at least 1")
        distinct = len(set(self.texts)) == len(self.texts)
        _require(distinct, "evaluation.texts", self.texts, "texts that differ from each other")

    @property
    def length(self) -> int:
        """Tokens of one window."""
        return int(self.preset)


@dataclass(frozen=True, slots=True)
class Study:
    """One study: a model, two calibration texts, a metric, a retention, and the settings of each stage."""

    model: str
    """folder or hub name of the dense model; `demo` is the bundled one"""
    primary: str
    """primary calibration text A, by name or file (paper: WikiText2)"""
    auxiliary: str
    """auxiliary calibration text B (paper: PTB)"""
    metric: str = "flap"
    """base importance metric"""
    retention: float = 0.5
    """fraction R* of the decoder layers' linear weights that is kept"""
    substitute: str = ""
    """third calibration text C, which the agreement figure substitutes for A and for B"""
    seed: int = 0
    """seed of every random choice (paper: 0)"""
    name: str = ""
    """what to call the study on the pages; changes no result"""
    device: str = "auto"
    """auto, cpu or cuda"""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: float32 on a CPU; on a GPU the type of the checkpoint"""
    trust_remote_code: bool = False
    """run Python code that comes with this model; only for models you trust"""
    calibration: CalibrationSettings = field(default_factory=CalibrationSettings)
    """calibration sets and their statistics"""
    modularization: ModularizationSettings = field(default_factory=ModularizationSettings)
    """BCM"""
    reliability: ReliabilitySettings = field(default_factory=ReliabilitySettings)
    """RASA"""
    sparsity: SparsitySettings = field(default_factory=SparsitySettings)
    """MSL"""
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    """what the result is measured on"""

    def __post_init__(self) -> None:
        """Checks every field and the fields against each other."""
        for name in ("model", "primary", "auxiliary"):
            rule = "a name or a path, not empty"
            _require(bool(getattr(self, name).strip()), name, getattr(self, name), rule)
        _require_choice("metric", self.metric, METRIC_NAMES)
        rule = "more than 0 and less than 1: 0.5 keeps half of the decoder's weights"
        _require(0 < self.retention < 1, "retention", self.retention, rule)
        _require_choice("dtype", self.dtype, ("auto", "float32", "bfloat16", "float16"))
        valid = self.device in ("auto", "cpu") or self.device.startswith("cuda")
        _require(valid, "device", self.device, "auto, cpu or cuda")
        _require(self.seed >= 0, "seed", self.seed, "0 or more")
        if self.primary == self.auxiliary:
            raise SettingsError(
                f"primary and auxiliary are the same text ({self.primary!r}): rank drift would be zero. "
                "Choose two different texts"
            )
        if self.substitute and self.substitute in (self.primary, self.auxiliary):
            raise SettingsError(
                f"substitute is already the {'primary' if self.substitute == self.primary else 'auxiliary'} "
                f"text ({self.substitute!r}): choose a third text, or leave it empty"
            )

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain JSON values."""
        return asdict(self)

    def to_json(self) -> str:
        """The study as readable JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    def with_settings(self, changes: dict[str, Any]) -> Study:
        """A copy with dotted fields replaced, as `{"reliability.drift_quantile": 0.8}`.

        Raises:
            SettingsError: a field is unknown or its value is not valid.
        """
        values = self.to_dict()
        for dotted, value in changes.items():
            *path, last = dotted.split(".")
            target: Any = values
            for part in path:
                target = target.get(part) if isinstance(target, dict) else None
            if not isinstance(target, dict) or last not in target:
                raise SettingsError(f"a study has no field {dotted!r}; {_suggestion(dotted, field_names())}")
            target[last] = value
        return from_dict(values)

    def renamed(self, name: str) -> Study:
        """A copy under another display name."""
        return replace(self, name=name)


def field_names() -> tuple[str, ...]:
    """Every field of a study as a dotted name."""
    names: list[str] = []
    for top in fields(Study):
        section = _SECTIONS.get(top.name)
        names += [f"{top.name}.{f.name}" for f in fields(section)] if section else [top.name]
    return tuple(names)


_SECTIONS: dict[str, Any] = {
    "calibration": CalibrationSettings,
    "modularization": ModularizationSettings,
    "reliability": ReliabilitySettings,
    "sparsity": SparsitySettings,
    "evaluation": EvaluationSettings,
}


def _suggestion(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known fields: {', '.join(known)}"


def _coerce(name: str, value: Any, hint: Any) -> Any:
    """Checks a JSON value against a field's type; lists become tuples and whole floats integers."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    hint = next(option for option in options if option is not type(None))
    origin = typing.get_origin(hint)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise SettingsError(f"{name} must be a list (got {value!r})")
        item = typing.get_args(hint)[0]
        return tuple(_coerce(f"{name}[{i}]", v, item) for i, v in enumerate(value))
    expected = str if origin is Literal else hint
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if expected is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
        raise SettingsError(f"{name} must be {words[expected]} (got {value!r})")
    return value


def _build(cls: Any, values: Any, where: str) -> Any:
    if not isinstance(values, dict):
        raise SettingsError(f"{where or 'a study'} must be an object with named fields (got {values!r})")
    known = {f.name for f in fields(cls)}
    hints = typing.get_type_hints(cls)
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        dotted = f"{where}.{name}" if where else name
        if name not in known:
            listing = tuple(f"{where}.{k}" if where else k for k in sorted(known))
            raise SettingsError(f"a study has no field {dotted!r}; {_suggestion(dotted, listing)}")
        nested = hints[name]
        arguments[name] = (
            _build(nested, value, dotted) if is_dataclass(nested) else _coerce(dotted, value, nested)
        )
    missing = [name for name in ("model", "primary", "auxiliary") if cls is Study and name not in arguments]
    if missing:
        raise SettingsError(
            f"the study lacks {', '.join(missing)}: name the model and both calibration texts"
        )
    return cls(**arguments)


def from_dict(values: dict[str, Any]) -> Study:
    """Builds a study from plain values.

    Raises:
        SettingsError: a field is unknown, missing, of the wrong type or out of range.
    """
    study: Study = _build(Study, values, "")
    return study


def from_file(path: str | Path) -> Study:
    """Reads a study from a JSON file.

    Raises:
        SettingsError: the file is missing, is not JSON, or does not hold a valid study.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the study file {str(path)!r} cannot be read: {error}") from error
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingsError(f"the study file {str(path)!r} is not JSON: {error}") from error
    try:
        return from_dict(values)
    except SettingsError as error:
        raise SettingsError(f"study file {str(path)!r}: {error}") from error
