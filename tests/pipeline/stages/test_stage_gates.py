"""Gates as a stage: what its key depends on, what it is given, and that no other study's key moves."""

from dataclasses import replace

import pytest
from stages.test_stage_controls import before, graph_of, keys
from synthetic_run import a_study, write_run

from gprune.pipeline import stages
from gprune.pipeline.runs.opened import all_runs
from gprune.pipeline.stages import every_need, method_inputs, order
from gprune.study import run_name
from gprune.study.demo import demo_study
from gprune.study.methods import METHODS, METRICS, repairs_of

GATED = ("gates", "gates_double")


def behind(study, method="gates"):
    return {stage.name for stage in order([stages.gates(graph_of(study), method)])}


def test_gates_add_their_stages_and_change_no_key_and_no_name_of_a_run():
    study = demo_study()
    with_them = keys(replace(study, methods=(*study.methods, *GATED)))
    assert {name: with_them[name] for name in before()} == before()
    added = set(with_them) - set(before())
    assert {"gates", "gates_gates_double", "masks_gates", "masks_gates_double"} <= added
    changed = study.with_settings({"gates.learning_rate": 0.3})
    # none of its own results knows of the section, but it is another study
    assert keys(changed) == keys(study) and run_name(changed) != run_name(study)


def test_twice_the_steps_are_the_gates_of_twice_the_epochs():
    study = replace(demo_study(), methods=GATED)
    epochs = study.sparsity.epochs
    other = graph_of(study.with_settings({"sparsity.epochs": 2 * epochs}))
    assert stages.gates(graph_of(study), "gates_double").key == stages.gates(other).key
    assert stages.gates(graph_of(study)).key != stages.gates(other).key
    settled = study.with_settings({"sparsity.supervision": "primary", "sparsity.penalty": 1.0})
    assert stages.gates(graph_of(settled)).key == stages.gates(graph_of(study)).key


@pytest.mark.parametrize("metric", METRICS)
def test_gates_start_from_the_scores_of_the_metric_on_a_or_on_both(metric):
    study = replace(demo_study(), metric=metric, methods=("gates",))
    alone, both = (stages.gates(graph_of(study.with_settings({"gates.start": start}))) for start in ("primary", "mean"))
    needs = [[need for need in every_need(stage.needs) if need.kind == "scores"] for stage in (alone, both)]
    texts = [[need.id.texts[0] for need in scores] for scores in needs]
    assert texts == [["primary"], ["primary", "auxiliary"]] and alone.key != both.key
    assert {"tokens_primary", "tokens_auxiliary", "scores_primary"} <= behind(study)
    # token-weighted scores are made within modules; no other metric needs any
    assert ("partition" in behind(study)) == (metric == "twflap") and "adapted" not in behind(study)


def test_what_gates_were_given_and_that_they_count_as_ours(tmp_path):
    study = a_study(methods=("dense", "gprune", "flap", *GATED))
    write_run(tmp_path, study=study)
    run = all_runs(str(tmp_path))[0][0]
    result = method_inputs(run.results, "gates")
    assert result.texts == ("A", "B") and result.steps == 40
    for name in GATED:
        method = METHODS[name]
        assert method.learns and not method.baseline and not method.control
        switched = study.with_settings({"sparsity.bias_compensation": True})
        assert repairs_of(method, study) == () and len(repairs_of(method, switched)) == 1
