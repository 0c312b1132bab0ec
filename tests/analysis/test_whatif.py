"""What would be kept under other thresholds: against the torch path, loops, and the run's own masks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic_run import a_study, write_run

from gprune.analysis import decisions, whatif
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import all_runs
from gprune.pruning.rasa import adapt
from gprune.pruning.sparsity.masks import MaskFamily
from gprune.pruning.sparsity.rounding import RankedUnits, exact_masks
from gprune.records import PruningMasks
from gprune.study import SparsitySettings
from gprune.system.errors import MethodError

METHODS = ("dense", "gprune", "flap", "flap_no_bias", "flap_pooled", "llm_pruner", "wanda_sp")


@pytest.fixture(scope="module", params=[1, 4], ids=["exact", "blocks of 4"])
def run(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("whatif")
    sparsity = SparsitySettings(alignment=request.param)
    write_run(root, study=a_study(methods=METHODS, sparsity=sparsity, retention=0.6))
    return all_runs(str(root))[0][0]


@pytest.fixture(scope="module")
def prepared(run):
    scores = [run.load(stages.scores, text) for text in stages.PAIR]
    inputs = run.load(stages.partition), run.load(stages.learning)
    return whatif.prepare(run.shape, *scores, *inputs, run.study.sparsity.alignment)


def test_the_runs_own_rule_at_its_own_retention_gives_its_own_masks(run, prepared):
    if run.study.sparsity.alignment > 1:
        pytest.skip("made-up learning rounds to single neurons")
    masks = run.load(stages.masks, "gprune")
    shifted = whatif.shifted_masks(prepared, run.load(stages.adapted_scores).source, run.study.retention)
    changed = decisions.overlaps(masks, shifted)
    assert not any(units.changed for units in changed.values())
    assert decisions.flips_title(changed) == "0 neurons and 0 key/value groups differ from this run"


@pytest.mark.parametrize("target", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("levels", [(0.0, 1.0), (0.5, 0.9), (1.0, 0.0)])
def test_other_settings_equal_ranking_everything_anew(run, prepared, levels, target):
    primary, auxiliary = (run.load(stages.scores, text) for text in stages.PAIR)
    partition, learning = run.load(stages.partition), run.load(stages.learning)
    settings = replace(run.study.reliability, drift_quantile=levels[0], score_quantile=levels[1])
    adapted = adapt(primary, auxiliary, partition, run.load(stages.modules), settings, run.study.seed)
    family = MaskFamily.of(RankedUnits.build(run.shape, adapted.scores, primary.heads, partition), torch.device("cpu"))
    thresholds = np.concatenate([learning.thresholds, learning.head_thresholds])
    expected = exact_masks(family.units, thresholds, target, run.study.sparsity.alignment).masks
    actual = whatif.shifted_masks(prepared, adapted.source, target)
    np.testing.assert_array_equal(actual.ffn, expected.ffn)
    np.testing.assert_array_equal(actual.heads, expected.heads)
    assert actual.retention == expected.retention and actual.target == target


@pytest.mark.parametrize("method", ["flap", "flap_pooled", "wanda_sp_dense", "wanda_sp_rank_average"])
def test_a_baseline_decided_here_is_what_a_run_at_that_retention_decides(run, method, tmp_path):
    study = replace(run.study, retention=0.4, methods=("dense", method))
    stage = stages.masks(whatif._change_study(run.graph, 0.4, whatif.PRIMARY), method)
    decision = whatif.decide(run.results, method, 0.4, whatif.PRIMARY)
    again = stages.masks(stages.Graph(study, run.graph.inputs), method)
    assert stage.key == again.key and decision.method == method and decision.target == 0.4
    assert decision.retention == pytest.approx(0.4, abs=0.02)


def test_adapted_scores_decide_as_far_as_they_differ_from_those_of_a(run):
    adapted, primary = run.load(stages.adapted_scores).scores, run.load(stages.scores)
    same = whatif.decide(run.results, "flap", 0.5, whatif.ADAPTED, primary.ffn)
    np.testing.assert_array_equal(same.ffn, whatif.decide(run.results, "flap", 0.5, whatif.PRIMARY).ffn)
    other = whatif.decide(run.results, "flap", 0.5, whatif.ADAPTED, adapted)
    changed_layers = (adapted != primary.ffn).any(axis=1)
    assert changed_layers.any() and isinstance(other, PruningMasks)


@pytest.mark.parametrize(
    ("method", "scoring", "reason"),
    [
        ("wanda_sp", "primary", "Wanda-sp scores each layer on the outputs of pruned layers"),
        ("flap_pooled", "auxiliary", "FLAP, pooled is scored on both texts as one"),
        ("wanda_sp_dense", "adapted", "adapted scores exist for flap only"),
        ("gates", "primary", "Gates has a learned value for every unit, so other masks would need new learning"),
        ("llm_pruner", "auxiliary", "LLM-Pruner needs “importance scores of LLM-Pruner on B”"),
    ],
)
def test_what_cannot_be_decided_here_says_why(run, method, scoring, reason):
    assert whatif.obstacle(run.results, method, scoring).startswith(reason)
    with pytest.raises(MethodError, match=reason[:20]):
        whatif.decide(run.results, method, 0.5, scoring)


def test_flips_are_counted_by_layer_and_by_side():
    before = PruningMasks("gprune", np.array([[1, 1, 0], [0, 0, 1]], bool), np.array([[1], [1]], bool), 0.5, 0.5)
    after = PruningMasks("gprune", np.array([[1, 0, 0], [1, 1, 1]], bool), np.array([[1], [0]], bool), 0.5, 0.5)
    overlaps = decisions.overlaps(before, after)
    assert overlaps["neurons"].first.tolist() == [1, 0] and overlaps["neurons"].second.tolist() == [0, 2]
    assert (overlaps["neurons"].changed, overlaps["groups"].changed) == (3, 1)
    title = "3 neurons change sides (50.00%), most of them in layer 1, and 1 key/value group"
    assert decisions.flips_title(overlaps) == title
    assert decisions.flip_table(overlaps)["neurons, removed → kept"].tolist() == [0, 2]
