"""Errors on the way back, which torch would lose on a device that is written in Python.

While an error leaves a backward pass, torch asks the device's guard for its kind. Python refuses to answer
with an error at hand, and the process ends. So the guard takes the error away, and it is raised again behind
the backward pass.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

_pending: list[BaseException] = []
# asked once while nothing is wrong: what is asked with an error at hand must not have to be looked for
_raise_pending = ctypes.pythonapi.PyErr_Occurred
_raise_pending()


def guard() -> Any:
    """Return a device guard that names its kind of device even while an error is set."""

    class Guard(torch._C._acc.DeviceGuard):
        def type_(self) -> Any:
            try:
                # raises the error that is at hand, if one is
                _raise_pending()
            except BaseException as error:
                _pending.append(error)
            return torch._C._autograd.DeviceType.PrivateUse1

    return Guard()


@contextmanager
def reraise_pending() -> Iterator[None]:
    """Raise the errors that the guard took from a backward pass, while the context is open."""
    original = torch.autograd._engine_run_backward

    def run(*args: Any, **kwargs: Any) -> Any:
        _pending.clear()
        try:
            return original(*args, **kwargs)
        except SystemError:
            if not _pending:
                raise
        raise _pending.pop(0)

    with mock.patch.object(torch.autograd, "_engine_run_backward", run):
        yield
