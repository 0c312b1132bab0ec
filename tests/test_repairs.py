"""A repair of the kept weights is known everywhere once it is declared, implemented and switched on.

The toy below stands in three places, as a real one does: a line of `records.REPAIRS`, a module of its name
in `gprune.pruning.repair`, and a setting of its name. Whatever a page, a key or a folder says follows.
"""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import tiny_study
import torch

import gprune
from gprune import pipeline
from gprune.app.pages.comparison.inputs_card import as_table
from gprune.app.preview import Source
from gprune.app.preview.request import Question, resolve
from gprune.app.preview.worker import messages
from gprune.app.preview.worker.masked_model import MaskedModel
from gprune.evaluation.perplexity import perplexity
from gprune.models.export import apply, checkpoint, plan_file
from gprune.pipeline import stages
from gprune.pipeline.estimate.dimensions import Case, of_model
from gprune.pipeline.estimate.memory import need
from gprune.pipeline.stages import Graph, RunContext
from gprune.pruning import repair
from gprune.pruning.surgery import Silenced, cut
from gprune.records import REPAIRS, PrunedModel, Repair
from gprune.records.repairs import labels
from gprune.store import Store
from gprune.study import from_dict
from gprune.study.methods import METHODS, repairs_of
from gprune.study.settings import SparsitySettings
from gprune.system.errors import CheckpointError

pytestmark = pytest.mark.slow

TOY = Repair(
    name="toy",
    label="toy repair",
    about="Halves what is kept.",
    attribute="toyed",
    needs={"texts": "tokens"},
    bytes=lambda shape, retention: 2.0**27,
    biases=True,
    weights=True,
)


def toy_module():
    """Halves the kept columns, and moves every bias by the number of calibration tokens in thousands."""

    def ready(decoder, texts):
        return sum(text.ids.size for text in texts) / 1000

    def halve(decoder, maps, moved, on_progress):
        for one in maps:
            one.weight = one.columns() / 2
            bias = torch.zeros(len(one.weight)) if one.bias is None else one.bias
            one.bias = bias + moved

    module = ModuleType(f"{repair.__name__}.{TOY.name}")
    module.__dict__.update(ready=ready, repair=halve)
    return module


@pytest.fixture(scope="module")
def declared():
    """The three places."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REPAIRS, TOY.name, TOY)
        patch.setitem(sys.modules, f"{repair.__name__}.{TOY.name}", toy_module())
        patch.setattr(SparsitySettings, TOY.name, True, raising=False)
        yield patch


@pytest.fixture(scope="module")
def run(declared, tmp_path_factory):
    """A whole study with the toy switched on."""
    folder = tmp_path_factory.mktemp("repaired")
    texts = tiny_study.write_texts(folder / "texts")
    model = tiny_study.write_model(folder / "model", texts)
    values = tiny_study.settings(model, texts, device="cpu", methods=["dense", "gprune", "flap"])
    store = Store(folder / "cache")
    result = pipeline.run(from_dict(values), store, lambda *_: None)
    return gprune.open(result["run"], cache=store.root), result


def results_of(opened):
    return opened._loaded.results


def test_a_switch_is_for_every_method_and_follows_the_methods_own(declared):
    def names(method):
        return [one.name for one in repairs_of(METHODS[method], SparsitySettings())]

    assert names("dense") == []
    assert names("wanda_sp") == names("gprune") == names("flap_no_bias") == ["toy"]
    assert names("flap") == ["bias_compensation", "toy"]
    with pytest.MonkeyPatch.context() as off:
        off.setattr(SparsitySettings, "toy", False)
        assert names("flap") == ["bias_compensation"] and names("gprune") == []


def test_what_it_needs_is_in_the_graph_and_its_version_in_the_keys_of_what_is_measured(run):
    graph, text = results_of(run[0]).graph, run[0].study.evaluation.texts[0]
    on = {name: stages.perplexity(graph, name, text) for name in ("dense", "flap")}
    assert [stage.name for stage in stages.needed(on["flap"])] == [
        "masks_flap", "statistics_primary", "tokens_primary",
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparsitySettings, "toy", False)
        plain = Graph(graph.study, graph.inputs)
        assert stages.perplexity(plain, "flap", text).key != on["flap"].key
        assert stages.perplexity(plain, "dense", text).key == on["dense"].key
        assert stages.masks(plain, "flap").key == stages.masks(graph, "flap").key
        assert stages.learning(plain).key == stages.learning(graph).key


def test_the_estimate_counts_its_bytes(run):
    graph = results_of(run[0]).graph
    case = Case(of_model(graph.study.model), graph.study, 4, gpu=False)
    found = {
        name: need(stages.perplexity(graph, name, graph.study.evaluation.texts[0]).id, case)
        for name in ("dense", "gprune")
    }
    assert found["gprune"].device(1) >= TOY.bytes(case.model.shape, 0.5) > found["dense"].device(1)


def test_what_is_measured_cut_silenced_and_previewed_is_the_repaired_model(run):
    opened, result = run
    results, text = results_of(opened), opened.study.evaluation.texts[0]
    work = RunContext(opened.study, results.graph.inputs, results.store.texts)
    masks = results.get(stages.masks, "flap")
    statistics, tokens = results.get(stages.statistics, "primary"), results.get(stages.tokens, "primary")
    plain = cut(work.decoder, PrunedModel(masks, (REPAIRS["bias_compensation"],), {"means": [statistics]}))
    for layer in plain.model.layers:
        for narrow in (layer.mlp.down_proj, layer.self_attn.o_proj):
            narrow.weight.div_(2)
            narrow.bias.add_(tokens.ids.size / 1000)
    expected = perplexity(plain, work.stream(text), text, opened.study.evaluation).losses
    np.testing.assert_allclose(results.get(stages.perplexity, "flap", text).losses, expected, rtol=1e-5)
    for one, other in zip(opened.model("flap").parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert result["parameters"]["flap"] == sum(one.numel() for one in plain.parameters())
    needs = {"means": [statistics], "texts": [tokens]}
    model = PrunedModel(masks, repairs_of(METHODS["flap"], opened.study.sparsity), needs)
    ids = torch.arange(3, 12)[None]
    before = work.decoder.model(ids).logits
    with torch.no_grad(), Silenced(work.decoder, model).applied():
        torch.testing.assert_close(work.decoder.model(ids).logits, plain(ids).logits, rtol=1e-4, atol=1e-4)
    assert torch.equal(work.decoder.model(ids).logits, before)
    source = Source(str(results.store.root), results.graph)
    asked = resolve(source, Question(text, "flap"))
    assert asked.pruned is not None and asked.pruned["repairs"] == ["bias_compensation", "toy"]
    sent = {"text": asked.text, "numbers": [0, 1], "pruned": asked.pruned}
    found = MaskedModel(source.model).losses(messages.read(messages.line(sent)) or {})
    np.testing.assert_allclose(found, expected[:2], rtol=1e-4)


def test_the_saved_folder_says_it_and_its_plan_alone_does_not_make_it_again(run, tmp_path):
    opened, result = run
    folder = Path(result["checkpoint"])
    assert json.loads((folder / "plan.json").read_text())["toy"] is True
    assert [one.name for one in plan_file.read(folder).pruned.repairs] == ["toy"]
    ids, live = torch.arange(3, 12)[None], opened.model("gprune")
    torch.testing.assert_close(checkpoint.load(folder, "cpu")(ids).logits, live(ids).logits)
    with pytest.raises(CheckpointError, match="toy repair but does not hold the weights"):
        apply.save(folder, opened.study.model, tmp_path / "again", cut)


def test_tables_and_sentences_name_it(run):
    opened, result = run
    assert result["given"]["gprune"]["toy repair"] and result["given"]["flap"]["bias compensation"]
    assert labels() == "bias compensation and toy repair"
    given = {name: stages.given(results_of(opened), name) for name in ("gprune", "flap")}
    lines = [SimpleNamespace(name=name, method=name) for name in given]
    table = as_table(SimpleNamespace(lines=lines, names={name: name for name in given}), given)
    assert list(table["toy repair"]) == ["yes", "yes"] and list(table["bias compensation"]) == ["no", "yes"]
