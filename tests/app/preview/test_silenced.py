"""Silent units say what the cut model says, and leave the dense one as it was."""

import numpy as np
import pytest
import torch
from preview.conftest import random_masks
from pruned_folder import with_biases

from gprune.models.families import FAMILIES
from gprune.models.tiny import tiny_decoder
from gprune.pruning.surgery import Silenced, cut
from gprune.records import PruningMasks
from gprune.system.errors import ModelError


@pytest.mark.parametrize("compensated", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_says_what_the_cut_model_says(family: str, kv_heads: int, compensated: bool) -> None:
    decoder = tiny_decoder(family, kv_heads=kv_heads)
    masks = random_masks(decoder.shape, seed=kv_heads)
    pruned = with_biases(decoder, masks) if compensated else masks
    ids = torch.randint(3, 64, (3, 9), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        dense = decoder.model(ids).logits
        expected = cut(decoder, pruned)(ids).logits
        with Silenced(decoder, pruned).applied():
            actual = decoder.model(ids).logits
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
        assert not torch.allclose(actual, dense, atol=1e-2)
        assert torch.equal(decoder.model(ids).logits, dense)


def test_leaves_the_decoder_as_it_was_when_something_goes_wrong() -> None:
    decoder = tiny_decoder("qwen2")
    before = {name: value.clone() for name, value in decoder.model.state_dict().items()}
    silenced = Silenced(decoder, with_biases(decoder, random_masks(decoder.shape, 0)))
    with pytest.raises(KeyError), silenced.applied():
        assert decoder.down_proj(0).bias is not None
        raise KeyError
    after = decoder.model.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[name], before[name]) for name in before)
    assert not decoder.down_proj(0)._forward_pre_hooks


def test_what_overflows_in_a_removed_unit_reaches_nobody() -> None:
    decoder = tiny_decoder()
    masks = random_masks(decoder.shape, 0)
    removed = int(np.flatnonzero(~masks.ffn[0])[0])
    decoder.up_proj(0).weight[removed] = float("inf")
    with torch.no_grad(), Silenced(decoder, masks).applied():
        assert torch.isfinite(decoder.model(torch.arange(3, 9)[None]).logits).all()


def test_refuses_what_cannot_be_cut() -> None:
    decoder = tiny_decoder()
    shape = decoder.shape
    ffn, heads = np.ones((shape.layers, shape.neurons), bool), np.ones((shape.layers, shape.kv_heads), bool)
    ffn[1] = False
    with pytest.raises(ModelError, match="layer 1 would lose all 12 neurons"):
        Silenced(decoder, PruningMasks("test", ffn, heads, 0.5, 0.5))
    with pytest.raises(ModelError, match="the model has"):
        Silenced(decoder, PruningMasks("test", ffn[:, :-1], heads, 0.5, 0.5))
