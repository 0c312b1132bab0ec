"""Low-rank factors beside the linear maps of a pruned model, as peft has them, in one row of numbers.

peft puts B A x beside W x and lets both learn (LoRA, Hu et al. 2021). Here every factor is a view of one row
of float32 numbers and every gradient one of a second row, so that what learns, what is saved on the way and
what is left in the end is a single tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gprune.models.families import Layout
from gprune.models.low_rank import linear_maps, pairs
from gprune.study import RecoverySettings

_NAME = "recovery"


@dataclass(frozen=True, slots=True)
class Adapters:
    """What learns beside the frozen weights of a model."""

    maps: tuple[str, ...]
    """linear maps that have one, as 3.o_proj"""
    sizes: tuple[tuple[int, int], ...]
    """outputs and inputs of each"""
    rank: int
    numbers: Tensor
    """float32: of each map A, (rank, inputs), and then B, (outputs, rank)"""
    gradient: Tensor
    """where backward passes add up the gradients of `numbers`"""

    def begin(self, seed: int) -> Tensor:
        """The numbers before the first step: A uniform as LoRA's code draws it, B zero."""
        generator = torch.Generator().manual_seed(seed)
        for (_, inputs), (right, left) in zip(self.sizes, self._pairs(self.numbers), strict=True):
            drawn = torch.rand(right.shape, generator=generator).mul_(2).sub_(1)
            right.copy_(drawn.div_(math.sqrt(inputs)))
            left.zero_()
        return self.numbers

    def _pairs(self, numbers: Tensor) -> list[tuple[Tensor, Tensor]]:
        return list(pairs(numbers, self.sizes, self.rank))

    def enter(self, layers: Sequence[Any]) -> None:
        """Lets peft's layers, one a map, compute with these numbers and add to this gradient."""
        factors = zip(self._pairs(self.numbers), self._pairs(self.gradient), strict=True)
        for layer, (values, slopes) in zip(layers, factors, strict=True):
            for part, value, slope in zip((layer.lora_A, layer.lora_B), values, slopes, strict=True):
                part[_NAME].weight = nn.Parameter(value)
                part[_NAME].weight.grad = slope


def put_beside(model: nn.Module, layout: Layout, settings: RecoverySettings) -> Adapters:
    """Puts factors of zero beside the linear maps of a model, which is changed for good; its weights are not.

    Needs the package peft.
    """
    from peft import LoraConfig, inject_adapter_in_model

    maps = linear_maps(model, layout, settings.targets)
    device = next(iter(maps.values())).weight.device
    sizes = tuple((one.out_features, one.in_features) for one in maps.values())
    count = settings.rank * sum(map(sum, sizes))
    rows = (torch.zeros(count, device=device) for _ in range(2))
    found = Adapters(tuple(maps), sizes, settings.rank, *rows)
    known = {id(module): name for name, module in model.named_modules()}
    names = [known[id(one)] for one in maps.values()]
    # peft divides alpha by the rank, whole or not
    alpha: Any = settings.alpha
    config = LoraConfig(
        r=settings.rank, lora_alpha=alpha, lora_dropout=0.0, bias="none", target_modules=names
    )  # fmt: skip
    # what peft draws is overwritten, and must not move the random numbers of this process
    with torch.random.fork_rng(devices=[]):
        inject_adapter_in_model(config, model, _NAME)
    found.enter([model.get_submodule(name) for name in names])
    return found
