"""Which results a setting changes by itself: every field of a study, and nothing behind their backs."""

from dataclasses import replace

import numpy as np
import pytest

from gprune.evaluation import protocol
from gprune.pipeline.stages import Graph, Inputs, masks, required_stages, stages_by_name
from gprune.pipeline.stages.inputs import CHECK, FRESH, GRADIENT, SAMPLED, roles, tokens_read
from gprune.records import TextOverlap
from gprune.study import field_names
from gprune.study.demo import demo_study
from gprune.study.methods import METHODS

FREE = "none"


def same(section, value, kinds, *names):
    """Settings of a section that are changed to one value and change the same kinds of results."""
    return {f"{section}.{name}": (value, kinds) for name in names}


CHANGES = {
    # what is read is in the digests, and who is called what changes nothing
    "model": ("/another/model", FREE),
    "primary": ("ptb", FREE),
    "auxiliary": ("ptb", FREE),
    "substitute": ("ptb", FREE),
    "name": ("another", FREE),
    "group": ("another", FREE),
    "text_names": (("text=python-reference",), FREE),
    "device": ("cpu", FREE),
    "dtype": ("float16", FREE),
    "trust_remote_code": (True, FREE),
    "offload": (True, FREE),
    "calibration.batch": (4, FREE),
    "evaluation.batch": (4, FREE),
    "evaluation.task_folder": ("/elsewhere", FREE),
    "evaluation.texts": (("python-code",), FREE),
    "evaluation.tasks": (("demo_cloze",), "accuracy answers questions"),
    "metric": ("wanda_sp", "scores"),
    "retention": (0.7, "gates learning masks"),
    "seed": (1, "clusters tokens"),
    "methods": (("dense", "gprune"), "speed"),
    "calibration.samples": (64, "sampled tokens"),
    "calibration.length": (64, "sampled tokens"),
    "calibration.shards": (4, "context_statistics statistics"),
    "calibration.flap_variant": ("released", "scores masks"),
    "calibration.square_head_score": (False, "masks scores"),
    "calibration.positions": (3, "positions"),
    "contexts.count": (5, "contexts"),
    "contexts.dimensions": (32, "contexts"),
    "contexts.tokens": (512, "contexts"),
    "contexts.temperature": (0.5, "masks scores"),
    "contexts.clustering": ("released", "contexts"),
    "contexts.module_profile": ("mixed", "scores"),
    "baselines.taylor_samples": (4, "scores"),
    "baselines.taylor_length": (8, "scores"),
    "baselines.taylor_text": ("bookcorpus", "scores"),
    "baselines.fang_grouping": ("released", "groups"),
    "modularization.kind": ("random", "partition"),
    "modularization.candidates": ((8, 16), "clusters"),
    "modularization.restarts": (5, "clusters"),
    "modularization.seeding": ("greedy", "clusters"),
    "modularization.steps": (3, "partition"),
    "modularization.direction": ("magnitude", "partition"),
    "reliability.selection": ("drift", "adapted"),
    "reliability.source": ("random", "adapted"),
    "reliability.drift_quantile": (0.5, "adapted"),
    "reliability.score_quantile": (0.5, "adapted"),
    "reliability.score_scale": ("standardized", "modules"),
    "sparsity.epochs": (5, "gates learning"),
    "sparsity.batch": (16, "gates learning"),
    "sparsity.supervision": ("dual", "learning"),
    "sparsity.surrogate": ("sigmoid", "learning"),
    "sparsity.attention": ("gprune", "learning masks"),
    "sparsity.alignment": (8, "gates learning masks"),
    "sparsity.widths": ("equal", "gates learning masks"),
    "sparsity.bias_compensation": (True, "accuracy answers checkpoint perplexity speed"),
    "gates.start": ("mean", "gates"),
    "repair.kind": ("affine", "repaired"),
    "repair.texts": ("primary", "repaired"),
    "repair.sampled": ("self:#seed=1", "sampled"),
    "repair.target": ("own_inputs", "repaired"),
    "repair.damping": (0.3, "repaired"),
    "scales.steps": (5, "scales"),
    "scales.batch": (6, "gates scales"),
    "scales.samples": (5, "gates scales"),
    "scales.texts": ("both", "gates scales"),
    "scales.learning_rate": (0.3, "scales"),
    "scales.joint_steps": (5, "gates"),
    "recovery.kind": ("lora", FREE),
    "recovery.texts": ("primary", "recovered"),
    "recovery.alpha": (3.0, "recovered"),
    "recovery.targets": (("o_proj", "down_proj"), "recovered"),
    "recovery.cross_entropy_weight": (0.3, "recovered"),
    "choice.check_text": ("ptb", "candidate overlap"),
    "choice.sequences": (9, "sampled tokens"),
    "choice.fresh": ("self:#seed=3", "sampled"),
    "choice.repairs": (("least_squares:both",), "choice"),
    "choice.masks": (("gprune",), "choice"),
    "evaluation.preset": ("64", "overlap perplexity"),
    "evaluation.windows": (9, "overlap perplexity"),
    "evaluation.limit": (7, "accuracy answers questions"),
    "evaluation.few_shot": (3, "accuracy answers questions"),
    "evaluation.chat_template": (True, "accuracy answers questions"),
    "evaluation.open_questions": (True, FREE),
    # in the keys of own prompts and open questions only: tests/evaluation/test_generated.py
    "evaluation.generated_tokens": (9, FREE),
    "evaluation.speed": ("gpu", "speed"),
    **same("modularization", 0.3, "partition", "split_fraction", "pair_weight", "repulsion_weight"),
    **same("modularization", 0.3, "partition", "consistency_weight", "learning_rate", "temperature"),
    **same("sparsity", 0.3, "gates learning", "distillation_weight", "distillation_temperature"),
    **same("sparsity", 0.3, "learning", "learning_rate", "penalty", "dual_rate"),
    **same("gates", 0.3, "gates", "learning_rate", "temperature"),
    **same("scales", 0.3, "gates scales", "distillation_weight", "distillation_temperature"),
    **same("scales", 0.3, "gates scales", "bias_rate", "cross_entropy_weight"),
    **same("scales", 0.3, "gates", "joint_rate", "gate_rate"),
    **same("recovery", 0.3, "recovered", "learning_rate", "distillation_weight", "distillation_temperature"),
    **same("recovery", 3, "recovered", "steps", "batch", "rank"),
}


@pytest.fixture(scope="module")
def study():
    result = replace(demo_study(), metric="flap", methods=tuple(METHODS))
    return result.with_settings({"evaluation.tasks": ["demo_order"], "evaluation.speed": "auto"})


@pytest.fixture(scope="module")
def inputs(study):
    blank = Inputs.unknown(study)
    digests = {role: f"{role}’s text" for role in (*blank.calibration, GRADIENT, SAMPLED, FRESH, CHECK)}
    tasks = {"demo_order": "1", "demo_cloze": "2"}
    return replace(blank, calibration=digests, tasks=tasks, evaluation={**blank.evaluation, "ptb": "e"})


def test_every_field_of_a_study_is_in_the_table():
    assert set(CHANGES) == set(field_names())


@pytest.mark.parametrize("field", CHANGES)
def test_a_setting_changes_what_it_says_and_what_follows_from_that(study, inputs, field):
    value, expected = CHANGES[field]
    if field.startswith("contexts."):
        study = replace(study, metric="twflap")
    if field == "sparsity.widths":
        study = replace(study, methods=tuple(name for name, method in METHODS.items() if method.supports_equal_widths))
    needed = {
        "repair": {"repair.kind": "least_squares", "repair.texts": "both_and_sampled"},
        "scales": {"repair.kind": "own+scales"},
        "recovery": {} if field == "recovery.kind" else {"recovery.kind": "lora"},
    }
    study = study.with_settings(needed.get(field.partition(".")[0], {}))
    before = {stage.id: stage for stage in stages_by_name(Graph(study, inputs)).values()}
    after = {stage.id: stage for stage in stages_by_name(Graph(study.with_settings({field: value}), inputs)).values()}
    changed = {key for key in before.keys() & after.keys() if before[key].key != after[key].key}
    first = {key.kind for key in changed if not changed & {need.id for need in required_stages(after[key])}}
    assert " ".join(sorted(first)) == (" ".join(sorted(expected.split())) if expected != FREE else "")


def test_the_text_of_llm_pruner_is_read_by_a_method(study):
    study = replace(study, methods=("dense", "flap")).with_settings({"baselines.taylor_text": "own.jsonl"})
    study = study.with_settings({"evaluation.texts": ("own.jsonl",)})
    result = protocol.holdout_statuses(study, {GRADIENT: "digest"}, {"own.jsonl": "digest"}, {})["own.jsonl"]
    assert set(result.kin) == {"A", "B"} and result.is_other_corpus
    study = replace(study, methods=("dense", "llm_pruner"))
    result = protocol.holdout_statuses(study, {GRADIENT: "digest"}, {"own.jsonl": "digest"}, {})["own.jsonl"]
    assert result.brief == "same text as LLM-Pruner’s own text" and not result.is_other_corpus
    # an overlap is measured with A and B alone, whether or not that text can be had
    study = study.with_settings({"evaluation.texts": ("other.txt",)})
    shares = {"other.txt": TextOverlap("other.txt", 17, 1, np.zeros(2), np.ones(2))}
    assert protocol.holdout_statuses(study, {}, {}, shares)["other.txt"].unseen


@pytest.mark.parametrize(
    ("method", "changes", "needed"),
    [("llm_pruner", {"baselines.taylor_text": "bookcorpus"}, {GRADIENT}), ("recommended", {}, {SAMPLED, FRESH})],
)
def test_pages_may_ask_for_a_method_whose_texts_a_study_has_not_read(study, inputs, method, changes, needed):
    study = replace(study, methods=("dense", "flap")).with_settings(changes)
    assert not needed & set(roles(study))
    digests = {role: text for role, text in inputs.calibration.items() if role in ("primary", "auxiliary")}
    requested = masks(Graph(study, replace(inputs, calibration=digests)), method)
    fewer = replace(study, methods=("dense", method))
    assert needed < set(roles(fewer)) and requested.key != masks(Graph(fewer, inputs), method).key


def test_of_each_text_as_much_is_asked_for_as_the_study_reads():
    changes = {"evaluation.windows": 5, "evaluation.preset": "32"}
    study = demo_study().with_settings(changes | {"calibration.samples": 10, "calibration.length": 8})
    cut = study.baselines.taylor_samples * study.baselines.taylor_length
    requested = {role: tokens_read(study, role) for role in ("primary", "substitute", GRADIENT, "evaluation")}
    assert requested == {"primary": 320, "substitute": 320, GRADIENT: 256 * cut, "evaluation": 160}
    full = study.with_settings({"evaluation.windows": None})
    assert tokens_read(full, "evaluation") is None
