"""Access the parts of a decoder by the same names in every model family.

The units and weights of section 3. ``Decoder`` wraps a Hugging Face causal language model of a supported
family and names the parts that the stages need: the projections of a layer, the backbone without LM head,
the norms and directions of neurons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from gprune.models import identity, parts
from gprune.models.devices import execution_device, keep_present
from gprune.models.families import Layout, layout_of
from gprune.models.language_model import LanguageModel
from gprune.models.parts import Projection, module_of
from gprune.records import Array, ModelShape, ModelSize, WeightNorms
from gprune.system.errors import ModelError

# rows of a weight matrix that are converted to float64 at a time: 4 MiB for every 1000 columns
_BLOCK_ROWS = 512
# beginnings of the names of projections, such as q_proj; other matrices have the name of their projection
_PROJECTION_PREFIXES = {"query": "q", "key": "k", "value": "v", "out": "o"}


class Decoder(LanguageModel):
    """A causal language model with its tokenizer and the names of its parts.

    The model is in evaluation mode and its weights are frozen. Create a decoder with ``from_model``.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, shape: ModelShape, layout: Layout) -> None:
        """Store the checked arguments of ``from_model``."""
        super().__init__(model, tokenizer)
        self.shape = shape
        self.layout = layout

    @classmethod
    def from_model(cls, model: nn.Module, tokenizer: Any = None) -> Decoder:
        """Wrap a causal language model after checking that it can be pruned.

        The model is put in evaluation mode and frozen. Raises ModelError if the family is not supported, a layer
        has unsupported parts (fused projections, mixtures of experts), or the layers differ in width.
        """
        model_type = getattr(getattr(model, "config", None), "model_type", None)
        layout = layout_of(model_type, f"the model {type(model).__name__}")
        shape = parts.common_shape(model, layout)
        parts.untie_separate_head(model)
        return cls(model.eval().requires_grad_(False), tokenizer, shape, layout)

    @property
    def size(self) -> ModelSize:
        """Return the counts of parameters and of biases of the dense model."""
        shape = self.shape
        query_biases = shape.group_channels * (self.q_proj(0).bias is not None)
        key_value_biases = shape.head_width * sum(part(0).bias is not None for part in (self.k_proj, self.v_proj))
        neuron_biases = sum(part(0).bias is not None for part in (self.gate_proj, self.up_proj))
        missing_biases = sum(part(0).bias is None for part in (self.o_proj, self.down_proj))
        modules = dict(self.layers[0].named_modules())
        optional = [entry.path for entry in self.layout.slices if entry.optional]
        norms = [modules[path] for path in optional if path in modules]
        # the optional modules are norms with weights for each head, which are removed with a group like its biases
        group_norm_weights = sum(weight.numel() for norm in norms for weight in norm.parameters()) // shape.kv_heads
        return ModelSize(
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            group_biases=query_biases + key_value_biases + group_norm_weights,
            neuron_biases=neuron_biases,
            missing_biases=missing_biases * shape.hidden * shape.layers,
        )

    @property
    def layers(self) -> list[nn.Module]:
        """Return the decoder layers, first to last."""
        return list(self.model.get_submodule(self.layout.layers).children())

    @property
    def final_norm(self) -> nn.Module:
        """Return the norm between the last layer and the LM head."""
        backbone = self.model.get_submodule(self.layout.layers.rpartition(".")[0])
        return backbone.get_submodule("norm")

    def norm_after(self, layer: int) -> nn.Module | None:
        """Return the norm that is applied to an FFN's output before the residual addition; None if there is none."""
        if not self.layout.normalised:
            return None
        names = ("post_feedforward_layernorm", "post_mlp_layernorm")
        return next(getattr(self.layers[layer], name) for name in names if hasattr(self.layers[layer], name))

    @property
    def offloaded(self) -> bool:
        """Return True if weights of layers are offloaded: kept in CPU memory or in files until they are needed."""
        layers = range(self.shape.layers)
        # if the embeddings are on the meta device too, the whole model has no weights and none is offloaded
        return self.device.type != "meta" and any(self.o_proj(layer).weight.is_meta for layer in layers)

    def layer_device(self, layer: int) -> torch.device:
        """Return the device on which a layer computes."""
        return execution_device(self.o_proj(layer))

    def require_whole(self, purpose: str) -> None:
        """Raise SettingsError if weights are offloaded; its message says that `purpose` needs the whole model."""
        if self.offloaded:
            raise identity.offloaded_error(purpose)

    @property
    def residual_scale(self) -> float:
        """Return the factor of the outputs of attention and FFN in the residual addition; 1 for most families."""
        return float(getattr(self.layers[0], "residual_multiplier", 1.0))

    @property
    def dtype(self) -> torch.dtype:
        """Return the number type of the weights."""
        return self.o_proj(0).weight.dtype

    def gate_proj(self, layer: int) -> Projection:
        """Return the gate projection of a layer, weight (neurons, hidden)."""
        return self._projection("gate_proj", layer)

    def up_proj(self, layer: int) -> Projection:
        """Return the up projection of a layer, weight (neurons, hidden)."""
        return self._projection("up_proj", layer)

    def entrance(self, layer: int) -> nn.Linear:
        """Return the module of a layer's FFN whose (..., hidden) input is the FFN's input."""
        return module_of(self.gate_proj(layer))

    def down_proj(self, layer: int) -> nn.Linear:
        """Return the down projection of a layer, weight (hidden, neurons)."""
        return module_of(self._projection("down_proj", layer))

    def q_proj(self, layer: int) -> Projection:
        """Return the query projection of a layer, weight (heads * head_width, hidden)."""
        return self._projection("q_proj", layer)

    def k_proj(self, layer: int) -> Projection:
        """Return the key projection of a layer, weight (kv_heads * head_width, hidden)."""
        return self._projection("k_proj", layer)

    def v_proj(self, layer: int) -> Projection:
        """Return the value projection of a layer, weight (kv_heads * head_width, hidden)."""
        return self._projection("v_proj", layer)

    def o_proj(self, layer: int) -> nn.Linear:
        """Return the attention output projection of a layer, weight (hidden, heads * head_width)."""
        return module_of(self._projection("o_proj", layer))

    def _projection(self, part: str, layer: int) -> Projection:
        return parts.projection(self.layers[layer], self.layout, self.shape, part, layer)

    def matrices(self, layer: int) -> list[tuple[nn.Linear, dict[str, slice]]]:
        """Return the linear maps of a layer from which units are removed, with the rows or columns of each part.

        The parts are keys of ``families.UNITS``; a fused map has several.
        """
        return [
            (parts.linear(self.layers[layer], entry.path, layer), parts.part_ranges(entry, self.shape))
            for entry in self.layout.slices
            if not entry.optional
        ]

    @torch.no_grad()
    def weight_norms(self) -> WeightNorms:
        """Return squared norm and mean absolute value of every column of down_proj and o_proj, in float64."""
        norms: list[Array] = []
        for part in (self.down_proj, self.o_proj):
            squares, absolutes = zip(*(_column_norms(part(layer)) for layer in range(self.shape.layers)), strict=True)
            norms += [np.stack(squares), np.stack(absolutes)]
        return WeightNorms(*norms)

    @torch.no_grad()
    def neuron_parameters(self, layer: int) -> torch.Tensor:
        """Return (neurons, 3 * hidden) float32 weights of a layer, [gate row, up row, down column] (section 3.1).

        Rows have unit length; a neuron whose weights are all zero stays zero.
        """
        gate, up, down = self.gate_proj(layer), self.up_proj(layer), self.down_proj(layer)
        with keep_present(module_of(gate)), keep_present(module_of(up)), keep_present(down):
            weights = gate.weight.float(), up.weight.float(), down.weight.float().T
            return nn.functional.normalize(torch.cat(weights, dim=1), dim=1)

    def matrix(self, layer: int, name: str) -> Array:
        """Return an (out, in) float32 read-only copy of a matrix: gate, up, down, query, key, value or out."""
        part = getattr(self, f"{_PROJECTION_PREFIXES.get(name, name)}_proj")(layer)
        with keep_present(module_of(part)):
            values: Array = part.weight.detach().float().cpu().numpy().copy()
        values.flags.writeable = False
        return values


def require_language_model(model: object) -> None:
    """Raise ModelError if an object cannot be a causal language model of transformers."""
    if not isinstance(model, nn.Module) or not hasattr(model, "get_input_embeddings"):
        raise ModelError(
            f"the model must be a causal language model of transformers (got {type(model).__name__}): load it with "
            "AutoModelForCausalLM.from_pretrained"
        )


def _column_norms(linear: nn.Linear) -> tuple[Array, Array]:
    """Return the sum of squares and the mean of |w| of each column of a (rows, columns) weight."""
    with keep_present(linear):
        weight = linear.weight
        square = torch.zeros(weight.shape[1], dtype=torch.float64, device=weight.device)
        absolute = torch.zeros_like(square)
        for rows in weight.split(_BLOCK_ROWS):
            wide = rows.double()
            square += wide.square().sum(dim=0)
            absolute += wide.abs().sum(dim=0)
    return square.cpu().numpy(), (absolute / weight.shape[0]).cpu().numpy()
