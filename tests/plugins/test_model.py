"""Methods of other packages that get the model, in runs, on pages and on the command line."""

import shutil

import pytest
import tiny_study
from app_driver import on, opened
from plugins.packages import BOTH, METRIC, install, new_process

from gprune import pipeline
from gprune.__main__ import main
from gprune.store import Store
from gprune.study import from_dict
from gprune.system.errors import MethodError

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
        model(input_ids=ids, output_hidden_states=True)
    heads = np.ones((shape.layers, shape.kv_heads))
    masks = uniform.allocate(UnitScores("", "", ffn, heads, heads), shape, problem.retention)
    return Kept(masks.ffn, masks.heads)

good = Method(label="by gates", decide=decide, needs="model")
"""


@pytest.mark.slow
def test_a_method_with_the_model_is_measured_and_its_passes_are_counted(site, tmp_path):
    files = {"bring/__init__.py": "", "bring/good.py": DECIDING}
    install(site, files=files, metrics={}, decisions={"good": "bring.good:good"})
    with new_process():
        study = from_dict(tiny_study.made(tmp_path, methods=["good", "dense", "flap"], retention=0.6))
        store = Store(tmp_path / "cache")
        result = pipeline.run(study, store, tiny_study.silent, "perplexity")
        assert set(result["perplexity"]) == {"good", "dense", "flap"}
        # it ran 4 of 16 sequences, and nothing went back
        passes = store.manifest("masks", result["keys"]["masks_good"])["passes"]
        assert passes == {"forward": 0.25, "backward": 0.0}


NAN = METRIC.replace("return np.sqrt(measured.column_square)", "return measured.column_square * np.nan")


@pytest.mark.slow
def test_a_metric_that_fails_leaves_out_its_method_or_ends_the_study_that_is_its_own(site, tmp_path):
    install(site, files={**BOTH, "bring/metric.py": NAN})
    store, reason = (Store(tmp_path / "cache"), "the metric size of bring 1.0: the scores of neurons in layer 0")
    with new_process():
        values = tiny_study.made(tmp_path, methods=["dense", "flap", "size", "even"])
        results = pipeline.run(from_dict(values), store, lambda *_: None, "perplexity")
        (message,) = results["unavailable"].values()
        assert message.startswith(f"{reason} must be finite: 27 of 27 are not")
        assert set(results["perplexity"]) == {"dense", "flap", "even"}
        with pytest.raises(MethodError, match=reason):
            pipeline.run(from_dict({**values, "metric": "size"}), store, lambda *_: None, "drift")


@pytest.mark.slow
def test_the_launch_form_offers_them_and_says_why_one_is_left_out(site, tmp_path, monkeypatch):
    monkeypatch.setenv("GPRUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GPRUNE_AUTOSTART", "0")
    install(site)
    install(site, "other", {"other.py": BOTH["bring/metric.py"]}, {"flap": "other:size"}, {})
    with new_process():
        app = on(opened(), "launch")
        assert app.selectbox(key="launch_metric").options[-1] == "Weight size"
        assert app.multiselect(key="launch_methods").options[-2:] == ["Even cut", "Weight size"]
        message = "the metric flap of other is left out: a built-in metric or method has this name"
        (caption,) = [item.value for item in app.caption if "left out" in item.value]
        assert message in caption.replace("\\", "")
        app.selectbox(key="launch_metric").set_value("size").run()
        app.multiselect(key="launch_methods").set_value(["flap", "even"]).run()
        assert "--metric size" in "\n".join(code.value for code in app.code)
        assert "--methods flap even" in "\n".join(code.value for code in app.code)


# ---- the command line --------------------------------------------------------------------------------------


def test_the_commands_know_them(site, capsys):
    install(site)
    texts = ["--model", "demo", "--primary", "python-reference", "--auxiliary", "science-docs"]
    with new_process():
        assert main(["study", *texts, "--metric", "size", "--methods", "dense", "even"]) == 0
        assert '"metric": "size"' in capsys.readouterr().out
        for command in ("study", "reproduce"):
            with pytest.raises(SystemExit):
                main([command, "--help"])
            assert "even" in " ".join(capsys.readouterr().out.split())
        assert main(["plugins"]) == 0
        listed = capsys.readouterr().out.splitlines()
        assert [line.split()[:2] for line in listed] == [["method", "even"], ["metric", "size"]]
    shutil.rmtree(site)
    with new_process():
        assert main(["plugins"]) == 0
        assert "docs/plugins.md" in capsys.readouterr().err
