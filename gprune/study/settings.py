"""Settings of every stage, with the paper's values as defaults (appendix, detailed settings).

Values that the paper does not state have this project's defaults. Upper bounds (`MOST_...`) are so large that only a
typing mistake exceeds them: the paper's settings are at least a hundred times smaller. The string after a field is its
help text.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, cast, get_args

from gprune.records.repairs import FITTED, LEARNED, REPAIRS, ROUTER
from gprune.system import forms
from gprune.system.errors import SettingsError
from gprune.system.forms import NOT_NEGATIVE, POSITIVE, SHARE, Form, Rule, at_least, at_most, between, validate_form
from gprune.system.safe_parsing import has_no_surrogate, json_file, not_one_of, path, quote, reraise_as

T = TypeVar("T")

MOST_BATCH = 2**16
"""maximum number of sequences of one forward pass"""
MOST_STEPS = 10**6
"""maximum number of refinement steps of BCM, 6,667 times the default"""
MOST_MODULES = 2**16
"""maximum number of modules of a layer, more than any layer has neurons"""
MOST_COUNT = 2**31 - 1
"""maximum value of settings that are only upper bounds themselves, so that a large value costs nothing"""
PRESET_LENGTHS = {"128": 128, "2048": 2048}
"""tokens of a window by preset"""


def _as_integer(value: Any) -> Any:
    # JSON may write a count as 8.0, and numpy has its own integer types
    is_whole_number = value.is_integer() if isinstance(value, float) else isinstance(value, Integral)
    return int(value) if is_whole_number and not isinstance(value, bool) else value


def _as_text(value: Any) -> Any:
    # a window preset is a name that consists of digits
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Whole = Annotated[int, forms.Before(_as_integer), Rule("a number of 64 bits", lambda number: abs(number) < 2**63)]
VALID_TEXT = Rule("text without NUL or unpaired surrogates", lambda text: "\0" not in text and has_no_surrogate(text))
Words = Annotated[str, forms.max_length(4096), VALID_TEXT]
Text = Annotated[Words, forms.Before(_as_text)]
Several = Annotated[forms.Listed[T], forms.max_length(1000, "a list", "entries")]


def read(file: str | Path, name: str, make: Callable[[Any], T], *, pipe: bool = False) -> T:
    """Read a JSON file of settings; `name` describes the file in messages, for example `study file`.

    `make` validates the values and returns the settings. `pipe` also allows a pipe such as `<(...)` and `/dev/stdin`.
    Raises SettingsError if the file is missing, is not JSON, or has invalid values.
    """
    subject = f"the {name} {quote(str(file))}"
    with reraise_as(SettingsError):
        try:
            values = json_file(path(str(file), f"the {name}"), subject, pipe=pipe)
        except FileNotFoundError as error:
            raise SettingsError(f"{subject} cannot be read: there is no such file") from error
    try:
        return make(values)
    except SettingsError as error:
        raise SettingsError(f"{subject.removeprefix('the ')}: {error}") from error


def require(condition: bool, name: str, value: object, rule: str) -> None:
    """Raise SettingsError with the setting, the rule and the value if `condition` is False."""
    if not condition:
        raise SettingsError(f"{name} must be {rule} (got {quote(value)})")


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise SettingsError if a setting is not one of `choices`."""
    if value not in choices:
        raise SettingsError(not_one_of(name, value, choices))


def require_whole(**values: object) -> None:
    """Raise SettingsError if a setting, given by name, is not an integer."""
    for name, value in values.items():
        require(isinstance(value, Integral) and not isinstance(value, bool), name, value, "a whole number")


def _is_length(preset: str) -> bool:
    # "²" counts as a digit but is not a number; int() refuses thousands of digits
    digits = preset.isascii() and preset.isdecimal() and len(preset) <= 9
    return digits and 2 <= int(preset) <= forms.MOST_LENGTH


_LENGTH = Rule(f"128, 2048 or another number of tokens from 2 to {forms.MOST_LENGTH}", _is_length)
_DIFFERENT = Rule("texts that differ from each other", lambda value: len(set(value)) == len(value))
_COUNTS = Rule(
    f"module counts of at least 2 and at most {MOST_MODULES}",
    lambda counts: bool(counts) and 2 <= min(counts) and max(counts) <= MOST_MODULES,
)
_EVEN = Rule("an even number of at least 2", lambda number: number >= 2 and number % 2 == 0)
_QUARTERS = Rule("a multiple of 4, one quarter for each subset", lambda number: number >= 4 and number % 4 == 0)
_SEQUENCE = at_most(forms.MOST_LENGTH, "tokens, since no model reads more at once")
TextsUsed = Literal["primary", "auxiliary", "both", "both_and_sampled", "sampled"]
"""calibration texts for repair, scales and recovery"""
SampledText = Annotated[
    Text, Rule("a text that the model writes, as self:#seed=1", lambda text: text.startswith("self:"))
]
_AtMost = Annotated[
    Whole | None,
    Rule("at least 1, or null for all", lambda count: count is None or 1 <= count <= MOST_COUNT),
]
_Shots = Annotated[
    Whole | None,
    Rule("from 0 to 100, or null for the task's own number", lambda count: count is None or 0 <= count <= 100),
]


def roles_of(texts: TextsUsed) -> tuple[str, ...]:
    """Return the roles (primary, auxiliary, sampled) of the texts that a setting such as `repair.texts` chooses."""
    pair = ("primary", "auxiliary")
    return {"both": pair, "both_and_sampled": (*pair, "sampled")}.get(texts, (texts,))


@validate_form
@dataclass(frozen=True, slots=True)
class CalibrationSettings(Form):
    """Calibration sets and their statistics."""

    WHERE: ClassVar = "calibration."
    samples: Annotated[Whole, between(2, 2**25)] = 2048
    """sequences drawn from each text (paper: 2048)"""
    length: Annotated[Whole, at_least(2, "tokens"), _SEQUENCE] = 128
    """tokens of each sequence (paper: 128)"""
    shards: Annotated[Whole, _EVEN, at_most(16)] = 8
    """disjoint groups of sequences with separate statistics, for the resampling control and the repeatability"""
    batch: Annotated[Whole, between(1, MOST_BATCH)] = 16
    """sequences of one forward pass; changes speed, not results"""
    flap_variant: Literal["paper", "released"] = "paper"
    """fluctuation of FLAP: plain token variance, or the recursion of the released code"""
    square_head_score: bool = True
    """square FLAP's o_proj channel scores once more, as its released code does"""
    positions: Annotated[Whole, between(0, 64)] = 8
    """number of positions with the strongest activations to store per neuron and text; changes no other result"""

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        rule = f"at least calibration.shards ({self.shards}), so that no shard is empty"
        require(self.samples >= self.shards, "calibration.samples", self.samples, rule)


@validate_form
@dataclass(frozen=True, slots=True)
class ContextSettings(Form):
    """Contexts of token-weighted FLAP and FANG's groups (section 4, base metrics)."""

    WHERE: ClassVar = "contexts."
    count: Annotated[Whole, between(2, 2**10)] = 7
    """context clusters of each layer (FANG: 7)"""
    dimensions: Annotated[Whole, between(1, MOST_COUNT)] = 64
    """principal components in which tokens are clustered (FANG: 64); at most the available number"""
    tokens: Annotated[Whole, at_least(2), at_most(2**28, "tokens held in memory")] = 16384
    """tokens to which the clusters are fitted, rounded up to complete sequences"""
    temperature: Annotated[float, POSITIVE] = 1.0
    """temperature of the token weights; distances between contexts have a mean of 1"""
    clustering: Literal["balanced", "released"] = "balanced"
    """balanced: clusters of equal size; released: as in FANG's code, sizes within 40% and the best of several starts"""
    module_profile: Literal["dominant", "mixed"] = "dominant"
    """contexts by which a module of GPrune weights tokens: the dominant one, or a mixture of all"""


@validate_form
@dataclass(frozen=True, slots=True)
class BaselineSettings(Form):
    """Settings of the baselines of section 4."""

    WHERE: ClassVar = "baselines."
    taylor_samples: Annotated[Whole, between(1, MOST_BATCH)] = 10
    """sequences for LLM-Pruner's gradient (LLM-Pruner: 10)"""
    taylor_length: Annotated[Whole, at_least(2), _SEQUENCE] = 64
    """tokens of each sequence for LLM-Pruner's gradient (LLM-Pruner: 64)"""
    taylor_text: Text = ""
    """text of this gradient, cut into windows as in LLM-Pruner's code (bookcorpus); empty: the primary text"""
    fang_grouping: Literal["balanced", "released"] = "balanced"
    """balanced: group sizes differ by at most one; released: as in FANG's code, which needs evenly divisible widths"""


@validate_form
@dataclass(frozen=True, slots=True)
class ModularizationSettings(Form):
    """Behavior-consistent modularization (BCM), section 3.1."""

    WHERE: ClassVar = "modularization."
    kind: Literal["refined", "initialization", "random"] = "refined"
    """refined is the paper's; initialization stops before the refinement; random is equal-size modules"""
    candidates: Annotated[Several[Whole], _COUNTS] = (16, 24, 32, 40, 48)
    """module counts tried by the silhouette (paper: 16, 24, 32, 40, 48); clamped to an eighth of the width"""
    restarts: Annotated[Whole, between(1, 10**4)] = 3
    """k-means starts for each candidate count; the best silhouette wins"""
    seeding: Literal["plain", "greedy"] = "plain"
    """k-means++ draws each centroid once, or greedily takes the best of several draws for better silhouettes"""
    split_fraction: Annotated[float, SHARE] = 0.2
    """share of all modules that are split in two, those with the largest drift variation (paper: 20%)"""
    pair_weight: Annotated[float, NOT_NEGATIVE] = 0.1
    """weight of the pairwise dispersion term, over the most dispersed quarter of the modules"""
    repulsion_weight: Annotated[float, NOT_NEGATIVE] = 0.1
    """weight of the term that repels centroids from each other"""
    consistency_weight: Annotated[float, NOT_NEGATIVE] = 1.0
    """weight of the drift-consistency term; drift coordinates are scaled to variance 1 within the layer"""
    learning_rate: Annotated[float, POSITIVE] = 0.02
    """Adam step size of the centroids"""
    steps: Annotated[Whole, NOT_NEGATIVE, at_most(MOST_STEPS, "steps over all neurons of every layer")] = 150
    """refinement steps"""
    temperature: Annotated[float, POSITIVE] = 1.0
    """softmax temperature of the memberships (paper: none, that is 1)"""
    direction: Literal["auto", "preset", "magnitude", "direction"] = "auto"
    """auto: the paper's admission rule; preset: its published outcome for the metric; others: always this one"""


@validate_form
@dataclass(frozen=True, slots=True)
class ReliabilitySettings(Form):
    """Reliability-aware score adaptation (RASA), section 3.2."""

    WHERE: ClassVar = "reliability."
    selection: Literal["drift_and_score", "drift", "random", "none"] = "drift_and_score"
    """which modules are adapted; drift_and_score is the paper's"""
    source: Literal["repeatability", "random"] = "repeatability"
    """how the scoring text of an adapted module is chosen; repeatability is the paper's"""
    drift_quantile: Annotated[float, SHARE] = 0.90
    """γ_drift: a module at or above this quantile of drift is sensitive (paper: 0.90)"""
    score_quantile: Annotated[float, SHARE] = 0.90
    """γ_score: at or below this quantile of score a module is weakly supported (paper: 0.90)"""
    score_scale: Literal["raw", "standardized"] = "raw"
    """scale of the mean score of a module: raw as in the paper, or standardized within the layer"""


@validate_form
@dataclass(frozen=True, slots=True)
class SparsitySettings(Form):
    """Modular sparsity learning (MSL), section 3.3."""

    WHERE: ClassVar = "sparsity."
    epochs: Annotated[Whole, NOT_NEGATIVE, at_most(10**4, "passes through the model and back")] = 2
    """passes over both calibration sets (paper: 2 to 3)"""
    batch: Annotated[Whole, _QUARTERS, at_most(MOST_BATCH)] = 32
    """sequences of one step, a quarter from each of the subsets A', A'', B', B''"""
    supervision: Literal["adaptive", "primary", "dual"] = "adaptive"
    """cross-entropy of the FFN thresholds: the paper's adaptive rule, A only, or both always"""
    distillation_weight: Annotated[float, NOT_NEGATIVE] = 1.0
    """weight of the distillation from the dense model, on both texts"""
    distillation_temperature: Annotated[float, POSITIVE] = 1.0
    """temperature of the distillation"""
    learning_rate: Annotated[float, POSITIVE] = 0.05
    """Adam step size of the thresholds, with cosine decay"""
    penalty: Annotated[float, NOT_NEGATIVE] = 100.0
    """penalty rho of the augmented Lagrangian, for a retention off its target"""
    dual_rate: Annotated[float, NOT_NEGATIVE] = 0.1
    """the multiplier grows by dual_rate * rho * g each step, where g is the retention minus its target"""
    surrogate: Literal["long_tailed", "identity", "sigmoid"] = "long_tailed"
    """straight-through derivative of the step function"""
    bias_compensation: bool = False
    """add the removed units' mean contribution to the bias, as FLAP does (paper: off for GPrune)"""
    attention: Literal["own", "gprune"] = "own"
    """key/value groups of the controls: their own, or GPrune's; the retention is the same"""
    alignment: Annotated[Whole, between(1, 2**16)] = 1
    """FFN widths of every method are multiples of this, for faster hardware kernels (8 to 256; 1 = any)"""
    widths: Literal["free", "equal"] = "free"
    """free: widths can differ between layers; equal: all layers keep the same number of neurons and key/value groups,
    so that the pruned model has the standard architecture of its family"""

    @property
    def equal(self) -> bool:
        """Return True if all layers keep the same number of units."""
        return self.widths == "equal"

    @property
    def width_settings(self) -> dict[str, int | str]:
        """Return the settings of widths that differ from the defaults; they are part of the key of a result."""
        aligned: dict[str, int | str] = {} if self.alignment == 1 else {"alignment": self.alignment}
        return aligned | ({"widths": self.widths} if self.equal else {})


@validate_form
@dataclass(frozen=True, slots=True)
class GateSettings(Form):
    """Gates: a value per unit, learned with the losses, batches and epochs of MSL."""

    WHERE: ClassVar = "gates."
    start: Literal["primary", "mean"] = "primary"
    """initial gates: ranks of the scores on the primary text, or mean ranks on both texts"""
    learning_rate: Annotated[float, POSITIVE] = 0.1
    """Adam step size of the gates, which start between 0 and 1, with cosine decay"""
    temperature: Annotated[float, POSITIVE] = 1.5
    """temperature of the sigmoid that replaces the mask in the backward pass (GRASPrune: 1.5)"""


SCALED = "+scales"
"""suffix of `repair.kind` if scales are learned after the repair"""
TRIED_SCALED = "least_squares_scales"
"""name of the repair that learns scales after least squares"""
EXPERT_REPAIRS = ("own", "none", ROUTER)
"""values of `repair.kind` in studies that prune experts"""
if TYPE_CHECKING:
    RepairKind = str
else:
    _SOLVED = [repair.word for repair in REPAIRS.values() if LEARNED not in repair.needs.values()]
    _SOLVED.remove(TRIED_SCALED)
    _ALONE = ("auto", SCALED[1:], ROUTER)
    RepairKind = Literal[("own", "none", *_SOLVED, *_ALONE, *(kind + SCALED for kind in ("own", *_SOLVED)))]


@validate_form
@dataclass(frozen=True, slots=True)
class ScaleSettings(Form):
    """Learned scales: a factor per kept unit and a bias per output channel, with frozen weights."""

    WHERE: ClassVar = "scales."
    steps: Annotated[Whole, NOT_NEGATIVE, at_most(MOST_STEPS, "steps")] = 128
    """steps of learning after masks and other repairs"""
    batch: Annotated[Whole, between(1, MOST_BATCH)] = 18
    """sequences of one step, the same number from each text"""
    samples: Annotated[Whole, at_least(1), at_most(MOST_COUNT)] = 128
    """sequences of each text that are used, at most calibration.samples"""
    texts: TextsUsed = "both_and_sampled"
    """calibration texts of the training; sampled is text from the dense model, see repair.sampled"""
    learning_rate: Annotated[float, POSITIVE] = 0.01
    """Adam step size of the scales, with cosine decay"""
    bias_rate: Annotated[float, NOT_NEGATIVE] = 0.25
    """step size of the biases as a multiple of that of the scales; 0 keeps them at 0"""
    distillation_weight: Annotated[float, NOT_NEGATIVE] = 1.0
    """weight of the distillation from the dense model"""
    distillation_temperature: Annotated[float, POSITIVE] = 1.0
    """temperature of the distillation"""
    cross_entropy_weight: Annotated[float, NOT_NEGATIVE] = 1.0
    """weight of the cross-entropy of the next token"""
    joint_steps: Annotated[Whole, NOT_NEGATIVE, at_most(MOST_STEPS, "steps")] = 32
    """steps of the method gates_scaled, which learns gates together with scales and biases"""
    joint_rate: Annotated[float, POSITIVE] = 0.02
    """Adam step size of the scales in gates_scaled"""
    gate_rate: Annotated[float, POSITIVE] = 0.05
    """Adam step size of the gates in gates_scaled"""

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the roles of its texts."""
        return roles_of(self.texts)

    def __post_init__(self) -> None:
        """Check that at least one loss has a positive weight."""
        both = self.distillation_weight + self.cross_entropy_weight
        rule = "positive where scales.cross_entropy_weight is 0, or nothing is learned"
        require(both > 0, "scales.distillation_weight", self.distillation_weight, rule)


@validate_form
@dataclass(frozen=True, slots=True)
class RepairSettings(Form):
    """Repair of the kept weights after the masks are decided; the same for every method."""

    WHERE: ClassVar = "repair."
    kind: RepairKind = "own"
    """own: the method's own repair; bias: FLAP's compensation; affine: a scale and a shift of each output channel;
    least_squares: new weights for the kept columns of o_proj and down_proj; auto: the best of several repairs on
    held-out text (section `choice`); scales: a learned factor per kept unit, alone or after another repair (section
    `scales`); router: refitted routers of models without some experts (training as set in section `recovery`)"""
    texts: TextsUsed = "both"
    """calibration texts of the repair; sampled is text from the dense model"""
    sampled: SampledText = "self:"
    """sampled text for repair, scales and recovery"""
    target: Literal["residual_stream", "dense_inputs", "own_inputs"] = "residual_stream"
    """target of the fit: the dense model's residual stream after the block, the output of the dense projection for the
    dense inputs, or its output for the inputs of the pruned model"""
    damping: Annotated[float, NOT_NEGATIVE] = 0.1
    """ridge towards the old weights, relative to the mean diagonal of the inputs' second moments"""

    @property
    def base(self) -> str:
        """Return the kind without learned scales; none if there are only scales."""
        return "none" if self.kind == SCALED[1:] else self.kind.removesuffix(SCALED)

    @property
    def scaled(self) -> bool:
        """Return True if scales are learned after the repair."""
        return self.kind.endswith(SCALED[1:])

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the roles of its texts."""
        return roles_of(self.texts)


@dataclass(frozen=True, slots=True)
class OwnRepair(RepairSettings):
    """The published repair of a method; not validated, because users do not set it."""

    whole: bool = False
    """True if damping is relative to the mean over all inputs of a map, False over the kept inputs"""


@validate_form
@dataclass(frozen=True, slots=True)
class EvaluationSettings(Form):
    """Texts and tasks that the pruned models are measured on."""

    WHERE: ClassVar = "evaluation."
    texts: Annotated[Several[Text], _DIFFERENT] = ()
    """evaluation texts for perplexity, by name or file"""
    preset: Annotated[Text, _LENGTH] = "128"
    """window preset: 128 (the paper's), 2048, or a number of tokens for a custom window"""
    windows: _AtMost = None
    """maximum number of windows per text; null for all"""
    batch: Annotated[Whole, between(1, MOST_BATCH)] = 16
    """windows, or answer choices of a task, of one forward pass; changes speed, not results"""
    tasks: Annotated[Several[Text], _DIFFERENT] = ()
    """tasks: any of lm-eval's (the paper's seven: boolq, piqa, ...), the demo's (demo_...), or own .jsonl files"""
    few_shot: _Shots = None
    """examples before each question; null: the number in the task's definition, which is 0 for the paper's seven"""
    limit: _AtMost = None
    """maximum number of questions per task; null for all"""
    task_folder: Text = ""
    """folder with local rows of tasks, TASK.jsonl (docs/tasks.md); empty reads them from the hub"""
    chat_template: bool = False
    """write the questions of tasks with the tokenizer's chat template, as lm-eval's --apply_chat_template"""
    open_questions: bool = False
    """also ask the questions of multiple-choice tasks without their options"""
    generated_tokens: Annotated[Whole, between(1, forms.MOST_LENGTH)] = 256
    """most tokens of an answer to own prompts and to open questions; a task of lm-eval has its own limit"""
    speed: Literal["none", "auto", "cpu", "gpu"] = "none"
    """measure tokens per second of every method: gpu is the paper's setting, cpu a small one"""

    @property
    def length(self) -> int:
        """Return the tokens of one window."""
        return int(self.preset)

    @property
    def tokens(self) -> int | None:
        """Return the maximum number of measured tokens of a text; None for all."""
        return self.windows * self.length if self.windows else None


LINEAR_MAPS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""the linear maps of a layer"""
_MAPS = Rule(
    f"at least one of {', '.join(LINEAR_MAPS)}, each once",
    lambda names: bool(names) and len(set(names)) == len(names) and set(names) <= set(LINEAR_MAPS),
)


@validate_form
@dataclass(frozen=True, slots=True)
class RecoverySettings(Form):
    """Recovery: low-rank training (LoRA) of every pruned model after its repair; the same for every method.

    It is not part of the paper. Results after recovery are reported separately from results without training. Refitted
    routers (`repair.kind` router) have the steps, batch, learning rate and losses of this section.
    """

    WHERE: ClassVar = "recovery."
    kind: Literal["none", "lora"] = "none"
    """lora trains low-rank updates of the linear maps of every pruned model and merges them into the weights; results
    are reported separately (needs the extra `recovery`)"""
    texts: TextsUsed = "both_and_sampled"
    """calibration texts of the training; sampled is text from the dense model, see repair.sampled"""
    steps: Annotated[Whole, NOT_NEGATIVE, at_most(MOST_STEPS, "steps")] = 100
    """steps of training"""
    batch: Annotated[Whole, between(1, MOST_BATCH)] = 16
    """sequences of one step"""
    learning_rate: Annotated[float, POSITIVE] = 0.003
    """Adam step size of the factors, with cosine decay"""
    rank: Annotated[Whole, at_least(1), at_most(2**12)] = 8
    """rank of the update of each map"""
    alpha: Annotated[float, POSITIVE] = 16.0
    """scale of the updates: they are multiplied by alpha / rank"""
    targets: Annotated[Several[Text], _MAPS] = LINEAR_MAPS
    """linear maps of each layer that are trained"""
    distillation_weight: Annotated[float, NOT_NEGATIVE] = 1.0
    """weight of the distillation from the dense model"""
    distillation_temperature: Annotated[float, POSITIVE] = 1.0
    """temperature of the distillation"""
    cross_entropy_weight: Annotated[float, NOT_NEGATIVE] = 0.0
    """weight of the cross-entropy of the next token; 0 trains on distillation alone"""

    def __post_init__(self) -> None:
        """Check that at least one loss has a positive weight."""
        both = self.distillation_weight + self.cross_entropy_weight
        rule = "positive where recovery.cross_entropy_weight is 0, or nothing is trained"
        require(both > 0, "recovery.distillation_weight", self.distillation_weight, rule)

    def require_installed(self) -> None:
        """Raise SettingsError if recovery is on and the package peft is not installed."""
        if self.kind != "none" and find_spec("peft") is None:
            raise SettingsError(
                f"recovery.kind {self.kind} needs the package peft, which is not installed: run pip install "
                "-r requirements-recovery.txt, or pip install 'gprune-studio[recovery]', or set "
                "recovery.kind none"
            )

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the roles of its texts; empty without recovery."""
        return roles_of(self.texts) if self.kind != "none" else ()


MOST_CANDIDATES = 16
"""maximum number of candidates of the recommended recipe"""
UNREPAIRED, OWN = "none", "own"
"""names of the candidates without a fit: the masks alone, and the method's own repair"""
_KINDS = [repair.word for repair in REPAIRS.values() if FITTED in repair.needs.values()]
_TEXTS = get_args(TextsUsed)


def _has_valid_words(candidates: tuple[str, ...]) -> bool:
    # kind and texts, without the colon
    parts = [word.partition(":")[::2] for word in candidates]
    return bool(candidates) and all(kind in _KINDS and texts in _TEXTS for kind, texts in parts)


@validate_form
@dataclass(frozen=True, slots=True)
class ChoiceSettings(Form):
    """Settings of the selection by `repair.kind` auto and by the recommended recipe."""

    WHERE: ClassVar = "choice."
    check_text: Text = ""
    """text whose perplexity is the criterion; empty: perplexity on held-out sequences of A and B, and divergence from
    the dense model on text sampled from it"""
    sequences: Annotated[Whole, between(2, MOST_COUNT)] = 128
    """held-out sequences per text, of calibration.length tokens, disjoint from the calibration set"""
    fresh: SampledText = "self:#seed=1"
    """sampled text of the criterion; its seed must differ from those of sampled texts to which repairs are fitted"""
    repairs: Annotated[
        Several[Text],
        Rule(
            f"repairs as kind:texts, of the kinds {', '.join(_KINDS)} and the texts {', '.join(_TEXTS)}",
            _has_valid_words,
        ),
        Rule("repairs without duplicates", lambda words: len(set(words)) == len(words)),
    ] = ("least_squares_bias:both", "least_squares:both_and_sampled", f"{TRIED_SCALED}:both_and_sampled")
    """candidate repairs besides none and the method's own, as kind:texts (repair.kind, repair.texts); the recommended
    recipe tries repairs with scales, which need training, for the first masks only"""
    masks: Annotated[
        Several[Text],
        Rule("methods without duplicates", lambda names: bool(names) and len(set(names)) == len(names)),
    ] = ("gprune", "gates", "flap", "wanda_sp_uniform")
    """methods of the candidate masks of the recommended recipe; the first masks without repair are the reference"""


def with_word(settings: RepairSettings, word: str) -> RepairSettings:
    """Return `settings` with the kind and texts of a candidate repair in the form kind:texts."""
    kind, texts = cast(Any, word.split(":"))
    kind = f"least_squares{SCALED}" if kind == TRIED_SCALED else kind
    return replace(settings, kind=kind, texts=texts)
