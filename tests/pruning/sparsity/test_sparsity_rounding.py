"""The final plan: exact budget, floors, the shifted thresholds, and whole blocks of neurons."""

import numpy as np
import pytest
import torch
from made_records import random_shape
from sparsity.reference_sparsity import random_family

from gprune.pruning.sparsity.rounding import exact_masks, require_reachable
from gprune.records import ModelShape, budget
from gprune.system.errors import SettingsError


@pytest.mark.parametrize("extreme", [0.0, 1.0])
def test_floors_hold_where_a_layer_lost_everything(extreme):
    shape = ModelShape(layers=4, neurons=400, heads=4, kv_heads=4, head_width=4, hidden=8)
    _, family, thresholds = random_family(shape, 5, 0)
    thresholds[:5], thresholds[-4] = 5.0, 5.0
    thresholds[5:-4] = extreme
    masks = exact_masks(family.units, thresholds.numpy(), 0.4).masks
    assert masks.ffn[0].sum() == masks.heads[0].sum() == 1
    margins = family.margins(thresholds)[: shape.neurons].numpy()
    assert margins[masks.ffn[0]] == margins.max()
    assert abs(masks.retention - 0.4) <= 0.001


def test_masks_follow_the_shifted_thresholds_but_for_the_last_correction():
    shape = ModelShape(layers=3, neurons=500, heads=8, kv_heads=4, head_width=8, hidden=16)
    _, family, thresholds = random_family(shape, 11, 3)
    plan = exact_masks(family.units, thresholds.numpy(), 0.5)
    shift = plan.thresholds - thresholds.numpy()
    assert np.ptp(shift) < 1e-12
    ffn, heads = family.split(family.margins(torch.tensor(plan.thresholds)) >= 0)
    empty = ~heads.numpy().any(axis=1)
    np.testing.assert_array_equal(plan.masks.heads[~empty], heads.numpy()[~empty])
    np.testing.assert_array_equal(plan.masks.heads[empty].sum(axis=1), 1)
    # A key/value group costs 8 neurons here, so that half of one is the most that is left to correct.
    changed = np.count_nonzero(plan.masks.ffn != ffn.numpy())
    assert changed <= np.ceil(shape.group_weights / shape.neuron_weights / 2)


def test_a_retention_below_the_floors_names_the_block_and_the_smallest_possible():
    shape = ModelShape(layers=2, neurons=12, heads=4, kv_heads=2, head_width=2, hidden=8)
    _, family, thresholds = random_family(shape, 2, 5)
    # One neuron (24 weights) and one group (6 * 2 * 8 = 96) of 12 * 24 + 2 * 96 = 480 in every layer: 0.25.
    assert exact_masks(family.units, thresholds.numpy(), 0.25).masks.retention == 0.25
    with pytest.raises(SettingsError, match=r"retention 0\.2 cannot be met.*at least 0\.25"):
        require_reachable(shape, 0.2)
    require_reachable(shape, 0.25)
    # One block (8 * 24 weights) and one group in every layer: 0.6.
    with pytest.raises(SettingsError, match=r"one block of 8 neurons.*at least 0\.6, or a smaller alignment"):
        require_reachable(shape, 0.5, 8)
    require_reachable(shape, 0.6, 8)


@pytest.mark.parametrize("alignment", [1, 16])
@pytest.mark.parametrize("seed", range(6))
def test_the_final_thresholds_give_the_same_masks_again_without_torch(seed, alignment):
    generator = np.random.default_rng(seed)
    shape = random_shape(generator, (300, 700))
    _, family, learned = random_family(shape, int(generator.integers(1, 20)), seed, digits=2)
    units = family.units
    plan = exact_masks(units, learned.numpy(), 0.5, alignment)
    again = exact_masks(units, plan.thresholds, 0.5, alignment).masks
    assert np.array_equal(again.ffn, plan.masks.ffn) and np.array_equal(again.heads, plan.masks.heads)
    fewer = exact_masks(units, plan.thresholds, 0.3, alignment).masks
    assert abs(fewer.retention - 0.3) < 0.02 and fewer.target == 0.3


ALIGNED = [
    ModelShape(layers=4, neurons=512, heads=4, kv_heads=4, head_width=4, hidden=16),
    ModelShape(layers=3, neurons=301, heads=6, kv_heads=2, head_width=4, hidden=12),
    ModelShape(layers=2, neurons=130, heads=4, kv_heads=1, head_width=2, hidden=8),
]


@pytest.mark.parametrize("shape", ALIGNED)
@pytest.mark.parametrize("alignment", [1, 8, 32, 64])
@pytest.mark.parametrize("target", [0.55, 0.7, 0.9])
def test_plans_have_whole_blocks_and_meet_the_target_to_half_a_block(shape, alignment, target):
    _, family, thresholds = random_family(shape, 7, alignment)
    masks = exact_masks(family.units, thresholds.numpy(), target, alignment).masks
    widths = masks.ffn.sum(axis=1)
    assert ((widths % alignment == 0) | (widths == shape.neurons)).all() and widths.min() >= alignment
    assert masks.heads.any(axis=1).all()
    assert masks.retention == budget.retention(shape, masks.ffn, masks.heads)
    block = alignment * shape.neuron_weights / shape.decoder_weights
    assert abs(masks.retention - target) <= block / 2 + 1e-12


def test_floors_of_whole_layers_leave_the_heads_to_meet_the_target():
    # 13 neurons cannot be cut into blocks of 16: the layers stay whole and only key/value groups can go.
    shape = ModelShape(layers=2, neurons=13, heads=8, kv_heads=4, head_width=8, hidden=8)
    _, family, thresholds = random_family(shape, 2, 3)
    target = (2 * 13 * shape.neuron_weights + 3 * shape.group_weights) / shape.decoder_weights
    masks = exact_masks(family.units, thresholds.numpy(), target, 16).masks
    assert masks.ffn.all() and masks.heads.sum() == 3
    assert masks.retention == pytest.approx(target, rel=1e-12)
