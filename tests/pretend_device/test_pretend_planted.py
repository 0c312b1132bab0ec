"""Mistakes that nobody notices on a CPU, planted in the project's own code: each of them is found."""

import numpy as np
import pytest
import torch
from pretend_device import steps
from pretend_device.steps import Size, waits_of

from gprune.calibration.accumulators import ChannelMoments
from gprune.calibration.context_statistics import GroupMoments
from gprune.models.decoder import Decoder
from gprune.sparsity.gate import MaskGate
from gprune.sparsity.masks import MaskFamily


def planted(monkeypatch, owner, name, mistake):
    """Has a method followed by a mistake, which is given what the method gave and its arguments."""
    original = getattr(owner, name)

    def spoilt(self, *arguments):
        return mistake(original(self, *arguments), self, *arguments)

    monkeypatch.setattr(owner, name, spoilt)


def test_a_tensor_of_the_host_added_to_one_of_the_device(device, monkeypatch):
    def add(_, moments, layer, inputs):
        moments.shift[layer] += torch.zeros(inputs.shape[-1])

    planted(monkeypatch, ChannelMoments, "add", add)
    steps.statistics(steps.decoder(Size(), torch.device("cpu")), Size())
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        waits_of(steps.statistics, device, Size())


def test_an_array_of_a_tensor_of_the_device(device, monkeypatch):
    planted(monkeypatch, Decoder, "neuron_parameters", lambda rows, *_: torch.from_numpy(rows.numpy()))
    steps.clustering(steps.decoder(Size(), torch.device("cpu")), Size())
    with pytest.raises(TypeError, match="can't convert pretend:0 device type tensor to numpy"):
        waits_of(steps.clustering, device, Size())


def test_a_generator_of_the_host_for_numbers_of_the_device(device, monkeypatch):
    def noise(pending, moments, layer, shards, inputs, members):
        generator = torch.Generator().manual_seed(0)
        moments.mean += torch.rand(moments.mean.shape, generator=generator, device=inputs.device) * 0
        return pending

    planted(monkeypatch, GroupMoments, "prepare", noise)
    steps.context_moments(steps.decoder(Size(), torch.device("cpu")), Size())
    with pytest.raises(RuntimeError, match="Expected a 'pretend' device type for generator but found 'cpu'"):
        waits_of(steps.context_moments, device, Size())


def test_a_mask_left_on_the_host(device, monkeypatch):
    def left(_, gate, *__):
        gate.channels = [channels.detach().cpu().requires_grad_() for channels in gate.channels]

    planted(monkeypatch, MaskGate, "open", left)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        waits_of(steps.sparsity_learning, device, Size())


def test_a_number_read_for_every_neuron(device, monkeypatch):
    before = waits_of(steps.sparsity_learning, device, Size()).count

    def one_by_one(gradient, *_):
        return torch.stack([value * float(value > -np.inf) for value in gradient.flatten()]).view_as(gradient)

    planted(monkeypatch, MaskFamily, "threshold_gradient", one_by_one)
    assert waits_of(steps.sparsity_learning, device, Size()).count > 10 * before
