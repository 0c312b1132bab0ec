"""Controls on a real small model, grouped attention and an odd width: each is what its name says."""

import numpy as np
import pytest
import tiny_study
from made_records import a_partition

from gprune import pipeline
from gprune.pipeline import stages
from gprune.pipeline.stages import RunContext
from gprune.pruning.allocation import uniform
from gprune.pruning.sparsity.learner import LearningInputs
from gprune.pruning.sparsity.learning import learn
from gprune.records import budget
from gprune.store import Store
from gprune.study import from_dict
from gprune.study.methods import CONTROLS, METHODS
from gprune.system.progress import silent

pytestmark = pytest.mark.slow

LEARNED = [name for name in CONTROLS if METHODS[name].decision == "learned"]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((2, 27), id="grouped, odd width"),
        pytest.param((4, 32), id="one head a group", marks=pytest.mark.long),
    ],
)
def workshop(request, tmp_path_factory):
    folder, (kv_heads, neurons) = tmp_path_factory.mktemp("controls"), request.param
    methods, shape = ["dense", "gprune", *CONTROLS], {"kv_heads": kv_heads, "neurons": neurons}
    values = tiny_study.made(folder, shape=shape, methods=methods, retention=0.6)
    return from_dict(values), Store(folder / "cache")


def finished(workshop, **changes):
    study, store = workshop[0].with_settings(changes), workshop[1]
    pipeline.run(study, store, lambda *_: None, until="masks")
    return pipeline.opened(study, store)


@pytest.fixture(scope="module")
def results(workshop):
    return finished(workshop)


def test_one_module_a_layer_is_gprune_with_one_module_a_layer_and_rasa_off_bit_for_bit(results):
    study, scores = results.graph.study, results.get(stages.scores)
    texts = [results.get(stages.tokens, role) for role in stages.PAIR]
    work = RunContext(study, results.graph.inputs, results.store.texts)
    modules = a_partition(np.zeros(scores.ffn.shape))
    setting = LearningInputs(work.decoder, tuple(texts), study.sparsity, study.seed, silent)
    learned = learn(setting, scores.ffn, scores.heads, modules, study.retention)
    learning, masks = results.get(stages.learning, "msl_layers"), results.get(stages.masks, "msl_layers")
    assert masks.ffn.tobytes() == learned.ffn.tobytes() and masks.heads.tobytes() == learned.heads.tobytes()
    assert learning.thresholds.tobytes() == learned.thresholds.tobytes()
    assert learning.head_thresholds.tobytes() == learned.head_thresholds.tobytes()
    np.testing.assert_array_equal(learning.steps, learned.steps)
    # one order a layer: nothing that is kept scores less than what is removed
    for row, keep in zip(scores.ffn, masks.ffn, strict=True):
        assert keep.all() or row[keep].min() >= row[~keep].max()


@pytest.mark.parametrize("metric", ["flap", "wanda_sp"])
def test_one_ratio_is_the_uniform_allocation_of_the_plain_scores(results, metric):
    scores, shape = results.get(stages.scores, "primary", metric), results.get(stages.shape)
    masks, expected = results.get(stages.masks, f"{metric}_uniform"), uniform.allocate(scores, shape, 0.6)
    np.testing.assert_array_equal(masks.ffn, expected.ffn)
    np.testing.assert_array_equal(masks.heads, expected.heads)


def test_shuffled_modules_have_the_sizes_of_the_own_ones_and_other_members(results):
    partition, shuffled = results.get(stages.partition), results.get(stages.space, "shuffled")
    for first, second in zip(partition.labels, shuffled.labels, strict=True):
        np.testing.assert_array_equal(np.bincount(first), np.bincount(second))
    assert (partition.labels != shuffled.labels).any(axis=1).all()


def test_controls_learn_without_adapted_scores_and_from_the_same_texts_and_steps(results):
    gprune = results.get(stages.learning)
    for name in LEARNED:
        adapted = results.get(stages.adapted_scores, name)
        assert not adapted.adapted.any() and not adapted.source.any()
        assert adapted.scores.tobytes() == results.get(stages.scores).ffn.tobytes()
        steps = results.get(stages.learning, name).steps
        # step, epoch and learning rate; the losses of the first step are those of other masks
        np.testing.assert_array_equal(steps[:, [0, 1, 8]], gprune.steps[:, [0, 1, 8]])
    masks = {name: results.get(stages.masks, name).ffn.tobytes() for name in ("gprune", *CONTROLS)}
    assert len(set(masks.values())) >= 4


def test_fixed_attention_is_gprunes_and_the_budget_is_met_with_neurons(workshop, results):
    fixed = finished(workshop, **{"sparsity.attention": "gprune"})
    gprune, shape = fixed.get(stages.masks), fixed.get(stages.shape)
    assert gprune.ffn.tobytes() == results.get(stages.masks).ffn.tobytes()
    for name in CONTROLS:
        masks = fixed.get(stages.masks, name)
        np.testing.assert_array_equal(masks.heads, gprune.heads)
        assert np.count_nonzero(masks.ffn) == np.count_nonzero(gprune.ffn), name
        assert masks.retention == budget.retention(shape, masks.ffn, masks.heads) == gprune.retention
        if METHODS[name].decision == "uniform":
            assert np.ptp(masks.ffn.sum(axis=1)) <= 1
    start = np.full(shape.layers, 1 - fixed.graph.study.retention)
    shift = np.ptp(fixed.get(stages.learning, "msl_layers").head_thresholds - start)
    # thresholds of attention that is fixed learn nothing: only the common shift moves them
    assert shift < 1e-6
