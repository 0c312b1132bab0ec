"""Repair the kept weights of a pruned model by the methods in `gprune.records.repairs`.

Each repair in that table has a module with two functions:

    ready(decoder, **inputs) -> Any                  prepares inputs that do not depend on the masks
    repair(decoder, maps, ready, on_progress)        sets weight and bias of the output maps

A repair may run the decoder. While `OutputMap.applied` is active for a map, the decoder computes that map as in the
pruned model. Maps are sorted by layer, attention first.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import nn

from gprune.models.decoder import Decoder
from gprune.models.devices import execution_device, keep_present
from gprune.records import Array, PrunedModel, Repair
from gprune.system.progress import Progress, silent


@dataclass(slots=True, eq=False)
class OutputMap:
    """A linear map into the residual stream (o_proj or down_proj) and the mask of its kept columns."""

    name: str
    """o_proj or down_proj"""
    layer: int
    dense: nn.Linear
    """the map in the dense model"""
    mask: Array
    """(inputs,) bool, True for kept columns"""
    weight: torch.Tensor | None = None
    """(outputs, kept columns) repaired weights, or None if unchanged"""
    bias: torch.Tensor | None = None
    """(outputs,) repaired bias, or None if unchanged"""

    def columns(self, removed: bool = False) -> torch.Tensor:
        """Return the (outputs, columns) dense weights of the kept columns, or of the removed columns."""
        with keep_present(self.dense):
            return self.dense.weight.index_select(1, self.index(removed))

    def pruned_parameters(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return weight and bias of the pruned map, which share no memory with the dense map."""
        bias = self.dense_bias() if self.bias is None else self.bias
        return self.columns() if self.weight is None else self.weight, None if bias is None else bias.clone()

    def dense_bias(self) -> torch.Tensor | None:
        """Return the (outputs,) bias of the dense map, or None if it has none."""
        with keep_present(self.dense):
            return None if self.dense.bias is None else self.dense.bias.detach()

    @property
    def device(self) -> torch.device:
        """Return the device on which the map computes."""
        return execution_device(self.dense)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the dense map compute the output of the pruned map while the context is open."""
        dense, removed_columns = self.dense, torch.as_tensor(~self.mask, device=self.device)
        full_weight = None
        if self.weight is not None:
            full_weight = torch.zeros_like(dense.weight, device=self.device).index_copy_(1, self.index(), self.weight)
        with ExitStack() as stack:
            if full_weight is not None or self.bias is not None:
                # keeps a call of the module from loading offloaded dense weights over the weights set below
                stack.enter_context(keep_present(dense))
            stack.callback(dense.register_forward_pre_hook(_zero_inputs(removed_columns)).remove)
            for name, value in (("weight", full_weight), ("bias", self.bias)):
                if value is not None:
                    stack.callback(setattr, dense, name, getattr(dense, name))
                    setattr(dense, name, nn.Parameter(value, requires_grad=False))
            yield

    def index(self, removed: bool = False) -> torch.Tensor:
        """Return (columns,) int64 indices of the kept columns, or of the removed columns."""
        columns = np.flatnonzero(~self.mask if removed else self.mask)
        return torch.as_tensor(columns, device=self.device)


def prepare_repairs(decoder: Decoder, model: PrunedModel) -> dict[str, Any]:
    """Return the prepared inputs of a model's repairs by name; they do not depend on the masks.

    Raises ModelError if a record belongs to another model.
    """
    return {
        repair.name: _repair_module(repair).ready(decoder, **{name: model.inputs[name] for name in repair.needs})
        for repair in model.repairs
    }


@torch.no_grad()
def repaired_maps(
    decoder: Decoder, model: PrunedModel, repair_inputs: Mapping[str, Any], on_progress: Progress = silent
) -> list[OutputMap]:
    """Return both output maps of every layer, repaired; the decoder is not changed."""
    maps = dense_maps(decoder, model)
    for repair in model.repairs:
        _repair_module(repair).repair(decoder, maps, repair_inputs[repair.name], on_progress)
    return maps


def dense_maps(decoder: Decoder, model: PrunedModel) -> list[OutputMap]:
    """Return both output maps of every layer with their masks, before repair; o_proj precedes down_proj."""
    masks, maps = model.masks, []
    for layer in range(decoder.shape.layers):
        channels = np.repeat(masks.heads[layer], decoder.shape.group_channels)
        maps.append(OutputMap("o_proj", layer, decoder.o_proj(layer), channels))
        maps.append(OutputMap("down_proj", layer, decoder.down_proj(layer), masks.ffn[layer]))
    return maps


def _repair_module(repair: Repair) -> Any:
    """Return the module with the functions of a repair."""
    return import_module(f"{__name__}.{repair.module or repair.name}")


def _zero_inputs(removed: torch.Tensor) -> Any:
    """Return a forward pre-hook that sets the inputs of `removed` (inputs,) bool columns to 0."""

    def fill(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        # filled, not multiplied: an overflow in a removed unit times 0 would be NaN
        return (inputs[0].masked_fill(removed, 0), *inputs[1:])

    return fill
