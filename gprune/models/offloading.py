"""Answers: how is a model run that does not fit into memory? Its layers stay in their files.

accelerate's hooks read each weight when its module is called and drop it afterwards, so the results are
those of the whole model. Passes forwards can be made so; what changes or copies weights cannot.
"""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gprune.models import devices
from gprune.models.families import Layout

_DISK = "disk"


def device_map(loader: Any, configuration: Any, layout: Layout, place: torch.device) -> dict[str, str]:
    """Where each part of a model goes: its decoder layers stay on disk, the rest goes to a device."""
    with torch.device("meta"):
        # only the names of its parts matter, and this attention is everywhere
        parent: nn.Module = loader.from_config(configuration, attn_implementation="eager")
    # safetensors knows devices by name, and of several GPUs only with a number
    device = f"{place.type}:{place.index or 0}" if devices.is_gpu(place) else str(place)
    places: dict[str, str] = {}
    path = ""
    for step in layout.layers.split("."):
        for name, _ in parent.named_children():
            if name != step:
                places[path + name] = device
        parent, path = parent.get_submodule(step), f"{path}{step}."
    return places | {path + name: _DISK for name, _ in parent.named_children()}


@contextmanager
def workspace() -> Iterator[str]:
    """A folder for what the library wants to write; with safetensors it reads the files where they are."""
    logger = logging.getLogger("accelerate.big_modeling")
    # it would warn of what was asked for
    before, logger.disabled = logger.disabled, True
    try:
        yield from _emptied()
    finally:
        logger.disabled = before


def _emptied() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="gprune-offload-") as folder:
        yield folder
        if left := next(Path(folder).iterdir(), None):
            # it would be gone when the model is called
            raise AssertionError(f"the library has written {left.name} in place of reading the model's files")


def present(module: nn.Module) -> AbstractContextManager[None]:
    """Keeps a module's own weights in memory while open, where they are otherwise in their files."""
    if not any(parameter.is_meta for parameter in module.parameters(recurse=False)):
        return nullcontext()
    from accelerate.utils import align_module_device

    return align_module_device(module)


def bring(module: nn.Module) -> None:
    """Reads all weights of a module that wait in their files, where it computes, and keeps them."""
    for part in module.modules():
        if not any(parameter.is_meta for parameter in part.parameters(recurse=False)):
            continue
        with present(part):
            read = {name: one.detach().clone() for name, one in part.named_parameters(recurse=False)}
        _release_hook(part)
        for name, weights in read.items():
            part.register_parameter(name, nn.Parameter(weights, requires_grad=False))


def release_hooks(model: nn.Module) -> None:
    """Takes the library's hooks off a model all of whose weights are in memory."""
    for part in model.modules():
        _release_hook(part)


def _release_hook(module: nn.Module) -> None:
    if not hasattr(module, "_hf_hook"):
        return
    from accelerate.hooks import remove_hook_from_module

    remove_hook_from_module(module)
