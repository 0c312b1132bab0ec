"""Repairs of the weights that stay: what each name of `gprune.records.repairs` does to the model.

A repair is a module of its name with two functions:

    ready(decoder, **inputs) -> Any                  what it knows whatever the masks are; made once a text
    repair(decoder, maps, ready, on_progress)        sets weight and bias of the output maps

It may run the decoder, which says what the pruned model says up to the maps whose `OutputMap.applied` is
entered. Maps come layer by layer, attention first, so that a repair can go from layer to layer.
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
from gprune.models.offloading import execution_device, present
from gprune.records import Array, PrunedModel, Repair
from gprune.system.progress import Progress, silent


@dataclass(slots=True, eq=False)
class OutputMap:
    """A linear map back into the residual stream, of which some columns are kept."""

    name: str
    """o_proj or down_proj"""
    layer: int
    dense: nn.Linear
    """as it is in the dense model"""
    mask: Array
    """(inputs,) bool: columns that stay"""
    weight: torch.Tensor | None = None
    """(outputs, kept columns) repaired, or None if they are those of the dense map"""
    bias: torch.Tensor | None = None
    """(outputs,) repaired, or None if it is that of the dense map"""

    def columns(self, staying: bool = True) -> torch.Tensor:
        """Return the (outputs, columns) dense columns that stay, or those that are removed."""
        with present(self.dense):
            return self.dense.weight.index_select(1, self.index(staying))

    def narrowed(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return weight and bias of the remaining map; none of them is shared with the dense one."""
        bias = self.dense_bias() if self.bias is None else self.bias
        return self.columns() if self.weight is None else self.weight, None if bias is None else bias.clone()

    def dense_bias(self) -> torch.Tensor | None:
        """Return (outputs,) bias of the dense map; None without one."""
        with present(self.dense):
            return None if self.dense.bias is None else self.dense.bias.detach()

    @property
    def device(self) -> torch.device:
        """Return the device on which the map computes."""
        return execution_device(self.dense)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Make the dense map compute what the narrowed one does while open, and restore it afterwards."""
        dense, removed_columns = self.dense, torch.as_tensor(~self.mask, device=self.device)
        wide = None
        if self.weight is not None:
            wide = torch.zeros_like(dense.weight, device=self.device).index_copy_(1, self.index(), self.weight)
        with ExitStack() as undone:
            if wide is not None or self.bias is not None:
                # no call of the module, because that would read offloaded dense weights again
                undone.enter_context(present(dense))
            undone.callback(dense.register_forward_pre_hook(_silence(removed_columns)).remove)
            for name, value in (("weight", wide), ("bias", self.bias)):
                if value is not None:
                    undone.callback(setattr, dense, name, getattr(dense, name))
                    setattr(dense, name, nn.Parameter(value, requires_grad=False))
            yield

    def index(self, staying: bool = True) -> torch.Tensor:
        """Return (columns,) int64 indices of the columns that stay, or of those that are removed."""
        columns = np.flatnonzero(self.mask if staying else ~self.mask)
        return torch.as_tensor(columns, device=self.device)


def prepare_repairs(decoder: Decoder, model: PrunedModel) -> dict[str, Any]:
    """Prepare a model's repairs from the records that they need, by name, independent of the masks.

    Raises ModelError if a record is of another model.
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
    maps = maps_of(decoder, model)
    for repair in model.repairs:
        _repair_module(repair).repair(decoder, maps, repair_inputs[repair.name], on_progress)
    return maps


def maps_of(decoder: Decoder, model: PrunedModel) -> list[OutputMap]:
    """Return both output maps of every layer as in the dense model, o_proj before down_proj."""
    masks, maps = model.masks, []
    for layer in range(decoder.shape.layers):
        channels = np.repeat(masks.heads[layer], decoder.shape.group_channels)
        maps.append(OutputMap("o_proj", layer, decoder.o_proj(layer), channels))
        maps.append(OutputMap("down_proj", layer, decoder.down_proj(layer), masks.ffn[layer]))
    return maps


def _repair_module(repair: Repair) -> Any:
    return import_module(f"{__name__}.{repair.module or repair.name}")


def _silence(removed: torch.Tensor) -> Any:
    def fill(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        # filled, not multiplied: an overflow in a removed unit times 0 would be NaN
        return (inputs[0].masked_fill(removed, 0), *inputs[1:])

    return fill
