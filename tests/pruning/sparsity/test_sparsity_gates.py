"""Gates: their masks against a sort written out, their first step against plain autograd, the budget."""

import numpy as np
import pytest
import torch
from sparsity.reference_sparsity import NaiveMasks, cross_entropy, distillation, random_case, record_gradients

from gprune.pruning.sparsity.batches import SubsetSampler
from gprune.pruning.sparsity.gate_masks import GateMasks, starting_gates
from gprune.pruning.sparsity.gates import learn_gates
from gprune.pruning.sparsity.learner import LearningInputs
from gprune.records import ModelShape, UnitScores
from gprune.study import GateSettings, SparsitySettings
from gprune.system.errors import NumericsError, SettingsError
from gprune.system.progress import silent

SHAPES = {"MHA": (4, 60), "GQA": (2, 37), "one group": (1, 53)}
EVERY = pytest.mark.parametrize(("kv_heads", "neurons"), SHAPES.values(), ids=SHAPES)


def scored(shape, seed):
    """Scores with many ties: few levels for many units."""
    generator = np.random.default_rng(seed)
    channels = np.zeros((shape.layers, shape.heads * shape.head_width))
    ffn = generator.integers(0, 9, (shape.layers, shape.neurons)).astype(float)
    heads = generator.integers(0, 3, (shape.layers, shape.kv_heads)).astype(float)
    return UnitScores("flap", "text", ffn, heads, channels)


def case(kv_heads=2, neurons=37):
    decoder, _, texts = random_case(kv_heads, neurons)
    return decoder, texts


def learned(prepared, target=0.5, scores=None, chosen=None, on_progress=silent, **settings):
    decoder, texts = prepared
    sparsity = SparsitySettings(**({"batch": 8} | settings))
    scores = [scored(decoder.shape, 1)] if scores is None else scores
    setting = LearningInputs(decoder, texts, sparsity, 0, on_progress)
    return learn_gates(setting, scores, chosen or GateSettings(), target, sparsity.epochs)


def placed(rows):
    """(rank + 1/2) / size by counting; among equals the lower index ranks higher."""
    worse = [
        [sum(other < x or (other == x and j > i) for j, other in enumerate(row)) for i, x in enumerate(row)]
        for row in rows
    ]
    return [[(rank + 0.5) / len(row) for rank in row] for row in worse]


def sorted_masks(shape, places, target):
    """An independent sort: tuples of place and index, the floors first, groups and then neurons by cost."""
    units = []
    for kind, cost, rows in ((0, shape.neuron_weights, places[0]), (1, shape.group_weights, places[1])):
        for layer, row in enumerate(rows):
            best = max(row)
            for index, position in enumerate(row):
                units.append((position != best, -np.float32(position), kind, layer, index, cost))
    units.sort(key=lambda unit: unit[:5])
    ffn, heads = (np.zeros(np.shape(rows), bool) for rows in places)
    spent = np.cumsum([unit[5] for unit in units])
    for unit in units[: np.searchsorted(spent, target * shape.decoder_weights, side="right")]:
        if unit[2]:
            heads[unit[3:5]] = True
    left = target * shape.decoder_weights - heads.sum() * shape.group_weights
    for unit in [unit for unit in units if not unit[2]][: round(left / shape.neuron_weights)]:
        ffn[unit[3:5]] = True
    return ffn, heads


@EVERY
@pytest.mark.parametrize("target", [0.35, 0.5, 0.8])
@pytest.mark.parametrize("texts", ["A", "the mean of A and B"])
def test_without_steps_the_masks_are_those_of_a_sort(kv_heads, neurons, target, texts):
    example = case(kv_heads, neurons)
    shape = example[0].shape
    scores = [scored(shape, seed) for seed in ((1,) if texts == "A" else (1, 2))]
    places = [[placed(getattr(record, part)) for record in scores] for part in ("ffn", "heads")]
    places = [each[0] if len(each) == 1 else placed(np.mean(each, axis=0).tolist()) for each in places]
    ffn, heads = sorted_masks(shape, places, target)
    gates = learned(example, target, scores, epochs=0)
    np.testing.assert_array_equal(gates.ffn, ffn)
    np.testing.assert_array_equal(gates.heads, heads)
    assert len(gates.steps) == 0 and gates.steps.shape[1] == len(gates.columns)
    assert abs(gates.retention - target) <= 0.5 * shape.neuron_weights / shape.decoder_weights + 1e-12


@EVERY
@pytest.mark.parametrize("alignment", [1, 8])
def test_every_step_and_the_end_meet_the_budget_within_a_neuron(kv_heads, neurons, alignment):
    example, events = case(kv_heads, neurons), []
    chosen = GateSettings(learning_rate=0.2)
    gates = learned(example, 0.5, chosen=chosen, on_progress=lambda *event: events.append(event), alignment=alignment)
    shape = example[0].shape
    half = 0.5 * shape.neuron_weights / shape.decoder_weights
    column = dict(zip(gates.columns, gates.steps.T, strict=True))
    assert [*column] == [*("step", "epoch", "ce_primary", "ce_auxiliary", "distillation", "retention", "learning_rate")]
    assert (np.abs(column["retention"] - 0.5) <= half + 1e-6).all() and len(events) == 4
    assert abs(gates.retention - 0.5) <= alignment * half + 1e-12
    assert gates.ffn.any(axis=1).all() and gates.heads.any(axis=1).all()
    if alignment > 1:
        widths = gates.ffn.sum(axis=1)
        assert all(width % alignment == 0 or width == neurons for width in widths.tolist())
    # something was learned, and the same each time
    assert (gates.gates != starting_gates([scored(shape, 1)])[: shape.layers * neurons].reshape(2, -1)).any()
    again = learned(case(kv_heads, neurons), 0.5, chosen=chosen, alignment=alignment)
    assert again.gates.tobytes() == gates.gates.tobytes() and again.steps.tobytes() == gates.steps.tobytes()


@pytest.mark.parametrize(("kv_heads", "neurons"), [(4, 60), (1, 37)])
@pytest.mark.parametrize("weight", [0.7, 0.0])
def test_the_first_step_follows_plain_autograd_through_a_soft_mask(kv_heads, neurons, weight, monkeypatch):
    decoder, texts = example = case(kv_heads, neurons)
    chosen, actual = GateSettings(temperature=0.4), record_gradients(monkeypatch)
    learned(example, chosen=chosen, epochs=1, distillation_weight=weight, distillation_temperature=2.0)
    ids = torch.tensor(np.concatenate([text.ids for text in texts]).astype(np.int64))
    ids = ids[torch.tensor(SubsetSampler(*texts, 8, 0).draw())]
    teacher = decoder.logits(decoder.hidden_states(ids))
    family = GateMasks.of(decoder.shape, 0.5, 1, 0.4, decoder.device)
    gates = torch.tensor(starting_gates([scored(decoder.shape, 1)]), dtype=torch.float64, requires_grad=True)
    hard = family.hard_masks(gates.float())
    naive = NaiveMasks(decoder, *(part.numpy() for part in family.split(hard)))
    said = decoder.logits(decoder.hidden_states(ids))
    # subsets are of one size, so that the mean over all is that of their means
    objective = cross_entropy(said, ids) + weight * distillation(said, teacher, 2.0)
    units = torch.tensor(naive.gradients(objective))
    naive.remove()
    soft = torch.sigmoid(gates / 0.4)
    # forward the hard mask, backward the soft one
    mask = hard + soft - soft.detach()
    (expected,) = torch.autograd.grad(mask, gates, units)
    np.testing.assert_allclose(actual[0], expected.numpy(), rtol=1e-4, atol=1e-7)


def test_gates_of_any_size_keep_a_prefix_and_the_floors():
    shape = ModelShape(layers=3, hidden=32, neurons=11, heads=4, kv_heads=2, head_width=8)
    family = GateMasks.of(shape, 0.45, 1, 1.0, torch.device("cpu"))
    gates = torch.linspace(-50, 70, family.count)
    gates[11:22] = -1e6
    ffn, heads = (part.numpy() for part in family.split(family.hard_masks(gates)))
    # of the layer that nobody wants one neuron stays, the first of equal ones
    assert ffn[1].tolist() == [True, *[False] * 10] and heads.any(axis=1).all()
    high, left = gates[:33][ffn.ravel()], gates[:33][~ffn.ravel()]
    assert sorted(high.tolist())[2:] == sorted(gates[:33].tolist())[-(len(high) - 2) :] and len(left)
    masks = family.exact(gates)
    np.testing.assert_array_equal(masks.ffn, ffn)
    assert abs(masks.retention - 0.45) <= 0.5 * shape.neuron_weights / shape.decoder_weights


def test_what_cannot_be_met_or_measured_is_said():
    with pytest.raises(SettingsError, match=r"retention 0.001 cannot be met"):
        learned(case(), 0.001)
    broken = case()
    broken[0].down_proj(1).weight[0] = float("nan")
    with pytest.raises(NumericsError, match="step 1 of sparsity learning"):
        learned(broken)
