"""Refuse operations that CUDA refuses and a CPU accepts, such as two devices in one operation.

A CPU tensor of no dimensions may take part in most operations, as a number does.
"""

from typing import Any

import torch
from pretend_device import waits
from pretend_device.tensors import NAME, PretendTensor

aten = torch.ops.aten

# copies go between devices
_BETWEEN = {aten.copy_.default, aten._to_copy.default}
# kernels of their own, which do not even take a number from the host
_STRICT = {
    *("index_select", "index_add", "index_add_", "index_copy", "index_copy_", "index_fill_", "gather", "scatter"),
    *("scatter_", "scatter_add", "scatter_add_", "embedding", "cat", "stack", "searchsorted", "bucketize"),
    "segment_reduce",
}
# cuBLAS knows no whole numbers
_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "linear"}


def check(operation: Any, args: tuple, kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> None:
    """Raise the error of CUDA for an operation that it refuses.

    Args:
        operation: operation of torch.
        args: its arguments.
        kwargs: its arguments by name.
        tensors: every tensor among them.

    Raises:
        RuntimeError: with CUDA's words.
    """
    name = operation.overloadpacket.__name__
    _check_generator(args, kwargs)
    if name in _PRODUCTS:
        _check_product(name, tensors)
    if operation in _BETWEEN or not any(isinstance(tensor, PretendTensor) for tensor in tensors):
        return
    indices = sorted({tensor.device.index for tensor in tensors if isinstance(tensor, PretendTensor)})
    if len(indices) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{NAME}:{indices[0]} and {NAME}:{indices[1]}! ({operation})"
        )
    hosts = [tensor for tensor in tensors if not isinstance(tensor, PretendTensor)]
    hosts = [tensor for tensor in hosts if tensor.device.type == "cpu"]
    strict = name in _STRICT or (hosts and any(host is hosts[0] for host in written_tensors(operation, args, kwargs)))
    bad = hosts if strict else [tensor for tensor in hosts if tensor.dim() > 0]
    if operation in waits.BY_INDEX:
        bad = _bad_of_index(args, bad)
    if bad:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{NAME}:0 and cpu! ({operation})"
        )


def written_tensors(operation: Any, args: tuple, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the arguments that an operation writes into, in their order."""
    schema = operation._schema
    if not schema.is_mutable:
        return []
    tensors = []
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            tensors += [value] if isinstance(value, torch.Tensor) else list(value or [])
    return tensors


def _bad_of_index(args: tuple, bad: list[torch.Tensor]) -> list[torch.Tensor]:
    """A tensor of the device may be indexed from the host; one of the host not from the device."""
    if not isinstance(args[0], PretendTensor):
        return [args[0]]
    return [tensor for tensor in bad if not any(tensor is index for index in args[1])]


def _check_generator(args: tuple, kwargs: dict[str, Any]) -> None:
    device = kwargs.get("device")
    kind = torch.device(device).type if device is not None else NAME
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Generator) and value.device.type != kind:
            raise RuntimeError(f"Expected a '{kind}' device type for generator but found '{value.device.type}'")


def _check_product(name: str, tensors: list[torch.Tensor]) -> None:
    types = [tensor.dtype for tensor in tensors if isinstance(tensor, PretendTensor)]
    if not all(dtype.is_floating_point or dtype.is_complex for dtype in types):
        raise RuntimeError(f'"{name}_cuda" not implemented for {tensors[0].dtype}')
