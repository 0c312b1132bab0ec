"""A study: everything a result depends on, with the paper's values as defaults.

Settings hold no data; records hold no settings. A study is read from and written to JSON; every field of
the paper's hyperparameter table (appendix, detailed settings) is here under the paper's
value, and what the paper leaves open carries our default. The command line and the app are built from
these fields.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import math
import re
import types
import typing
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from gprune.study.methods import BUILT_IN_METRICS, DEFAULT, require_known
from gprune.study.settings import (
    PRESET_LENGTHS,
    BaselineSettings,
    CalibrationSettings,
    ContextSettings,
    EvaluationSettings,
    ModularizationSettings,
    ReliabilitySettings,
    SparsitySettings,
    read,
    require,
    require_choices,
)
from gprune.system import limits, safe_parsing
from gprune.system.errors import SettingsError

__all__ = [
    "METRIC_NAMES",
    "PRESET_LENGTHS",
    "BaselineSettings",
    "CalibrationSettings",
    "ContextSettings",
    "EvaluationSettings",
    "ModularizationSettings",
    "ReliabilitySettings",
    "SparsitySettings",
    "Study",
    "field_names",
    "from_dict",
    "from_file",
    "run_name",
    "short",
]

METRIC_NAMES = BUILT_IN_METRICS
_UNNAMED = ("name", "group", "offload")
"""fields that do not tell one study from another: what it is called, and where its model waits"""
_LATER: dict[str, dict[str, Any]] = {
    "calibration": {"positions": 8},
    "baselines": {"taylor_text": ""},
    "contexts": {"clustering": "balanced"},
    "modularization": {"seeding": "plain"},
    "sparsity": {"attention": "own"},
}
"""settings that came after studies had names, with the value under which a study is what it was"""


@dataclass(frozen=True, slots=True)
class Study:
    """One study: a model, two calibration texts, a metric, a retention, and the settings of each stage.

    Example:
        >>> import gprune
        >>> study = gprune.Study(model="demo", primary="python-reference", auxiliary="science-docs")
        >>> study.with_settings({"reliability.drift_quantile": 0.85}).reliability.drift_quantile
        0.85
    """

    model: str
    """folder or hub name of the dense model; `demo` is the bundled one, and `random:llama2-7b` one of random
    weights in that shape, to see what a study takes (see `speed --help` for the shapes)"""
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
    methods: tuple[str, ...] = DEFAULT
    """what is pruned and measured side by side"""
    name: str = ""
    """what to call the study on the pages; changes no result"""
    group: str = ""
    """the series of studies it belongs to; changes no result"""
    device: str = "auto"
    """auto, cpu or cuda"""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: float32 on a CPU; on a GPU the type of the checkpoint"""
    trust_remote_code: bool = False
    """run Python code that comes with this model; only for models you trust"""
    offload: bool = False
    """leave the layers' weights in their files and read each when it is needed: for statistics, drift and
    modules of a model larger than memory (nothing can be pruned so); changes no result"""
    calibration: CalibrationSettings = field(default_factory=CalibrationSettings)
    """calibration sets and their statistics"""
    contexts: ContextSettings = field(default_factory=ContextSettings)
    """context clusters of token-weighted FLAP and FANG"""
    baselines: BaselineSettings = field(default_factory=BaselineSettings)
    """what the baselines leave open"""
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
        self._take_types()
        for name in ("model", "primary", "auxiliary"):
            rule = "a name or a path, not empty"
            require(bool(getattr(self, name).strip()), name, getattr(self, name), rule)
        require_choices(self)
        require_known("metric", self.metric)
        rule = "more than 0 and less than 1: 0.5 keeps half of the decoder's weights"
        require(0 < self.retention < 1, "retention", self.retention, rule)
        valid = self.device in ("auto", "cpu") or self.device.startswith("cuda")
        require(valid, "device", self.device, "auto, cpu or cuda")
        require(self.seed >= 0, "seed", self.seed, "0 or more")
        self._require_affordable()
        for method in self.methods:
            require_known("methods", method)
        distinct = bool(self.methods) and len(set(self.methods)) == len(self.methods)
        require(distinct, "methods", self.methods, "at least one method, each once")
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

    def _take_types(self) -> None:
        """Takes a list for a tuple, and refuses what a type checker would have refused."""
        for name, kind in _hints().items():
            given, nested = getattr(self, name), is_dataclass(kind)
            if not (nested and isinstance(given, cast(type, kind))):
                taken = _build(kind, given, name) if nested else _coerce(name, given, kind)
                object.__setattr__(self, name, taken)

    def _require_affordable(self) -> None:
        """Refuses what each setting alone allows and together would take for ever."""
        asked = {
            "sparsity.epochs": self.sparsity.epochs,
            "texts": 2,
            "calibration.samples": self.calibration.samples,
            "calibration.length": self.calibration.length,
        }
        limits.require_affordable(limits.MOST_LEARNING, "tokens to learn from", asked)

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
            *path, last = str(dotted).split(".")
            target: Any = values
            for part in path:
                target = target.get(part) if isinstance(target, dict) else None
            if not isinstance(target, dict) or last not in target:
                shown = safe_parsing.quoted(dotted)
                raise SettingsError(
                    f"a study has no field {shown}; {_suggestion(str(dotted), field_names())}"
                )
            target[last] = value
        return from_dict(values)

    @property
    def digest(self) -> str:
        """SHA-256 of every setting that tells studies apart: equal for studies that are the same."""
        values = {name: value for name, value in self.to_dict().items() if name not in _UNNAMED}
        for section, plain in _LATER.items():
            values[section] = dict(values[section].items() - plain.items())
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def renamed(self, name: str) -> Study:
        """A copy under another display name."""
        return replace(self, name=name)


@functools.cache
def _hints() -> dict[str, Any]:
    return typing.get_type_hints(Study)


def run_name(study: Study) -> str:
    """Name of a study's run: a readable stem and a hash of every setting but the names for people."""
    words = (study.name or study.model.rstrip("/").split("/")[-1]).lower()
    stem = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
    return f"{stem[:40] or 'study'}-{study.digest[:10]}"


def short(name: str) -> str:
    """Name of a text, a model or a task without the folders before it; options stay."""
    place, sign, options = name.partition("#")
    return place.rstrip("/").rpartition("/")[2] + sign + options


def field_names() -> tuple[str, ...]:
    """Every field of a study as a dotted name."""
    names: list[str] = []
    for name, kind in _hints().items():
        names += [f"{name}.{field.name}" for field in fields(kind)] if is_dataclass(kind) else [name]
    return tuple(names)


def _suggestion(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name[: limits.LONGEST_NAME], known, n=1)
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
            raise SettingsError(f"{name} must be a list (got {safe_parsing.quoted(value)})")
        if len(value) > limits.LONGEST_LIST:
            raise SettingsError(f"{name} must have at most {limits.LONGEST_LIST} entries (got {len(value)})")
        item = typing.get_args(hint)[0]
        return tuple(_coerce(f"{name}[{i}]", v, item) for i, v in enumerate(value))
    return _plain(name, value, str if origin is Literal else hint)


def _plain(name: str, value: Any, expected: type) -> Any:
    """Checks a number, a text or a switch; JSON and counts can hold what passes."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and not (math.isfinite(value) if isinstance(value, float) else abs(value) < 2**63):
        raise SettingsError(f"{name} must be a finite number of 64 bits (got {safe_parsing.quoted(value)})")
    if expected is float and number:
        return float(value)
    if expected is str and isinstance(value, int) and number:
        # a window preset is a name that looks like a number
        return str(value)
    if expected is int and isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
        raise SettingsError(f"{name} must be {words[expected]} (got {safe_parsing.quoted(value)})")
    if isinstance(value, str):
        limits.require_text(name, value)
    return value


def _build(cls: Any, values: Any, where: str) -> Any:
    if not isinstance(values, dict):
        shown = safe_parsing.quoted(values)
        raise SettingsError(f"{where or 'a study'} must be an object with named fields (got {shown})")
    known = {f.name for f in fields(cls)}
    hints = typing.get_type_hints(cls)
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        dotted = f"{where}.{name}" if where else str(name)
        if name not in known:
            listing = tuple(f"{where}.{k}" if where else k for k in sorted(known))
            shown = safe_parsing.quoted(dotted)
            raise SettingsError(f"a study has no field {shown}; {_suggestion(dotted, listing)}")
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


def from_file(path: str | Path, *, pipe: bool = False) -> Study:
    """Reads a study from a JSON file.

    Args:
        path: the file.
        pipe: whether it may be a pipe, as `<(...)` and `/dev/stdin` are.

    Raises:
        SettingsError: the file is missing, is not JSON, or does not hold a valid study.
    """
    return read(path, "study file", from_dict, pipe=pipe)
