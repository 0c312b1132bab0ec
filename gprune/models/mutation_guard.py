"""Answers: has code of another package left the model as it was, and how often did it run it?"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from gprune.models.decoder import Decoder
from gprune.system.errors import PluginError

_RECORDING = "transformers.utils.output_capturing"
_RECORDED = "_output_capturing_hooks_installed"


@contextmanager
def watched(decoder: Decoder, who: str) -> Iterator[Any]:
    """Gives the model of a decoder away, counts the tokens that go through it, and looks at it afterwards.

    `who` is whose code it is, which may ask the model for what happens inside it, as by
    ``output_hidden_states``. Raises PluginError where weights, hooks or the mode are not what they were.
    """
    model, before, known = decoder.model, _look(decoder), _recorders(decoder)
    backbone: Any = model.base_model
    counter = backbone.register_forward_hook(_counting(decoder), with_kwargs=True)
    try:
        with torch.random.fork_rng(devices=[]):
            yield model
    finally:
        counter.remove()
        _forget_recorders(decoder, known)
    for part in model.parameters():
        # gradients of frozen weights are left behind by nobody else
        part.grad = None
    changed = [what for what, found in _look(decoder).items() if found != before[what]]
    if changed:
        raise PluginError(
            f"{who} has changed the dense model ({', '.join(changed)}), which every other method uses: work "
            "on a copy, remove hooks, and put back what is switched"
        )


def _counting(decoder: Decoder) -> Any:
    def count(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        ids = named.get("input_ids", arguments[0] if arguments else None)
        if isinstance(ids, torch.Tensor):
            decoder.count_forward(ids.numel())

    return count


def _recorders(decoder: Decoder) -> dict[nn.Module, tuple[set[int], bool]]:
    """Of each module the hooks by which transformers records its outputs, and whether it is marked for them.

    Asked for ``output_hidden_states`` or ``output_attentions`` for the first time, it installs them for good.
    """
    found = {}
    for part in decoder.model.modules():
        hooks = part._forward_hooks.items()
        keys = {key for key, hook in hooks if getattr(hook, "__module__", "") == _RECORDING}
        found[part] = keys, _RECORDED in vars(part)
    return found


def _forget_recorders(decoder: Decoder, known: dict[nn.Module, tuple[set[int], bool]]) -> None:
    """Removes the recording hooks and marks that were not there before."""
    for part, (keys, marked) in _recorders(decoder).items():
        before, was_marked = known.get(part, (set(), False))
        for key in keys - before:
            del part._forward_hooks[key]
        if marked and not was_marked:
            delattr(part, _RECORDED)


def _look(decoder: Decoder) -> dict[str, Any]:
    """What must stay as it is, in words and as something that can be compared."""
    model = decoder.model
    tensors = [*model.named_parameters(), *model.named_buffers()]
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return {
        "its weights": [(name, tuple(tensor.shape), _sum(tensor)) for name, tensor in tensors],
        "its modules": [(name, id(part), type(part).__name__) for name, part in model.named_modules()],
        "its hooks": [len(getattr(part, name)) for part in model.modules() for name in hooks],
        "its mode": [part.training for part in model.modules()],
        "whether its weights are frozen": [part.requires_grad for part in model.parameters()],
    }


@torch.no_grad()
def _sum(tensor: torch.Tensor) -> int:
    """A sum of the bits of a tensor, which a change of any one number changes."""
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    flat = tensor.detach().contiguous().view(-1)
    # a tensor of no dimension has no other view of its bits
    return int(flat.view(bits).sum(dtype=torch.int64)) if flat.numel() else 0
