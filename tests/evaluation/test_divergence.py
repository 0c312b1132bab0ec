"""Divergence from the dense model, against its definition."""

import numpy as np
import pytest
import torch

from gprune.evaluation.perplexity import window_divergences
from gprune.models.tiny import tiny_decoder
from gprune.system.errors import NumericsError

WINDOWS = np.random.default_rng(0).integers(0, 64, (7, 9)).astype(np.int32)


def expected(dense, pruned, windows):
    """Mean over positions of sum p log(p / q), position by position, in float64."""
    divergences = []
    for ids in torch.as_tensor(windows.astype(np.int64)):
        with torch.no_grad():
            p, q = (model(ids[None]).logits[0, :-1].double().softmax(-1) for model in (dense, pruned))
        divergences.append(float((p * (p.log() - q.log())).sum(-1).mean()))
    return divergences


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_it_equals_the_definition_whatever_the_batch_and_the_blocks(batch, monkeypatch):
    dense, pruned = tiny_decoder().model, tiny_decoder(seed=1, neurons=5).model
    monkeypatch.setattr("gprune.evaluation.perplexity._BLOCK_LOGITS", 64 * batch)
    actual = window_divergences(dense, pruned, WINDOWS, batch)
    np.testing.assert_allclose(actual, expected(dense, pruned, WINDOWS), rtol=1e-4)
    assert (actual > 0).all()


def test_a_model_does_not_diverge_from_itself_and_the_direction_matters():
    dense, pruned = tiny_decoder().model, tiny_decoder(seed=1).model
    np.testing.assert_allclose(window_divergences(dense, dense, WINDOWS, 4), 0, atol=1e-7)
    forward, backward = (window_divergences(*pair, WINDOWS, 4) for pair in ((dense, pruned), (pruned, dense)))
    assert not np.allclose(forward, backward)


def test_scores_that_are_no_numbers_are_refused():
    dense, pruned = tiny_decoder().model, tiny_decoder(seed=1).model
    with torch.no_grad():
        pruned.lm_head.weight[0] = float("nan")
    with pytest.raises(NumericsError, match="the divergence from the dense model is not finite"):
        window_divergences(dense, pruned, WINDOWS, 4)
