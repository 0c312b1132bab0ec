"""A device of one's own for the tests of this folder."""

import pytest
import torch
from pretend_device import backend
from pretend_device.tensors import NAME


@pytest.fixture
def gpu():
    """Skips where there can be no pretend device."""
    if backend.fault():
        pytest.skip(backend.fault())


@pytest.fixture
def device(gpu):
    """The pretend device, which the project takes for its GPU."""
    with backend.active():
        yield torch.device(NAME, 0)
