"""What is refused, what is only warned of, and what is said to help."""

from dataclasses import replace

import pytest

from gprune.models.sources import SHAPES
from gprune.pipeline.estimate import ANYWAY
from gprune.pipeline.estimate.dimensions import WIDTHS, Dimensions
from gprune.pipeline.estimate.forecast import Capacity, Forecast, StageNeed, count_gpus
from gprune.pipeline.estimate.memory import OFFLOADED, Case, memory_need
from gprune.pipeline.stages import Graph, StageId, execution_plan
from gprune.study import Study

GIB = 2.0**30
STUDY = Study("model", "A", "B", methods=("dense", "gprune", "wanda_sp", "llm_pruner"))


def forecast_of(shape="llama2-7b", precision="bfloat16", card=80.0, host=128.0, free=None, **changes):
    study = STUDY.with_settings(changes)
    model = Dimensions.of(SHAPES[shape])
    capacity = Capacity("a card" if card else "cpu", card * GIB, host * GIB, (free or host) * GIB)
    case = Case(model, study, WIDTHS[precision], card > 0)
    needs = [
        StageNeed(stage.id, stage.title, need, None)
        for stage in execution_plan(Graph(study))
        if (need := memory_need(stage.id, case)) is not None
    ]
    return Forecast(case, precision, capacity, tuple(needs))


def test_the_papers_setting_fits_on_one_card_of_80_gib():
    verdict = forecast_of()
    assert not verdict.refusal and not verdict.warnings
    assert "of a card with 80.0 GiB, and 128.0 GiB of memory" in verdict.summary
    assert verdict.summary.endswith("the time left shows after the first batch")
    assert replace(forecast_of(), seconds=300.0).summary.endswith("about 5 min, as in earlier runs")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"card": 12.0}, "more than the 12.0 GiB of a card: choose a smaller model, or use a GPU"),
        ({"precision": "float32", "card": 24.0}, "more than the 24.0 GiB of a card: set dtype bfloat16"),
        ({"host": 8.0}, "more than the 8.0 GiB of this machine’s memory"),
        ({"card": 0.0, "host": 16.0, "precision": "float32"}, "more than the 16.0 GiB of this machine’s"),
        ({"card": 18.0}, "writing the pruned model takes about 19.2 GiB, more than the 18.0 GiB of a card: stop"),
        ({"card": 18.0, "calibration.length": 4096}, "with a single sequence at a time, more than the 18.0"),
    ],
)
def test_what_cannot_fit_is_refused_with_what_would_help(changes, words):
    verdict = forecast_of(**changes)
    assert words in verdict.refusal and verdict.refusal.endswith(f"or start it with {ANYWAY}")
    assert len(verdict.refusal) <= 300
    assert "takes about" in verdict.refusal


def test_the_named_setting_makes_it_fit():
    changes = {"card": 28.0, "calibration.length": 8192}
    verdict = forecast_of(**changes)
    length = int(verdict.refusal.partition("set calibration.length ")[2].split(",")[0])
    assert 128 <= length < 8192
    assert not forecast_of(**(changes | {"calibration.length": length})).refusal


def test_a_model_larger_than_memory_is_explored_with_its_layers_in_their_files():
    forecasts = [forecast_of(card=12.0, offload=offload) for offload in (False, True)]
    in_memory, offloaded = [
        replace(forecast, stages=tuple(stage for stage in forecast.stages if stage.identity.kind in OFFLOADED))
        for forecast in forecasts
    ]
    assert in_memory.refusal.endswith("of a card: switch offload on, or start it with --anyway")
    assert not offloaded.refusal


SIZES = {"num_hidden_layers": 80, "intermediate_size": 28672, "num_attention_heads": 64, "hidden_size": 8192}
LARGE = Dimensions.of(SHAPES["llama3-8b"] | SIZES)
OVER_SEVERAL = Study("model", "A", "B", methods=("dense", "gprune"))
CARD = 80e9
LEARNING, STATISTICS = StageId("learning"), StageId("statistics", ("primary",))
PRUNED = StageId("perplexity", method="gprune", item=0)


@pytest.mark.parametrize(("gpus", "expected"), [(1, 1), (4, 4)])
def test_a_model_that_one_gpu_cannot_hold_lies_over_all_of_them(gpus, expected):
    capacity = Capacity("a card", CARD, 1e12, 1e12, gpus)
    assert count_gpus(LARGE, 2, capacity) == expected
    assert count_gpus(replace(LARGE, shape=replace(LARGE.shape, layers=8)), 2, capacity) == 1


def test_four_gpus_of_80_gb_prune_and_measure_it_and_two_do_not():
    for gpus, fits in ((4, True), (2, False)):
        case = Case(LARGE, OVER_SEVERAL, 2, True, gpus)
        for stage in (LEARNING, PRUNED):
            need = memory_need(stage, case)
            assert (need.on_device(need.batch) < CARD) == fits, stage
    need = memory_need(STATISTICS, Case(LARGE, OVER_SEVERAL, 2, True, 4))
    assert need.weights == pytest.approx(2 * LARGE.parameters / 4) and need.on_device(need.batch) < 0.75 * CARD
