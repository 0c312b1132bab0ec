"""Find the rows and columns of a live model's weights that belong to its units, by the table of its family.

A projection with a linear map of its own is that map; several projections in one map are some of its rows each.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gprune.models.families import TIED, UNITS, Layout, Slice, one_group
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
        """Return the (rows, inputs) view of the weight."""
        return self.linear.weight[self.rows]

    @property
    def bias(self) -> torch.Tensor | None:
        """Return the (rows,) view of the bias, or None."""
        return None if self.linear.bias is None else self.linear.bias[self.rows]

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map (..., inputs) to (..., rows)."""
        return nn.functional.linear(inputs, self.weight, self.bias)


Projection = nn.Linear | Rows
"""a linear map, or its rows in a fused one"""


def language_config(model: Any) -> Any:
    """Return the configuration of a causal language model, or of the one in a wrapper; None without any."""
    config = getattr(model, "config", None)
    inside = getattr(config, "get_text_config", None)
    return config if inside is None else inside()


def untie_separate_head(model: Any) -> None:
    """Set ``tie_word_embeddings`` to false if the loaded head differs from the embedding."""
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
    """Return the plain linear map of a layer at a path. Raises ModelError if there is none."""
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
    piece = layout.slice_of(part)
    module = linear(layer, piece.path, index)
    return module if len(piece.parts) == 1 else Rows(module, part_ranges(piece, shape)[part])


def common_shape(model: nn.Module, layout: Layout) -> ModelShape:
    """Return the sizes that all layers share. Raises ModelError if they differ, or parts do not fit."""
    layers = list(model.get_submodule(layout.layers).children())
    if not layers:
        raise ModelError("the model has no decoder layers: check num_hidden_layers in its configuration")
    shapes = [_layer_shape(layer, layout, index, len(layers)) for index, layer in enumerate(layers)]
    for index, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ModelError(
                f"layer {index} has {shape.neurons} neurons and {shape.kv_heads} key/value groups, layer 0 "
                f"has {shapes[0].neurons} and {shapes[0].kv_heads}: only equal layers can be pruned, so "
                "choose the dense one"
            )
    return shapes[0] if layout.heads else one_group(shapes[0])


def _layer_shape(layer: nn.Module, layout: Layout, index: int, layers: int) -> ModelShape:
    maps = {piece: linear(layer, piece.path, index) for piece in layout.slices if not piece.optional}
    down, out = (linear(layer, path, index) for path in (layout.down_proj, layout.o_proj))
    head_width = int(layer.get_submodule(layout.attention).head_dim)  # type: ignore[arg-type]
    keys = layout.slice_of("k_proj")
    key_rows = maps[keys].out_features
    if "q_proj" in keys.parts:
        # one map of queries, keys and values
        key_rows = (key_rows - out.in_features) // 2
    shape = ModelShape(
        layers=layers,
        neurons=down.in_features,
        heads=out.in_features // head_width,
        kv_heads=max(key_rows // head_width, 0) or 1,
        head_width=head_width,
        hidden=down.out_features,
    )
    if not key_rows // head_width or shape.heads % shape.kv_heads:
        raise ModelError(f"layer {index} has {shape.heads} query heads for {key_rows // head_width} key/value heads")
    for piece, module in maps.items():
        units = sum(axis_sizes(shape)[UNITS[part]] for part in piece.parts)
        expected = (units, shape.hidden) if piece.axis == 0 else (shape.hidden, units)
        actual, name = tuple(module.weight.shape), piece.path.rpartition(".")[2]
        if actual != expected:
            raise ModelError(f"layer {index}: {name} is {actual}, expected {expected}: the model's parts do not fit")
    return shape
