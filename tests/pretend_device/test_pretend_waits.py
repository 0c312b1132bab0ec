"""How often the host waits for the device in each stage, as numbers: by the layer, by the batch, by the step.

A wait a batch is a short pause; a wait a neuron or a token would be all that a GPU does.
"""

import pytest
import torch
from pretend_device import steps, waits
from pretend_device.steps import Size, waits_of

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
    steps.norms: lambda size: (4 * size.layers, 0),
    steps.statistics: lambda size: (2 * SHARDS + 4 + size.batches, size.batches),
    steps.context_clusters: lambda size: (
        size.batches + (size.batches + 4) * size.layers,
        size.batches + size.layers,
    ),
    steps.context_moments: lambda size: (5 + 2 * size.batches, 2 + 2 * size.batches),
    steps.context_gradients: lambda size: (5 + 3 * size.batches, 2 + 3 * size.batches),
    steps.one_layer_after_the_other: lambda size: (
        6 * size.layers + size.batches + 1,
        2 * size.layers + size.batches + 1,
    ),
    steps.gradients_of_weights: lambda size: (MATRICES * size.layers + 3, 2),
    steps.refinement: lambda _: (2, 2),
    steps.sparsity_learning: by_learning,
    steps.sparsity_learning_of_both: by_learning,
    steps.measured_perplexity: lambda size: (2 * size.batches, size.batches),
    steps.surgery: lambda size: (0, MATRICES * size.layers),
    steps.decoding: lambda _: (0, 1),
    steps.sampling: lambda _: (2, 2),
    steps.comparing: lambda _: (6, 3),
}


@pytest.mark.parametrize("stage", EXPECTED, ids=lambda stage: stage.__name__)
def test_the_waits_of_a_stage(device, stage):
    for size in SIZES:
        found = waits_of(stage, device, size)
        assert (found.count, found.uploads) == EXPECTED[stage](size), (size, found.places)


def test_clustering_waits_for_each_of_its_iterations_but_not_for_neurons(device):
    found = waits_of(steps.clustering, device, Size())
    twice = waits_of(steps.clustering, device, Size(layers=4))
    assert 0 < found.count <= 100 * 2 and twice.count <= 100 * 4, found.places


def test_a_pass_waits_once_and_no_layer_does(device):
    for layers in (1, 5):
        model = steps.decoder(Size(layers=layers), device)
        ids = torch.zeros(2, 6, dtype=torch.long, device=device)
        with waits.counted() as found:
            model.hidden_states(ids)
        assert (found.kinds, found.uploads) == ({"number": 1}, 0)
