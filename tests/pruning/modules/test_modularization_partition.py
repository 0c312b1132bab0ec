"""The whole BCM stage on small layers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from gprune.pruning.modules.direction import admits_direction, below_boundary, boundary_mixing, drift_variation
from gprune.pruning.modules.partition import cluster_layers, modularize
from gprune.pruning.ranking import ranks
from gprune.records import RankDrift, UnitScores
from gprune.study import ModularizationSettings
from gprune.system.errors import Cancelled, NumericsError
from gprune.system.progress import silent

LAYERS, NEURONS, WIDTH = 3, 128, 18
QUICK = ModularizationSettings(candidates=(4, 6, 8), restarts=2, steps=12)


def quick(**changes):
    return replace(QUICK, **changes)


def inputs(layers=LAYERS, neurons=NEURONS, seed=0, metric="flap"):
    generator = torch.Generator().manual_seed(seed)
    rows = normalize(torch.randn(layers, neurons, WIDTH, generator=generator), dim=2)
    rng = np.random.default_rng(seed)
    first = rng.random((layers, neurons))
    second = 0.5 * first + 0.5 * rng.random((layers, neurons))
    signed = (ranks(first) - ranks(second)) / max(neurons - 1, 1)
    magnitude = np.abs(signed)
    spread = signed.std(1, keepdims=True)
    scaled = signed * magnitude.std(1, keepdims=True) / np.where(spread > 0, spread, 1)
    zeros, none = np.zeros_like(signed), np.zeros(layers)
    drift = RankDrift(magnitude, signed, scaled, zeros, zeros, zeros, none, none, none, none)
    heads = np.zeros((layers, 1))
    scores = [UnitScores(metric, text, values, heads, heads) for text, values in (("a", first), ("b", second))]
    return (lambda layer: rows[layer]), drift, *scores


def whole_stage(parameters, drift, first, second, settings, seed, on_progress=silent):
    """Clusters and modules, as the stages make them one after the other."""
    clusters = cluster_layers(parameters, *drift.magnitude.shape, settings, seed, on_progress)
    return modularize(parameters, drift, first, second, clusters, settings, seed, on_progress)


@pytest.fixture(scope="module")
def refined():
    """What the whole stage gives for the admission rule, and what each profile alone gives."""
    stages = {name: whole_stage(*inputs(), quick(direction=name), seed=0) for name in ("magnitude", "direction")}
    return stages | {"auto": whole_stage(*inputs(), QUICK, seed=0)}


def assert_same_refinement(actual, expected, *names):
    assert actual.profile == expected.profile
    for name in ("labels", "history", *names):
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))


def test_every_neuron_is_in_exactly_one_module(refined):
    partition = refined["auto"]
    assert partition.labels.shape == (LAYERS, NEURONS) and partition.labels.dtype == np.int32
    for labels, count in zip(partition.labels, partition.counts, strict=True):
        assert sorted(set(labels.tolist())) == list(range(count))
    assert partition.silhouette.shape == (LAYERS, 3) and np.isfinite(partition.silhouette).all()
    best = np.array(QUICK.candidates)[partition.silhouette.argmax(1)]
    np.testing.assert_array_equal(partition.initial_counts, best)
    assert partition.history.shape == (LAYERS, 12, 5) and np.isfinite(partition.history).all()


def test_auto_applies_the_admission_rule(refined):
    *forced, chosen = refined.values()
    _, drift, first, second = inputs()
    below = below_boundary(first.ffn, second.ffn)
    variation = [drift_variation(p.labels, drift.magnitude) for p in forced]
    np.testing.assert_allclose(chosen.mixing, [boundary_mixing(p.labels, below) for p in forced], rtol=1e-12)
    np.testing.assert_allclose(chosen.variation, variation, rtol=1e-12)
    assert_same_refinement(chosen, forced[int(admits_direction(chosen.mixing, chosen.variation))])


@pytest.mark.parametrize(
    ("metric", "profile"), [("flap", "magnitude"), ("wanda_sp", "magnitude"), ("twflap", "direction")]
)
def test_preset_is_the_outcome_for_the_metric(metric, profile):
    partition = whole_stage(*inputs(metric=metric), quick(direction="preset"), seed=0)
    assert partition.profile == profile
    assert np.isnan(partition.mixing).all() and np.isnan(partition.variation).all()


def test_swapping_the_texts_leaves_magnitude_modules_alone(refined):
    parameters, drift, first, second = inputs()
    swapped = replace(drift, signed=-drift.signed, scaled=-drift.scaled)
    after = whole_stage(parameters, swapped, second, first, quick(direction="magnitude"), seed=0)
    np.testing.assert_array_equal(refined["magnitude"].labels, after.labels)


def test_initialization_splits_a_fifth_of_the_modules():
    partition = whole_stage(*inputs(), quick(kind="initialization"), seed=0)
    before = int(partition.initial_counts.sum())
    assert partition.modules == before + round(0.2 * before)
    assert partition.kind == "initialization" and partition.history.shape == (LAYERS, 0, 5)
    unsplit = whole_stage(*inputs(), quick(kind="initialization", split_fraction=0.0), seed=0)
    np.testing.assert_array_equal(unsplit.counts, unsplit.initial_counts)


def test_random_modules_are_equal_and_as_many():
    initial = whole_stage(*inputs(neurons=131), quick(kind="initialization"), seed=3)
    first, same, other = (whole_stage(*inputs(neurons=131), quick(kind="random"), seed=s) for s in (3, 3, 4))
    np.testing.assert_array_equal(first.counts, initial.counts)
    np.testing.assert_array_equal(first.labels, same.labels)
    assert (first.labels != other.labels).any()
    for labels in first.labels:
        sizes = np.bincount(labels)
        assert sizes.max() - sizes.min() <= 1
    assert (first.labels[0] != first.labels[1]).any()


@pytest.mark.parametrize("neurons", [1, 2, 3, 13, 17])
@pytest.mark.parametrize("kind", ["refined", "initialization", "random"])
def test_odd_and_tiny_widths(neurons, kind):
    settings = ModularizationSettings(kind=kind, steps=3, restarts=1)
    partition = whole_stage(*inputs(layers=2, neurons=neurons), settings, seed=0)
    assert (partition.counts >= 1).all() and (partition.counts <= 4).all()
    assert partition.silhouette.shape == (2, 5)
    assert np.isnan(partition.silhouette[:, 1:]).all()


def test_progress_counts_up_to_the_total_and_a_stop_gets_through_and_weights_that_are_not_finite_are_refused():
    events = []
    whole_stage(*inputs(), QUICK, 0, lambda done, total, message: events.append((done, total, message)))
    steps = [(done, total) for total in (3, 6) for done in range(1, total + 1)]
    assert [(done, total) for done, total, _ in events] == steps
    assert events[0][2] == "clustered layer 1 of 3"
    assert events[-1][2] == "refined layer 3 of 3 by drift direction"

    def stop(done, total, message):
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        whole_stage(*inputs(), QUICK, 0, stop)
    parameters, drift, first, second = inputs()
    with pytest.raises(NumericsError, match="FFN weights of layer 0"):
        whole_stage(lambda layer: parameters(layer) * float("nan"), drift, first, second, QUICK, 0)


@pytest.mark.parametrize("direction", ["auto", "preset", "magnitude"])
def test_the_own_initialization_gives_the_same_refinement(direction):
    arguments = inputs(metric="twflap")
    expected = whole_stage(*arguments, quick(direction=direction), seed=0)
    initial = whole_stage(*arguments, quick(kind="initialization"), seed=0).labels
    # the seed serves clustering only, which does not take place
    coupled = modularize(*arguments, initial, quick(direction=direction), seed=9)
    assert_same_refinement(coupled, expected, "mixing", "variation")


@pytest.mark.parametrize("kind", ["initialization", "random"])
def test_what_is_not_refined_stays_as_given(kind):
    initial = np.stack([np.arange(NEURONS) * size // NEURONS for size in (3, 8, 5)])
    partition = modularize(
        lambda layer: pytest.fail("no weights are needed"),
        *inputs(metric="twflap")[1:],
        initial,
        quick(kind=kind),
        seed=0,
    )
    np.testing.assert_array_equal(partition.labels, initial)
    np.testing.assert_array_equal(partition.counts, [3, 8, 5])
    assert partition.kind == kind and partition.history.shape == (LAYERS, 0, 5)
