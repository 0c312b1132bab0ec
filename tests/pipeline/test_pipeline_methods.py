"""Every method through the pipeline: what it gives, how often the model runs, who is left out."""

from dataclasses import replace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tiny_study
from tiny_study import silent

from gprune import pipeline
from gprune.data.texts import draw_windows
from gprune.models.loading import load
from gprune.pipeline import stages
from gprune.pruning.calibration.gradients import taylor_scores
from gprune.records import Partition, PruningMasks, Tokens, UnitScores, budget
from gprune.store import Store
from gprune.study import from_dict
from gprune.study.methods import CONTROLS, METHODS
from gprune.system.errors import CorpusError, SettingsError

pytestmark = pytest.mark.slow

CONTEXTS = {"count": 3, "dimensions": 4, "tokens": 64}
BASELINES = {"taylor_samples": 4, "taylor_length": 8}
EVERY = list(METHODS)


def study_of(workshop, **changes):
    values = tiny_study.settings(workshop["model"], workshop["texts"])
    values |= {"contexts": CONTEXTS, "baselines": BASELINES, "methods": EVERY}
    return from_dict(values | changes)


@pytest.fixture(scope="module")
def finished(workshop):
    store = Store(workshop["folder"] / "cache")
    study = study_of(workshop)
    return study, store, pipeline.run(study, store, silent, until="perplexity")


def test_every_method_is_pruned_to_the_target_and_measured(finished):
    study, store, result = finished
    assert result["unavailable"] == {}
    assert list(result["perplexity"]) == EVERY == list(result["retention"])
    shape = pipeline.opened(study, store).get(stages.shape)
    weights = shape.layers * (shape.neurons * 48 + shape.kv_heads * 6 * 4 * 16)
    for name in EVERY[1:]:
        assert abs(result["retention"][name] - study.retention) <= 6 * 4 * 16 / weights, name
        assert all(np.isfinite(value) and value > 1 for value in result["perplexity"][name].values()), name


def test_the_dense_model_runs_as_often_as_the_log_says_and_no_more(finished):
    study, _, result = finished
    passes = result["passes"]
    learning = {stage: passes.pop(stage) for stage in list(passes) if stage.startswith("learning")}
    assert len(learning) == 1 + sum(METHODS[name].decision == "learned" for name in CONTROLS)
    # a control learns in as many steps as GPrune, and so do gates
    gates = {stage: passes.pop(stage) for stage in list(passes) if stage.startswith("gates")}
    assert all(count == learning["learning"] for count in [*learning.values(), gates.pop("gates")])
    assert learning["learning"]["backward"] > 0
    assert gates["gates_gates_double"]["backward"] == 2 * learning["learning"]["backward"]
    # one way back a step, from 6 sequences of each of three texts
    assert gates["gates_gates_scaled"]["backward"] == study.scales.joint_steps * 18 / study.calibration.samples
    scales = passes.pop("scales_gprune_least_squares_scales_both_and_sampled")
    assert scales["backward"] == study.scales.steps * 18 / study.calibration.samples
    # beside the student the dense model goes over the sequences of the three texts
    assert scales["backward"] + 3 <= scales["forward"] < scales["backward"] + 4
    # what the recommended recipe is chosen from: four masks, each with a repair of two texts and one of three
    fits = [passes.pop(name)["forward"] for name in list(passes) if name.startswith("repaired") and "least" in name]
    assert sorted(fits) == 4 * [6.0] + 4 * [9.0]
    taylor = 4 * 8 / (study.calibration.samples * study.calibration.length)
    assert passes == {
        "statistics_primary": {"forward": 1.0, "backward": 0.0},
        "statistics_auxiliary": {"forward": 1.0, "backward": 0.0},
        "masks_wanda_sp": {"forward": 1.0, "backward": 0.0},
        "masks_osscar": {"forward": 3.0, "backward": 0.0},
        "repaired_osscar": {"forward": 3.0, "backward": 0.0},
        "masks_slimllm": {"forward": 4.0, "backward": 0.0},
        "repaired_slimllm": {"forward": 3.0, "backward": 0.0},
        # what the model writes, token by token: as much as calibrates, and what is chosen by
        "sampled_sampled": {"forward": 1.25, "backward": 0.0},
        "sampled_fresh_held_out": {"forward": 0.625, "backward": 0.0},
        "contexts_primary": {"forward": 0.25, "backward": 0.0},
        "context_statistics_primary": {"forward": 1.0, "backward": 1.0},
        "context_statistics_auxiliary": {"forward": 1.0, "backward": 1.0},
        "context_statistics_auxiliary_forward": {"forward": 1.0, "backward": 0.0},
        "scores_llm_pruner_primary": {"forward": round(taylor, 3), "backward": round(taylor, 3)},
    }


def test_llm_pruner_reads_a_text_of_its_own_and_nothing_else_does(workshop, finished, tmp_path):
    _, store, result = finished
    folder = tmp_path / "books" / "plain_text" / "train" / "0000.parquet"
    folder.parent.mkdir(parents=True)
    rows = [f"he walked {number} miles along the river" for number in range(40)]
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), folder)
    baselines = BASELINES | {"taylor_text": str(tmp_path / "books")}
    study = study_of(workshop, baselines=baselines, methods=["dense", "flap", "llm_pruner"])
    outcome = pipeline.run(study, store, silent, until="masks")
    computed = set(outcome["keys"]) - set(outcome["reused"])
    assert computed == {"tokens_gradient", "scores_llm_pruner_primary", "masks_llm_pruner"}
    tokens = store.get("tokens", outcome["keys"]["tokens_gradient"], Tokens)
    decoder = load(study.model, device="cpu")
    again = draw_windows(baselines["taylor_text"], decoder.tokenizer, 4, 8, study.seed)
    np.testing.assert_array_equal(tokens.ids, again.ids)
    expected = taylor_scores(decoder, again, study.baselines)
    scores = store.get("scores", outcome["keys"]["scores_llm_pruner_primary"], UnitScores)
    np.testing.assert_array_equal(scores.ffn, expected.ffn)
    before = store.get("scores", result["keys"]["scores_llm_pruner_primary"], UnitScores)
    assert np.abs(scores.ffn - before.ffn).max() > 0


def test_llm_pruner_alone_is_left_out_where_its_text_has_no_long_documents(workshop, finished, tmp_path):
    _, store, _ = finished
    short = tmp_path / "short.jsonl"
    short.write_text('{"text": "no"}\n{"text": "yes"}\n')
    baselines = BASELINES | {"taylor_text": str(short)}
    study = study_of(workshop, baselines=baselines, methods=["dense", "flap", "llm_pruner"])
    result = pipeline.run(study, store, silent, until="perplexity")
    assert list(result["perplexity"]) == ["dense", "flap"]
    assert "baselines.taylor_text: the text " in result["unavailable"]["llm_pruner"]
    gone = study.with_settings({"baselines.taylor_text": str(tmp_path / "gone.jsonl")})
    with pytest.raises(CorpusError, match="there is no text '.*gone.jsonl'"):
        pipeline.run(gone, store, silent, until="masks")
    # who does not ask for the method does not need its text
    without = replace(gone, methods=("dense", "flap"))
    assert "flap" in pipeline.run(without, store, silent, until="masks")["retention"]


def test_the_coupled_metric_adds_no_more_than_two_passes_a_text(workshop):
    study = study_of(workshop, metric="twflap", methods=["dense", "gprune"])
    store = Store(workshop["folder"] / "coupled")
    result = pipeline.run(study, store, silent, until="perplexity")
    for role, total in (("primary", 1.25), ("auxiliary", 1.0)):
        passes = [count for name, count in result["passes"].items() if name.startswith("context") and role in name]
        assert sum(count["forward"] for count in passes) == total
    backward = {stage: count["backward"] for stage, count in result["passes"].items() if count["backward"]}
    assert set(backward) == {"context_statistics_primary", "learning"}
    assert abs(result["retention"]["gprune"] - 0.5) < 0.02
    first = store.get("partition", result["keys"]["partition_first"], Partition)
    final = store.get("partition", result["keys"]["partition"], Partition)
    assert first.kind == "initialization" and final.kind == "refined"
    again = pipeline.run(study, store, silent, until="perplexity")
    assert set(again["reused"]) == set(again["keys"]) and again["passes"] == result["passes"]
    assert again["perplexity"] == result["perplexity"]


def test_a_method_that_cannot_run_says_why_and_the_others_are_there(workshop, tmp_path):
    study = study_of(
        workshop,
        methods=["dense", "flap", "fang", "llm_pruner"],
        baselines=BASELINES | {"fang_grouping": "released"},
        contexts=CONTEXTS | {"count": 7},
    )
    result = pipeline.run(study, Store(tmp_path), silent, until="perplexity")
    assert set(result["unavailable"]) == {"fang"}
    assert "27" in result["unavailable"]["fang"] and "fang_grouping" in result["unavailable"]["fang"]
    assert set(result["perplexity"]) == {"dense", "flap", "llm_pruner"}


def test_aligned_widths_of_every_method_are_multiples(workshop, finished):
    _, store, _ = finished
    methods = [name for name in EVERY if METHODS[name].scoring == "single"]
    study = study_of(workshop, methods=methods, sparsity={"epochs": 1, "batch": 8, "alignment": 4})
    result = pipeline.run(study, store, silent, until="masks")
    for name in methods[1:]:
        masks = store.get("masks", result["keys"][f"masks_{METHODS[name].masks}"], PruningMasks)
        widths = masks.ffn.sum(axis=1)
        assert all(width % 4 == 0 or width == 27 for width in widths), (name, widths)


def test_equal_widths_of_every_method_that_can_keep_them(workshop, finished):
    _, store, _ = finished
    methods = ["dense", *(name for name in EVERY[1:] if METHODS[name].supports_equal_widths and name != "recommended")]
    study = study_of(workshop, methods=methods, sparsity={"epochs": 1, "batch": 8, "widths": "equal"})
    result = pipeline.run(study, store, silent, until="masks")
    shape = pipeline.opened(study, store).get(stages.shape)
    neurons, groups = budget.equal_counts(shape, study.retention)
    for name in methods[1:]:
        masks = store.get("masks", result["keys"][f"masks_{METHODS[name].masks}"], PruningMasks)
        assert set(masks.ffn.sum(axis=1)) == {neurons} and set(masks.heads.sum(axis=1)) == {groups}, name
    for name in ("llm_pruner", "slimllm"):
        with pytest.raises(SettingsError, match="sparsity.widths equal keeps the same number of units"):
            study_of(workshop, methods=["dense", name], sparsity={"widths": "equal"})
