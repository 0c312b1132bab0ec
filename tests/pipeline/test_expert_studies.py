"""Studies of mixture-of-experts models: from the texts to measured models and a stock folder, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_study
from tiny_experts import METHODS, MIXTURES, study_of, tiny_mixture
from transformers import AutoModelForCausalLM, AutoTokenizer

import gprune
from gprune import pipeline
from gprune.evaluation import speed
from gprune.evaluation.perplexity import perplexity
from gprune.models import inspection
from gprune.pipeline import arrays, stages
from gprune.pipeline.estimate import estimate_missing
from gprune.pipeline.runs.opened import all_runs
from gprune.pipeline.stages.inputs import require_usable
from gprune.store import Store
from gprune.store.resumption import VARIABLE
from gprune.study import demo, from_dict, methods
from gprune.system.errors import Cancelled, GpruneError, ModelError, SettingsError
from gprune.system.progress import Notice


def highest(scores: np.ndarray, groups: int) -> np.ndarray:
    """Half of the experts of every layer and group, by descending score."""
    parts = scores.reshape(len(scores), groups, -1)
    return (np.argsort(np.argsort(-parts, axis=2), axis=2) < parts.shape[2] // 2).reshape(scores.shape)


@pytest.mark.parametrize(("family", "groups"), [("qwen3_moe", 1), ("deepseek_v3", 3)])
def test_a_study_computes_statistics_drift_masks_perplexities_and_a_stock_folder(family, groups, tmp_path):
    study, store = from_dict(study_of(tmp_path, family)), Store(tmp_path / "cache")
    result = pipeline.run(study, store, tiny_study.silent)
    assert not result["unavailable"] and result["perplexity"].keys() == set(METHODS)
    assert result["experts"] == {name: 12 if name == "dense" else 6 for name in METHODS}
    assert {share for name, share in result["retention"].items() if name != "dense"} == {0.5}
    results = pipeline.opened(study, store)
    kinds = {stage.kind for stage in results.plan("all")}
    assert not kinds & {"shape", "norms", "statistics", "scores", "drift", "learning", "masks"}
    assert {stage.kind for stage in results.plan("adapted")} == {
        *("tokens", "expert_statistics", "expert_scores", "expert_drift", "expert_adaptation", "expert_shape")
    }

    nothing = stages.Results(Store(tmp_path / "new"), results.graph)
    estimate = estimate_missing(stages.execution_plan(results.graph), nothing)
    case, parameters = estimate.case, result["parameters"]
    # correction biases are no parameters, but they are in the files
    assert case.weights == pytest.approx(4 * parameters["dense"], rel=1e-3) and case.pruned("dense") == 0
    removed = parameters["dense"] - parameters["experts_reap"]
    assert case.pruned("experts_reap") == pytest.approx(4 * removed, rel=1e-3)
    needs = {stage.identity.kind: stage.need for stage in estimate.stages}
    assert {"expert_statistics", "perplexity", "checkpoint"} <= needs.keys()
    statistics = results.get(stages.expert_statistics, "primary")
    stored = sum(getattr(statistics, name).nbytes for name in ("routed", "weights", "norms", "positions", "strengths"))
    assert stored < needs["expert_statistics"].host < 4 * stored

    # masks and drift follow from the stored sums
    values = arrays.collect_arrays(results)
    routed, weighted = (
        [values[f"expert_{name}_{role}"].sum(0) for role in stages.PAIR] for name in ("routed", "weighted_norms")
    )
    assert min(counts.min() for counts in routed) >= 16 and sum(routed[0][0]) == 32 * 32 * 2
    reap = [w / n for w, n in zip(weighted, routed, strict=True)]
    assert np.array_equal(values["expert_mask_experts_reap"], highest(reap[0], groups))
    assert np.array_equal(values["expert_mask_experts_frequency_auxiliary"], highest(routed[1], groups))
    adapted = results.get(stages.adapted_experts, "reap")
    assert adapted.from_auxiliary.any()
    scores = np.where(adapted.from_auxiliary, reap[1], reap[0])
    assert np.array_equal(values["expert_mask_experts_reap_adapted"], highest(scores, groups))
    ranks = [np.argsort(np.argsort(score, axis=1), axis=1) for score in reap]
    np.testing.assert_allclose(values["expert_drift_reap"], (ranks[0] - ranks[1]) / 11)
    summary = result["expert_drift"]["reap"]
    assert summary["drift"] == pytest.approx(abs(ranks[0] - ranks[1]).mean() / 11) and summary["cold"] == 0
    assert summary["resample_primary"] == pytest.approx(np.nanmean(values["resample_drift_primary_reap"]))

    # the folder is a stock model, whose perplexity is the measured one
    loaded, text = AutoModelForCausalLM.from_pretrained(result["checkpoint"]), study.evaluation.texts[0]
    assert sum(p.numel() for p in loaded.parameters()) == result["parameters"]["experts_reap"]
    tokenizer = AutoTokenizer.from_pretrained(result["checkpoint"])
    ids = tokenizer(Path(text).read_text(), add_special_tokens=False).input_ids
    measured = perplexity(loaded.eval(), np.array(ids), text, study.evaluation)
    assert measured.perplexity == pytest.approx(result["perplexity"]["experts_reap"][text], rel=1e-5)
    record = json.loads((Path(result["checkpoint"]) / "experts.json").read_text())
    assert record["kept_experts"] == [np.flatnonzero(row).tolist() for row in values["expert_mask_experts_reap"]]
    card = (Path(result["checkpoint"]) / "README.md").read_text()
    assert "# model with 6 of 12 experts" in card and 'from_pretrained("FOLDER")\n' in card

    assert len(pipeline.run(study, store, tiny_study.silent)["reused"]) == len(results.plan("all"))
    run = gprune.open(result["run"], cache=tmp_path / "cache")
    assert run.masks["experts_reap"].kept.sum() == 6 * len(record["kept_experts"])
    exported = run.export(tmp_path / "out", "experts_random")
    assert inspection.inspect(str(exported)).prunable == "experts, by methods such as experts_reap"
    assert [opened.name for opened in all_runs(str(store.root))[0]] == [run.name]

    layers = results.get(stages.expert_shape).layers
    assert all(
        set(frame["layer"]) == set(layers) for frame in (run.drift, run.scores, run.experts, *run.masks.values())
    )
    of_reap = run.drift["criterion"] == "reap"
    np.testing.assert_allclose(run.drift["signed_drift"][of_reap], values["expert_drift_reap"].ravel())
    assert np.array_equal(run.scores["adapted"][run.scores["criterion"] == "reap"], adapted.values.ravel())
    assert np.array_equal(run.experts["routed"], np.concatenate([counts.ravel() for counts in routed]))


def test_tasks_speed_and_generated_answers_are_estimated_and_measured(tmp_path, monkeypatch):
    monkeypatch.setitem(speed.PRESETS, "cpu", speed.SpeedSettings(1, 8, 4, 1, "float32", "cpu", ("eager",)))
    study = from_dict(study_of(tmp_path, methods=["dense", "experts_reap"]))
    changes = {"texts": [], "tasks": ["demo_cloze"], "limit": 2, "speed": "cpu", "open_questions": True}
    changes["generated_tokens"] = 4
    study = study.with_settings({f"evaluation.{name}": value for name, value in changes.items()})
    store = Store(tmp_path / "cache")
    result = pipeline.run(study, store, tiny_study.silent)
    assert not result["unavailable"] and not result["unavailable_tasks"]
    assert result["accuracy"].keys() == {row["model"] for row in result["speed"]["rows"]} == set(study.methods)
    sizes = {row["model"]: row["parameters"] for row in result["speed"]["rows"]}
    assert sizes == result["parameters"] and sizes["experts_reap"] < sizes["dense"]
    results = pipeline.opened(study, store)
    estimate = estimate_missing(results.plan("all"), stages.Results(Store(tmp_path / "new"), results.graph))
    kinds = {"accuracy", "answers", "open_answers", "speed"}
    assert kinds <= {stage.identity.kind for stage in estimate.stages} and all(
        results.holds(stage) for stage in results.plan("all") if stage.kind in kinds
    )


def test_refitted_routers_serve_every_result_and_a_stopped_run_ends_with_the_same_bits(tmp_path, monkeypatch):
    names, switch = ("dense", "experts_reap", "experts_random"), {"kind": "router", "texts": "primary"}
    values = study_of(tmp_path, "gpt_oss", methods=names, repair=switch, recovery={"steps": 6, "batch": 8})
    study, store = from_dict(values), Store(tmp_path / "cache")
    result = pipeline.run(study, store, tiny_study.silent)
    results = pipeline.opened(study, store)
    routers = {name: results.get(stages.router_weights, name) for name in names[1:]}
    plain = pipeline.run(from_dict(values | {"repair": {}}), store, tiny_study.silent)
    assert plain["perplexity"]["dense"] == result["perplexity"]["dense"] and plain["retention"] == result["retention"]
    assert all(plain["perplexity"][name] != result["perplexity"][name] for name in routers)
    assert result["given"]["experts_random"]["repair"] == "refitted routers on A"
    assert result["given"]["experts_reap"]["steps"] == 6 and plain["given"]["experts_reap"]["steps"] == 0

    folder, run = Path(result["checkpoint"]), gprune.open(result["run"], cache=tmp_path / "cache")
    router = AutoModelForCausalLM.from_pretrained(folder).model.layers[1].mlp.router
    assert np.array_equal(router.weight.detach(), routers["experts_reap"].weights[1])
    assert np.array_equal(router.bias.detach(), routers["experts_reap"].biases[1])
    assert json.loads((folder / "experts.json").read_text())["refitted_routers"]
    assert "The routers were refitted: trained to match" in (folder / "README.md").read_text()
    live = [run.model("experts_random", repair=repair).model.layers[1].mlp.router for repair in (None, "none")]
    assert np.array_equal(live[0].weight.detach(), routers["experts_random"].weights[1])
    kept = results.get(stages.expert_masks, "experts_random").experts[1]
    assert np.array_equal(
        live[1].weight.detach(), run.model("dense").model.layers[1].mlp.router.weight.detach()[kept.copy()]
    )

    nothing = stages.Results(Store(tmp_path / "new"), results.graph)
    needs = {stage.identity.name: stage.need for stage in estimate_missing(results.plan("all"), nothing).stages}
    assert needs["routers_experts_reap"].setting == "recovery.batch"
    assert needs["routers_experts_reap"].weights == needs["perplexity.experts_reap.0"].weights

    monkeypatch.setenv(VARIABLE, "0")
    other = Store(tmp_path / "stopped")

    def stop(stage, done, total, message):
        if stage == "routers_experts_reap" and done == 3 and not isinstance(message, Notice):
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        pipeline.run(study, other, stop, until="perplexity")
    received = []
    pipeline.run(study, other, lambda *event: received.append(event), until="perplexity")
    assert any("resumes at step 4 of 6" in event[3] for event in received if event[0] == "routers_experts_reap")
    resumed = pipeline.opened(study, other).get(stages.router_weights, "experts_reap")
    for name in ("weights", "biases", "steps"):
        assert getattr(resumed, name).tobytes() == getattr(routers["experts_reap"], name).tobytes()


def test_only_masks_depend_on_retention_and_only_random_ones_on_the_seed():
    study = replace(demo.demo_study(), methods=METHODS)
    evaluation = dict.fromkeys(study.evaluation.texts, "e")
    inputs = stages.Inputs("m", "t", "float32", {"primary": "a", "auxiliary": "b"}, evaluation)
    keys = {stage.name: stage.key for stage in stages.all_stages(stages.Graph(study, inputs))}
    changed = {}
    for name, change in {"retention": {"retention": 0.6}, "quantile": {"reliability.drift_quantile": 0.8}}.items():
        graph = stages.Graph(study.with_settings(change), inputs)
        changed[name] = {stage.name for stage in stages.all_stages(graph) if stage.key != keys[stage.name]}
    assert {name.split(".")[0].split("_experts")[0] for name in changed["retention"]} == {
        *("expert_masks", "perplexity", "checkpoint")
    }
    assert {name for name in changed["quantile"] if name.startswith("expert")} == {
        *(f"expert_adaptation_{criterion}" for criterion in ("frequency", "reap", "man")),
        "expert_masks_experts_reap_adapted",
    }


def test_a_study_of_neurons_shows_no_trace():
    assert not set(methods.EXPERT_METHODS) & set(methods.METHODS) and len(methods.EXPERT_METHODS) == 17
    assert not any(name.startswith("experts") for name in methods.choices())
    assert not any("expert" in stage.name for stage in stages.all_stages(stages.Graph(demo.demo_study())))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"methods": ["dense", "experts_reap", "flap"]},
            "methods must be dense or a method of experts next to expe",
        ),
        ({"repair": {"kind": "least_squares"}}, "repair.kind must be own, none or router with experts_reap"),
        ({"repair": {"kind": "router"}, "methods": ["flap"]}, "repair.kind must be a kind other than router"),
        ({"recovery": {"kind": "lora"}}, "recovery.kind must be none with experts_reap"),
        ({"offload": True}, "offload must be false with experts_reap, which needs the whole model"),
        ({"methods": ["experts_wanda"]}, "methods must be one of experts_frequency, experts_freq"),
    ],
)
def test_settings_of_neurons_are_refused_for_experts(changes, words):
    with pytest.raises(SettingsError, match=words):
        from_dict({"model": "m", "primary": "a", "auxiliary": "b", "methods": METHODS} | changes)


@pytest.mark.parametrize("method", ["gprune", "gates", "osscar", "fang", "flap", "wanda_sp", "llm_pruner", "slimllm"])
def test_methods_of_neurons_are_refused_for_every_mixture(method, tmp_path):
    values = study_of(tmp_path, methods=["dense", method])
    for family in MIXTURES:
        tiny_mixture(family).model.save_pretrained(values["model"])
        with pytest.raises(
            SettingsError, match=f"methods has '{method}', which prunes neurons, but the .* is a mixture"
        ):
            require_usable(from_dict(values))


def test_a_model_or_retention_that_does_not_fit_is_refused(tmp_path):
    values = study_of(tmp_path)
    with pytest.raises(SettingsError, match=r"retention 0\.1 keeps 1 of 12 experts, but the router needs 2: choose"):
        require_usable(from_dict(values | {"retention": 0.1}))
    with pytest.raises(ModelError, match="is a dense model, whose experts cannot be pruned here"):
        require_usable(from_dict(values | {"model": "demo"}))
    Path(values["model"], "model.safetensors").unlink()
    with pytest.raises(GpruneError, match="has no weights"):
        require_usable(from_dict(values))
