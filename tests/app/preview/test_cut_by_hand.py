"""A mask set becomes a checkpoint: from the command, with the method's compensation, again from its plan."""

import json

import numpy as np
import pytest
import torch
from pruned_folder import compensating
from transformers import AutoTokenizer

from gprune.__main__ import main
from gprune.analysis.mask_edits import Edit, mask_sets
from gprune.models.export import checkpoint, plan_file
from gprune.pipeline import stages
from gprune.pipeline.stages import RunContext
from gprune.pruning.surgery import cut

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
