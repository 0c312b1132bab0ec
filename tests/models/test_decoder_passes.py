"""How many tokens have gone through a decoder, forward and backward."""

import numpy as np
import pytest
import torch

from gprune.models.tiny import tiny_decoder
from gprune.pruning.calibration import collect, sequential
from gprune.records import Tokens
from gprune.study import CalibrationSettings


def tokens(samples=7, length=6):
    ids = np.random.default_rng(0).integers(0, 64, (samples, length)).astype(np.int32)
    return Tokens("t", "f", ids, samples)


def counts(decoder):
    return decoder.forward_tokens, decoder.backward_tokens


def test_hidden_states_count_every_token():
    decoder = tiny_decoder()
    assert counts(decoder) == (0, 0)
    decoder.hidden_states(torch.zeros(3, 5, dtype=torch.int64))
    decoder.hidden_states(torch.zeros(1, 4, dtype=torch.int64))
    assert counts(decoder) == (19, 0)
    decoder.count_backward(15)
    decoder.count_forward(2)
    assert counts(decoder) == (21, 15)


def test_a_pass_that_fails_is_not_counted():
    decoder = tiny_decoder()

    def fail(*_):
        raise RuntimeError("stopped")

    decoder.down_proj(1).register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="stopped"):
        decoder.hidden_states(torch.zeros(3, 5, dtype=torch.int64))
    assert counts(decoder) == (0, 0)


@pytest.mark.parametrize("batch", [2, 7, 16])
def test_activation_statistics_take_one_forward_pass(batch):
    decoder = tiny_decoder()
    collect(decoder, tokens(), CalibrationSettings(samples=7, length=6, shards=2, batch=batch))
    assert counts(decoder) == (42, 0)


@pytest.mark.parametrize("batch", [2, 7, 16])
def test_layer_by_layer_pruning_counts_as_one_forward_pass(batch):
    decoder = tiny_decoder(layers=3)

    def keep_all(*_):
        return np.ones(12, bool), np.ones(4, bool)

    sequential.walk(decoder, tokens(), batch, keep_all)
    assert counts(decoder) == (42, 0)
