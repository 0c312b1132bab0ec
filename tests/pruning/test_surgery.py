"""The cut model gives the logits of the masked one, whatever the family, the widths and the grouping."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from calibration.texts_and_families import add_biases
from made_records import the_moments
from masking import masked
from pruned_folder import compensating, masks_of
from tiny_family import assert_close

from gprune.models.decoder import Decoder
from gprune.models.export.modeling_gprune import classes_of
from gprune.models.tiny import tiny_decoder
from gprune.pruning.surgery import cut
from gprune.records import PrunedModel, PruningMasks, budget
from gprune.study.settings import LINEAR_MAPS
from gprune.system.errors import ModelError

# (heads, kv_heads): multi-head, grouped, one group beside another, odd number of groups.
GROUPINGS = [(6, 6), (6, 2), (4, 2), (6, 3)]


def decoder_of(family, heads=6, kv_heads=3, **sizes):
    return tiny_decoder(family, layers=3, hidden=12, neurons=13, heads=heads, kv_heads=kv_heads, head_width=6, **sizes)


def random_masks(decoder):
    """Other widths in every layer, at least one unit each, never all of them in the first."""
    return masks_of(decoder, [1 + layer % decoder.shape.kv_heads for layer in range(3)], [3, 8, 13])


def random_statistics(shape, seed=1):
    rng = np.random.default_rng(seed)
    widths = {"ffn": shape.neurons, "attention": shape.heads * shape.head_width}
    inputs = {part: rng.normal(size=(shape.layers, 24, 4, width)) for part, width in widths.items()}
    return the_moments(inputs, [range(5), range(5, 13), range(13, 24)], "text")


def token_ids(*shape):
    return torch.randint(3, 64, shape, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(("heads", "kv_heads"), GROUPINGS)
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("with_biases", [False, True])
def test_cut_equals_masked(family, heads, kv_heads, with_biases):
    decoder = decoder_of(family, heads, kv_heads)
    decoder = add_biases(decoder, *LINEAR_MAPS) if with_biases else decoder
    masks, ids = random_masks(decoder), token_ids(2, 11)
    with masked(decoder, masks):
        expected = decoder.model(ids).logits
    smaller = cut(decoder, masks)
    assert_close(smaller(ids).logits, expected)
    assert type(smaller) is classes_of(family)
    assert not torch.allclose(decoder.model(ids).logits, expected, atol=1e-2)


def test_masked_equals_zeroed_weights_and_masking_whole_layers_is_allowed_and_cutting_them_is_not():
    """An oracle without hooks: removed units contribute nothing if their output columns are zero."""
    decoder, zeroed = decoder_of("llama", 6, 2), decoder_of("llama", 6, 2)
    masks, ids = random_masks(decoder), token_ids(2, 7)
    for layer in range(3):
        zeroed.down_proj(layer).weight.data[:, ~masks.ffn[layer]] = 0
        for group in np.flatnonzero(~masks.heads[layer]):
            zeroed.o_proj(layer).weight.data[:, group * 18 : (group + 1) * 18] = 0
    with masked(decoder, masks):
        assert_close(decoder.model(ids).logits, zeroed.model(ids).logits)
    decoder = decoder_of("llama")
    masks = random_masks(decoder)
    ffn, heads = masks.ffn.copy(), masks.heads.copy()
    ffn[1] = heads[2] = False
    without_neurons, without_groups = replace(masks, ffn=ffn), replace(masks, heads=heads)
    with masked(decoder, without_neurons):
        assert bool(torch.isfinite(decoder.model(token_ids(1, 4)).logits).all())
    with pytest.raises(ModelError, match="layer 1 would lose all 13 neurons"):
        cut(decoder, without_neurons)
    with pytest.raises(ModelError, match="layer 2 would lose all 3 key/value groups"):
        cut(decoder, without_groups)


def test_masks_of_another_model_are_refused():
    decoder = decoder_of("llama")
    masks = PruningMasks("flap", np.ones((3, 12), bool), np.ones((3, 3), bool), 1.0, 1.0)
    message = r"flap masks have the shapes \(3, 12\) .* the model has \(3, 13\) and \(3, 3\)"
    with pytest.raises(ModelError, match=message):
        cut(decoder, masks)
    with pytest.raises(ModelError, match="has been pruned already .* choose the dense model"):
        Decoder.from_model(cut(decoder, random_masks(decoder)))


@pytest.mark.parametrize("with_biases", [False, True])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_bias_compensation_equals_a_loop(family, with_biases):
    """The bias gains the removed columns times their mean input over all tokens."""
    decoder = decoder_of(family, 6, 2)
    decoder = add_biases(decoder, *LINEAR_MAPS) if with_biases else decoder
    masks, statistics = random_masks(decoder), random_statistics(decoder.shape)
    smaller = cut(decoder, compensating(masks, statistics)).model.layers
    weight = statistics.shard_tokens / statistics.shard_tokens.sum()
    for layer in range(3):
        for dense, smaller_map, mean, group in (
            (decoder.down_proj(layer), smaller[layer].mlp.down_proj, statistics.ffn_mean, 1),
            (decoder.o_proj(layer), smaller[layer].self_attn.o_proj, statistics.attention_mean, 18),
        ):
            mask = masks.ffn[layer] if group == 1 else masks.heads[layer]
            expected = dense.bias.double().numpy().copy() if dense.bias is not None else np.zeros(12)
            for column in range(dense.in_features):
                if not mask[column // group]:
                    average = sum(weight[shard] * mean[shard, layer, column] for shard in range(3))
                    expected += dense.weight[:, column].double().numpy() * average
            np.testing.assert_allclose(smaller_map.bias.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_dense_model_stays_and_shares_only_what_is_not_cut():
    decoder = decoder_of("llama")
    masks, ids = random_masks(decoder), token_ids(1, 5)
    before = decoder.model(ids).logits
    smaller = cut(decoder, masks)
    for name, parameter in smaller.named_parameters():
        stored = parameter.untyped_storage().nbytes()
        assert stored == parameter.numel() * parameter.element_size()
        shared = parameter.data_ptr() == decoder.model.get_parameter(name).data_ptr()
        assert shared == ("proj" not in name)
        assert not parameter.requires_grad
    for layer in smaller.model.layers:
        layer.mlp.down_proj.weight.zero_()
    smaller.config.use_cache = False
    assert decoder.model.config.use_cache
    assert torch.equal(decoder.model(ids).logits, before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    decoder = decoder_of("llama", dtype=dtype)
    masks, ids = random_masks(decoder), token_ids(2, 6)
    with masked(decoder, masks):
        expected = decoder.model(ids).logits
    smaller = cut(decoder, masks)
    assert_close(smaller(ids).logits, expected, 1e-2)
    biased = cut(decoder, compensating(masks, random_statistics(decoder.shape)))
    assert {parameter.dtype for parameter in biased.parameters()} == {dtype}


@pytest.mark.parametrize(
    ("family", "switch"),
    [("llama", ""), ("qwen2", ""), ("qwen3", ""), ("cohere", "use_qk_norm"), ("stablelm", "qk_layernorm")],
)
@pytest.mark.parametrize("compensated", [False, True])
def test_parameters_are_counted_as_the_cut_model_has_them(family, switch, compensated):
    sizes = {"layers": 3, "hidden": 48, "neurons": 13, "heads": 6, "kv_heads": 2, "head_width": 8, "seed": 3}
    # norms of single heads leave with their group
    decoder = tiny_decoder(family, **sizes, **({switch: True} if switch else {}))
    shape, random = decoder.shape, np.random.default_rng(0)
    ffn, heads = random.random((3, 13)) < 0.6, np.array([[True, False], [True, True], [False, True]])
    masks = PruningMasks("gprune", ffn, heads, budget.retention(shape, ffn, heads), 0.6)
    pruned = compensating(masks, random_statistics(shape)) if compensated else PrunedModel(masks)
    parameters = sum(parameter.numel() for parameter in cut(decoder, pruned).parameters())
    assert pruned.parameters(shape, decoder.size) == parameters
