"""The whole path on a small model: what it returns, what it reuses, what survives a stop at any stage."""

import multiprocessing
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import tiny_study
from waiting import limit

from gprune import pipeline
from gprune.pipeline import runs, stages
from gprune.records import PruningMasks
from gprune.store import Store
from gprune.study import from_dict, run_name
from gprune.system.errors import Cancelled, ModelError, NumericsError

pytestmark = pytest.mark.slow

METHODS = {"dense", "gprune", "flap", "flap_no_bias", "wanda_sp"}


def shape_of(study, store):
    return asdict(pipeline.opened(study, store).get(stages.shape))


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return tiny_study.workshop(tmp_path_factory.mktemp("study"))


def study_of(workshop, **changes):
    return from_dict(tiny_study.settings(workshop["model"], workshop["texts"], **changes))


class Heard:
    """Remembers which stages were computed and which were reused."""

    def __init__(self, stop_at=None):
        self.computed, self.reused, self.stop_at = [], [], stop_at

    def __call__(self, stage, done, total, message):
        if message == "reused":
            self.reused.append(stage)
        elif done == 0 and stage not in self.computed and stage != "model":
            self.computed.append(stage)
        if stage == self.stop_at:
            raise Cancelled("stop")


@pytest.fixture(scope="module")
def finished(workshop):
    store = Store(workshop["folder"] / "cache")
    study = study_of(workshop, substitute=workshop["texts"][2])
    return study, store, pipeline.run(study, store, Heard())


def test_the_result_names_every_method_text_and_stage(finished):
    study, store, result = finished
    assert set(result["perplexity"]) == METHODS == set(result["retention"]) == set(result["parameters"])
    for values in result["perplexity"].values():
        assert set(values) == set(study.evaluation.texts)
        assert all(np.isfinite(value) and value > 1 for value in values.values())
    assert result["retention"]["dense"] == 1.0
    assert Path(result["checkpoint"], "config.json").is_file()
    assert set(result["seconds"]) == set(result["keys"])
    assert runs.read(store, result["run"])["state"] == "done"


def test_the_result_says_what_every_method_was_given(finished):
    study, _, result = finished
    given = result["given"]
    assert set(given) == METHODS - {"dense"}
    assert given["flap"] == {
        "texts": ["A"],
        "forward passes": 1.0,
        "backward passes": 0.0,
        "steps": 0,
        "attention of GPrune": False,
        "repair": "bias compensation on A",
    }
    ours = given["gprune"]
    # 16 sequences of each text, 8 of both a step, one epoch
    assert (ours["texts"], ours["steps"]) == (["A", "B"], 4)
    assert ours["forward passes"] == sum(
        result["passes"][name]["forward"] for name in ("statistics_primary", "statistics_auxiliary", "learning")
    )
    assert ours["backward passes"] == result["passes"]["learning"]["backward"] > 0


def test_the_result_says_what_its_texts_are_and_by_what_protocol(finished):
    study, store, result = finished
    other, same = study.evaluation.texts
    assert result["texts"][same]["is"] == "same text as A" and not result["texts"][same]["unseen"]
    assert result["texts"][other]["declared"] == {"A": "other", "B": "other"}
    known = pipeline.opened(study, store).get(stages.overlap, same)
    assert known.windows == 6 and known.run == 16
    assert result["texts"][same]["overlap"]["A"] == known.share[0]
    numbers = result["protocol of"]["perplexity"]
    assert set(numbers) == METHODS and {n for of in numbers.values() for n in of.values()} == {0}
    (protocol,) = result["protocols"]
    assert protocol["what"] == "perplexity over 6 windows of 16 tokens" and protocol["limit"] == "at most 6"
    assert set(protocol["versions"]) == {"gprune", "torch", "transformers"}


def test_retention_meets_the_target_within_a_unit(finished):
    study, store, result = finished
    shape = shape_of(study, store)
    weights = shape["layers"] * (
        shape["neurons"] * 3 * shape["hidden"] + (shape["heads"] + shape["kv_heads"]) * 2 * 4 * shape["hidden"]
    )
    neuron, group = 3 * shape["hidden"] / weights, 6 * 4 * shape["hidden"] / weights
    assert abs(result["retention"]["gprune"] - 0.5) <= neuron
    for method in ("flap", "wanda_sp"):
        assert abs(result["retention"][method] - 0.5) <= group
        key = result["keys"][f"masks_{method}"]
        masks = store.get("masks", key, PruningMasks)
        kept = masks.ffn.sum() * 3 * shape["hidden"] + masks.heads.sum() * 6 * 4 * shape["hidden"]
        assert result["retention"][method] == pytest.approx(kept / weights, rel=1e-12)


def test_a_second_run_computes_nothing_and_says_the_same(finished):
    study, store, first = finished
    heard = Heard()
    second = pipeline.run(study, store, heard)
    assert heard.computed == []
    assert second["perplexity"] == first["perplexity"]
    assert set(second["reused"]) == set(second["keys"])


def test_a_changed_quantile_reruns_rasa_and_what_follows_only(finished):
    study, store, _ = finished
    heard = Heard()
    pipeline.run(study.with_settings({"reliability.drift_quantile": 0.5}), store, heard)
    assert "statistics_primary" in heard.reused and "partition" in heard.reused
    computed = {name.split(".")[0] for name in heard.computed}
    assert computed <= {"adapted", "learning", "masks_gprune", "checkpoint", "perplexity"}
    assert not any(name.startswith(("perplexity.dense", "perplexity.flap")) for name in heard.computed)


def test_a_lost_learning_is_learned_again_and_gives_the_same_masks(workshop, finished, tmp_path):
    store, study = Store(tmp_path), study_of(workshop)
    first = pipeline.run(study, store, Heard(), until="masks")
    assert "learning" not in first["reused"]
    folder = store.folder("learning", first["keys"]["learning"])
    (folder / "meta.json").unlink()
    heard = Heard()
    again = pipeline.run(study, store, heard, until="masks")
    assert "learning" in heard.computed and "masks_gprune" in heard.reused
    assert again["keys"] == first["keys"] and store.has("learning", first["keys"]["learning"])
    masks = store.get("masks", first["keys"]["masks_gprune"], PruningMasks)
    learned = pipeline.opened(study, store).get(stages.learning)
    assert (learned.ffn == masks.ffn).all() and (learned.heads == masks.heads).all()


def test_a_changed_text_leaves_no_stage_of_the_old_one_in_the_record(workshop, tmp_path):
    text = tmp_path / "changing.txt"
    text.write_bytes(Path(workshop["texts"][1]).read_bytes())
    store, study = Store(tmp_path / "c"), study_of(workshop, auxiliary=str(text))
    old = pipeline.run(study, store, Heard(), until="adapted")
    text.write_bytes(Path(workshop["texts"][2]).read_bytes())
    new = pipeline.run(study, store, Heard(), until="drift")
    stages = runs.read(store, new["run"])["stages"]
    assert old["run"] == new["run"] and "partition" in old["keys"]
    assert "partition" not in stages and stages["drift"]["key"] != old["keys"]["drift"]


@pytest.mark.parametrize(
    "stage",
    [
        "statistics_primary",
        "learning",
        "perplexity.flap.1",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("tokens_auxiliary", "drift", "partition", "modules", "masks_wanda_sp", "checkpoint")
        ),
    ],
)
def test_a_run_stopped_at_any_stage_goes_on_and_ends_the_same(workshop, finished, tmp_path, stage):
    store, study = Store(tmp_path), study_of(workshop)
    with pytest.raises(Cancelled):
        pipeline.run(study, store, Heard(stop_at=stage))
    stopped = runs.read(store, run_name(study))
    assert stopped["state"] == "cancelled"
    heard = Heard()
    result = pipeline.run(study, store, heard)
    assert set(stopped["stages"]) <= set(heard.reused)
    assert result["perplexity"] == finished[2]["perplexity"]


def _run_in_process(values, cache, results):
    result = pipeline.run(from_dict(values), Store(cache), Heard())
    results.put((result["perplexity"]["gprune"], len(result["keys"]), len(result["reused"])))


@pytest.mark.long
@pytest.mark.process
def test_two_runs_of_one_study_at_the_same_time_share_the_work(workshop, finished, tmp_path):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    values = tiny_study.settings(workshop["model"], workshop["texts"])
    both = [context.Process(target=_run_in_process, args=(values, tmp_path, results)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(limit(120))
    assert [process.exitcode for process in both] == [0, 0]
    answers = [results.get(timeout=limit(10)) for _ in both]
    assert answers[0][0] == answers[1][0] == finished[2]["perplexity"]["gprune"]
    # what one computed the other reused: together they computed each stage at most once
    stages = answers[0][1]
    assert sum(total - reused for _, total, reused in answers) <= stages


def test_nan_weights_are_refused_and_the_run_says_so(workshop, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(workshop["model"])
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    model.save_pretrained(tmp_path / "nan")
    AutoTokenizer.from_pretrained(workshop["model"]).save_pretrained(tmp_path / "nan")
    store, study = Store(tmp_path / "c"), study_of(workshop, model=str(tmp_path / "nan"))
    with pytest.raises((ModelError, NumericsError), match=r"(?i)nan|not finite"):
        pipeline.run(study, store, Heard())
    record = runs.read(store, next(runs.every(store))[0])
    assert record["state"] == "failed" and "layers.1.mlp.down_proj" in record["error"]
