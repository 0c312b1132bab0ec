"""Find the rows and columns of a live model's weights that belong to its units, by the table of its family.

A projection with a linear map of its own is that map; several projections in one map are some of its rows each.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gprune.models.families import TIED, UNITS, Layout, Slice, shape_of
from gprune.records import ModelShape
from gprune.system.errors import ModelError


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some rows of a fused linear map, used as a map of their own."""

    linear: nn.Linear
    """the whole map"""
    rows: slice
    """which of its outputs"""

    @property
    def weight(self) -> torch.Tensor:
        """(rows, inputs) view of the weight."""
        return self.linear.weight[self.rows]

    @property
    def bias(self) -> torch.Tensor | None:
        """(rows,) view of the bias, where there is one."""
        return None if self.linear.bias is None else self.linear.bias[self.rows]

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """(..., rows) of (..., inputs)."""
        return nn.functional.linear(inputs, self.weight, self.bias)


Projection = nn.Linear | Rows
"""a linear map, or what stands for it in one with others"""


def language_config(model: Any) -> Any:
    """Return the configuration of a causal language model, or of the one in a wrapper; None without any."""
    config = getattr(model, "config", None)
    inside = getattr(config, "get_text_config", None)
    return config if inside is None else inside()


def untie_separate_head(model: Any) -> None:
    """Set ``tie_word_embeddings`` to false where a head was loaded that differs from the embedding."""
    tables = model.get_output_embeddings(), model.get_input_embeddings()
    weights = [table.weight for table in tables if hasattr(table, "weight")]
    if not getattr(model.config, TIED, False) or len(weights) < 2 or any(weight.is_meta for weight in weights):
        return
    head, embedding = weights
    if head is not embedding and not torch.equal(head, embedding.to(head.device)):
        setattr(model.config, TIED, False)


def module_of(part: Projection) -> nn.Linear:
    """Return the module that has the weights of a projection."""
    return part.linear if isinstance(part, Rows) else part


def linear(layer: nn.Module, path: str, index: int) -> nn.Linear:
    """Return the plain linear map of a layer at a path; ModelError where there is none."""
    try:
        module = layer.get_submodule(path)
    except AttributeError as error:
        raise ModelError(
            f"layer {index} has no {path}: other fused projections, FFNs without a gate and mixtures of "
            "experts cannot be pruned here"
        ) from error
    if not isinstance(module, nn.Linear):
        raise ModelError(
            f"layer {index} has a {type(module).__name__} as {path}, not a plain linear map: "
            "load the model unquantized and without adapters"
        )
    return module


def axis_sizes(shape: ModelShape) -> dict[str, int]:
    """Return the length of an axis of a dense layer for each kind of unit in ``UNITS``."""
    queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    heads = {"query_heads": shape.heads, "key_heads": shape.kv_heads}
    return {"neurons": shape.neurons, "queries": queries, "keys": keys, **heads}


def part_ranges(piece: Slice, shape: ModelShape) -> dict[str, slice]:
    """Return the rows or columns of each part of a slice."""
    ranges, start, sizes = {}, 0, axis_sizes(shape)
    for part in piece.parts:
        ranges[part] = slice(start, start + sizes[UNITS[part]])
        start += sizes[UNITS[part]]
    return ranges


def projection(layer: nn.Module, layout: Layout, shape: ModelShape, part: str, index: int) -> Projection:
    """Return a projection of a layer by its key in ``UNITS``."""
    piece = next(piece for piece in layout.slices if part in piece.parts)
    module = linear(layer, piece.path, index)
    return module if len(piece.parts) == 1 else Rows(module, part_ranges(piece, shape)[part])


def common_shape(model: Any, layout: Layout) -> ModelShape:
    """Return the sizes that all layers share, by the configuration; ModelError where a linear map has another size."""
    shape = shape_of(model.config.to_dict())
    sizes = axis_sizes(shape)
    for index, layer in enumerate(model.get_submodule(layout.layers).children()):
        for piece in layout.slices:
            if piece.optional:
                continue
            units = sum(sizes[UNITS[part]] for part in piece.parts)
            expected = (units, shape.hidden) if piece.axis == 0 else (shape.hidden, units)
            actual = tuple(linear(layer, piece.path, index).weight.shape)
            if actual != expected:
                raise ModelError(
                    f"layer {index}: {piece.path} is {actual}, and the configuration says {expected}: only a dense "
                    "model with equal layers can be pruned, choose it"
                )
    return shape
