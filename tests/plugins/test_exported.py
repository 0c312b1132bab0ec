"""Any method of a run leaves it as a folder: built in, control or of a package that is gone by then."""

import shutil

import pytest
import tiny_study
import torch
from plugins.packages import forget, install, new_process
from test_recovery import logits

import gprune
from gprune.__main__ import main
from gprune.models.export import checkpoint, model_card

METHODS = ("dense", "gprune", "fang", "flap_uniform", "even")


@pytest.mark.slow
def test_every_method_is_exported_with_its_repair_and_its_perplexities(site, tmp_path, capsys):
    install(site)
    values = tiny_study.made(tmp_path, methods=METHODS, repair={"kind": "least_squares"}, device="cpu")
    with new_process():
        name = gprune.run(values, cache=tmp_path / "cache", progress=False).name
        run = gprune.open(name, cache=tmp_path / "cache")
        shutil.rmtree(site / "bring")
        forget()
        measured = run.perplexity.set_index(["method", "text"])["perplexity"]
        for method in METHODS[1:]:
            out = tmp_path / "out" / method
            assert main(["export", run.name, method, str(out), "--cache", str(tmp_path / "cache")]) == 0
            assert "read back and compared" in capsys.readouterr().out
            assert torch.equal(logits(checkpoint.load_verified(out)), logits(run.model(method)))
            record = model_card.read_record(out)
            assert record.pruned.repaired_by == "least squares" and record.study["retention"] == 0.5
            figures = {figure.text: figure for figure in model_card.figures_of(out)}
            for text in run.study.evaluation.texts:
                figure = figures[text.rpartition("/")[2]]
                assert figure.perplexity == pytest.approx(measured[method, text], abs=1e-4)
                assert figure.protocol.startswith("perplexity over 6 windows of 16 tokens")
        # what the API gives is the same folder but for the card's own figures of the base
        stored = gprune.save(run.model("fang"), tmp_path / "held")
        for name in ("pruning.json", "README.md"):
            assert (stored / name).read_bytes() == (out.parent / "fang" / name).read_bytes()


def test_what_cannot_be_exported_is_told_in_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPRUNE_CACHE", str(tmp_path / "cache"))
    assert main(["export", "nothing", "flap", str(tmp_path / "out")]) == 2
    assert "there is no run 'nothing'" in capsys.readouterr().err
    values = tiny_study.made(tmp_path, methods=("dense", "flap"), device="cpu")
    run = gprune.run(values, until="drift", progress=False)
    for method, words in (
        ("dense", "method must be a pruned method, because the dense model is a folder already"),
        ("fang", "method must be one of dense, flap (got 'fang')"),
        ("flap", "no complete result"),
    ):
        assert main(["export", run.name, method, str(tmp_path / "out")]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
