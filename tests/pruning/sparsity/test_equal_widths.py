"""Masks that keep as many units in every layer: of thresholds and of gates, on the way and in the end."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sparsity.reference_sparsity import random_case, random_units

from gprune.pruning.sparsity.equal_masks import EqualGates, EqualMasks
from gprune.pruning.sparsity.gates import learn_gates
from gprune.pruning.sparsity.learner import LearningInputs
from gprune.pruning.sparsity.learning import learn
from gprune.pruning.sparsity.masks import MaskFamily
from gprune.pruning.sparsity.rounding import RankedUnits, exact_masks
from gprune.records import ModelShape, UnitScores, budget
from gprune.study import GateSettings, SparsitySettings
from gprune.system.progress import silent

SHAPES = [
    ModelShape(layers=3, neurons=301, heads=6, kv_heads=2, head_width=4, hidden=12),
    ModelShape(layers=2, neurons=130, heads=4, kv_heads=4, head_width=2, hidden=8),
    ModelShape(layers=5, neurons=27, heads=4, kv_heads=1, head_width=4, hidden=16),
]


def widths(masks):
    return masks.ffn.sum(axis=1).tolist(), masks.heads.sum(axis=1).tolist()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("target", [0.2, 0.5, 0.83])
@pytest.mark.parametrize("alignment", [1, 8])
def test_counts_are_the_most_that_fit_the_budget(shape, target, alignment):
    neurons, groups = budget.equal_counts(shape, target, alignment)
    least = min(alignment, shape.neurons)
    assert least <= neurons <= shape.neurons and 1 <= groups <= shape.kv_heads
    assert neurons % alignment == 0 or neurons == least

    def spent(count):
        return shape.layers * (count * shape.neuron_weights + groups * shape.group_weights)

    allowed = target * shape.decoder_weights + 0.5
    assert spent(neurons) <= allowed or neurons == least
    assert spent(neurons + alignment) > allowed or neurons + alignment > shape.neurons


def a_family(shape, seed=0):
    generator = np.random.default_rng(seed)
    scores, heads, partition = random_units(shape, 7, generator)
    units = RankedUnits.build(shape, scores, heads, partition)
    count, groups = budget.equal_counts(shape, 0.5)
    fixed = units.with_groups(budget.highest(heads, groups))
    return EqualMasks.from_family(MaskFamily.of(fixed, torch.device("cpu")), count), units, heads, generator


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_thresholds_keep_the_highest_margins_of_every_layer_and_the_same_again(shape, seed):
    family, units, heads, generator = a_family(shape, seed)
    learned = generator.random(family.count)
    hard = family.hard_masks(torch.tensor(learned, dtype=torch.float32)).numpy()
    plan = exact_masks(family.units, learned, 0.5, equal=True)
    count, groups = budget.equal_counts(shape, 0.5)
    assert widths(plan.masks) == ([count] * shape.layers, [groups] * shape.layers)
    ffn = hard[: shape.layers * shape.neurons].reshape(shape.layers, -1)
    margins, _ = units.split(units.margins(learned))
    for layer in range(shape.layers):
        expected = np.sort(margins[layer])[-count:]
        np.testing.assert_allclose(np.sort(margins[layer][plan.masks.ffn[layer]]), expected)
        np.testing.assert_allclose(np.sort(margins[layer][ffn[layer]]), expected, atol=1e-6)
    # what the app asks, which knows no fixed groups and the thresholds as they were kept
    again = exact_masks(units, plan.thresholds, 0.5, equal=True).masks
    assert (again.ffn == plan.masks.ffn).all() and (again.heads == plan.masks.heads).all()
    assert (again.heads == budget.highest(heads, groups)).all()


def test_what_moves_all_thresholds_of_a_layer_alike_is_taken_out_of_a_gradient():
    family, *_, generator = a_family(SHAPES[0])
    gradient, slope = (torch.tensor(generator.random(family.count), dtype=torch.float32) for _ in range(2))
    slope[family.modules :] = gradient[family.modules :] = 0
    left = family.without_common_shift(gradient, slope)
    for layer in range(family.shape.layers):
        members = family.members[layer] > 0
        multiplier = float(gradient[members] @ slope[members] / (slope[members] @ slope[members]))
        np.testing.assert_allclose(left[members], gradient[members] - multiplier * slope[members], rtol=1e-4, atol=1e-6)
        assert abs(float(left[members] @ slope[members])) < 1e-4
    assert family.without_common_shift(slope, slope).abs().max() < 1e-5


@pytest.mark.parametrize("kv_heads", [2, 4])
def test_learning_keeps_equal_widths_at_every_step_and_is_the_same_twice(kv_heads):
    decoder, units, texts = random_case(kv_heads, 61)
    settings = SparsitySettings(epochs=3, batch=8, widths="equal", alignment=4)
    setting = LearningInputs(decoder, texts, settings, 0, silent)
    learned, twin = (learn(setting, *units, 0.5) for _ in range(2))
    count, groups = budget.equal_counts(decoder.shape, 0.5, 4)
    assert widths(learned) == ([count] * 2, [groups] * 2) and count % 4 == 0
    steps = dict(zip(learned.columns, learned.steps.T, strict=True))
    assert np.allclose(steps["retention"], learned.retention, atol=1e-6) and not steps["multiplier"].any()
    assert (learned.ffn == twin.ffn).all()
    start = learn(replace(setting, settings=replace(settings, epochs=0)), *units, 0.5)
    assert (start.ffn != learned.ffn).any()


@pytest.mark.parametrize("kv_heads", [2, 4])
def test_gates_keep_the_highest_of_every_layer(kv_heads):
    decoder, (scores, heads, _), texts = random_case(kv_heads, 61)
    unit_scores = UnitScores("flap", "A", scores, heads, np.repeat(heads, decoder.shape.group_channels, axis=1))
    setting = LearningInputs(decoder, texts, SparsitySettings(batch=8, widths="equal"), 0, silent)
    count, groups = budget.equal_counts(decoder.shape, 0.5)
    first = learn_gates(setting, [unit_scores], GateSettings(), 0.5, 0)
    assert (first.ffn == budget.highest(scores, count)).all()
    assert (first.heads == budget.highest(heads, groups)).all()
    last = learn_gates(setting, [unit_scores], GateSettings(), 0.5, 3)
    assert widths(last) == ([count] * 2, [groups] * 2)
    family = EqualGates.of(decoder.shape, 0.5, 1, 1.5, torch.device("cpu"))
    mask, _ = family.split(family.hard_masks(torch.zeros(family.count)))
    assert mask[0].nonzero().flatten().tolist() == list(range(count))
