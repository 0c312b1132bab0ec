"""One operation of torch on its way to the pretend device: refused or counted, then done on the CPU."""

import functools
from contextlib import nullcontext
from typing import Any

import torch
from pretend_device import graphs, refusals, waits
from pretend_device.tensors import NAME, PretendTensor, leaves, unwrapped, wrapped
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


class Dispatch(TorchDispatchMode):
    """Sees every operation, so that tensors can be made on the device."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        return run_operation(operation, args, kwargs or {})


def run_operation(operation: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Run one operation.

    Raises:
        RuntimeError: CUDA would refuse it.
        CaptureError: it waits for the device while a graph is captured.
    """
    supplied = list(leaves((args, kwargs)))
    tensors = [leaf for leaf in supplied if isinstance(leaf, torch.Tensor)]
    actual = [tensor for tensor in tensors if isinstance(tensor, PretendTensor)]
    device = next((leaf for leaf in supplied if isinstance(leaf, torch.device)), None)
    device_type = None if device is None else device.type
    if not actual and device_type != NAME:
        return _on_host(operation, args, kwargs)
    if is_composed(operation):
        # in inference mode nobody else takes it apart
        with Dispatch():
            return operation.decompose(*args, **kwargs)
    refusals.check(operation, args, kwargs, tensors)
    waits.note(operation, args, kwargs, actual)
    plain = _on_cpu(kwargs) if device_type == NAME else kwargs
    inner = unwrapped(args), unwrapped(plain)
    result = operation(*inner[0], **inner[1])
    if device_type not in (None, NAME):
        return result
    graphs.record(operation, inner, result)
    index = (device.index or 0) if device is not None else actual[0].device.index
    return _answer(operation, args, kwargs, result, index)


@functools.cache
def is_composed(operation: Any) -> bool:
    """Return True if an operation is composed of others on every device."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return torch._C._dispatch_has_kernel_for_dispatch_key(operation.name(), key)


def _on_host(operation: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Run an operation on tensors of the host alone; pinned memory is kept by `waits`."""
    if operation is aten._pin_memory.default:
        return waits.pin(args[0])
    if operation is aten.is_pinned.default:
        return waits.pinned(args[0])
    return operation(*args, **kwargs)


def _on_cpu(kwargs: dict[str, Any]) -> dict[str, Any]:
    changed = kwargs | {"device": torch.device("cpu")}
    return changed | {"pin_memory": False} if changed.get("pin_memory") else changed


def _answer(operation: Any, args: tuple, kwargs: dict[str, Any], result: Any, index: int) -> Any:
    """Return the tensors that were written into themselves, or new ones."""
    changed = refusals.written_tensors(operation, args, kwargs)
    for tensor in changed:
        if isinstance(tensor, PretendTensor) and tensor.inner.shape != tensor.shape:
            raise NotImplementedError(f"the pretend device cannot change the shape of a tensor ({operation})")
    returns = operation._schema.returns
    if changed and all(item.alias_info is not None and item.alias_info.is_write for item in returns):
        return None if not returns else changed[0] if len(returns) == 1 else tuple(changed)
    # what is_view at a tensor from outside inference mode is as that tensor is
    is_view = any(item.alias_info is not None for item in returns)
    with torch.inference_mode(False) if is_view and not args[0].is_inference() else nullcontext():
        return wrapped(result, index)
