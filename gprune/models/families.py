"""Answers: which kinds of decoder can be pruned, and what are their parts called?

The structured units of section 3 are found by these names. A family is a Hugging Face ``model_type``. Every
supported one has gated FFNs and separate q, k, v and o projections; a family with other names for these
parts is one more line in ``FAMILIES``.
"""

from dataclasses import dataclass

from gprune.system.errors import ModelError
from gprune.system.safe_parsing import quoted

PRUNED_PREFIX = "gprune_"
"""What the model type of a saved pruned model starts with."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Dotted names of a decoder's parts, seen from the causal language model or from one layer."""

    layers: str = "model.layers"
    """list of decoder layers, from the model"""
    attention: str = "self_attn"
    """attention, from a layer"""
    feed_forward: str = "mlp"
    """FFN, from a layer"""
    gate_proj: str = "mlp.gate_proj"
    """gate projection, from a layer; likewise the ones below"""
    up_proj: str = "mlp.up_proj"
    """up projection"""
    down_proj: str = "mlp.down_proj"
    """down projection"""
    q_proj: str = "self_attn.q_proj"
    """query projection"""
    k_proj: str = "self_attn.k_proj"
    """key projection"""
    v_proj: str = "self_attn.v_proj"
    """value projection"""
    o_proj: str = "self_attn.o_proj"
    """attention output projection"""


FAMILIES: dict[str, Layout] = {
    "llama": Layout(),
    "mistral": Layout(),
    "qwen2": Layout(),
    "qwen3": Layout(),
}
"""Supported model types and the names of their parts."""


def layout_of(model_type: object, name: str) -> Layout:
    """The layout of a model type; ModelError where it is unknown, or that of an already pruned model."""
    word = model_type if isinstance(model_type, str) else ""
    layout = FAMILIES.get(word)
    if layout is not None:
        return layout
    if word.startswith(PRUNED_PREFIX):
        raise ModelError(
            f"{name} has been pruned already (model type {model_type!r}): choose the dense model"
        )
    raise ModelError(
        f"{name} is of model type {quoted(model_type)}, which cannot be pruned here: "
        f"choose a dense model of type {', '.join(FAMILIES)}"
    )
