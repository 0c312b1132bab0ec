"""Merge low-rank changes into the weights of a pruned model.

Each linear map W becomes W + scale B A (LoRA, Hu et al. 2021). The sum is computed in float64 and rounded once, so that
it is the same on every device. If B A is zero, W keeps every bit.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gprune.models.families import Layout
from gprune.records import RecoveredWeights
from gprune.system.errors import ModelError


def linear_maps(model: Any, layout: Layout, targets: Iterable[str]) -> dict[str, nn.Linear]:
    """Return the linear maps of all layers by names such as 3.o_proj; `targets` are projections such as o_proj.

    A fused map with several targets is listed once, under the name of its first target.
    """
    layers, paths = list(model.get_submodule(layout.layers).children()), dict[str, str]()
    for name in targets:
        paths.setdefault(layout.slice_of(name).path, name)
    return {
        f"{number}.{name}": layer.get_submodule(path)
        for number, layer in enumerate(layers)
        for path, name in paths.items()
    }


def factor_pairs(numbers: Tensor, sizes: Iterable[tuple[int, int]], rank: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the factors A, (rank, inputs), and B, (outputs, rank), of every map, as views of the flat `numbers`.

    `numbers` has A and B of each map in turn, `sizes` the number of outputs and of inputs of each map.
    """
    sizes = list(sizes)
    factors = iter(numbers.split([rank * width for outputs, inputs in sizes for width in (inputs, outputs)]))
    for outputs, inputs in sizes:
        yield next(factors).view(rank, inputs), next(factors).view(outputs, rank)


@torch.no_grad()
def merge(model: Any, layout: Layout, recovered: RecoveredWeights) -> None:
    """Add the changes that recovery learned to the linear maps of a model; other weights do not change.

    Raises ModelError if a sum overflows.
    """
    for name, module, (a, b) in _match_maps(model, layout, recovered):
        module.weight = nn.Parameter(_add_product(module.weight, b, a, recovered.scale), requires_grad=False)
        if not module.weight.isfinite().all():
            raise ModelError(
                f"{name} overflows {str(module.weight.dtype).removeprefix('torch.')} when the recovery "
                "weights are added: use bfloat16 or float32, or a smaller recovery.learning_rate"
            )


@contextmanager
def merge_adapters(model: Any, layout: Layout, recovered: RecoveredWeights | None) -> Iterator[None]:
    """Merge the changes that recovery learned while the context is open, then restore the weights.

    If `recovered` is None, nothing is merged.
    """
    if recovered is None:
        yield
        return
    original_weights = {module: module.weight for _, module, _ in _match_maps(model, layout, recovered)}
    merge(model, layout, recovered)
    try:
        yield
    finally:
        for module, weight in original_weights.items():
            module.weight = weight


def _match_maps(
    model: Any, layout: Layout, recovered: RecoveredWeights
) -> list[tuple[str, nn.Linear, tuple[Tensor, Tensor]]]:
    """Return name, linear map and factors (A, B) of every trained map."""
    maps = linear_maps(model, layout, dict.fromkeys(name.partition(".")[2] for name in recovered.maps))
    modules = [maps[name] for name in recovered.maps]
    sizes = [(module.out_features, module.in_features) for module in modules]
    factors = factor_pairs(torch.tensor(recovered.numbers), sizes, recovered.rank)
    return list(zip(recovered.maps, modules, factors, strict=True))


def _add_product(weight: Tensor, b: Tensor, a: Tensor, scale: float) -> Tensor:
    """Return W + scale B A in the number type of the weight W."""
    change = b.to(weight.device, torch.float64) @ a.to(weight.device, torch.float64)
    is_unchanged = change == 0
    # unchanged weights keep their bits, including the sign of a zero
    return torch.where(is_unchanged, weight, change.mul_(scale).add_(weight).to(weight.dtype))
