"""Tables of the model families that can be pruned, and of the positions of units in their weights (section 3).

A family is a Hugging Face ``model_type`` with gated FFNs. Masks, ``gprune.pruning.surgery.cut`` and all exports read
these tables. ``tests/models/test_families.py`` compares each family with models of transformers. Needs no torch.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gprune.models.expert_families import COUNTS, EXPERT_FAMILIES, GROUPS, TOP_K, ExpertLayout
from gprune.records import ModelShape, budget
from gprune.records.experts import kept_experts
from gprune.system.errors import ModelError, SettingsError
from gprune.system.safe_parsing import quote

PRUNED_PREFIX = "gprune_"
"""prefix of the model type of a saved pruned model"""

UNITS = {
    "gate_proj": "neurons",
    "up_proj": "neurons",
    "down_proj": "neurons",
    "q_proj": "queries",
    "k_proj": "keys",
    "v_proj": "keys",
    "o_proj": "queries",
    "query_heads": "query_heads",
    "key_heads": "key_heads",
}
"""kind of the units along the axis of each part: neurons, channels of query heads (queries) or of key/value heads
(keys), or whole heads"""


@dataclass(frozen=True, slots=True)
class Slice:
    """Entry of the family table: one module of a layer and the axis of its weight along which units lie."""

    path: str
    """dotted name of the module, relative to a layer"""
    axis: int
    """0: rows of the weight and entries of the bias, or members of a list of modules; 1: columns of the weight"""
    parts: tuple[str, ...]
    """keys of ``UNITS``, in the order in which their units are concatenated along the axis"""
    optional: bool = False
    """True if some models of the family lack the module"""


_DOWN = Slice("mlp.down_proj", 1, ("down_proj",))
_OUT = Slice("self_attn.o_proj", 1, ("o_proj",))
_FFN = (Slice("mlp.gate_proj", 0, ("gate_proj",)), Slice("mlp.up_proj", 0, ("up_proj",)), _DOWN)
_FUSED_FFN = (Slice("mlp.gate_up_proj", 0, ("gate_proj", "up_proj")), _DOWN)
_ATTENTION = (*(Slice(f"self_attn.{name}", 0, (name,)) for name in ("q_proj", "k_proj", "v_proj")), _OUT)
_FUSED_ATTENTION = (Slice("self_attn.qkv_proj", 0, ("q_proj", "k_proj", "v_proj")), _OUT)
_COUNTS = (
    ("mlp.intermediate_size", "neurons"),
    ("self_attn.num_heads", "query_heads"),
    ("self_attn.num_attention_heads", "query_heads"),
    ("self_attn.num_key_value_heads", "key_heads"),
)

_NORMS = ("input_layernorm", "post_attention_layernorm")
_QUERY_KEY_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
_OUTPUT_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm", *_QUERY_KEY_NORMS)
_GLM4_NORMS = (*_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm")
_FOUR_NORMS = (*_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")
_GEMMA3_NORMS = _FOUR_NORMS + _QUERY_KEY_NORMS

_QKV = ("q_proj", "k_proj", "v_proj")
_GATED = ("gate_proj", "up_proj", "down_proj")
_BIASES = {"attention_bias": (*_QKV, "o_proj"), "mlp_bias": _GATED}


@dataclass(frozen=True, slots=True)
class Layout:
    """A family: its label, the names of its parts, and where its units are stored."""

    label: str
    """display name"""
    slices: tuple[Slice, ...] = _FFN + _ATTENTION
    """every module of a layer from which pruning takes rows, columns or members"""
    counts: tuple[tuple[str, str], ...] = _COUNTS
    """paths, relative to a layer, of attributes that hold numbers of units, and the kind of the units"""
    layers: str = "model.layers"
    """path of the list of decoder layers, relative to the model"""
    attention: str = "self_attn"
    """path of the attention module, relative to a layer"""
    feed_forward: str = "mlp"
    """path of the FFN module, relative to a layer"""
    prunes_heads: bool = True
    """True if key/value groups can be pruned; if False, all heads of a layer count as one group that is always kept"""
    free_heads: bool = True
    """True if a stock model of the family may have another number of heads of the same width"""
    gguf: bool = False
    """True if llama.cpp's architecture ``deci`` computes the same as the family"""
    normalised: bool = False
    """True if outputs of attention and FFN are normalised before the residual addition"""
    norms: tuple[str, ...] = _NORMS
    """paths, relative to a layer, of the norms with weights in every model; if empty, the final norm has none either"""
    biases: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _BIASES)
    """projections with biases by the configuration flag that enables them; those under "" always have biases"""
    inner_types: tuple[str, ...] = ()
    """possible model types of the language model inside a multimodal wrapper, whose other parts are not pruned; empty
    if the family is a language model itself"""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """default values of fields that the configuration of the language model may omit"""

    def slice_of(self, part: str) -> Slice:
        """Return the slice that holds a part of ``UNITS``."""
        return next(entry for entry in self.slices if part in entry.parts)

    @property
    def o_proj(self) -> str:
        """Return the path of the attention output projection in a layer."""
        return self.slice_of("o_proj").path

    @property
    def down_proj(self) -> str:
        """Return the path of the down projection in a layer."""
        return self.slice_of("down_proj").path

    @property
    def loaders(self) -> tuple[str, ...]:
        """Return the Auto classes of transformers that load a pruned model; the last loads the dense one."""
        return ("AutoModelForCausalLM", *(("AutoModelForImageTextToText",) if self.inner_types else ()))

    @property
    def layer_lists(self) -> tuple[str, ...]:
        """Return possible names of the list of layers in weight files.

        Versions of multimodal wrappers use different names, and a model that was saved without its head has no prefix
        "model.".
        """
        names = (self.layers, *(("language_model.model.layers", "model.layers") if self.inner_types else ()))
        return tuple(dict.fromkeys(name.removeprefix(start) for name in names for start in ("", "model.")))

    @property
    def pruned_units(self) -> str:
        """Describe the units that are pruned in this family."""
        if self.inner_types:
            return "FFN neurons and key/value groups of the language model, calibrated on text alone"
        if self.prunes_heads:
            return "FFN neurons and key/value groups"
        return "FFN neurons (heads are not pruned: queries and keys are normalised over all of them)"

    @property
    def note(self) -> str:
        """Return a notice to show before a run of the family; empty if there is none."""
        if self.inner_types:
            return (
                f"only the language model of {self.label} is pruned, calibrated on text. The effect on images is not "
                "measured, and all other parts are saved unchanged"
            )
        if self.prunes_heads:
            return ""
        return (
            f"{self.label} normalises queries and keys over all heads of a layer, so its heads are not pruned. Only "
            "FFN neurons are, and a smaller share of them is kept than the retention says"
        )

    def unit_slices(self) -> list[list[Any]]:
        """Return path, axis and units of every slice that pruning narrows, in the format of the modelling file."""
        return [
            [entry.path, entry.axis, [UNITS[part] for part in entry.parts]]
            for entry in self.slices
            if self.prunes_heads or UNITS[entry.parts[0]] == "neurons"
        ]

    def unit_counts(self) -> list[list[str]]:
        """Return path and unit of the attributes that pruning sets, in the format of the modelling file."""
        return [[path, unit] for path, unit in self.counts if self.prunes_heads or unit == "neurons"]


_PER_HEAD_NORMS = tuple(
    Slice(f"self_attn.{name}_layernorm.norms", 0, (part,), optional=True)
    for name, part in (("q", "query_heads"), ("k", "key_heads"))
)
_HEAD_NORMS = (
    Slice("self_attn.q_norm", 0, ("query_heads",), optional=True),
    Slice("self_attn.k_norm", 0, ("key_heads",), optional=True),
)

_WRAPPED = "model.language_model.layers"
TIED = "tie_word_embeddings"
_GEMMA3 = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
}

FAMILIES: dict[str, Layout] = {
    "llama": Layout("LLaMA", gguf=True),
    "mistral": Layout("Mistral", gguf=True),
    "qwen2": Layout("Qwen2", gguf=True, biases={"": _QKV}),
    "qwen3": Layout("Qwen3", norms=_NORMS + _QUERY_KEY_NORMS),
    "gemma": Layout("Gemma", defaults={TIED: True}),
    "olmo": Layout("OLMo", norms=()),
    "smollm3": Layout("SmolLM3", defaults={TIED: True}),
    "ministral": Layout("Ministral"),
    "ministral3": Layout("Ministral 3"),
    "helium": Layout("Helium", free_heads=False, biases={"attention_bias": _QKV, "mlp_bias": _GATED}),
    "seed_oss": Layout(
        "Seed-OSS",
        defaults={"attention_bias": True},
        biases={"attention_bias": _QKV, "attention_out_bias": ("o_proj",), "mlp_bias": _GATED},
    ),
    "ernie4_5": Layout("ERNIE 4.5", defaults={TIED: True}, biases={"use_bias": (*_QKV, "o_proj", *_GATED)}),
    "hunyuan_v1_dense": Layout("Hunyuan", norms=(*_NORMS, "self_attn.query_layernorm", "self_attn.key_layernorm")),
    "exaone4": Layout("EXAONE 4", normalised=True, norms=_OUTPUT_NORMS),
    "granite": Layout("Granite"),
    "gemma2": Layout("Gemma 2", normalised=True, norms=_FOUR_NORMS, defaults={TIED: True}),
    "gemma3_text": Layout("Gemma 3 (text)", normalised=True, norms=_GEMMA3_NORMS, defaults={TIED: True}),
    "cohere": Layout("Cohere", norms=_NORMS[:1], slices=_FFN + _ATTENTION + _HEAD_NORMS, defaults={TIED: True}),
    "cohere2": Layout("Cohere 2", norms=_NORMS[:1], defaults={TIED: True}),
    "stablelm": Layout(
        "StableLM",
        norms=_NORMS[:1],
        free_heads=False,
        slices=_FFN + _ATTENTION + _PER_HEAD_NORMS,
        biases={"use_qkv_bias": _QKV},
    ),
    "glm": Layout(
        "GLM", slices=_FUSED_FFN + _ATTENTION, defaults={"attention_bias": True}, biases={"attention_bias": _QKV}
    ),
    "glm4": Layout(
        "GLM 4",
        norms=_GLM4_NORMS,
        slices=_FUSED_FFN + _ATTENTION,
        normalised=True,
        defaults={"attention_bias": True},
        biases={"attention_bias": _QKV},
    ),
    "phi3": Layout(
        "Phi-3, Phi-4",
        slices=_FUSED_FFN + _FUSED_ATTENTION,
        counts=(*_COUNTS, ("self_attn.config.num_attention_heads", "query_heads")),
    ),
    "olmo2": Layout("OLMo 2", norms=_OUTPUT_NORMS, prunes_heads=False, free_heads=False, normalised=True),
    "olmo3": Layout("OLMo 3", norms=_OUTPUT_NORMS, prunes_heads=False, free_heads=False, normalised=True),
    "gemma3": Layout(
        "Gemma 3",
        norms=_GEMMA3_NORMS,
        layers=_WRAPPED,
        normalised=True,
        inner_types=("gemma3_text",),
        defaults=_GEMMA3 | {TIED: True},
    ),
    "mistral3": Layout("Mistral 3", layers=_WRAPPED, inner_types=("mistral", "ministral3"), defaults={TIED: True}),
    "qwen2_vl": Layout("Qwen2-VL", layers=_WRAPPED, inner_types=("qwen2_vl_text",), biases={"": _QKV}),
    "qwen2_5_vl": Layout("Qwen2.5-VL", layers=_WRAPPED, inner_types=("qwen2_5_vl_text",), biases={"": _QKV}),
}
"""Supported model types."""
NEWER_THAN_4 = ("ministral3", "stablelm")
"""families that transformers 4.57 lacks, or cannot run with a pruned number of heads"""
_WITHOUT_GATE = ("gpt", "opt", "bloom", "phi", "falcon", "starcoder2", "nemotron", "arcee", "mpt", "persimmon")
_EXPERTS = ("moe", "mixtral", "deepseek", "dbrx", "jamba", "llama4", "jetmoe", "minimax", "experts", "gpt_oss")
_LINEAR = ("_next", "qwen3_5", "mamba", "rwkv", "hybrid", "lfm2", "nemotron_h", "recurrent", "zamba", "kimi_linear")


def dense_type(model_type: object) -> str:
    """Return the model type before pruning; a dense type is returned unchanged."""
    return str(model_type).removeprefix(PRUNED_PREFIX)


def dense_layout(model: Any) -> Layout:
    """Return the layout of a dense or pruned model of a supported family."""
    return FAMILIES[dense_type(model.config.model_type)]


def layout_of(model_type: object, name: str) -> Layout:
    """Return the layout of a model type; `name` describes the model in messages.

    Raises ModelError if the type is not supported, or is that of a model that has been pruned already.
    """
    if isinstance(model_type, str) and model_type in FAMILIES:
        return FAMILIES[model_type]
    if str(model_type).startswith(PRUNED_PREFIX):
        raise ModelError(f"{name} has been pruned already (model type {model_type!r}): choose the dense model")
    raise ModelError(
        f"{name} is of model type {quote(model_type)}, which cannot be pruned here{_describe_reason(str(model_type))}: "
        "choose a dense model of a family that `python -m gprune models` lists"
    )


def expert_layout_of(model_type: object, name: str) -> ExpertLayout:
    """Return the layout of a model type; `name` describes the model. Raises ModelError if it is not supported."""
    if isinstance(model_type, str) and model_type in EXPERT_FAMILIES:
        return EXPERT_FAMILIES[model_type]
    kind = "is a dense model" if model_type in FAMILIES else f"is of model type {quote(model_type)}"
    raise ModelError(
        f"{name} {kind}, whose experts cannot be pruned here: choose a model of one of the types "
        f"{', '.join(EXPERT_FAMILIES)}, or methods that prune neurons"
    )


def _describe_reason(model_type: str) -> str:
    if model_type in EXPERT_FAMILIES:
        return " (only studies with methods such as experts_reap prune mixtures of experts)"
    if any(part in model_type for part in _EXPERTS):
        return " (mixtures of experts are not supported)"
    if model_type in _WITHOUT_GATE or model_type.startswith(("gpt", "bloom")):
        return " (FFNs without a gate are not supported)"
    if any(part in model_type for part in _LINEAR):
        return " (linear attention, state-space and recurrent layers are not supported)"
    return ""


def require_prunable(values: Mapping[str, Any], name: str) -> Layout:
    """Return the layout of a model from the `values` of its configuration; `name` describes the model in messages.

    Raises ModelError if its family is not supported, or its configuration has parts that cannot be pruned.
    """
    inner = values.get("text_config")
    inner_type = inner.get("model_type") if isinstance(inner, Mapping) else None
    wrapper = FAMILIES.get(dense_type(values.get("model_type")))
    if inner_type in FAMILIES and (wrapper is None or inner_type not in wrapper.inner_types):
        raise ModelError(
            f"{name} holds a language model of type {inner_type!r} and other parts, a combination that cannot be "
            "pruned here: save the language model in a folder of its own, and choose it"
        )
    layout = layout_of(values.get("model_type"), name)
    if inner_type is not None and layout.inner_types and inner_type not in layout.inner_types:
        raise ModelError(
            f"the language model inside {name} is of type {quote(inner_type)}, which cannot be pruned here: in a "
            f"{layout.label} it must be of type {' or '.join(layout.inner_types)}"
        )
    values = language_values(values)
    for field_name in COUNTS:
        count = values.get(field_name)
        if isinstance(count, int) and count > 1:
            raise ModelError(
                f"{name} is a mixture of experts ({field_name} is {count}), which cannot be pruned here: "
                "choose a dense model"
            )
    return layout


def require_retention(values: Mapping[str, Any], retention: float) -> None:
    """Raise SettingsError if even the smallest pruned model of a configuration exceeds the retention.

    A configuration of an unsupported family is accepted, because `require_prunable` reports it.
    """
    layout = FAMILIES.get(str(values.get("model_type")))
    if layout is None:
        return
    shape = shape_of(values)
    groups, heads = (1, "one key/value group") if layout.prunes_heads else (shape.kv_heads, "all heads")
    lowest = budget.lowest_retention(shape, groups=groups)
    if retention < lowest:
        raise SettingsError(
            f"retention {retention:g} cannot be met: every layer keeps at least one neuron and {heads}. "
            f"Choose a retention of at least {math.ceil(lowest * 1e4) / 1e4}"
        )


def require_expert_retention(values: Mapping[str, Any], retention: float) -> None:
    """Raise SettingsError if the router of a configuration needs more experts than a retention keeps."""
    kept_experts(*expert_counts(values), retention)


def expert_counts(values: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """Return the experts of a mixture, those of a token, the router's groups and those of a token; see `ExpertShape`.

    `values` are those of the configuration of a family of experts.
    """
    defaults = EXPERT_FAMILIES[str(values["model_type"])].defaults

    def size(*names: str) -> int:
        return next((int(source[name]) for source in (values, defaults) for name in names if source.get(name)), 1)

    return size(*COUNTS), size(*TOP_K), size(GROUPS[0]), size(GROUPS[1])


def language_values(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of the language model in a configuration, completed by the family's defaults.

    The model type is still that of the whole model.
    """
    model_type = values.get("model_type")
    layout = FAMILIES.get(dense_type(model_type))
    if layout is None or not layout.inner_types:
        return values if layout is None or not layout.defaults else {**layout.defaults, **values}
    inner = values.get("text_config")
    # early models of some wrappers store these fields outside the language model's section
    inner = inner if isinstance(inner, Mapping) else values
    tied = values.get(TIED, layout.defaults.get(TIED, False))
    return {**layout.defaults, **inner, TIED: tied, "model_type": model_type}


def shape_of(values: Mapping[str, Any]) -> ModelShape:
    """Return the sizes of a model from its configuration.

    If the heads of its family cannot be pruned, all heads of a layer count as one group. Raises KeyError, TypeError or
    ValueError if a size is missing or is not a number.
    """
    values = language_values(values)
    layers, neurons = (int(values[name]) for name in ("num_hidden_layers", "intermediate_size"))
    heads, hidden = int(values["num_attention_heads"]), int(values["hidden_size"])
    groups = int(values.get("num_key_value_heads") or heads)
    width = int(values.get("head_dim") or hidden // heads)
    shape = ModelShape(layers, neurons, heads, groups, width, hidden)
    layout = FAMILIES.get(dense_type(values.get("model_type")))
    return shape if layout is None or layout.prunes_heads else one_group(shape)


def one_group(shape: ModelShape) -> ModelShape:
    """Return the same sizes with all heads of a layer as one key/value group; the number of weights is unchanged."""
    # one wide head per query head of a group, so that queries, keys and values keep their numbers of channels
    return replace(shape, heads=shape.group_size, kv_heads=1, head_width=shape.kv_heads * shape.head_width)
