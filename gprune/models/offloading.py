"""Run a model that does not fit into memory: its layers stay in their files.

accelerate's hooks read each weight when its module is called and drop it afterwards, so the results are
those of the whole model. Passes forwards can be made so; what changes or copies weights cannot.
"""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from gprune.models import devices
from gprune.models.families import Layout

_DISK = "disk"


def device_map(loader: Any, configuration: Any, layout: Layout, place: torch.device) -> dict[str, str]:
    """Map each part of a model: decoder layers to the disk, the rest to a device."""
    with torch.device("meta"):
        # only the names of its parts matter, and this attention is everywhere
        parent: nn.Module = loader.from_config(configuration, attn_implementation="eager")
    # safetensors knows devices by name, and of several GPUs only with a number
    device = f"{place.type}:{place.index or 0}" if devices.is_gpu(place) else str(place)
    mapped: dict[str, str] = {}
    path = ""
    for step in layout.layers.split("."):
        for name, _ in parent.named_children():
            if name != step:
                mapped[path + name] = device
        parent, path = parent.get_submodule(step), f"{path}{step}."
    return mapped | {path + name: _DISK for name, _ in parent.named_children()}


@contextmanager
def workspace() -> Iterator[str]:
    """Yield a folder that accelerate demands; it writes nothing there, as it reads safetensors where they are."""
    logger = logging.getLogger("accelerate.big_modeling")
    # accelerate warns of offloading, which the study asks for
    before, logger.disabled = logger.disabled, True
    try:
        with tempfile.TemporaryDirectory(prefix="gprune-offload-") as folder:
            yield folder
    finally:
        logger.disabled = before


def present(module: nn.Module) -> AbstractContextManager[None]:
    """Keep a module's own weights in memory while open, where they are otherwise in their files."""
    if not any(parameter.is_meta for parameter in module.parameters(recurse=False)):
        return nullcontext()
    from accelerate.utils import align_module_device

    return align_module_device(module)
