"""A mask set becomes a checkpoint, and is measured like a method."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from pruned_folder import compensating
from transformers import AutoTokenizer

from gprune.__main__ import main
from gprune.analysis.mask_edits import Edit, mask_sets
from gprune.evaluation import perplexity as measurement
from gprune.models.export import checkpoint, plan_file
from gprune.pipeline import stages
from gprune.pipeline.stages import RunContext
from gprune.pruning.surgery import cut
from gprune.system.errors import CorpusError

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("method", ["gprune", "flap"])
def test_the_saved_model_is_the_cut_of_the_edited_masks(tiny_run, tmp_path, capsys, method):
    run = tiny_run()
    results = run.source.results
    edits = (Edit(False, "module", 0, 0), Edit(True, "neuron", 1, 3))
    chosen = mask_sets.made(results, f"mine {method}", method, edits)
    mask_sets.save(results, chosen)
    out = tmp_path / "model"
    assert main(["cut", run.name, chosen.name, str(out), "--cache", str(run.root)]) == 0
    assert f"{method} by hand" in capsys.readouterr().out
    masks = mask_sets.repeated(results, chosen).masks
    work = RunContext(run.source.graph.study, run.source.graph.inputs, results.store.texts)
    means = results.get(stages.statistics, "primary") if method == "flap" else None
    expected = cut(work.decoder, compensating(masks, means) if means else masks)
    tokenizer = AutoTokenizer.from_pretrained(out)
    ids = tokenizer("The river was named after it.", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        found = checkpoint.load(out, "cpu")(ids).logits
        np.testing.assert_allclose(found, expected(ids).logits, rtol=1e-4, atol=1e-5)
    plan = plan_file.read(out)
    kept = plan.pruned.masks
    assert np.array_equal(kept.ffn, masks.ffn) and np.array_equal(kept.heads, masks.heads)
    assert plan.pruned.biased == (method == "flap")
    told = json.loads((out / "plan.json").read_text())["study"]["by_hand"]
    assert told["edits"] == [edit.to_dict() for edit in edits] and told["name"] == chosen.name
    # the plan alone makes the same folder again
    again = tmp_path / "again"
    assert main(["apply", str(out), run.source.graph.study.model, str(again)]) == 0
    with torch.no_grad():
        assert torch.equal(checkpoint.load(again, "cpu")(ids).logits, found)


def test_what_cannot_be_cut_gets_a_sentence(tiny_run, tmp_path, capsys):
    run = tiny_run()
    cache = ["--cache", str(run.root)]
    assert main(["cut", run.name, "none of this name", str(tmp_path / "out"), *cache]) != 0
    assert "has no mask set" in capsys.readouterr().err
    mask_sets.save(run.source.results, mask_sets.made(run.source.results, "mine", "gprune", ()))
    assert main(["cut", run.name, "mine", str(tmp_path / "out"), "--identity", "0", *cache]) != 0
    assert "another than when it was asked for" in capsys.readouterr().err
    assert main(["cut", "no-run", "x", str(tmp_path / "out"), *cache]) != 0
    assert "there is no run" in capsys.readouterr().err and not (tmp_path / "out").exists()
    with pytest.raises(mask_sets.SettingsError, match="hyphen"):
        mask_sets.made(run.source.results, "--cache", "gprune", ())


EDITS = (Edit(False, "module", 0, 0), Edit(True, "neuron", 1, 3))


def silent(*_):
    pass


@pytest.mark.parametrize("method", ["gprune", "flap"])
def test_a_set_has_the_perplexity_of_its_cut_model_and_is_measured_once(
    tiny_run, capsys, monkeypatch, method
):
    run = tiny_run()
    results = run.source.results
    graph = results.graph
    chosen = mask_sets.made(results, f"measured {method}", method, EDITS)
    mask_sets.save(results, chosen)
    command = ["measure", run.name, chosen.name, "--json", "--cache", str(run.root)]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    work = RunContext(graph.study, graph.inputs, results.store.texts)
    means = results.get(stages.statistics, "primary") if method == "flap" else None
    masks = mask_sets.repeated(results, chosen).masks
    model = cut(work.decoder, compensating(masks, means) if means else masks)
    assert [line["text"] for line in told["texts"]] == list(graph.study.evaluation.texts)
    for line in told["texts"]:
        text = line["text"]
        expected = measurement.perplexity(model, work.stream(text), text, graph.study.evaluation)
        assert line["perplexity"] == pytest.approx(expected.perplexity, rel=1e-5)
        own = results.record(stages.perplexity(graph, method, text))
        assert line["nats"] == pytest.approx(np.mean(expected.losses - own.losses), abs=1e-5)
        assert line["method"] == own.perplexity
    # what is there is only read
    monkeypatch.setattr(measurement, "perplexity", None)
    assert main(command[:3] + command[4:]) == 0
    assert f"{method} {told['texts'][0]['method']:.4f}" in capsys.readouterr().out


def test_a_set_of_other_masks_has_another_key(tiny_run):
    results = tiny_run().source.results
    first, second = (
        mask_sets.perplexities(results, mask_sets.made(results, "one", "gprune", edits))
        for edits in (EDITS, (Edit(False, "module", 0, 1),))
    )
    keys = [stage.key for found in (first, second) for stage in found.values()]
    assert len(set(keys)) == len(keys)
    same = mask_sets.perplexities(results, mask_sets.made(results, "another name", "gprune", EDITS))
    assert [stage.key for stage in same.values()] == keys[: len(same)]


def test_a_text_that_has_changed_is_not_measured(tiny_run, tmp_path, monkeypatch):
    run = tiny_run()
    results = run.source.results
    chosen = mask_sets.made(results, "not measured", "gprune", EDITS[1:])
    changed = Path(results.graph.study.evaluation.texts[0])
    held = changed.read_text(encoding="utf-8")
    changed.write_text(held + "one line more\n", encoding="utf-8")
    try:
        with pytest.raises(CorpusError, match="has changed since the run: put the old one back"):
            mask_sets.measure(results, chosen, silent)
    finally:
        changed.write_text(held, encoding="utf-8")
