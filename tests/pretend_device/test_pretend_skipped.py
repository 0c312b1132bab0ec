"""Where no device can be had, the tests of the pretend device are skipped with the reason."""

import torch
from pretend_device import backend
from torch.utils import backend_registration


def test_a_torch_that_cannot_register_a_device_is_named(monkeypatch):
    monkeypatch.delattr(backend_registration, "_setup_privateuseone_for_python_backend")
    found = backend.hindrance.__wrapped__()
    assert found.startswith(f"torch {torch.__version__.partition('+')[0]}")
    assert "cannot have a device that is written in Python (" in found


def test_gradients_that_cannot_flow_are_named(gpu, monkeypatch):
    def late(*_, **__):
        raise RuntimeError("the engine counted no device")

    monkeypatch.setattr(torch.Tensor, "backward", late)
    found = backend.fault.__wrapped__()
    assert found.startswith("gradients do not flow on the pretend device")
    assert found.endswith("(the engine counted no device)")
