"""What each of several GPUs holds of a model of 70 billion weights, by arithmetic."""

from dataclasses import replace

import pytest

from gprune.pipeline.estimate.dimensions import Case, Dimensions
from gprune.pipeline.estimate.forecast import laid
from gprune.pipeline.estimate.memory import need
from gprune.pipeline.stages import StageId
from gprune.study import Study

LARGE = Dimensions.of(
    {
        "num_hidden_layers": 80,
        "intermediate_size": 28672,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "hidden_size": 8192,
        "vocab_size": 128256,
    }
)
STUDY = Study("model", "A", "B", methods=("dense", "gprune"))
GIB = 2**30
CARD = 80e9
LEARNING, STATISTICS = StageId("learning"), StageId("statistics", ("primary",))
PRUNED = StageId("perplexity", method="gprune", item=0)


def case_of(processes, card=CARD):
    study = laid(STUDY, LARGE, 2, card, processes)
    return Case(LARGE, study, 2, True, processes)


def test_what_one_gpu_cannot_hold_waits_in_files_where_there_are_several():
    small = replace(LARGE, shape=replace(LARGE.shape, layers=8))
    assert laid(STUDY, LARGE, 2, CARD, 4).offload and not laid(STUDY, small, 2, CARD, 4).offload
    # one process is not decided for
    assert not laid(STUDY, LARGE, 2, CARD, 1).offload
    assert not laid(STUDY, LARGE, 2, 0.0, 4).offload


@pytest.mark.parametrize("processes", [2, 4, 8])
def test_a_gpu_learns_on_its_part_of_the_layers_and_two_whole_ones(processes):
    layers, tables = 2 * LARGE.shape.decoder_weights, 2 * 2 * 128256 * 8192
    found = need(LEARNING, case_of(processes))
    assert found.weights == pytest.approx(layers / processes + 2 * layers / 80 + tables, rel=1e-3)
    assert found.asked == STUDY.sparsity.batch / processes


def test_four_gpus_of_80_gb_prune_and_measure_it_and_two_do_not():
    four, two = case_of(4), case_of(2)
    for stage in (LEARNING, STATISTICS, PRUNED):
        found = need(stage, four)
        assert found.device(found.asked) < 0.75 * CARD
    for stage in (LEARNING, PRUNED):
        found = need(stage, two)
        assert found.device(found.asked) > CARD
    found = need(STATISTICS, four)
    # embeddings, LM head and a projection at a time, beside the moments
    assert found.device(found.asked) < 8 * GIB
