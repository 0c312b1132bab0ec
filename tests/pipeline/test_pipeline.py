"""The whole path on a small model: what it returns, what it reuses, what survives a stop at any stage."""

from pathlib import Path

import numpy as np
import pytest
import tiny_study

from gprune import pipeline
from gprune.pipeline import runs
from gprune.pipeline.stages.evaluation import overlap
from gprune.store import Store
from gprune.study import from_dict, run_name
from gprune.system.errors import Cancelled, ModelError, NumericsError

pytestmark = pytest.mark.slow

METHODS = {"dense", "gprune", "flap", "flap_no_bias", "wanda_sp"}


def study_of(workshop, **changes):
    return from_dict(tiny_study.settings(workshop["model"], workshop["texts"], **changes))


class StageLog:
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
    return study, store, pipeline.run(study, store, StageLog())


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
    supplied = result["given"]
    assert set(supplied) == METHODS - {"dense"}
    passes = {"forward passes": 1.0, "backward passes": 0.0, "steps": 0}
    facts = {"texts": ["A"], "attention of GPrune": False, "repair": "bias compensation on A"}
    assert supplied["flap"] == passes | facts
    actual = supplied["gprune"]
    # 16 sequences of each text, 8 of both a step, one epoch
    assert (actual["texts"], actual["steps"]) == (["A", "B"], 4)
    stages_with_passes = ("statistics_primary", "statistics_auxiliary", "learning")
    assert actual["forward passes"] == sum(result["passes"][name]["forward"] for name in stages_with_passes)
    assert actual["backward passes"] == result["passes"]["learning"]["backward"] > 0


def test_the_result_says_what_its_texts_are_and_by_what_protocol(finished):
    study, store, result = finished
    other, same = study.evaluation.texts
    assert result["texts"][same]["is"] == "same text as A" and not result["texts"][same]["unseen"]
    assert result["texts"][other]["declared"] == {"A": "other", "B": "other"}
    reference = pipeline.opened(study, store).get(overlap, same)
    assert reference.windows == 6 and reference.run == 16
    assert result["texts"][same]["overlap"]["A"] == reference.share[0]
    (protocol,) = result["protocols"]
    assert protocol["what"] == "perplexity over 6 windows of 16 tokens" and protocol["limit"] == "at most 6"
    assert set(protocol["versions"]) == {"gprune", "torch", "transformers"}


def test_a_second_run_computes_nothing_and_says_the_same(finished):
    study, store, first = finished
    received = StageLog()
    second = pipeline.run(study, store, received)
    assert received.computed == []
    assert second["perplexity"] == first["perplexity"]
    assert set(second["reused"]) == set(second["keys"])


def test_a_changed_text_leaves_no_stage_of_the_old_one_in_the_record(workshop, tmp_path):
    text = tmp_path / "changing.txt"
    text.write_bytes(Path(workshop["texts"][1]).read_bytes())
    store, study = Store(tmp_path / "c"), study_of(workshop, auxiliary=str(text))
    old = pipeline.run(study, store, StageLog(), until="adapted")
    text.write_bytes(Path(workshop["texts"][2]).read_bytes())
    new = pipeline.run(study, store, StageLog(), until="drift")
    stages = runs.read(store, new["run"])["stages"]
    assert old["run"] == new["run"] and "partition" in old["keys"]
    assert "partition" not in stages and stages["drift"]["key"] != old["keys"]["drift"]


@pytest.mark.parametrize("stage", ["statistics_primary", "learning", "perplexity.flap.1"])
def test_a_run_stopped_at_any_stage_goes_on_and_ends_the_same(workshop, finished, tmp_path, stage):
    store, study = Store(tmp_path), study_of(workshop)
    with pytest.raises(Cancelled):
        pipeline.run(study, store, StageLog(stop_at=stage))
    stopped = runs.read(store, run_name(study))
    assert stopped["state"] == "cancelled"
    received = StageLog()
    result = pipeline.run(study, store, received)
    assert set(stopped["stages"]) <= set(received.reused)
    assert result["perplexity"] == finished[2]["perplexity"]


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
        pipeline.run(study, store, StageLog())
    record = runs.read(store, next(runs.read_all(store))[0])
    assert record["state"] == "failed" and "layers.1.mlp.down_proj" in record["error"]
