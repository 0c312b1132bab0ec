"""Tables of measured speed, and the arithmetic of widths beside the models that it speaks of."""

import math
from typing import Any

import numpy as np
import pytest
from pruned_folder import compensating, masks_of, save, small_decoder

from gprune.analysis import speed
from gprune.data import published
from gprune.models.export import padded
from gprune.models.families import FAMILIES
from gprune.records import ModelShape, ModelSize, PrunedModel, PruningMasks


def a_row(model: str, phase: str, **changes: Any) -> dict[str, Any]:
    values = {
        "model": model,
        "parameters": 1000,
        "phase": phase,
        "mode": "eager",
        "tokens_per_second": 20.0,
        "spread": 4.0,
        "ratio": 1.25,
        "ratio_spread": 0.5,
        "peak_bytes": 3 * 2**20,
        "memory": "allocated",
        "seconds": [],
    }
    return values | changes


def test_phases_whiskers_and_ratios():
    rows = [a_row(model, phase) for model in ("dense", "gprune") for phase in ("prefill", "decode", "whole")]
    table = speed.speed_table(rows, "decode")
    assert table["model"].tolist() == ["dense", "gprune"] and table["MiB"].tolist() == [3.0, 3.0]
    assert list(speed.speed_table(rows[:1], "decode").columns) == list(table.columns)
    seconds = np.array([1.0, 2.0, 4.0, 5.0, 8.0])
    (line,) = speed.speed_table(
        [a_row("dense", "decode", tokens_per_second=np.median(100 / seconds), seconds=list(seconds))],
        "decode",
    ).to_dict("records")
    assert (line["low"], line["tokens/s"], line["high"]) == pytest.approx((20.0, 25.0, 50.0))
    rows = [a_row("gprune", "decode"), a_row("gprune", "decode", mode="graph", ratio=9.0)]
    assert speed.ratio_of(rows, "gprune") == (1.25, 0.5)
    assert all(math.isnan(value) for value in speed.ratio_of(rows, "flap"))


@pytest.mark.parametrize("seconds", [[], [0.0, 1.0]])
def test_without_usable_repetitions_the_width_is_halved_to_both_sides(seconds):
    (line,) = speed.speed_table([a_row("dense", "decode", seconds=seconds)], "decode").to_dict("records")
    assert (line["low"], line["high"]) == (18.0, 22.0)


def test_the_published_table_is_the_papers():
    table = speed.published_speed()
    figures = published.table("speed")
    assert table["tokens/s"].tolist() == [figure.values["tokens_per_second"] for figure in figures]
    dense = table["method"].tolist().index("dense")
    np.testing.assert_allclose(table["ratio"], table["tokens/s"] / table["tokens/s"][dense])
    assert table["ratio"].drop(dense).min() > 1.5, "the paper: all gain more than 50 %"


@pytest.mark.parametrize(
    ("kept", "divisor"), [([8, 16, 24], 8), ([8, 16, 27], 8), ([27, 27, 27], 27), ([13, 14, 26], 1)]
)
def test_full_layers_do_not_count_for_the_common_divisor(kept, divisor):
    shape = ModelShape(layers=3, neurons=27, heads=2, kv_heads=2, head_width=4, hidden=8)
    assert speed.pruned_multiple(speed.widths(masks(shape, kept, [1, 2, 1])), shape) == divisor


def masks(shape: ModelShape, neurons: list[int], groups: list[int]) -> PruningMasks:
    ffn = np.arange(shape.neurons) < np.array(neurons)[:, None]
    return PruningMasks("gprune", ffn, np.arange(shape.kv_heads) < np.array(groups)[:, None], 0.5, 0.5)


@pytest.mark.parametrize("compensated", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_cost_of_padding_is_that_of_the_padded_model(family, compensated, tmp_path):
    decoder = small_decoder(family)
    kept = masks_of(decoder, [1, 2, 2], [3, 11, 7])
    pruned = compensating(kept) if compensated else PrunedModel(kept)
    told = speed.padding(decoder.shape, decoder.size, pruned, family)
    if family == "qwen3" and compensated:
        assert told is None
        return
    assert told is not None
    save(decoder, tmp_path / "in", masks=kept, compensated=compensated)
    made = padded.save(tmp_path / "in", tmp_path / "out")
    sizes = made.dense.parameters, made.pruned.parameters, made.padded.parameters
    assert (told.dense, told.pruned, told.padded) == sizes
    assert (told.neurons, told.groups) == (made.neurons, made.groups)
    assert told.kept_saving == pytest.approx((sizes[0] - sizes[2]) / (sizes[0] - sizes[1]))


def test_llama_takes_the_next_number_of_heads_that_divides_its_hidden_size(tmp_path):
    decoder = small_decoder("llama", hidden=32, heads=8, kv_heads=8, head_width=4)
    kept = masks_of(decoder, [1, 3, 2], [3, 11, 7])
    told = speed.padding(decoder.shape, decoder.size, PrunedModel(kept), "llama")
    assert told is not None and told.groups == 4
    save(decoder, tmp_path / "in", masks=kept)
    made = padded.save(tmp_path / "in", tmp_path / "out")
    assert (made.groups, made.padded.parameters) == (told.groups, told.padded)


def test_padding_of_odd_decisions():
    shape = ModelShape(layers=1, neurons=4, heads=2, kv_heads=1, head_width=4, hidden=8)
    size = ModelSize(parameters=shape.decoder_weights, group_biases=0, neuron_biases=0, missing_biases=16)
    told = speed.padding(shape, size, PrunedModel(masks(shape, [4], [1])), "llama")
    assert told is not None and told.kept_saving == 0.0 and told.padded == told.dense
    # As a pack may bring it, whose numbers nobody vouches for.
    shape, size = ModelShape(1, 4, 4, 4, 2, 8), ModelSize(1000, 0, 0, 0)
    told = speed.padding(shape, size, PrunedModel(masks(shape, [4], [0])), "llama")
    assert told is not None and told.groups == 1
