"""A study whose methods are trained on: what stays as it is, what stands apart, and what is saved."""

from pathlib import Path

import numpy as np
import pytest
import tiny_study
import torch
from app_driver import open_page
from tiny_study import results_of

import gprune
from gprune import pipeline
from gprune.app.figures import jobs as job_panels
from gprune.app.figures.comparison import find_recoveries, recovery
from gprune.cli.progress import print_summary
from gprune.evaluation.perplexity import perplexity
from gprune.models.export import checkpoint, model_card
from gprune.pipeline import stages
from gprune.pipeline.stages import Graph, RunContext
from gprune.pruning.surgery import Silenced, cut
from gprune.records import REPAIRS, PrunedModel
from gprune.store import Store
from gprune.store.resumption import VARIABLE
from gprune.study import Study
from gprune.system.errors import Cancelled, ModelError, SettingsError
from gprune.system.progress import Notice

pytest.importorskip("peft")
pytestmark = pytest.mark.slow

KIND = "least_squares_bias"


def values_of(folder):
    values = tiny_study.made(folder, device="cpu", methods=["dense", "gprune", "flap", "flap_no_bias"])
    values["repair"] = {"kind": KIND, "sampled": "self:#length=24"}
    return values | {"recovery": {"kind": "lora", "steps": 14, "batch": 6, "learning_rate": 0.01}}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A whole study with a repair and a recovery."""
    folder = tmp_path_factory.mktemp("recovered")
    return tiny_study.finished(values_of(folder), folder / "cache")


def logits(model):
    with torch.no_grad():
        return model(torch.arange(3, 12)[None]).logits


def test_a_study_without_recovery_has_the_name_and_the_keys_that_it_had(made):
    graph = results_of(made[0]).graph
    plain = Graph(graph.study.with_settings({"recovery.kind": "none"}), graph.inputs)
    after = {stage.name: stage.key for stage in stages.all_stages(graph)}
    before = {stage.name: stage.key for stage in stages.all_stages(plain)}
    assert before.items() <= after.items()
    added = {name.partition(".")[0] for name in after.keys() - before.keys()}
    assert added == {"recovered_gprune", "recovered_flap", "recovered_flap_no_bias", "recovered_perplexity",
                     "checkpoint_recovered", "sampled_sampled", "tokens_sampled"}  # fmt: skip
    study = Study("model", "A", "B")
    changed = study.with_settings({"recovery.kind": "lora"})
    assert study.digest == Study("model", "A", "B", repair=study.repair).digest != changed.digest


def test_every_method_is_trained_alike_and_stands_apart(made):
    opened, result = made
    message = result["recovery"]
    assert message["trained"] == (
        "LoRA of rank 8 on every linear map, 14 steps of 6 sequences of A, B and self, distillation, learning rate 0.01"
    )
    assert set(message["perplexity"]) == {"gprune", "flap", "flap_no_bias"} and message["unavailable"] == {}
    # one repair for both: the same model, trained once
    assert message["perplexity"]["flap"] == message["perplexity"]["flap_no_bias"]
    results, graph = results_of(opened), results_of(opened).graph
    keys = [stages.recovered_weights(graph, name).key for name in ("gprune", "flap", "flap_no_bias")]
    assert keys[0] != keys[1] == keys[2]
    for method in ("gprune", "flap"):
        outcome = results.get(stages.recovered_weights, method)
        loss = outcome.steps[:, outcome.columns.index("distillation")]
        assert loss[-5:].mean() < loss[:5].mean()
    # what is measured without is no other figure than in a study without
    plain = Graph(opened.study.with_settings({"recovery.kind": "none"}), graph.inputs)
    for method, reference in result["perplexity"].items():
        for text, value in reference.items():
            assert value == results.record(stages.perplexity(plain, method, text)).perplexity
            assert method == "dense" or value != message["perplexity"][method][text]


def test_what_is_measured_given_and_saved_is_the_merged_model(made):
    opened, result = made
    results, text = results_of(opened), opened.study.evaluation.texts[0]
    work = RunContext(opened.study, results.graph.inputs, results.store.texts)
    masks = results.get(stages.masks, "gprune")
    weights, trained = (results.get(item, "gprune") for item in (stages.repaired_weights, stages.recovered_weights))
    full = PrunedModel(masks, (REPAIRS[KIND],), {"weights": weights}, trained)
    live = cut(work.decoder, full)
    expected = perplexity(live, work.stream(text), text, opened.study.evaluation)
    np.testing.assert_allclose(result["recovery"]["perplexity"]["gprune"][text], expected.perplexity, rtol=1e-6)
    assert torch.equal(logits(opened.model(recovered=True)), logits(live))
    assert not torch.allclose(logits(opened.model()), logits(live))
    assert torch.equal(logits(checkpoint.load_verified(Path(result["recovered_checkpoint"]))), logits(live))
    plain = checkpoint.load_verified(Path(result["checkpoint"]))
    assert torch.equal(logits(plain), logits(opened.model()))
    assert sum(p.numel() for p in live.parameters()) == result["parameters"]["gprune"]
    with pytest.raises(ModelError, match="a recovered model has other weights than the dense model"):
        Silenced(work.decoder, full)


def test_only_a_recovered_run_gives_a_recovered_model(made):
    opened, _ = made
    with pytest.raises(SettingsError, match="method must be a pruned method"):
        opened.model("dense", recovered=True)
    with pytest.raises(SettingsError, match="repair must be omitted if recovered"):
        opened.model(repair="none", recovered=True)


def test_the_recovered_folder_names_its_recovery_and_the_other_folder_none(made):
    _, result = made
    records = [model_card.read_record(Path(result[name])) for name in ("recovered_checkpoint", "checkpoint")]
    assert [record.recovery for record in records] == ["lora of rank 8", ""]
    assert records[0].pruned.repaired_by == REPAIRS[KIND].label and records[0].run == result["run"]
    card = (Path(result["recovered_checkpoint"]) / "README.md").read_text()
    assert "| trained after pruning | lora of rank 8, merged into the weights |" in card


def test_the_recovered_model_of_any_method_is_exported_with_what_was_trained(made, tmp_path):
    opened, result = made
    folder = opened.export(tmp_path / "out", "flap", recovered=True)
    live = opened.model("flap", recovered=True)
    assert torch.equal(logits(checkpoint.load_verified(folder)), logits(live))
    message = {item.text.rpartition("/")[2]: item.perplexity for item in model_card.figures_of(folder)}
    reference = result["recovery"]["perplexity"]["flap"]
    assert message == {text.rpartition("/")[2]: pytest.approx(value, abs=1e-4) for text, value in reference.items()}
    # a held one has it in its weights alone, which its pruning.json says
    stored = gprune.save(live, tmp_path / "held")
    assert model_card.read_record(stored).trained and not model_card.read_record(folder).trained
    assert torch.equal(logits(checkpoint.load_verified(stored)), logits(live))


def test_a_run_that_was_stopped_goes_on_and_ends_with_the_same_bits(made, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")
    study, other = made[0].study, Store(tmp_path / "cache")

    def stop(stage, done, total, message):
        if stage == "recovered_gprune" and done == 5 and not isinstance(message, Notice):
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        pipeline.run(study, other, stop, until="perplexity")
    received = []
    result = pipeline.run(study, other, lambda *event: received.append(event), until="perplexity")
    assert any("resumes at step 6 of 14" in event[3] for event in received if event[0] == "recovered_gprune")
    outcome = pipeline.opened(study, other).get(stages.recovered_weights, "gprune")
    expected = results_of(made[0]).get(stages.recovered_weights, "gprune")
    assert outcome.numbers.tobytes() == expected.numbers.tobytes()
    assert outcome.steps.tobytes() == expected.steps.tobytes()
    assert result["recovery"]["perplexity"] == made[1]["recovery"]["perplexity"]


def test_what_lacks_is_said_before_anything_is_computed(made, tmp_path, monkeypatch):
    study = made[0].study
    monkeypatch.setattr("gprune.study.settings.find_spec", lambda _: None)
    store = Store(tmp_path / "cache")
    with pytest.raises(SettingsError, match="needs the package peft, which is not installed: run pip install"):
        pipeline.run(study, store, lambda *_: None)
    assert not store.root.exists() or not any(store.root.iterdir())


def test_compare_shows_before_and_after_in_a_card_of_its_own(made, monkeypatch):
    monkeypatch.setenv("GPRUNE_AUTOSTART", "0")
    opened, result = made
    run, text = opened._loaded, opened.study.evaluation.texts[0]
    results = {(item.method, item.text): item for item in find_recoveries(run)}
    item = results["gprune", text]
    assert item.before.perplexity == result["perplexity"]["gprune"][text]
    assert item.after.perplexity == result["recovery"]["perplexity"]["gprune"][text]
    assert item.change.paired and len(results) == 6
    rendered = recovery(run, text=text)
    assert "LoRA of rank 8" in rendered.caption and len(rendered.table()) == 6
    points = {trace.y[0]: list(trace.x) for trace in rendered.figure.data}
    assert points["GPrune"] == [item.before.perplexity, item.after.perplexity]
    curve = job_panels.recovery_losses(run).figure
    assert [len(trace.x) for trace in curve.data] == [14] * 3
    monkeypatch.setenv("GPRUNE_CACHE", str(results_of(opened).store.root))
    app = open_page("compare", run=run.name, cp_origin="recovered")
    assert any("Recovery changes the perplexity" in words.value for words in app.markdown)
    (visible,) = (item.value for item in app.dataframe if "after recovery" in item.value.columns)
    assert len(visible) == 6
    app = open_page("export", run=run.name)
    codes = {code.value for code in app.code}
    assert {result["checkpoint"], result["recovered_checkpoint"]} <= codes


def test_the_command_prints_a_table_of_its_own(made, capsys):
    print_summary(made[1])
    printed = capsys.readouterr().out
    assert all(words in printed for words in ("After recovery", "recovered by LoRA of rank 8", "recovered model:"))
