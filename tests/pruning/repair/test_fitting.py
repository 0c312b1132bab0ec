"""Repaired weights equal those of a plain float64 reference that runs the whole model for every map."""

import copy

import numpy as np
import pytest
import torch
from calibration.texts_and_families import add_biases, tokens

from gprune.models.decoder import Decoder
from gprune.models.tiny import tiny_decoder
from gprune.pruning import repair
from gprune.pruning.repair import fitting, least_squares
from gprune.pruning.repair.fitting import fit
from gprune.pruning.surgery import Silenced, cut
from gprune.records import REPAIRS, PrunedModel, PruningMasks
from gprune.study.settings import RepairSettings
from gprune.system.errors import ModelError, NumericsError, SettingsError

KINDS = ("affine", "least_squares", "least_squares_bias")
TARGETS = ("residual_stream", "dense_inputs", "own_inputs")


def decoder_of(family="llama", heads=6, kv_heads=3, **sizes):
    widths = {"layers": 3, "hidden": 12, "neurons": 13, "head_width": 6} | sizes
    return tiny_decoder(family, heads=heads, kv_heads=kv_heads, **widths)


def some_tokens(seed, samples=7, length=9):
    return tokens(samples, length, seed, f"text {seed}")


def some_masks(shape, seed=0, full_layers=()):
    """Some units of every layer, but of the layers that stay whole."""
    rng = np.random.default_rng(seed)
    ffn = rng.random((shape.layers, shape.neurons)) < 0.6
    heads = rng.random((shape.layers, shape.kv_heads)) < 0.5
    ffn[:, 0], heads[:, -1] = True, True
    ffn[list(full_layers)], heads[list(full_layers)] = True, True
    return PruningMasks("test", ffn, heads, 0.5, 0.5)


def settings(kind="least_squares", target="residual_stream", damping=0.1):
    return RepairSettings(kind=kind, target=target, damping=damping)


def listened(decoder, ids):
    """Inputs and outputs of every layer and every output map, of one run of the whole model."""
    values, handles = {}, []
    for layer, module in enumerate(decoder.layers):
        parts = {"layer": module, "o_proj": decoder.o_proj(layer), "down_proj": decoder.down_proj(layer)}
        for name, part in parts.items():

            def hear(_, inputs, keywords, output, key=(layer, name)):
                x = inputs[0] if inputs else keywords["hidden_states"]
                y = output[0] if isinstance(output, tuple) else output
                values[key] = (x.flatten(0, 1), y.flatten(0, 1))

            handles.append(part.register_forward_hook(hear, with_kwargs=True))
    decoder.model(ids)
    for handle in handles:
        handle.remove()
    return values


@torch.no_grad()
def reference(decoder, masks, texts, chosen):
    """Weights with zero columns, and biases, of all maps: by whole runs in float64 and augmented lstsq."""
    dense = Decoder(copy.deepcopy(decoder.model).double(), None, decoder.shape, decoder.layout)
    pruned = Decoder(copy.deepcopy(dense.model), None, decoder.shape, decoder.layout)
    ids = torch.from_numpy(np.concatenate([text.ids for text in texts]).astype(np.int64))
    target = listened(dense, ids)
    channels, fitted = torch.tensor(masks.heads).repeat_interleave(decoder.shape.group_channels, dim=1), []
    for layer in range(decoder.shape.layers):
        for name, stays in (("o_proj", channels[layer]), ("down_proj", torch.tensor(masks.ffn[layer]))):
            part, old = getattr(pruned, name)(layer), getattr(dense, name)(layer)
            part.weight[:, ~stays] = 0
            current = listened(pruned, ids)
            x, y = current[layer, name]
            if chosen.target == "own_inputs":
                missing = old(x) - part(x)
            elif chosen.target == "dense_inputs":
                missing = target[layer, name][1] - y
            elif name == "down_proj":
                missing = target[layer, "layer"][1] - current[layer, "layer"][1]
            else:
                ends = [values[layer, "layer"][0] + values[layer, "o_proj"][1] for values in (target, current)]
                missing = ends[0] - ends[1]
            x = x[:, stays]
            start = torch.zeros(len(part.weight)) if part.bias is None else part.bias
            weight, bias = solved(part.weight[:, stays], start, x, missing, chosen)
            part.weight[:, stays] = weight
            if chosen.kind != "least_squares":
                part.bias = torch.nn.Parameter(bias)
            fitted.append((part.weight[:, stays].clone(), bias))
    return fitted


def solved(weight, bias, x, missing, chosen):
    if chosen.kind == "affine":
        y = x @ weight.T
        spread = y.var(dim=0, correction=0)
        scale = 1 + ((y - y.mean(0)) * missing).mean(0) / (spread + chosen.damping * spread.mean())
        return weight * scale[:, None], bias + (missing - y * (scale - 1)).mean(0)
    centred = chosen.kind == "least_squares_bias"
    rows, rest = (x - x.mean(0), missing - missing.mean(0)) if centred else (x, missing)
    ridge = (chosen.damping * rows.square().sum(0).mean()).sqrt() * torch.eye(x.shape[1])
    rows, rest = torch.cat([rows, ridge]), torch.cat([rest, torch.zeros(x.shape[1], missing.shape[1])])
    change = torch.linalg.lstsq(rows, rest, driver="gelsd").solution
    return weight + change.T, bias + (missing - x @ change).mean(0) if centred else bias


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("family", "heads", "kv_heads", "biased"),
    [("llama", 6, 3, False), ("qwen2", 4, 4, False), ("qwen3", 6, 2, False), ("llama", 6, 6, True)],
)
def test_weights_equal_a_float64_reference(kind, target, family, heads, kv_heads, biased):
    decoder = decoder_of(family, heads, kv_heads)
    decoder = add_biases(decoder, "o_proj", "down_proj") if biased else decoder
    masks, texts, chosen = some_masks(decoder.shape), [some_tokens(1), some_tokens(2, 5)], settings(kind, target)
    torch.set_default_dtype(torch.float64)
    try:
        expected = reference(decoder, masks, texts, chosen)
    finally:
        torch.set_default_dtype(torch.float32)
    actual = fit(decoder, masks, texts, chosen, 4)
    model = repaired_model(masks, kind, actual)
    maps = repair.repaired_maps(decoder, model, repair.prepare_repairs(decoder, model))
    for output, (weight, bias) in zip(maps, expected, strict=True):
        torch.testing.assert_close(output.weight.double(), weight, rtol=1e-3, atol=1e-4 * float(weight.abs().max()))
        if kind != "least_squares":
            torch.testing.assert_close(output.bias.double(), bias, rtol=1e-3, atol=1e-4 * float(bias.abs().max()))
    before, after = actual.errors.T
    assert (after <= before * 1.001).all() and after.sum() < before.sum()


def test_sums_of_pieces_equal_float64_sums(monkeypatch):
    monkeypatch.setattr(least_squares, "CHUNK_TOKENS", 13)
    generator = torch.Generator().manual_seed(4)
    x, missing = torch.randn(100, 7, generator=generator), torch.randn(100, 5, generator=generator)
    moments = least_squares.FitMoments(7, 5, torch.device("cpu"))
    for batch in (slice(0, 31), slice(31, 100)):
        moments.add(x[batch], missing[batch])
    wide, rest = x.double(), missing.double()
    torch.testing.assert_close(moments.square, wide.T @ wide, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(moments.cross, wide.T @ rest, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(moments.energy, rest.square().sum(0), rtol=1e-6, atol=0)
    assert moments.tokens == 100


def repaired_model(masks, kind, weights):
    return PrunedModel(masks, (REPAIRS[kind],), {"weights": weights})


@pytest.mark.parametrize("kind", KINDS)
def test_what_loses_nothing_stays_bit_for_bit(kind):
    decoder, texts = decoder_of(), [some_tokens(1)]
    full = some_masks(decoder.shape, full_layers=range(3))
    unchanged = fit(decoder, full, texts, settings(kind), 4)
    ids = torch.from_numpy(texts[0].ids.astype(np.int64))
    assert torch.equal(cut(decoder, repaired_model(full, kind, unchanged))(ids).logits, decoder.model(ids).logits)
    assert not unchanged.errors.any()
    lowest = some_masks(decoder.shape, full_layers=[0])
    weights = fit(decoder, lowest, texts, settings(kind), 4)
    for end, map_ in zip(weights.ends[:2], repair.dense_maps(decoder, PrunedModel(lowest))[:2], strict=True):
        numbers = weights.numbers[end - map_.dense.weight.numel() : end]
        np.testing.assert_array_equal(numbers, map_.dense.weight.numpy().ravel())
    alone = fit(decoder, lowest, texts, settings(kind, "own_inputs"), 4)
    assert not alone.errors[:2].any() and alone.errors[2:, 0].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_number_types_keep_their_bits(dtype):
    decoder = decoder_of()
    decoder.model.to(dtype)
    masks = some_masks(decoder.shape)
    weights = fit(decoder, masks, [some_tokens(1)], settings("least_squares_bias"), 4)
    model = repaired_model(masks, "least_squares_bias", weights)
    maps = repair.repaired_maps(decoder, model, repair.prepare_repairs(decoder, model))
    assert {output.weight.dtype for output in maps} == {dtype} == {output.bias.dtype for output in maps}
    wide = decoder_of()
    wide.model.load_state_dict(decoder.model.state_dict())
    exact = fit(wide, masks, [some_tokens(1)], settings("least_squares_bias"), 4)
    numbers = torch.cat([output.weight.float().flatten() for output in maps]).numpy()
    assert np.abs(numbers - exact.numbers).max() < 0.1 * np.abs(exact.numbers).max()


def test_tiny_texts_need_damping_and_weights_of_other_masks_are_refused():
    decoder, few = decoder_of(neurons=40), [some_tokens(1, 2, 3)]
    masks = some_masks(decoder.shape)
    with pytest.raises(SettingsError, match=r"^6 tokens do not determine .* columns: set repair.damping \(now 0\)"):
        fit(decoder, masks, few, settings(damping=0), 4)
    weights = fit(decoder, masks, few, settings(), 4)
    assert np.isfinite(weights.numbers).all()
    with pytest.raises(ModelError, match="repaired by least_squares belong to other masks"):
        cut(decoder, repaired_model(some_masks(decoder.shape, 5), "least_squares", weights))
    with torch.no_grad():
        decoder.down_proj(1).weight[0, 0] = torch.nan
    with pytest.raises(NumericsError, match="an activation at .* is not finite"):
        fit(decoder, masks, few, settings(), 4)


def test_weights_that_overflow_the_number_type_are_refused(monkeypatch):
    decoder = decoder_of()
    decoder.model.half()
    monkeypatch.setattr(fitting, "solve", lambda weight, bias, *_: (weight.double() * 1e9, bias, 0.0))
    with pytest.raises(NumericsError, match="repaired weights of o_proj in layer 0 do not fit float16: use"):
        fit(decoder, some_masks(decoder.shape), [some_tokens(1)], settings(), 4)


def test_half_the_batch_is_taken_where_memory_runs_out(monkeypatch):
    decoder, masks, texts = decoder_of(), some_masks(decoder_of().shape), [some_tokens(1, 8)]
    expected, sizes = fit(decoder, masks, texts, settings(), 2), []

    def entered(decoder, tokens, batch, copies, inner=fitting.embed_sequences):
        sizes.append(batch)
        if batch > 2:
            raise torch.OutOfMemoryError("out of memory")
        return inner(decoder, tokens, batch, copies)

    monkeypatch.setattr(fitting, "embed_sequences", entered)
    actual = fit(decoder, masks, texts, settings(), 8)
    assert sizes == [8, 4, 2]
    np.testing.assert_array_equal(actual.numbers, expected.numbers)


@pytest.mark.parametrize("kind", KINDS)
def test_the_silenced_model_says_what_the_cut_one_says(kind):
    decoder, ids = decoder_of(), torch.arange(3, 12)[None]
    masks = some_masks(decoder.shape)
    weights = fit(decoder, masks, [some_tokens(1)], settings(kind), 4)
    model = repaired_model(masks, kind, weights)
    with torch.no_grad(), Silenced(decoder, model).applied():
        silent = decoder.model(ids).logits
    torch.testing.assert_close(silent, cut(decoder, model)(ids).logits, rtol=1e-4, atol=1e-5)
