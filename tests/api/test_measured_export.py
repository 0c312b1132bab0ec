"""An exported folder is held against the losses that its run measured."""

import json

import pytest
import torch

from gprune.data import texts
from gprune.models.export import checkpoint
from gprune.pipeline.stages import RunContext
from gprune.system.errors import CheckpointError


def test_an_export_answers_as_measured_on_tokens_of_an_evaluation_text(run, tmp_path):
    folder = run.export(tmp_path / "out", "flap")
    record = json.loads((folder / "pruning.json").read_text(encoding="utf-8"))
    ids = torch.tensor([record["probe_tokens"]])
    text = run.study.evaluation.texts[0]
    assert ids[0].tolist() == texts.stream(text, run.tokenizer)[: ids.shape[1]].tolist()
    model = checkpoint.load_verified(folder)
    with torch.inference_mode():
        last = model(input_ids=ids).logits[0, -1]
    chosen = torch.linspace(0, len(last) - 1, min(64, len(last))).long()
    assert last[chosen].tolist() == pytest.approx(record["probe_logits"], rel=1e-4, abs=1e-6)


def test_an_export_of_another_model_than_the_measured_one_is_refused(run, tmp_path, monkeypatch):
    """A head that loading replaced was compared with the copy that had lost it already."""

    def flip_head(work, model):
        cut = pruned(work, model)
        with torch.no_grad():
            cut.lm_head.weight.copy_(torch.flip(cut.lm_head.weight, (0,)))
        return cut

    pruned = RunContext.prune
    monkeypatch.setattr(RunContext, "prune", flip_head)
    with pytest.raises(CheckpointError, match="it is not the model that was measured"):
        run.export(tmp_path / "out", "flap")
    assert not (tmp_path / "out").exists()
