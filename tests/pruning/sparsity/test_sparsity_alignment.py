"""The final plan in whole blocks of neurons: widths, floors and the target, from thresholds."""

import numpy as np
import pytest
import torch
from sparsity.reference_sparsity import random_partition

from gprune.pruning.sparsity.masks import MaskFamily
from gprune.pruning.sparsity.rounding import exact_masks, require_reachable
from gprune.records import ModelShape, budget
from gprune.system.errors import SettingsError

SHAPES = [
    ModelShape(layers=4, neurons=512, heads=4, kv_heads=4, head_width=4, hidden=16),
    ModelShape(layers=3, neurons=301, heads=6, kv_heads=2, head_width=4, hidden=12),
    ModelShape(layers=2, neurons=130, heads=4, kv_heads=1, head_width=2, hidden=8),
]


def family_of(shape, seed, modules=7):
    generator = np.random.default_rng(seed)
    scores = generator.random((shape.layers, shape.neurons))
    head_scores = generator.random((shape.layers, shape.kv_heads))
    partition = random_partition(shape, modules, generator)
    family = MaskFamily.build(shape, scores, head_scores, partition, torch.device("cpu"))
    return family, torch.tensor(generator.random(family.thresholds), dtype=torch.float32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("alignment", [8, 32, 64])
@pytest.mark.parametrize("target", [0.55, 0.7, 0.9])
def test_plans_have_whole_blocks_and_meet_the_target_to_half_a_block(shape, alignment, target):
    family, thresholds = family_of(shape, alignment)
    masks = exact_masks(family.units, thresholds.numpy(), target, alignment).masks
    widths = masks.ffn.sum(axis=1)
    assert ((widths % alignment == 0) | (widths == shape.neurons)).all()
    assert widths.min() >= alignment
    assert masks.heads.any(axis=1).all()
    assert masks.retention == budget.retention(shape, masks.ffn, masks.heads)
    block = alignment * shape.neuron_weights / shape.decoder_weights
    assert abs(masks.retention - target) <= block / 2 + 1e-12


def test_floors_of_whole_layers_leave_the_heads_to_meet_the_target():
    # 13 neurons cannot be cut into blocks of 16: the layers stay whole and only key/value groups can go.
    shape = ModelShape(layers=2, neurons=13, heads=8, kv_heads=4, head_width=8, hidden=8)
    family, thresholds = family_of(shape, 3, modules=2)
    target = (2 * 13 * shape.neuron_weights + 3 * shape.group_weights) / shape.decoder_weights
    masks = exact_masks(family.units, thresholds.numpy(), target, 16).masks
    assert masks.ffn.all()
    assert masks.heads.sum() == 3
    assert masks.retention == pytest.approx(target, rel=1e-12)


def test_an_unreachable_retention_names_the_block_and_the_smallest_possible():
    # One block (8 * 24 weights) and one group (6 * 2 * 8 = 96) of 12 * 24 + 2 * 96 = 480 in every layer: 0.6.
    shape = ModelShape(layers=2, neurons=12, heads=4, kv_heads=2, head_width=2, hidden=8)
    with pytest.raises(SettingsError, match=r"one block of 8 neurons.*at least 0\.6, or a smaller alignment"):
        require_reachable(shape, 0.5, 8)
    require_reachable(shape, 0.6, 8)
    require_reachable(shape, 0.5, 1)
