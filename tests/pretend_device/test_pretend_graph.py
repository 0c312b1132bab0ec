"""Decoding by a captured graph, as on a GPU: the same tokens, and nothing that cannot be captured."""

import numpy as np
import pytest
import torch
from pretend_device import steps, waits

from gprune.evaluation import speed
from gprune.evaluation.decoding import EagerDecoding, StaticDecoding
from gprune.pruning.surgery import cut
from gprune.system.errors import SettingsError


def prompt(device):
    return torch.from_numpy(steps.tokens(3).ids.astype(np.int64)).to(device)


def written(decoding):
    decoding.prefill()
    decoding.decode()
    return decoding.tokens().cpu()


def test_a_captured_step_writes_the_greedy_tokens(device):
    size = steps.Size(layers=3)
    model = cut(steps.decoder(size, device), steps.masks(size))
    with torch.inference_mode():
        expected = written(EagerDecoding(model, prompt(device), 7))
        captured = StaticDecoding(model, prompt(device), 7, capture=True)
        assert torch.equal(written(captured), expected) and torch.equal(written(captured), expected)


def test_the_graph_of_a_step_waits_for_nothing_and_what_waits_cannot_be_captured(device):
    model = steps.decoder(steps.Size(), device).model
    with torch.inference_mode():
        decoding = StaticDecoding(model, prompt(device), 9, capture=True)
        decoding.prefill()
        decoding.decode()
        with waits.counted() as found:
            decoding.prefill()
            decoding.decode()
        assert not found.kinds
        model.lm_head.register_forward_hook(lambda _, __, scores: scores if scores.isfinite().all() else None)
        with pytest.raises(SettingsError, match="cannot be captured as a CUDA graph .*is capturing.*eager"):
            written(StaticDecoding(model, prompt(device), 9, capture=True))


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
    assert speed.where(dense.device).startswith("a pretend GPU, torch ")
