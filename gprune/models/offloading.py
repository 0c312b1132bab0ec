"""Place the layers of a model on several GPUs, or leave them in memory or in files, by accelerate's device maps.

Hooks of accelerate move the input of a layer to the layer's device. They read an offloaded weight when its
module is called and drop it afterwards, so the results are those of the model on one device.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gprune.models import devices, identity
from gprune.models.families import Layout
from gprune.system import machine
from gprune.system.limits import WEIGHTS_OF_A_GPU

DeviceMap = Mapping[str, Any] | str
"""a device, ``cpu`` or ``disk`` for each part of a model, or ``auto``"""
_DISK = "disk"


def disk_map(loader: Any, configuration: Any, layout: Layout, device: torch.device) -> dict[str, str]:
    """Map each part of a model: decoder layers to the disk, the rest to a device."""
    with torch.device("meta"):
        # eager attention is used because only the module names matter and every family supports it
        parent: nn.Module = loader.from_config(configuration, attn_implementation="eager")
    # safetensors needs device names, with a number if there are several GPUs
    name = f"{device.type}:{device.index or 0}" if devices.is_gpu(device) else str(device)
    devices_by_module: dict[str, str] = {}
    path = ""
    for step in layout.layers.split("."):
        for child, _ in parent.named_children():
            if child != step:
                devices_by_module[path + child] = name
        parent, path = parent.get_submodule(step), f"{path}{step}."
    return devices_by_module | {path + child: _DISK for child, _ in parent.named_children()}


def needs_several_gpus(folder: Path, device: str, target: torch.device, dtype: Any) -> bool:
    """Return True if the weights in a folder leave the GPU `target` too little room and there are others.

    `device` is the setting, which may name one GPU; `dtype` is ``auto`` or a number type of torch.
    """
    if ":" in device or not devices.is_gpu(target) or devices.count() < 2:
        return False
    size = sum(tensor.bytes for tensor in identity.stored_tensors(folder).values())
    stored_dtype = getattr(torch, identity.number_type(folder) or "float32")
    factor = 1.0 if dtype == "auto" else dtype.itemsize / stored_dtype.itemsize
    return factor * size > WEIGHTS_OF_A_GPU * devices.memory(target)[1]


def memory_limits() -> dict[int | str, int]:
    """Return the bytes that weights may take on each GPU and in the machine's memory; the rest is for passes."""
    gpus = {index: devices.memory(torch.device(devices.GPU, index))[0] for index in range(devices.count())}
    return {device: int(WEIGHTS_OF_A_GPU * size) for device, size in (gpus | {"cpu": machine.memory()[0]}).items()}


def execution_device(module: nn.Module) -> torch.device:
    """Return the device on which a module computes, also if its weights are offloaded."""
    weight = next(module.parameters())
    if not weight.is_meta or not hasattr(module, "_hf_hook"):
        return weight.device
    hook: Any = module._hf_hook
    number = isinstance(hook.execution_device, int)
    return torch.device(devices.GPU, hook.execution_device) if number else torch.device(hook.execution_device)


def present(module: nn.Module) -> AbstractContextManager[None]:
    """Keep a module's own weights in memory while open, if they are otherwise offloaded."""
    offloaded = any(parameter.is_meta for parameter in module.parameters(recurse=False))
    return _resident(module) if offloaded and hasattr(module, "_hf_hook") else nullcontext()


@contextmanager
def _resident(module: nn.Module) -> Iterator[None]:
    from accelerate.utils import align_module_device

    hook: Any = module._hf_hook
    with align_module_device(module):
        # while open, a call of the module neither reads nor drops its weights
        hook.offload = False
        try:
            yield
        finally:
            hook.offload = True


def load_offloaded(module: nn.Module) -> None:
    """Load all offloaded weights of a module to its execution device, and keep them."""
    from accelerate.hooks import remove_hook_from_module

    for part in module.modules():
        if not any(parameter.is_meta for parameter in part.parameters(recurse=False)):
            continue
        with present(part):
            weights = {name: weight.detach().clone() for name, weight in part.named_parameters(recurse=False)}
        remove_hook_from_module(part)
        for name, weight in weights.items():
            part.register_parameter(name, nn.Parameter(weight, requires_grad=False))


def release_hooks(model: nn.Module) -> None:
    """Remove accelerate's hooks from a model whose weights are all on one device."""
    from accelerate.hooks import remove_hook_from_submodules

    if not hasattr(model, "hf_device_map") or len({parameter.device for parameter in model.parameters()}) > 1:
        return
    remove_hook_from_submodules(model)
    del model.hf_device_map
    for part in model.modules():
        # accelerate leaves the forward function of the class on the instance
        part.__dict__.pop("forward", None)
