"""Build the model without the experts that masks remove.

A removed expert leaves the fused tensors, the router and the router's biases (``cut_experts``), which equals a router
logit of -inf for it (``mask_experts``). The router selects as many experts per token as before. With
``norm_topk_prob`` false, the sum of the router's weights can therefore rise.
"""

import copy
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from gprune.models import devices
from gprune.models.expert_decoder import ExpertDecoder, mixtures_of, set_expert_count
from gprune.records import Array
from gprune.records.experts import ExpertMasks, RouterWeights
from gprune.system.errors import ModelError


@torch.no_grad()
def cut_experts(decoder: ExpertDecoder, masks: ExpertMasks, routers: RouterWeights | None = None) -> nn.Module:
    """Return the smaller model, a stock transformers model of the same family, device and number type.

    Only tensors of mixtures are copied; all others are shared with the dense model, which is not changed. `routers`
    are the refitted routers, or None to keep the dense model's rows. Raises ModelError if the masks belong to another
    model, or leave fewer experts than a token or a router group needs.
    """
    _require_fitting_masks(decoder, masks)
    hooks = [part._hf_hook for part in decoder.model.modules() if hasattr(part, "_hf_hook")]
    # buffers are copied, because they are replaced below under their old names
    model = copy.deepcopy(decoder.model, {id(part): part for part in (*decoder.model.parameters(), *hooks)})
    for mixture, mask in zip(mixtures_of(model, decoder.layout).values(), masks.experts, strict=True):
        index = torch.as_tensor(np.flatnonzero(mask))
        for owner, name, axis in mixture.expert_tensors():
            tensor = getattr(owner, name)
            rest = tensor.index_select(axis, index.to(tensor.device))
            setattr(owner, name, nn.Parameter(rest, requires_grad=False) if isinstance(tensor, nn.Parameter) else rest)
    set_expert_count(model, decoder.layout, masks.count)
    if routers is not None:
        for layer, mixture in enumerate(mixtures_of(model, decoder.layout).values()):
            router: Any = mixture.router
            router.weight.copy_(torch.tensor(routers.weights[layer]))
            if routers.biases.size:
                router.bias.copy_(torch.tensor(routers.biases[layer]))
    devices.release_hooks(model)
    return model.eval()


class _RemovedLogits(TorchFunctionMode):
    """While active, set the outputs of every linear map at the indices `removed` to -inf."""

    def __init__(self, removed: torch.Tensor) -> None:
        super().__init__()
        self._removed, self._active = removed, ExitStack()

    def start(self, *_: Any) -> None:
        self._active.enter_context(self)

    def stop(self, *_: Any) -> None:
        # does nothing if another hook has failed before `start`
        self._active.close()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is nn.functional.linear:
            result = result.index_fill(-1, self._removed.to(result.device), -torch.inf)
        return result


@contextmanager
def mask_experts(decoder: ExpertDecoder, experts: Array) -> Iterator[None]:
    """Let no router select an expert that is False in (mixtures, experts) masks while the context is open.

    The outputs equal those of `cut_experts`, without a copy of a weight, and mixtures may keep different numbers of
    experts. Raises ModelError if the masks belong to another model, or leave fewer experts than a token or a router
    group needs.
    """
    _require_shape(decoder, experts, "given")
    in_groups, needed = _count_in_groups(decoder, experts)
    if (fewest := int(in_groups.min())) < needed:
        container = "router group" if decoder.shape.groups > 1 else "mixture"
        size = decoder.shape.experts // decoder.shape.groups
        raise ModelError(
            f"a {container} would keep {fewest} of {size} experts, but its router needs {needed}: remove fewer experts"
        )
    with ExitStack() as stack:
        for mixture, mask in zip(decoder.mixtures, experts, strict=True):
            removed = torch.as_tensor(np.flatnonzero(~mask))
            if not len(removed):
                continue
            for owner, name, axis in mixture.expert_tensors():
                tensor = getattr(owner, name)
                # a bias of the router: if it is added to probabilities, it must be -inf as well
                if tensor.numel() == len(mask):
                    rest = tensor.index_fill(axis, removed.to(tensor.device), -torch.inf)
                    stack.callback(setattr, owner, name, tensor)
                    is_parameter = isinstance(tensor, nn.Parameter)
                    setattr(owner, name, nn.Parameter(rest, requires_grad=False) if is_parameter else rest)
            logits = _RemovedLogits(removed)
            # hooks on the router, because in most families its linear map is no module
            stack.callback(mixture.router.register_forward_pre_hook(logits.start).remove)
            stack.callback(mixture.router.register_forward_hook(logits.stop, always_call=True).remove)
        yield


def _require_shape(decoder: ExpertDecoder, experts: Array, method: str) -> None:
    shape = decoder.shape
    if experts.shape != (len(shape.layers), shape.experts):
        raise ModelError(
            f"the {method} masks have the shape {experts.shape}, the model has {len(shape.layers)} "
            f"mixtures of {shape.experts} experts: choose the model for which the masks were made"
        )


def _require_fitting_masks(decoder: ExpertDecoder, masks: ExpertMasks) -> None:
    _require_shape(decoder, masks.experts, masks.method)
    in_groups, needed = _count_in_groups(decoder, masks.experts)
    if in_groups.min() != in_groups.max() or in_groups.min() < needed:
        raise ModelError(
            f"the {masks.method} masks keep {in_groups.min()} to {in_groups.max()} experts in a router group: keep the "
            f"same number in every group, at least {needed}"
        )


def _count_in_groups(decoder: ExpertDecoder, experts: Array) -> tuple[Array, int]:
    """Return the (mixtures, groups) kept experts of every router group, and the number that a group needs."""
    shape = decoder.shape
    needed = max(math.ceil(shape.top_k / shape.top_groups), 2 if shape.groups > 1 else 1)
    return experts.reshape(len(shape.layers), shape.groups, -1).sum(axis=2), needed
