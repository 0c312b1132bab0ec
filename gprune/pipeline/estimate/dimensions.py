"""The sizes of a model, read from its configuration: what memory and time follow from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gprune.models import identity
from gprune.records import ModelShape
from gprune.system.errors import ModelError

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
"""bytes of a number, by number type"""


@dataclass(frozen=True, slots=True)
class Dimensions:
    """A model's shape, and what lies beside its decoder layers."""

    shape: ModelShape
    """sizes of the decoder layers"""
    vocabulary: int
    """rows of the embeddings and of the LM head"""
    tied: bool
    """whether these two are one matrix"""
    positions: int
    """tokens of a sequence that it can read"""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Dimensions:
        """From the values of a configuration.

        Raises:
            ModelError: a size is missing or is no size.
        """
        try:
            sizes = (int(values[name]) for name in ("num_hidden_layers", "intermediate_size"))
            layers, neurons = sizes
            heads, hidden = int(values["num_attention_heads"]), int(values["hidden_size"])
            groups = int(values.get("num_key_value_heads") or heads)
            width = int(values.get("head_dim") or hidden // heads)
            return cls(
                shape=ModelShape(layers, neurons, heads, groups, width, hidden),
                vocabulary=int(values["vocab_size"]),
                tied=bool(values.get("tie_word_embeddings", False)),
                positions=int(values.get("max_position_embeddings") or 2**20),
            )
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise ModelError(
                f"the model's configuration does not say its sizes ({type(error).__name__}: {error}): "
                "copy the model again"
            ) from error

    @property
    def channels(self) -> int:
        """Inputs of o_proj in a layer."""
        return self.shape.heads * self.shape.head_width

    @property
    def keys(self) -> int:
        """Outputs of k_proj in a layer, and of v_proj."""
        return self.shape.kv_heads * self.shape.head_width

    @property
    def units(self) -> int:
        """Neurons and o_proj channels of all layers."""
        return self.shape.layers * (self.shape.neurons + self.channels)

    @property
    def parameters(self) -> int:
        """Weights of the whole model; biases, which are a ten-thousandth, are left out."""
        tables = (1 if self.tied else 2) * self.vocabulary * self.shape.hidden
        norms = (2 * self.shape.layers + 1) * self.shape.hidden
        return self.shape.decoder_weights + tables + norms


def of_model(name: str) -> Dimensions:
    """The sizes of a model that is on this machine, or of a published one with random weights.

    Args:
        name: ``demo``, a folder, a hub name or ``random:SHAPE``.

    Raises:
        ModelError: it is not here, or its configuration does not say its sizes.
    """
    return Dimensions.of(identity.configuration(identity.locate(name)))
