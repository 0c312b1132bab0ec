"""How often the host waits for the device in each stage, as numbers: by the layer, by the batch, by the step.

A wait a batch is a short pause; a wait a neuron or a token would be all that a GPU does.
"""

import pytest
import torch
from pretend_device import steps, waits
from pretend_device.steps import Size, waits_of
from strongest import faults, recorded

from gprune.pruning.modules.k_means import Search, fill_empty

SIZES = [Size(1, 2, 2), Size(3, 2, 2), Size(2, 4, 2), Size(2, 2, 5)]
SHARDS = 2
MATRICES = 7
"""projections of a layer"""


def by_learning(size):
    """A step asks once how it went, and the library once in its pass; at first the teacher is asked too."""
    steps_in_all = size.batches * size.steps
    later = steps_in_all - size.batches
    return 2 * steps_in_all + 2 * size.batches + 2, 5 + steps_in_all + later


# waits, and copies to the device. In every pass without a cache transformers asks once whether several texts
# are packed into a sequence: that is one of each batch's waits.
EXPECTED = {
    steps.statistics: lambda size: (2 * SHARDS + 4 + size.batches, size.batches),
    # on the way nothing waits: what was kept is copied at the end
    steps.statistics_with_positions: lambda size: (2 * SHARDS + 4 + size.batches + 3, size.batches),
    steps.strongest_positions: lambda size: (size.batches + 3, size.batches),
    steps.context_clusters: lambda size: (size.batches + (size.batches + 4) * size.layers, size.batches + size.layers),
    steps.context_gradients: lambda size: (5 + 3 * size.batches, 2 + 3 * size.batches),
    steps.one_layer_after_the_other: lambda size: (
        6 * size.layers + size.batches + 1,
        2 * size.layers + size.batches + 1,
    ),
    steps.gradients_of_weights: lambda size: (MATRICES * size.layers + 3, 2),
    steps.refinement: lambda _: (2, 2),
    steps.sparsity_learning: by_learning,
    steps.measured_perplexity: lambda size: (2 * size.batches, size.batches),
    steps.surgery: lambda size: (0, MATRICES * size.layers),
    steps.decoding: lambda _: (0, 1),
    steps.sampling: lambda _: (2, 2),
}


@pytest.mark.parametrize("stage", EXPECTED, ids=lambda stage: stage.__name__)
def test_the_waits_of_a_stage(device, stage):
    for size in SIZES:
        result = waits_of(stage, device, size)
        assert (result.count, result.uploads) == EXPECTED[stage](size), (size, result.places)


def test_the_strongest_positions_of_a_device_are_those_of_the_machine(device):
    size = Size(3, 3, 2)
    on_host = recorded(steps.decoder(size, torch.device("cpu")), steps.tokens(size.samples).ids, 4)
    assert not faults(steps.strongest_positions(steps.decoder(size, device), size), on_host, 1e-5)


@pytest.mark.parametrize("layers", [1, 4])
def test_clustering_waits_for_its_steps_and_for_no_neuron(device, monkeypatch, layers):
    used, original = [], Search.step
    monkeypatch.setattr(Search, "step", lambda *arguments: used.append(original(*arguments)))
    result = waits_of(steps.clustering, device, Size(layers=layers))
    counts, starts, largest = 2, 2, 4
    # two for each next centroid, the sizes and the score of each start, the score of each count,
    # and the labels; then the sizes and the movers of each step
    of_a_layer = 2 * (largest - 1) + 2 * counts * starts + counts + 1
    assert len(used) > layers and result.count == of_a_layer * layers + 2 * len(used), result.places


def test_an_empty_module_is_filled_with_few_answers_of_the_device(device):
    similarity = torch.rand(500, 6, generator=torch.Generator().manual_seed(0))
    similarity[:, 3:] = -1
    with waits.count_waits() as result:
        labels = fill_empty(similarity.to(device))
    assert torch.equal(labels.cpu(), fill_empty(similarity)) and len(labels.cpu().unique()) == 6
    assert result.count == 3


def test_a_pass_waits_once_and_no_layer_does(device):
    for layers in (1, 5):
        model = steps.decoder(Size(layers=layers), device)
        ids = torch.zeros(2, 6, dtype=torch.long, device=device)
        with waits.count_waits() as result:
            model.hidden_states(ids)
        assert (result.kinds, result.uploads) == ({"number": 1}, 0)
