"""A study: everything a result depends on, with the paper's values as defaults.

A study is read from and written to JSON. Defaults are the values of the paper's hyperparameter table (appendix,
detailed settings), or this project's where the paper states none. The command-line options and the form in the app are
generated from these fields.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from gprune.records.repairs import ROUTER
from gprune.study.methods import DEFAULT, EXPERT_METHODS, METHODS, RECOMMENDED, require_known
from gprune.study.settings import (
    EXPERT_REPAIRS,
    MOST_CANDIDATES,
    TRIED_SCALED,
    BaselineSettings,
    CalibrationSettings,
    ChoiceSettings,
    ContextSettings,
    EvaluationSettings,
    GateSettings,
    ModularizationSettings,
    RecoverySettings,
    ReliabilitySettings,
    RepairSettings,
    ScaleSettings,
    Several,
    SparsitySettings,
    Text,
    Whole,
    read,
    require,
)
from gprune.system import forms, safe_parsing
from gprune.system.errors import SettingsError
from gprune.system.forms import NOT_NEGATIVE, Form, Rule, validate_form

_NOT_IN_DIGEST = ("name", "group", "text_names", "offload")
"""fields that change no result and therefore are not part of the digest"""
_NAMED_TEXT = re.compile(r"([^\s=#/\\:][^=#/\\:]{0,39})=(.+)", re.DOTALL)
"""form of a named text: NAME=TEXT, with options of the text after a #"""
_ADDED_SETTINGS: dict[str, dict[str, Any]] = {
    "calibration": {"positions": 8},
    "baselines": {"taylor_text": ""},
    "contexts": {"clustering": "balanced"},
    "modularization": {"seeding": "plain"},
    "sparsity": {"attention": "own"},
    "evaluation": {"few_shot": None, "chat_template": False, "open_questions": False, "generated_tokens": 256},
}
"""settings added later; with these default values they are not part of the digest, which stays that of older studies"""
_ADDED_SECTIONS = {
    "gates": GateSettings,
    "repair": RepairSettings,
    "scales": ScaleSettings,
    "recovery": RecoverySettings,
}
"""sections added later, which are part of the digest only if they differ from the defaults"""


_Name = Annotated[Text, forms.max_length(forms.LONGEST_NAME)]
_EACH_ONCE = Rule("at least one method, each once", lambda names: bool(names) and len(set(names)) == len(names))
_PARTIAL = Rule("more than 0 and less than 1: 0.5 keeps half of the decoder's weights", lambda share: 0 < share < 1)
_RequiredText = Annotated[Text, Rule("a name or a path, not empty", lambda text: bool(text.strip()))]


@validate_form
@dataclass(frozen=True, slots=True)
class Study(Form):
    """One study: a model, two calibration texts, a metric, a retention, and the settings of each stage.

    Example:
        >>> import gprune
        >>> study = gprune.Study(model="demo", primary="python-reference", auxiliary="science-docs")
        >>> study.with_settings({"reliability.drift_quantile": 0.85}).reliability.drift_quantile
        0.85
    """

    WHAT: ClassVar = "a study"
    model: _RequiredText
    """folder or hub name of the dense model; `demo` and `demo-experts` are bundled, `random:llama2-7b` has random
    weights in that shape, `random:llama2-7b#layers=2` two of its layers, to test memory and time (see `speed --help`
    for the shapes)"""
    primary: _RequiredText
    """primary calibration text A, by name or file (paper: WikiText2)"""
    auxiliary: _RequiredText
    """auxiliary calibration text B (paper: PTB)"""
    metric: Text = "flap"
    """base importance metric"""
    retention: Annotated[float, _PARTIAL] = 0.5
    """fraction R* of the decoder layers' linear weights that is kept"""
    substitute: Text = ""
    """third calibration text C, which replaces A and B for module agreement"""
    seed: Annotated[Whole, NOT_NEGATIVE] = 0
    """seed of every random choice (paper: 0)"""
    methods: Annotated[Several[Text], _EACH_ONCE] = DEFAULT
    """methods to compare"""
    name: _Name = ""
    """display name of the study; changes no result"""
    group: _Name = ""
    """name of the series of studies; changes no result"""
    text_names: Several[Text] = ()
    """display names of texts, as NAME=TEXT; fields of texts accept the same form; changes no result"""
    device: Annotated[
        Text, Rule("auto, cpu or cuda", lambda name: name in ("auto", "cpu") or name.startswith("cuda"))
    ] = "auto"
    """auto, cpu or cuda"""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: float32 on a CPU; on a GPU the type of the checkpoint"""
    trust_remote_code: bool = False
    """run Python code that comes with this model; only for models you trust"""
    offload: bool = False
    """read the layers' weights from their files when needed, for a model larger than memory; not with methods that
    learn; changes no result"""
    calibration: CalibrationSettings = field(default_factory=CalibrationSettings)
    """calibration sets and their statistics"""
    contexts: ContextSettings = field(default_factory=ContextSettings)
    """context clusters of token-weighted FLAP and FANG"""
    baselines: BaselineSettings = field(default_factory=BaselineSettings)
    """settings of the baselines"""
    modularization: ModularizationSettings = field(default_factory=ModularizationSettings)
    """BCM"""
    reliability: ReliabilitySettings = field(default_factory=ReliabilitySettings)
    """RASA"""
    sparsity: SparsitySettings = field(default_factory=SparsitySettings)
    """MSL"""
    gates: GateSettings = field(default_factory=GateSettings)
    """gates of single units"""
    repair: RepairSettings = field(default_factory=RepairSettings)
    """repair of the kept weights"""
    scales: ScaleSettings = field(default_factory=ScaleSettings)
    """learned scales"""
    recovery: RecoverySettings = field(default_factory=RecoverySettings)
    """recovery: low-rank training of every pruned model"""
    choice: ChoiceSettings = field(default_factory=ChoiceSettings)
    """selection of repairs and masks by measurement"""
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    """texts and tasks of the evaluation"""

    def __post_init__(self) -> None:
        """Check the fields against each other, and the names of metric and methods."""
        self._split_text_names()
        require_known("metric", self.metric)
        for method in self.methods:
            require_known("methods", method)
        if self.prunes_experts:
            self._require_expert_settings()
        elif self.methods != ("dense",):
            # a study of the dense model alone repairs nothing
            rule = "a kind other than router, which is for methods of experts"
            require(self.repair.kind != ROUTER, "repair.kind", self.repair.kind, rule)
        self._require_choosable()
        if self.sparsity.bias_compensation and self.repair.base != "own":
            raise SettingsError(
                "sparsity.bias_compensation is repair.kind bias for learned methods, and repair.kind is "
                f"{self.repair.kind}: leave one of them out"
            )
        self._require_equal()
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

    def _split_text_names(self) -> None:
        """Move names in fields of the form NAME=TEXT to `text_names`, and drop the names of unused texts."""
        names: dict[str, str] = {}

        def split(entry: str) -> str:
            name, text = split_text_name(entry)
            if name:
                names[text] = name.strip()
            return text

        for entry in self.text_names:
            require(bool(_NAMED_TEXT.fullmatch(entry)), "text_names", entry, "entries like wikitext=/data/wiki.txt")
        names |= self.names_of_texts
        texts = tuple(dict.fromkeys(map(split, self.evaluation.texts)))
        fields: dict[str, Any] = {name: split(getattr(self, name)) for name in ("primary", "auxiliary", "substitute")}
        taylor_text, check_text = split(self.baselines.taylor_text), split(self.choice.check_text)
        if not names:
            return
        used = {*fields.values(), *texts, taylor_text, check_text}
        names = {text: name for text, name in names.items() if text in used}
        for name in names.values():
            require(list(names.values()).count(name) == 1, "text_names", name, "names of one text each")
        fields["text_names"] = tuple(f"{name}={text}" for text, name in names.items())
        fields["evaluation"] = replace(self.evaluation, texts=texts)
        fields["baselines"] = replace(self.baselines, taylor_text=taylor_text)
        fields["choice"] = replace(self.choice, check_text=check_text)
        for field_name, value in fields.items():
            object.__setattr__(self, field_name, value)

    @property
    def names_of_texts(self) -> dict[str, str]:
        """Return the user's names of texts by text."""
        return {text: name.strip() for name, text in (entry.split("=", 1) for entry in self.text_names)}

    def text_name(self, text: str) -> str:
        """Return the display name of a text: the user's name, or its file name without folders."""
        return self.names_of_texts.get(text) or short(text)

    def _require_expert_settings(self) -> None:
        """Raise SettingsError for a method or setting of neurons in a study that prunes experts."""
        expert_method = next(name for name in self.methods if name in EXPERT_METHODS)
        for name in self.methods:
            rule = f"dense or a method of experts next to {expert_method}, because a study prunes neurons or experts"
            require(name == "dense" or name in EXPERT_METHODS, "methods", name, rule)
        rule = f"with {expert_method}, whose experts are not changed after pruning"
        require(self.repair.kind in EXPERT_REPAIRS, "repair.kind", self.repair.kind, f"own, none or router {rule}")
        require(self.recovery.kind == "none", "recovery.kind", self.recovery.kind, f"none {rule}")
        require(not self.offload, "offload", self.offload, f"false with {expert_method}, which needs the whole model")

    def _require_equal(self) -> None:
        """Raise SettingsError if widths are equal and a method cannot keep the same number of units in every layer."""
        involved = [name for name in self.involved if name in METHODS] if self.sparsity.equal else []
        names = [name for name in involved if not METHODS[name].supports_equal_widths]
        if names:
            raise SettingsError(
                f"sparsity.widths equal keeps the same number of units in every layer, but {METHODS[names[0]].label} "
                "chooses the numbers itself: leave it out, or sparsity.widths free"
            )

    @property
    def prunes_experts(self) -> bool:
        """Return True if the units are the experts of a mixture-of-experts model, not neurons and key/value groups."""
        return any(name in EXPERT_METHODS for name in self.methods)

    @property
    def unit(self) -> str:
        """Return the name of the pruned unit in sentences: expert or neuron."""
        return "expert" if self.prunes_experts else "neuron"

    @property
    def recommends(self) -> bool:
        """Return True if the recommended recipe is among the methods."""
        return RECOMMENDED in self.methods

    @property
    def involved(self) -> tuple[str, ...]:
        """Return the compared methods, and the methods that the recommended recipe tries."""
        tried = self.choice.masks if self.recommends else ()
        return tuple(dict.fromkeys((*self.methods, *tried)))

    @property
    def chooses(self) -> bool:
        """Return True if masks or repairs are selected by measurement, which needs held-out text."""
        return self.recommends or self.repair.kind == "auto"

    @property
    def scales_units(self) -> bool:
        """Return True if scales are learned: for every pruned model, or together with gates."""
        tried = self.chooses and any(TRIED_SCALED in word for word in self.choice.repairs)
        return tried or self.repair.scaled or any(METHODS[name].scaled for name in self.involved if name in METHODS)

    def _require_choosable(self) -> None:
        """Check the candidates of the recommended recipe."""
        masks, repairs = self.choice.masks, self.choice.repairs
        for name in masks:
            require_known("choice.masks", name)
            rule = "methods that prune and are not chosen themselves"
            require(METHODS[name].decision not in ("none", "chosen"), "choice.masks", name, rule)
        if self.recommends and len(masks) * (1 + len(repairs)) > MOST_CANDIDATES:
            raise SettingsError(
                f"choice.masks ({len(masks)}) times choice.repairs and none ({1 + len(repairs)}) must be at "
                f"most {MOST_CANDIDATES}: the best of many candidates is often best by chance. Leave some of them out"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return every field as plain JSON values."""
        return asdict(self)

    def to_json(self) -> str:
        """Return the study as readable JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    def with_settings(self, changes: dict[str, Any]) -> Study:
        """Return a copy with dotted fields replaced, for example `{"reliability.drift_quantile": 0.8}`.

        Raises SettingsError if a field is unknown or its value is not valid.
        """
        values = self.to_dict()
        for dotted, value in changes.items():
            section, _, name = str(dotted).rpartition(".")
            if dotted not in (*field_names(), *values):
                quoted = safe_parsing.quote(dotted)
                raise SettingsError(f"a study has no field {quoted}; {forms.suggestion(str(dotted), field_names())}")
            (values[section] if section else values)[name] = value
        return from_dict(values)

    @property
    def digest(self) -> str:
        """Return the SHA-256 of all settings that affect results."""
        values = {name: value for name, value in self.to_dict().items() if name not in _NOT_IN_DIGEST}
        for section, defaults in _ADDED_SETTINGS.items():
            values[section] = dict(values[section].items() - defaults.items())
        for name, kind in _ADDED_SECTIONS.items():
            if getattr(self, name) == kind():
                del values[name]
        if not self.chooses or self.choice == ChoiceSettings():
            del values["choice"]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def renamed(self, name: str) -> Study:
        """Return a copy under another display name."""
        return replace(self, name=name)


def run_name(study: Study) -> str:
    """Return the name of a study's run: its name or model in lower case, and the first ten digits of the digest."""
    words = (study.name or study.model.rstrip("/").split("/")[-1]).lower()
    stem = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
    return f"{stem[:40] or 'study'}-{study.digest[:10]}"


def split_text_name(text: str) -> tuple[str, str]:
    """Split NAME=TEXT into name and text; the name is empty if there is none or the string is an existing path."""
    match = _NAMED_TEXT.fullmatch(text)
    return (match[1], match[2]) if match and not Path(text).exists() else ("", text)


def short(name: str) -> str:
    """Return the name of a text, a model or a task without leading folders; options after `#` are kept."""
    location, sign, options = name.partition("#")
    prefix = "self:" if location.startswith("self:") and "/" in location else ""
    return prefix + location.rstrip("/").rpartition("/")[2] + sign + options


def field_names() -> tuple[str, ...]:
    """Return every field of a study as a dotted name."""
    return forms.names_of(Study)


def from_dict(values: dict[str, Any]) -> Study:
    """Build a study from plain values.

    Raises SettingsError if a field is unknown, missing, of the wrong type or out of range.
    """
    return Study.parse(values)


def from_file(path: str | Path, *, pipe: bool = False) -> Study:
    """Read a study from a JSON file, or with `pipe` also from a pipe such as `<(...)` and `/dev/stdin`.

    Raises SettingsError if the file is missing, is not JSON, or has no valid study.
    """
    return read(path, "study file", from_dict, pipe=pipe)
