"""Recover a pruned model by distillation from the dense one: train low-rank adapters with Adam.

The weights of both models are frozen; only the adapters of the pruned model's linear maps are trained. Losses,
batches, the dense model's states and checkpoints are shared with sparsity learning. `gprune.models.low_rank` merges
the adapters into the weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gprune.models.decoder import Decoder
from gprune.models.families import Layout
from gprune.models.low_rank import factor_pairs, linear_maps
from gprune.pruning.sparsity.batches import common_ids
from gprune.pruning.sparsity.tuning import COLUMNS, Tuner
from gprune.records import RecoveredWeights, Tokens
from gprune.store.resumption import Resumption
from gprune.study import RecoverySettings
from gprune.system.progress import Progress, silent


def recover(
    decoder: Decoder,
    model: nn.Module,
    method: str,
    texts: Sequence[Tokens],
    settings: RecoverySettings,
    seed: int,
    on_progress: Progress = silent,
    resumption: Resumption | None = None,
) -> RecoveredWeights:
    """Train low-rank changes of the linear maps of a pruned model, and return their factors.

    Args:
        decoder: the dense decoder, which is the teacher; it is not changed.
        model: the pruned model from ``gprune.pruning.surgery.cut``; discard it afterwards, because the adapters stay
            in it.
        method: name of the method that made the model.
        texts: calibration sets with sequences of the same length; all sequences are sampled with equal probability.
        settings: settings of this stage; if memory runs out, a batch is split into portions.
        seed: seed of the factors and of the order of the sequences.
        on_progress: called after every step; may raise to stop.
        resumption: reads and writes checkpoints.

    Raises:
        SettingsError: the layers are offloaded.
        MethodError: not even one sequence fits in memory.
        NumericsError: a loss or a gradient is not finite.
    """
    decoder.require_whole("recovery")
    ids = common_ids(texts)
    adapters = insert_adapters(model, decoder.layout, settings)
    student = Decoder(model, None, decoder.shape, decoder.layout)
    rows = Tuner(decoder, student, adapters, ids, [np.arange(len(ids))], settings, seed, on_progress).run(resumption)
    return RecoveredWeights(
        method=method,
        kind=settings.kind,
        scale=settings.alpha / settings.rank,
        rank=settings.rank,
        maps=adapters.maps,
        sizes=np.array(adapters.sizes),
        numbers=adapters.numbers.cpu().numpy(),
        steps=rows,
        columns=COLUMNS,
    )


_ADAPTER = "recovery"
"""name of the adapters in peft's layers"""


@dataclass(frozen=True, slots=True)
class Adapters:
    """Low-rank factors that are trained next to the frozen weights of a model."""

    maps: tuple[str, ...]
    """names of the adapted linear maps, such as 3.o_proj"""
    sizes: tuple[tuple[int, int], ...]
    """(outputs, inputs) of each map"""
    rank: int
    """number of rows of A and of columns of B"""
    numbers: Tensor
    """flat float32: for each map A, (rank, inputs), then B, (outputs, rank)"""
    gradient: Tensor
    """accumulated gradients of `numbers`"""
    rate_factors: Tensor | None = None
    """None: all numbers have the same learning rate, see `Tunable.rate_factors`"""

    def begin(self, seed: int) -> Tensor:
        """Initialize and return the numbers: A uniform as in LoRA's code, B zero."""
        generator = torch.Generator().manual_seed(seed)
        for (_, inputs), (right, left) in zip(self.sizes, self._pairs(self.numbers), strict=True):
            uniform = torch.rand(right.shape, generator=generator).mul_(2).sub_(1)
            right.copy_(uniform.div_(math.sqrt(inputs)))
            left.zero_()
        return self.numbers

    def applied(self) -> AbstractContextManager[None]:
        """Return an empty context: the adapters are always active in the model."""
        return nullcontext()

    def _pairs(self, numbers: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the views A and B of each map in a tensor of the form of `numbers`."""
        return list(factor_pairs(numbers, self.sizes, self.rank))

    def attach(self, layers: Sequence[Any]) -> None:
        """Make views of `numbers` and `gradient` the weights and gradients of peft's layers, one layer per map."""
        factors = zip(self._pairs(self.numbers), self._pairs(self.gradient), strict=True)
        for layer, (values, slopes) in zip(layers, factors, strict=True):
            # the factors of all layers are on one device; their output moves to the device of the layer
            layer.lora_A[_ADAPTER].register_forward_pre_hook(_move_inputs_to(values[0].device))
            layer.lora_B[_ADAPTER].register_forward_hook(_move_outputs_to(layer.weight.device))
            for part, value, slope in zip((layer.lora_A, layer.lora_B), values, slopes, strict=True):
                part[_ADAPTER].weight = nn.Parameter(value)
                part[_ADAPTER].weight.grad = slope


def _move_inputs_to(device: torch.device) -> Any:
    return lambda _, inputs: (inputs[0].to(device),)


def _move_outputs_to(device: torch.device) -> Any:
    return lambda _, __, output: output.to(device)


def insert_adapters(model: nn.Module, layout: Layout, settings: RecoverySettings) -> Adapters:
    """Insert adapters whose factors are 0 next to the linear maps of a model; requires the package peft."""
    from peft import LoraConfig, inject_adapter_in_model

    maps = linear_maps(model, layout, settings.targets)
    device = next(iter(maps.values())).weight.device
    sizes = tuple((linear.out_features, linear.in_features) for linear in maps.values())
    count = settings.rank * sum(map(sum, sizes))
    rows = (torch.zeros(count, device=device) for _ in range(2))
    adapters = Adapters(tuple(maps), sizes, settings.rank, *rows)
    names_by_module = {id(module): name for name, module in model.named_modules()}
    names = [names_by_module[id(linear)] for linear in maps.values()]
    # peft declares an int, but any number works
    alpha: Any = settings.alpha
    config = LoraConfig(
        r=settings.rank, lora_alpha=alpha, lora_dropout=0.0, bias="none", target_modules=names
    )  # fmt: skip
    # peft's random draws are overwritten below, so this process's random state is left unchanged
    with torch.random.fork_rng(devices=[]):
        inject_adapter_in_model(config, model, _ADAPTER)
    adapters.attach([model.get_submodule(name) for name in names])
    return adapters
