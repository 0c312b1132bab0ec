"""Silence units of a dense model without changing its weights."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from gprune.models.decoder import Decoder
from gprune.records import Array

Hook = Callable[[torch.nn.Module, tuple[torch.Tensor, ...]], tuple[torch.Tensor, ...]]


@contextmanager
def mask_units(decoder: Decoder, masks: Mapping[int, tuple[Array, Array]]) -> Iterator[None]:
    """Zero the inputs of down_proj and o_proj that belong to removed units while the context is open.

    `masks` has, by layer, (neurons,) and (key/value groups,) bool, True = kept; all units of a layer may be removed.
    """
    with ExitStack() as hooks:
        for layer, (neurons, groups) in masks.items():
            channels = np.repeat(groups, decoder.shape.group_channels)
            for module, mask in ((decoder.down_proj(layer), neurons), (decoder.o_proj(layer), channels)):
                device = decoder.layer_device(layer)
                factor = torch.as_tensor(np.array(mask), dtype=module.weight.dtype, device=device)
                hooks.callback(module.register_forward_pre_hook(_multiply_hook(factor)).remove)
        yield


@contextmanager
def replace_forward(module: torch.nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Replace the forward function of a module while the context is open."""
    # another context may already have replaced the function by an attribute of the instance
    attributes = dict(module.__dict__)
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
        if "forward" in attributes:
            module.forward = attributes["forward"]


def _multiply_hook(factor: torch.Tensor) -> Hook:
    """Return a forward pre-hook that multiplies the first input by `factor`."""

    def multiply(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (inputs[0] * factor, *inputs[1:])

    return multiply
