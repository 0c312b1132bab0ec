"""Tables of measured speed, and the arithmetic of widths beside the models that it speaks of."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from pruned_folder import compensating, masks_of, save, small_decoder
from transformers import AutoModelForCausalLM

from gprune.analysis import decisions, resampling, speed
from gprune.analysis.resampling import drift_beyond_sampling, fit_drift_law, keep_highest_ranks, rank_drift
from gprune.data import published
from gprune.evaluation.speed import Speed
from gprune.models.export import checkpoint, padded
from gprune.pruning.ranking import ranks
from gprune.records import ModelShape, ModelSize, PrunedModel, PruningMasks


def a_row(model, phase, **changes):
    values = Speed(model, 1000, phase, "eager", 20.0, 4.0, 1.25, 0.5, 3 * 2**20, "allocated", ())
    return asdict(values) | changes


def test_phases_whiskers_and_ratios():
    rows = [a_row(model, phase) for model in ("dense", "gprune") for phase in ("prefill", "decode", "whole")]
    table = speed.speed_table(rows, "decode")
    assert table["model"].tolist() == ["dense", "gprune"] and table["MiB"].tolist() == [3.0, 3.0]
    assert list(speed.speed_table(rows[:1], "decode").columns) == list(table.columns)
    seconds = np.array([1.0, 2.0, 4.0, 5.0, 8.0])
    row = a_row("dense", "decode", tokens_per_second=np.median(100 / seconds), seconds=list(seconds))
    (line,) = speed.speed_table([row], "decode").to_dict("records")
    assert (line["low"], line["tokens/s"], line["high"]) == pytest.approx((20.0, 25.0, 50.0))
    rows = [a_row("gprune", "decode"), a_row("gprune", "decode", mode="graph", ratio=9.0)]
    assert speed.ratio_of(rows, "gprune") == (1.25, 0.5)
    assert all(math.isnan(value) for value in speed.ratio_of(rows, "flap"))


@pytest.mark.parametrize("seconds", [[], [0.0, 1.0]])
def test_without_usable_repetitions_the_width_is_halved_to_both_sides(seconds):
    (line,) = speed.speed_table([a_row("dense", "decode", seconds=seconds)], "decode").to_dict("records")
    assert (line["low"], line["high"]) == (18.0, 22.0)


def test_a_ratio_whose_spread_holds_one_is_within_noise():
    words = [speed.format_ratio(ratio, 0.1) for ratio in (0.85, 0.9, 1.05, 1.5)]
    assert words == [
        "0.85 (IQR 0.10)",
        "0.90 (IQR 0.10), within noise",
        "1.05 (IQR 0.10), within noise",
        "1.50 (IQR 0.10)",
    ]
    assert speed.format_ratio(1.0, 0.0) == "1.00 (IQR 0.00)"


def test_the_published_table_is_the_papers():
    table = speed.published_speed()
    figures = published.table("speed")
    assert table["tokens/s"].tolist() == [figure.values["tokens_per_second"] for figure in figures]
    dense = table["method"].tolist().index("dense")
    np.testing.assert_allclose(table["ratio"], table["tokens/s"] / table["tokens/s"][dense])
    assert table["ratio"].drop(dense).min() > 1.5, "the paper: all gain more than 50%"


def masks(shape, neurons, groups):
    ffn = np.arange(shape.neurons) < np.array(neurons)[:, None]
    return PruningMasks("gprune", ffn, np.arange(shape.kv_heads) < np.array(groups)[:, None], 0.5, 0.5)


@pytest.mark.parametrize("compensated", [False, True])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "helium", "stablelm", "granite"])
def test_the_cost_of_padding_is_that_of_the_padded_model(family, compensated, tmp_path):
    decoder = small_decoder(family)
    masks = masks_of(decoder, [1, 1, 1], [3, 11, 7])
    pruned = compensating(masks) if compensated else PrunedModel(masks)
    sentence = speed.padding(decoder.shape, decoder.size, pruned, family)
    if compensated and family not in ("llama", "mistral", "qwen2"):
        assert isinstance(sentence, str) and ("no place" if family == "qwen3" else "more biases") in sentence
        return
    assert isinstance(sentence, speed.Padding)
    assert sentence.groups == (3 if family in ("helium", "stablelm") else 1)
    save(decoder, tmp_path / "in", masks=masks, compensated=compensated)
    padded.save_padded(tmp_path / "in", tmp_path / "out")
    models = checkpoint.load_verified(tmp_path / "in"), AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    sizes = decoder.size.parameters, *(model.num_parameters() for model in models)
    assert (sentence.dense, sentence.pruned, sentence.padded) == sizes
    config = models[1].config
    assert (sentence.neurons, sentence.groups) == (config.intermediate_size, config.num_key_value_heads)
    assert sentence.kept_saving == pytest.approx((sizes[0] - sizes[2]) / (sizes[0] - sizes[1]))


def test_no_cost_of_padding_is_told_where_other_parts_or_biases_decide_it():
    shape = ModelShape(layers=1, neurons=4, heads=2, kv_heads=1, head_width=4, hidden=8)
    model, size = PrunedModel(masks(shape, [3], [1])), ModelSize(1000, 0, 0, missing_biases=16)
    assert isinstance(speed.padding(shape, size, model, "granite"), speed.Padding)
    for family in ("gemma3", "bloom"):
        assert "not made by padding" in str(speed.padding(shape, size, model, family))
    for biases in (replace(size, missing_biases=8), replace(size, neuron_biases=1)):
        assert "more biases" in str(speed.padding(shape, biases, model, "granite"))
        assert isinstance(speed.padding(shape, biases, model, "llama"), speed.Padding)


def test_llama_takes_the_next_number_of_heads_that_divides_its_hidden_size(tmp_path):
    decoder = small_decoder("llama", hidden=32, heads=8, kv_heads=8, head_width=4)
    masks = masks_of(decoder, [1, 3, 2], [3, 11, 7])
    sentence = speed.padding(decoder.shape, decoder.size, PrunedModel(masks), "llama")
    assert isinstance(sentence, speed.Padding) and sentence.groups == 4
    save(decoder, tmp_path / "in", masks=masks)
    model = AutoModelForCausalLM.from_pretrained(padded.save_padded(tmp_path / "in", tmp_path / "out"))
    assert (model.config.num_key_value_heads, model.num_parameters()) == (sentence.groups, sentence.padded)


def test_padding_of_a_model_that_lost_nothing_saves_nothing():
    shape = ModelShape(layers=1, neurons=4, heads=2, kv_heads=1, head_width=4, hidden=8)
    size = ModelSize(parameters=shape.decoder_weights, group_biases=0, neuron_biases=0, missing_biases=16)
    sentence = speed.padding(shape, size, PrunedModel(masks(shape, [4], [1])), "llama")
    assert isinstance(sentence, speed.Padding) and sentence.kept_saving == 0.0 and sentence.padded == sentence.dense


LAYERS, NEURONS, SHARDS, PER_SHARD = 3, 400, 8, 20


def sequences_of(seed, sequences, noise=1.0, truth=None):
    """(sequences, layers, neurons) a score of every sequence: a true one and an error of its own."""
    random = np.random.default_rng(seed)
    truth = np.random.default_rng(7).normal(size=(LAYERS, NEURONS)) if truth is None else truth
    return truth + noise * random.normal(size=(sequences, LAYERS, NEURONS))


def shards_of(values):
    parts = np.split(values, SHARDS)
    return lambda chosen: np.concatenate([parts[shard] for shard in chosen]).mean(axis=0)


def test_samples_are_those_of_a_loop():
    values = sequences_of(0, SHARDS * PER_SHARD)
    score, counts = shards_of(values), np.array([200, 10, 399])
    actual = resampling.resampling_drift(score, np.full(SHARDS, PER_SHARD), counts)
    assert actual.sequences.tolist() == [20, 40, 60, 80]
    for row, count in enumerate((1, 2, 3, 4)):
        for start in range(SHARDS):
            samples = ([(first + step) % SHARDS for step in range(count)] for first in (start, start + count))
            both = [ranks(score(sample)) for sample in samples]
            moved = np.median(np.abs(both[0] - both[1])) / (NEURONS - 1)
            assert actual.drift[row, start] == pytest.approx(moved)
            sides = [
                {(layer, neuron) for layer in range(LAYERS) for neuron in np.argsort(-rank[layer])[: counts[layer]]}
                for rank in both
            ]
            differ = len(sides[0] ^ sides[1]) / (LAYERS * NEURONS)
            assert actual.changed[row, start] == pytest.approx(differ)


@pytest.mark.parametrize("noise", [0.3, 1.0, 4.0])
def test_the_law_tells_what_four_times_as_many_sequences_do(noise):
    """Fitted to two samples of at most 80 sequences, it foretells two samples of 320."""
    score, counts = shards_of(sequences_of(1, SHARDS * PER_SHARD, 3 * noise)), np.full(LAYERS, NEURONS // 2)
    samples = resampling.resampling_drift(score, np.full(SHARDS, PER_SHARD), counts)
    drift, changed = (fit_drift_law(samples.sequences, values) for values in (samples.drift, samples.changed))
    redrawn = [ranks(sequences_of(seed, 320, 3 * noise).mean(axis=0)) for seed in range(2, 10)]
    pairs = list(zip(redrawn[::2], redrawn[1::2], strict=True))
    assert drift.at(320) == pytest.approx(np.mean([rank_drift(*pair) for pair in pairs]), rel=0.1)
    differ = [decisions.share_changed(*(keep_highest_ranks(sample, counts) for sample in pair)) for pair in pairs]
    assert changed.at(320) == pytest.approx(np.mean(differ), rel=0.15)
    # and back from the level to the number
    assert drift.sequences_for(drift.at(320)) == pytest.approx(320)


def test_a_law_that_is_met_exactly_is_found_and_where_nothing_falls_there_is_no_law():
    sizes = np.array([10.0, 20.0, 30.0, 40.0])
    fitted = fit_drift_law(sizes, np.sqrt(0.5 / (sizes + 12))[:, None].repeat(3, axis=1))
    assert (fitted.scale, fitted.shift) == (pytest.approx(0.5), pytest.approx(12))
    assert fitted.sequences_for(0.05) == pytest.approx(0.5 / 0.0025 - 12)
    assert fitted.sequences_for(10.0) == 0
    # one size alone: the square root of the number
    alone = fit_drift_law(np.array([16.0]), np.array([[0.1, 0.3]]))
    assert (alone.at(64), alone.shift) == (pytest.approx(0.1), 0.0)
    sizes = np.array([10.0, 20.0, 30.0])
    for values in ([0.1, 0.11, 0.12], [0.1, float("nan"), 0.1], [0.1, 0.0, 0.1], [0.1, 0.1, 0.1]):
        fitted = fit_drift_law(sizes, np.array(values)[:, None])
        assert not fitted.fitted and np.isnan(fitted.at(50)) and np.isnan(fitted.sequences_for(0.1)), values
    assert not fit_drift_law(np.array([]), np.empty((0, 2))).fitted
    # samples that agree in everything need none
    still = fit_drift_law(sizes, np.zeros((3, 4)))
    assert still.fitted and still.at(10) == 0 and still.sequences_for(0) == 0 and still.sequences_for(0.1) == 0
    assert resampling.Law(0.5, 0.0).sequences_for(0.0) == np.inf


def test_drift_beyond_sampling_is_that_of_endless_texts():
    """Of two texts whose true scores differ, the same is left for few sequences and for many."""
    random = np.random.default_rng(5)
    truths = random.normal(size=(2, LAYERS, NEURONS))
    truths[1] = truths[0] + 0.5 * truths[1]
    endless = rank_drift(*(ranks(truth) for truth in truths))
    for sequences in (16, 64, 256):
        sides = [
            [ranks(sequences_of(10 * side + draw, sequences, 3, truths[side]).mean(axis=0)) for draw in (1, 2)]
            for side in (0, 1)
        ]
        measured = rank_drift(sides[0][0], sides[1][0])
        left = drift_beyond_sampling(measured, rank_drift(*sides[0]), rank_drift(*sides[1]))
        assert left == pytest.approx(endless, rel=0.12)
        assert measured > left
    assert drift_beyond_sampling(0.1, 0.2, 0.1) == 0


def test_a_jaccard_index_follows_from_the_share_that_differs():
    random = np.random.default_rng(3)
    first, second = (keep_highest_ranks(ranks(random.normal(size=(4, 50))), np.full(4, 20)) for _ in range(2))
    measured = (first & second).sum() / (first | second).sum()
    assert resampling.jaccard(0.4, decisions.share_changed(first, second)) == pytest.approx(measured)
    assert resampling.jaccard(0.4, 0.0) == 1
    scores = np.array([[0.1, 5.0, 3.0], [9.0, 8.0, 7.0]])
    masks = keep_highest_ranks(ranks(scores), np.array([1, 2]))
    assert masks.tolist() == [[False, True, False], [True, True, False]]
