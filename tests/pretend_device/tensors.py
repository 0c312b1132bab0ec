"""Tensors that say they are on a device, and hold their values on the CPU.

Whatever torch does with one of them comes to `dispatch.run_operation`, below autograd, so that graphs, hooks and
gradients are torch's own. What torch answers without asking the dispatcher is answered here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch
from pretend_device import memory, waits

NAME = "pretend"


class PretendTensor(torch.Tensor):
    """A tensor on a pretend device."""

    inner: torch.Tensor
    """the values, on the CPU"""
    hold: memory.StorageHold

    @staticmethod
    def __new__(cls, inner: torch.Tensor, requires_grad: bool | None = None, index: int = 0) -> PretendTensor:
        if requires_grad is not None:
            # accelerate makes a parameter by calling the class of the one that it replaces
            return torch.nn.Parameter(inner, requires_grad)  # type: ignore[return-value]
        created = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=torch.device(NAME, index),
            requires_grad=False,
        )
        created.inner = inner
        created.hold = memory.StorageHold(inner)
        return created

    # functions of torch go straight to the dispatcher, as for a tensor of its own
    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        from pretend_device.dispatch import run_operation

        return run_operation(operation, args, kwargs or {})

    def tolist(self) -> Any:
        waits.noted("tolist")
        return self.detach().inner.tolist()

    def numpy(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )

    __array__ = numpy

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            copied: Any = PretendTensor(self.inner.clone(), index=self.device.index)
            if isinstance(self, torch.nn.Parameter):
                copied = torch.nn.Parameter(copied, self.requires_grad)
            memo[id(self)] = copied
        return memo[id(self)]

    def __repr__(self, **_: Any) -> str:
        return f"pretend({self.inner!r})"

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    # by these two, torch sees that a parameter has to be swapped as a whole when its module moves
    def __tensor_flatten__(self) -> tuple[list[str], int]:
        return ["inner"], self.device.index

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], index: int, *_: Any) -> PretendTensor:
        return PretendTensor(inner["inner"], index=index)


def leaves(values: Any) -> Iterator[Any]:
    """Yield the leaves of nested lists, tuples and dictionaries."""
    if isinstance(values, list | tuple):
        for value in values:
            yield from leaves(value)
    elif isinstance(values, dict):
        for value in values.values():
            yield from leaves(value)
    else:
        yield values


def map_leaves(values: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested lists, tuples and dictionaries with every leaf changed."""
    if isinstance(values, list | tuple):
        return type(values)([map_leaves(value, change) for value in values])
    if isinstance(values, dict):
        return {name: map_leaves(value, change) for name, value in values.items()}
    return change(values)


def unwrapped(values: Any) -> Any:
    """Arguments of an operation with the CPU tensors in place of the pretended ones."""
    return map_leaves(values, lambda value: value.inner if isinstance(value, PretendTensor) else value)


def wrapped(values: Any, index: int) -> Any:
    """Return the results of an operation as tensors on the pretend device of that number."""
    return map_leaves(
        values, lambda value: PretendTensor(value, index=index) if isinstance(value, torch.Tensor) else value
    )
