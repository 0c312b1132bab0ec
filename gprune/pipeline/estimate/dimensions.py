"""The sizes of a model, read from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gprune.models import identity
from gprune.models.expert_families import EXPERT_FAMILIES
from gprune.models.families import FAMILIES, expert_counts, language_values, shape_of
from gprune.records import ModelShape

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
"""bytes of a number, by number type"""
_EXPERT_PARTS = (".experts.", ".block_sparse_moe.", ".mlp.gate.", ".router.")
"""parts of the names of the weights of experts and routers"""


@dataclass(frozen=True, slots=True)
class Dimensions:
    """A model's shape, and the weights outside its decoder layers."""

    shape: ModelShape
    """sizes of the decoder layers"""
    vocabulary: int
    """rows of the embeddings and of the LM head"""
    tied: bool
    """True if embeddings and LM head share one matrix"""
    positions: int
    """longest sequence, in tokens"""
    note: str = ""
    """a warning about its family to display before a run; may be empty"""
    other_weights: int = 0
    """weights outside the language model, such as those for images; for a mixture of experts, the difference from the
    weights in its files"""
    expert_weights: int = 0
    """weights of experts and routers; 0 for a dense model"""
    experts: int = 0
    """experts of a mixture; 0 for a dense model"""
    router_weights: int = 0
    """weights of the routers, an upper bound; 0 for a dense model"""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Dimensions:
        """Return the sizes in `values`, the contents of a model's config.json.

        Raises KeyError, TypeError or ValueError if one is missing or not a number.
        """
        values, layout = language_values(values), FAMILIES.get(str(values.get("model_type")))
        return cls(
            shape_of(values),
            vocabulary=int(values["vocab_size"]),
            tied=bool(values.get("tie_word_embeddings", False)),
            positions=int(values.get("max_position_embeddings") or 2**20),
            note=layout.note if layout else "",
        )

    @property
    def channels(self) -> int:
        """Return the number of inputs of o_proj in a layer."""
        return self.shape.heads * self.shape.head_width

    @property
    def keys(self) -> int:
        """Return the number of outputs of k_proj in a layer, which equals that of v_proj."""
        return self.shape.kv_heads * self.shape.head_width

    @property
    def units(self) -> int:
        """Return the number of neurons and o_proj channels of all layers."""
        return self.shape.layers * (self.shape.neurons + self.channels)

    @property
    def outer_weights(self) -> int:
        """Return the number of weights outside the decoder layers: embeddings, LM head, norms, other parts."""
        # each norm, two per layer and the final one, has as many weights as a row of the embeddings
        rows = (1 if self.tied else 2) * self.vocabulary + 2 * self.shape.layers + 1
        return rows * self.shape.hidden + self.other_weights

    @property
    def parameters(self) -> int:
        """Return the number of weights without biases; biases add about 0.01%."""
        return self.shape.decoder_weights + self.outer_weights


def of_model(name: str) -> Dimensions:
    """Return the sizes of a local model, or of a published shape with random weights.

    Raises ModelError if the model is not on this machine. For a configuration without sizes see `Dimensions.of`.
    """
    folder = identity.locate(name)
    values = identity.configuration(folder)
    if values.get("model_type") in EXPERT_FAMILIES:
        return _of_mixture(folder, values)
    dimensions, layout = Dimensions.of(values), FAMILIES.get(str(values.get("model_type")))
    if layout is None or not layout.inner_types:
        return dimensions
    # its files also contain parts outside the language model, such as an image encoder
    weights = sum(tensor.numbers for tensor in identity.parameter_tensors(folder))
    return replace(dimensions, other_weights=max(weights - dimensions.parameters, 0))


def _of_mixture(folder: Path, values: Mapping[str, Any]) -> Dimensions:
    """Return the sizes of a mixture-of-experts model, whose number of weights is that of its files."""
    dense, (experts, top_k, *_) = Dimensions.of(values), expert_counts(values)
    width = int(values.get("moe_intermediate_size") or values["intermediate_size"])
    # each expert of a token has its own copy of the hidden state
    active = top_k * (width + dense.shape.hidden)
    names = {name: tensor.numbers for name, tensor in identity.stored_tensors(folder).items()}
    expert_weights = sum(size for name, size in names.items() if any(part in name for part in _EXPERT_PARTS))
    # an upper bound for the routers, because some layers can be dense
    routers, shape = dense.shape.layers * experts * dense.shape.hidden, dense.shape
    shape = replace(shape, neurons=max(active, shape.neurons))
    dimensions = replace(dense, shape=shape, expert_weights=expert_weights, experts=experts, router_weights=routers)
    weights = sum(tensor.numbers for tensor in identity.parameter_tensors(folder))
    return replace(dimensions, other_weights=weights - dimensions.parameters)
