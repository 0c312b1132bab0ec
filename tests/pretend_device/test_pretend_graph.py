"""Decoding by a captured graph, and a device too small for a batch: the same tokens and results."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from pretend_device import backend, memory, steps, waits
from pretend_device.steps import Size

from gprune.evaluation import speed
from gprune.evaluation.decoding import EagerDecoding, StaticDecoding
from gprune.models import devices
from gprune.models.decoder import Decoder
from gprune.models.export import checkpoint
from gprune.models.tiny import tiny_decoder
from gprune.pruning.calibration import collect
from gprune.pruning.surgery import cut
from gprune.records import PruningMasks
from gprune.study import CalibrationSettings
from gprune.system.errors import SettingsError
from gprune.system.progress import Notice


def prompt(device):
    return torch.from_numpy(steps.tokens(3).ids.astype(np.int64)).to(device)


def decoded_tokens(decoding):
    decoding.prefill()
    decoding.decode()
    return decoding.tokens().cpu()


def test_a_captured_step_writes_the_greedy_tokens(device):
    size = steps.Size(layers=3)
    model = cut(steps.decoder(size, device), steps.masks(size))
    with torch.inference_mode():
        expected = decoded_tokens(EagerDecoding(model, prompt(device), 7))
        captured = StaticDecoding(model, prompt(device), 7, capture=True)
        assert torch.equal(decoded_tokens(captured), expected) and torch.equal(decoded_tokens(captured), expected)


def test_the_graph_of_a_step_waits_for_nothing_and_what_waits_cannot_be_captured(device):
    model = steps.decoder(steps.Size(), device).model
    with torch.inference_mode():
        decoding = StaticDecoding(model, prompt(device), 9, capture=True)
        decoding.prefill()
        decoding.decode()
        with waits.count_waits() as result:
            decoding.prefill()
            decoding.decode()
        assert not result.kinds
        model.lm_head.register_forward_hook(lambda _, __, scores: scores if scores.isfinite().all() else None)
        with pytest.raises(SettingsError, match="cannot be captured as a CUDA graph .*is capturing.*eager"):
            decoded_tokens(StaticDecoding(model, prompt(device), 9, capture=True))


def test_speed_is_measured_in_both_modes_with_the_memory_of_the_device(device):
    size = steps.Size()
    dense = steps.decoder(size, device)
    pruned = cut(dense, steps.masks(size))
    models = {"dense": lambda: dense.model, "cut": lambda: pruned}
    settings = speed.SpeedSettings(2, 8, 4, 2, "float32", str(dense.device))
    rows = {(row.model, row.phase, row.mode): row for row in speed.measure(models, settings)}
    assert {mode for _, _, mode in rows} == {"eager", "graph"}
    assert all(row.memory == "allocated" for row in rows.values())
    for mode in ("eager", "graph"):
        larger, smaller = (rows[name, "decode", mode].peak_bytes for name in models)
        assert larger > smaller > sum(weight.nbytes for weight in pruned.parameters())
    assert speed.describe_device(dense.device).startswith("a pretend GPU, torch ")


SETTINGS = CalibrationSettings(samples=16, length=steps.LENGTH, shards=2, batch=16)


def measured(model, notices, settings=SETTINGS):
    """Statistics, and the most bytes that they held beside the model."""

    def listen(done, total, message):
        if isinstance(message, Notice):
            notices.append(str(message))

    memory.BYTES.peak = stored = memory.BYTES.used
    result = collect(model, steps.tokens(16), settings, listen)
    assert memory.BYTES.used == stored
    return result, memory.BYTES.peak - stored


def test_statistics_halve_their_batch_where_the_device_is_full(device):
    model, notices = steps.decoder(Size(), device), []
    full, needed = measured(model, notices)
    assert not notices and needed > 0
    with backend.active(memory.BYTES.used + needed // 2):
        halved, less = measured(model, notices)
    assert "with 16 sequences of 6 tokens" in notices[0] and "calibration.batch" in notices[0]
    assert less <= needed // 2
    for field in fields(full):
        actual, expected = getattr(full, field.name), getattr(halved, field.name)
        if isinstance(actual, np.ndarray):
            assert np.abs(expected - actual).max() <= 1e-6 * np.abs(actual).max()


def test_where_not_even_one_sequence_fits_the_device_is_named_with_its_sizes(device):
    model = steps.decoder(Size(), device)
    _, needed = measured(model, [], replace(SETTINGS, batch=1))
    with backend.active(memory.BYTES.used + needed - 100):
        assert devices.device_memory(torch.device("pretend", 0)) == (needed - 100, memory.BYTES.total)
        with pytest.raises(SettingsError, match="of 0.0 GiB are free on pretend:0"):
            measured(model, [])


def test_a_checkpoint_is_read_back_on_the_cpu_where_the_device_has_no_room_for_it(device, tmp_path, monkeypatch):
    # wide, so that weights are more than activations
    neurons, hidden = 600, 96
    created = tiny_decoder(layers=2, neurons=neurons, kv_heads=2, vocabulary=64, hidden=hidden)
    model = Decoder.from_model(created.model.to(device))
    neuron_mask = np.arange(2 * neurons).reshape(2, -1) % 2 == 0
    masks = PruningMasks("gprune", neuron_mask, np.ones((2, model.shape.kv_heads), bool), 0.7, 0.7)
    small, compared, compare = cut(model, masks), [], checkpoint.require_same_logits
    size = sum(parameter.nbytes for parameter in small.parameters())

    def noticed(live, loaded, ids):
        compared.append((next(live.parameters()).device.type, next(loaded.parameters()).device.type))
        compare(live, loaded, ids)

    monkeypatch.setattr(checkpoint, "require_same_logits", noticed)
    for name, room_left in (("roomy", 4 * size), ("full", size - 64)):
        with backend.active(memory.BYTES.used + room_left):
            checkpoint.save(small, None, tmp_path / name, masks, source="tiny", fingerprint="0")
    assert compared == [("pretend", "pretend"), ("pretend", "cpu")]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("roomy", "full")]
    assert weights[0] == weights[1]
