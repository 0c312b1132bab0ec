"""A method that gets the model: whatever it does to it, the others measure the model as it is."""

from pathlib import Path

import pytest
import tiny_study
from plugins.packages import BOTH, METRIC, adopted, install

from gprune import pipeline
from gprune.pipeline.stages import Inputs, RunContext
from gprune.store import Store
from gprune.study import from_dict
from gprune.system.errors import MethodError, PluginError

pytestmark = pytest.mark.slow

DECIDING = """\
import numpy as np
import torch
from gprune.pruning.allocation import uniform
from gprune.plugins import Kept, Method
from gprune.records import UnitScores

def decide(problem):
    shape, model = problem.shape, problem.model
    ids = torch.tensor(problem.tokens[0][:4], dtype=torch.long, device=model.device)
    with torch.enable_grad():
        rows = [layer.mlp.gate_proj.weight.float() for layer in model.model.layers]
        ffn = np.stack([row.square().sum(1).numpy().astype(float) for row in rows])
        model(input_ids=ids)
    torch.manual_seed(1)
    {spoiling}
    heads = np.ones((shape.layers, shape.kv_heads))
    masks = uniform.allocate(UnitScores("", "", ffn, heads, heads), shape, problem.retention)
    return Kept(masks.ffn, masks.heads)

{name} = Method(label="by gates {name}", decide=decide, needs="model")
"""
SPOILING = "model.model.layers[0].mlp.down_proj.weight.data.mul_(0)"


@pytest.fixture
def with_methods(site: Path) -> Path:
    files = {
        "bring/__init__.py": "",
        "bring/good.py": DECIDING.format(name="good", spoiling="pass"),
        "bring/bad.py": DECIDING.format(name="bad", spoiling=SPOILING),
    }
    install(site, files=files, metrics={}, decisions={"good": "bring.good:good", "bad": "bring.bad:bad"})
    return site


def test_a_run_goes_on_with_the_model_that_it_began_with(with_methods, tmp_path, monkeypatch):
    texts = tiny_study.write_texts(tmp_path / "texts")
    model = tiny_study.write_model(tmp_path / "model", texts)
    with adopted(monkeypatch):
        found = {}
        for name, methods in (("with", ["bad", "good", "dense", "flap"]), ("without", ["dense", "flap"])):
            study = from_dict(tiny_study.settings(model, texts, methods=methods, retention=0.6))
            found[name] = pipeline.run(study, Store(tmp_path / name), lambda *_: None, "perplexity")
        (reason,) = found["with"]["unavailable"].values()
        assert "the method bad of bring 1.0 has changed the dense model (its weights)" in reason
        assert set(found["with"]["perplexity"]) == {"good", "dense", "flap"}
        for method in ("dense", "flap"):
            assert found["with"]["perplexity"][method] == found["without"]["perplexity"][method]
        # what it ran is counted: 4 of 16 sequences, and nothing went back
        store, key = Store(tmp_path / "with"), found["with"]["keys"]["masks_good"]
        assert store.manifest("masks", key)["passes"] == {"forward": 0.25, "backward": 0.0}


def test_a_model_that_comes_back_changed_is_loaded_again(tmp_path):
    texts = tiny_study.write_texts(tmp_path / "texts")
    model = tiny_study.write_model(tmp_path / "model", texts)
    study = from_dict(tiny_study.settings(model, texts))
    work = RunContext(study, Inputs("m", "t", "float32", {}, {}), tmp_path)
    before = work.decoder
    weight = before.down_proj(0).weight.clone()
    with work.lent("somebody") as lent:
        assert lent is before.model
    assert work.decoder is before
    with pytest.raises(PluginError, match=r"somebody has changed the dense model \(its weights\)"):
        with work.lent("somebody") as lent:
            lent.model.layers[0].mlp.down_proj.weight.data.mul_(2)
    with pytest.raises(ZeroDivisionError):
        with work.lent("somebody") as lent:
            lent.train()
            _ = 1 / 0
    assert work.decoder is not before and not work.decoder.model.training
    assert work.decoder.down_proj(0).weight.equal(weight)


NAN = METRIC.replace("return np.sqrt(measured.column_square)", "return measured.column_square * np.nan")


def test_a_metric_that_fails_leaves_out_its_method_or_ends_the_study_that_is_its_own(
    site, tmp_path, monkeypatch
):
    install(site, files={**BOTH, "bring/metric.py": NAN})
    texts = tiny_study.write_texts(tmp_path / "texts")
    model = tiny_study.write_model(tmp_path / "model", texts)
    store, reason = (
        Store(tmp_path / "cache"),
        "the metric size of bring 1.0: the scores of neurons in layer 0",
    )
    with adopted(monkeypatch):
        values = tiny_study.settings(model, texts, methods=["dense", "flap", "size", "even"])
        found = pipeline.run(from_dict(values), store, lambda *_: None, "perplexity")
        (said,) = found["unavailable"].values()
        assert said.startswith(f"{reason} must be finite: 27 of 27 are not")
        assert set(found["perplexity"]) == {"dense", "flap", "even"}
        with pytest.raises(MethodError, match=reason):
            pipeline.run(from_dict({**values, "metric": "size"}), store, lambda *_: None, "drift")
