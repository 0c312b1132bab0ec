"""Find the linear maps of a loaded model, and the rows or columns of each projection, by the table of its family.

A projection such as q_proj is a linear map, or a range of rows of a fused map that stacks several projections.
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
    """A projection stored as a range of rows of a fused linear map."""

    linear: nn.Linear
    """the fused map"""
    rows: slice
    """range of its outputs that belong to the projection"""

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
"""a separate linear map, or rows of a fused one"""


def language_config(model: Any) -> Any:
    """Return the configuration of a model's language model, which may be inside a wrapper; None if it has none."""
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
    """Return the linear map that holds the weights of a projection."""
    return part.linear if isinstance(part, Rows) else part


def linear(layer: nn.Module, path: str, index: int) -> nn.Linear:
    """Return the plain linear map of a layer at a dotted path. Raises ModelError if there is none."""
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
    """Return the number of rows or columns that a dense layer has for each kind of unit in ``UNITS``."""
    queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    heads = {"query_heads": shape.heads, "key_heads": shape.kv_heads}
    return {"neurons": shape.neurons, "queries": queries, "keys": keys, **heads}


def part_ranges(entry: Slice, shape: ModelShape) -> dict[str, slice]:
    """Return the range of rows or columns of each projection in a module, by its key in ``UNITS``.

    `entry` describes the module in the family table; a module that is not fused has one projection. `shape` is the
    shape of the dense model.
    """
    ranges, start, sizes = {}, 0, axis_sizes(shape)
    for part in entry.parts:
        ranges[part] = slice(start, start + sizes[UNITS[part]])
        start += sizes[UNITS[part]]
    return ranges


def projection(layer: nn.Module, layout: Layout, shape: ModelShape, part: str, index: int) -> Projection:
    """Return a projection of a layer by its key in ``UNITS``; errors name the layer by its `index`."""
    entry = layout.slice_of(part)
    module = linear(layer, entry.path, index)
    return module if len(entry.parts) == 1 else Rows(module, part_ranges(entry, shape)[part])


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
                f"has {shapes[0].neurons} and {shapes[0].kv_heads}: only models with equal layers can be pruned, so "
                "choose the dense model"
            )
    return shapes[0] if layout.prunes_heads else one_group(shapes[0])


def _layer_shape(layer: nn.Module, layout: Layout, index: int, layers: int) -> ModelShape:
    maps = {entry: linear(layer, entry.path, index) for entry in layout.slices if not entry.optional}
    down, out = (linear(layer, path, index) for path in (layout.down_proj, layout.o_proj))
    head_width = int(layer.get_submodule(layout.attention).head_dim)  # type: ignore[arg-type]
    keys = layout.slice_of("k_proj")
    key_rows = maps[keys].out_features
    if "q_proj" in keys.parts:
        # the fused map has as many rows for keys as for values, and the queries have as many as o_proj has inputs
        key_rows = (key_rows - out.in_features) // 2
    shape = ModelShape(
        layers=layers,
        neurons=down.in_features,
        heads=out.in_features // head_width,
        # a shape needs at least one group; the number is checked below
        kv_heads=max(key_rows // head_width, 0) or 1,
        head_width=head_width,
        hidden=down.out_features,
    )
    if not key_rows // head_width or shape.heads % shape.kv_heads:
        raise ModelError(f"layer {index} has {shape.heads} query heads for {key_rows // head_width} key/value heads")
    for entry, module in maps.items():
        units = sum(axis_sizes(shape)[UNITS[part]] for part in entry.parts)
        expected = (units, shape.hidden) if entry.axis == 0 else (shape.hidden, units)
        actual, name = tuple(module.weight.shape), entry.path.rpartition(".")[2]
        if actual != expected:
            raise ModelError(f"layer {index}: {name} has shape {actual}, but the other maps require {expected}")
    return shape
