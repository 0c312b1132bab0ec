"""A repair of the kept weights is a setting of every method, known wherever its model is made or told of."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_study
import torch
from tiny_study import results_of

from gprune import pipeline
from gprune.app.preview import Question, Source, describe_left_out
from gprune.app.preview.requests import base_question, resolve
from gprune.app.preview.worker.loop import RequestHandler
from gprune.evaluation.perplexity import perplexity
from gprune.models.export import checkpoint, model_card
from gprune.pipeline import stages
from gprune.pipeline.stages import Graph, RunContext
from gprune.pruning.repair.fitting import fit
from gprune.pruning.surgery import Silenced, cut
from gprune.records import REPAIRS, PrunedModel
from gprune.study import Study
from gprune.study.methods import METHODS, repairs_of
from gprune.system.errors import SettingsError

pytestmark = pytest.mark.slow

KIND = "least_squares_bias"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A whole study whose methods are repaired on both texts and one that the model writes."""
    folder = tmp_path_factory.mktemp("repaired")
    values = tiny_study.made(folder, device="cpu", methods=["dense", "gprune", "flap", "flap_no_bias"])
    values["repair"] = {"kind": KIND, "texts": "both_and_sampled", "sampled": "self:#length=24"}
    return tiny_study.finished(values, folder / "cache")


def with_repair(study, **values):
    return study.with_settings({f"repair.{name}": value for name, value in values.items()})


def names(method, kind="own", **values):
    study = Study("model", "A", "B").with_settings({"repair.kind": kind} | values)
    return [repair.name for repair in repairs_of(METHODS[method], study)]


def test_a_repair_is_one_for_every_method_in_place_of_its_own_and_scales_follow_it():
    assert names("flap") == ["bias_compensation"] and names("gprune") == names("wanda_sp") == []
    biased = {"sparsity.bias_compensation": True}
    assert names("gprune", **biased) == ["bias_compensation"] and names("wanda_sp", **biased) == []
    for method in ("flap", "flap_no_bias", "gprune", "wanda_sp"):
        assert names(method, KIND) == [KIND] and names(method, "none") == []
        assert names(method, "bias") == ["bias_compensation"]
    with pytest.raises(SettingsError, match=r"sparsity.bias_compensation is repair.kind bias .* leave one"):
        names("gprune", "none", **biased)
    with pytest.raises(SettingsError, match="repair.sampled must be a text that the model writes"):
        names("gprune", **{"repair.sampled": "wikitext2"})
    assert names("flap", "own+scales") == ["bias_compensation", "scales"] and names("flap", "scales") == ["scales"]
    for kind in ("affine", "least_squares", "least_squares_bias"):
        assert names("osscar", f"{kind}+scales") == [kind, "scales"]
    assert names("dense", KIND) == names("dense", "scales") == []


def test_bias_is_the_compensation_of_learned_methods_by_another_name(run):
    graph = results_of(run[0]).graph
    text = graph.study.evaluation.texts[0]
    plain = with_repair(graph.study, kind="own", texts="both", sampled="self:")
    switched = Graph(plain.with_settings({"sparsity.bias_compensation": True}), graph.inputs)
    as_repair = Graph(with_repair(plain, kind="bias", texts="primary"), graph.inputs)
    keys = [stages.perplexity(either, "gprune", text).key for either in (switched, as_repair)]
    assert keys[0] == keys[1] != stages.perplexity(Graph(plain, graph.inputs), "gprune", text).key


def test_keys_of_what_is_measured_tell_masks_texts_target_and_damping(run):
    graph = results_of(run[0]).graph
    text = graph.study.evaluation.texts[0]
    key = stages.perplexity(graph, "flap", text).key
    assert [stage.name for stage in stages.required_stages(stages.repaired_weights(graph, "flap"))] == [
        "masks_flap", "tokens_primary", "tokens_auxiliary", "tokens_sampled",
    ]  # fmt: skip
    # one set of masks is fitted once, whatever the method did by itself
    assert stages.perplexity(graph, "flap_no_bias", text).key == key
    for changes in (
        {"kind": "least_squares"},
        {"texts": "both"},
        {"target": "own_inputs"},
        {"damping": 0.2},
        {"sampled": "self:#length=24&seed=1"},
    ):
        changed = with_repair(graph.study, **changes)
        other = Graph(changed, pipeline.stages.inputs.read_inputs(changed))
        assert stages.perplexity(other, "flap", text).key != key, changes
        assert stages.perplexity(other, "dense", text).key == stages.perplexity(graph, "dense", text).key
        assert stages.masks(other, "gprune").key == stages.masks(graph, "gprune").key


def test_what_is_measured_cut_silenced_and_previewed_is_the_repaired_model(run):
    opened, result = run
    results, text = results_of(opened), opened.study.evaluation.texts[0]
    work = RunContext(opened.study, results.graph.inputs, results.store.texts)
    masks = results.get(stages.masks, "flap")
    texts = [results.get(stages.tokens, role) for role in ("primary", "auxiliary", "sampled")]
    weights = fit(work.decoder, masks, texts, opened.study.repair, opened.study.calibration.batch)
    model = PrunedModel(masks, (REPAIRS[KIND],), {"weights": weights})
    live = cut(work.decoder, model)
    expected = perplexity(live, work.stream(text), text, opened.study.evaluation).losses
    np.testing.assert_allclose(results.get(stages.perplexity, "flap", text).losses, expected, rtol=1e-5)
    for weight, live_weight in zip(opened.model("flap").parameters(), live.parameters(), strict=True):
        torch.testing.assert_close(weight, live_weight)
    assert result["parameters"]["flap"] == sum(weight.numel() for weight in live.parameters())
    ids = torch.arange(3, 12)[None]
    before = work.decoder.model(ids).logits
    with torch.no_grad(), Silenced(work.decoder, model).applied():
        torch.testing.assert_close(work.decoder.model(ids).logits, live(ids).logits, rtol=1e-4, atol=1e-4)
    assert torch.equal(work.decoder.model(ids).logits, before)
    source = Source(str(results.store.root), results.graph)
    request = resolve(source, Question(text, "flap"))
    assert request.stored is not None and request.arguments["pruning"].repairs == (KIND,)
    handler = RequestHandler()
    handler.answer("load", {"model": source.model})
    losses = handler.answer(request.task, request.arguments)[1].losses
    measured = np.isfinite(losses)
    assert measured.sum() == 2
    np.testing.assert_allclose(losses[measured], expected[measured], rtol=1e-4)


def test_live_figures_of_other_masks_are_compared_with_what_is_not_repaired_either(run):
    results = results_of(run[0])
    text, source = run[0].study.evaluation.texts[0], Source(str(results.store.root), results.graph)
    other = Question(text, "gprune", results.get(stages.masks, "flap"))
    base = base_question(source, other, Question(text, "gprune"))
    for question in (other, base):
        assert resolve(source, question).arguments["pruning"].repairs == ()
    assert resolve(source, base).stored is None
    question = Question(text, "gprune", results.get(stages.masks, "gprune"))
    base = base_question(source, question, Question(text, "flap"))
    assert base.fitted and resolve(source, base).stored is not None
    played = replace(question, fitted=False)
    assert not base_question(source, played, Question(text, "flap")).fitted
    request = resolve(source, played)
    assert request.arguments["pruning"].repairs == () and request.stored is None
    assert "lack least squares with a bias" in describe_left_out(results.graph, "gprune")
    plain = Graph(with_repair(run[0].study, kind="own"), results.graph.inputs)
    assert describe_left_out(plain, "flap") == ""


def test_the_saved_folder_is_the_repaired_model_and_names_the_repair(run):
    opened, result = run
    folder, ids = Path(result["checkpoint"]), torch.arange(3, 12)[None]
    assert [repair.name for repair in model_card.read_record(folder).pruned.repairs] == [KIND]
    logits = checkpoint.load_verified(folder)(ids).logits
    torch.testing.assert_close(logits, opened.model("gprune")(ids).logits)


def test_python_gives_a_model_of_the_run_with_another_repair(run):
    opened, _ = run
    results, ids = results_of(opened), torch.arange(3, 12)[None]
    same = opened.model("flap", repair={"kind": KIND, "texts": "both_and_sampled", "sampled": "self:#length=24"})
    assert torch.equal(same(ids).logits, opened.model("flap")(ids).logits)
    work = RunContext(opened.study, results.graph.inputs, results.store.texts)
    bare = cut(work.decoder, results.get(stages.masks, "flap"))
    torch.testing.assert_close(opened.model("flap", repair="none")(ids).logits, bare(ids).logits)
    fitted = opened.model("flap", repair={"kind": "affine", "texts": "sampled", "sampled": "self:#length=24"})
    assert not torch.allclose(fitted(ids).logits, bare(ids).logits)
    before = len(list((results.store.root / "repaired").iterdir()))
    opened.model("flap", repair={"kind": "affine", "texts": "sampled", "sampled": "self:#length=24"})
    assert len(list((results.store.root / "repaired").iterdir())) == before
    with pytest.raises(SettingsError, match="repair.kind must be one of own, none, bias, affine"):
        opened.model("flap", repair="best")
    with pytest.raises(SettingsError, match="a study has no field 'repair.text'"):
        opened.model("flap", repair={"text": "both"})
