"""A text that the model writes, wherever a text can be: its stage, its keys, and a run that reads it."""

from dataclasses import replace

import numpy as np
import pytest
import tiny_study
import torch

from gprune import pipeline
from gprune.models.loading import load
from gprune.pipeline import stages
from gprune.pipeline.stages import Graph, execution_plan, required_stages
from gprune.pipeline.stages.inputs import read_inputs
from gprune.store import Store
from gprune.study import from_dict

OWN, OTHER = "self:#keep=0.5", "self:#seed=1&temperature=0.9"


def study_of(workshop, **changes):
    texts = workshop["texts"]
    values = tiny_study.settings(workshop["model"], texts, primary=OWN, methods=["dense", "flap"])
    values["evaluation"] = {"texts": [OTHER, texts[2]], "preset": "16", "windows": 6}
    return from_dict(values | changes)


def graph_of(study):
    return Graph(study, read_inputs(study))


def keys(study):
    graph = graph_of(study)
    return {stage.name: stage.key for stage in execution_plan(graph, "perplexity")}


def test_it_is_drawn_in_a_stage_of_its_own_before_anything_reads_it(workshop):
    graph = graph_of(study_of(workshop))
    names = [stage.name for stage in execution_plan(graph, "perplexity")]
    assert names[:2] == ["sampled_primary", "tokens_primary"]
    assert stages.sampled_text(graph, "primary") in required_stages(stages.tokens(graph))
    for method in ("dense", "flap"):
        assert stages.sampled_text(graph, OTHER) in required_stages(stages.perplexity(graph, method, OTHER))
    assert stages.sampled_text(graph, OTHER).name == "sampled.evaluation.0"
    assert not required_stages(stages.tokens(graph, "auxiliary"))


def test_its_key_is_that_of_the_model_and_of_all_that_it_is_sampled_by(workshop):
    plain = keys(study_of(workshop))
    rendered = {name for name in plain if name.startswith("sampled")}
    follow = {"tokens_primary", "statistics_primary", "scores_primary", "drift", "masks_flap"}

    def changed(**changes):
        study = study_of(workshop)
        other = keys(study.with_settings(changes))
        return {name for name in plain if plain[name] != other[name]}

    for name in ("self:#keep=0.6", "self:#keep=0.5&seed=2", "self:#keep=0.5&length=8"):
        result = changed(primary=name)
        assert follow | {"sampled_primary"} <= result and "statistics_auxiliary" not in result
    assert "sampled_primary" in changed(**{"calibration.samples": 24})
    assert not rendered & changed(**{"calibration.batch": 3, "evaluation.batch": 2, "seed": 4})
    assert "sampled.evaluation.0" in changed(**{"evaluation.windows": 5})
    inputs = read_inputs(study_of(workshop))
    for field in ("model", "precision", "tokenizer"):
        graph = Graph(study_of(workshop), replace(inputs, **{field: "another"}))
        assert stages.sampled_text(graph, "primary").key != plain["sampled_primary"], field


@pytest.mark.slow
def test_a_run_reads_it_as_first_second_and_third_text_and_evaluates_on_it(workshop):
    folder, texts, model = (workshop[name] for name in ("folder", "texts", "model"))
    plain = study_of(workshop)
    turned = study_of(workshop, primary=texts[0], auxiliary=OTHER, substitute=OWN)
    store = Store(folder / "cache")
    for study in (plain, turned):
        result = pipeline.run(study, store, lambda *_: None, "perplexity")
    assert result["passes"]["sampled_auxiliary"] == {"forward": 1.25, "backward": 0.0}
    results = pipeline.opened(turned, store)
    assert results.has(stages.drift)
    # A of the one study is C of the other: drawn once
    same = pipeline.opened(plain, store).graph
    assert stages.sampled_text(results.graph, "substitute").key == stages.sampled_text(same, "primary").key
    saved = results.get(stages.sampled_text, "auxiliary")
    tokens = results.get(stages.tokens, "auxiliary")
    assert sorted(map(bytes, tokens.ids)) == sorted(map(bytes, saved.ids)) and len(tokens.ids) == 16
    evaluated = results.get(stages.sampled_text, OTHER).ids
    assert evaluated.shape == (6, 16) and not set(map(bytes, evaluated)) & set(map(bytes, saved.ids))
    assert results.get(stages.perplexity, "dense", OTHER).perplexity == pytest.approx(naive(model, evaluated))


def naive(model, ids):
    decoder = load(model, "cpu", "float32")
    with torch.no_grad():
        scores = decoder.model(torch.from_numpy(ids.astype(np.int64))).logits[:, :-1]
    targets = torch.from_numpy(ids[:, 1:].astype(np.int64))
    return float(torch.nn.functional.cross_entropy(scores.transpose(1, 2), targets).exp())


def test_the_digest_of_what_was_read_tells_models_and_amounts_apart(workshop):
    folder, texts = workshop["folder"], workshop["texts"]
    other = tiny_study.write_model(folder / "narrower", texts, neurons=25)
    study = study_of(workshop)
    studies = [study, study_of(workshop, model=other)]
    studies += [study.with_settings(change) for change in ({"dtype": "bfloat16"}, {"calibration.samples": 24})]
    results = [read_inputs(changed).calibration["primary"] for changed in studies]
    assert len(set(results)) == 4 and read_inputs(study).calibration["primary"] == results[0]
