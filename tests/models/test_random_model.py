"""Random weights: the same in every process, and a whole study of them like that of any other model."""

import argparse
import functools
import hashlib

import numpy as np
import pytest
import synthetic_run
import tiny_shape
import tiny_study
import torch

from gprune import pipeline
from gprune.app.pages import launch
from gprune.app.preview import DENSE, Question, Source
from gprune.app.preview.requests import resolve
from gprune.app.preview.worker.masked_model import MaskedModel, measure_losses
from gprune.app.ui import run_status
from gprune.cli import reproduce, study
from gprune.models import identity, loading, sources, vocabulary
from gprune.models.export import checkpoint
from gprune.pipeline import stages
from gprune.pipeline.estimate.dimensions import Dimensions, of_model
from gprune.pipeline.stages import inputs
from gprune.store import Store
from gprune.study import from_dict
from gprune.system import machine
from gprune.system.errors import GpruneError, ModelError


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A folder in which `random:tiny` and a wider sister are known."""
    tiny_shape.put(monkeypatch, tmp_path / "shapes", tiny={}, wider={"intermediate_size": 36})
    return tmp_path


def a_study(folder, model="random:tiny", **changes):
    texts = tiny_study.write_texts(folder / "texts")
    return from_dict(tiny_study.settings(model, texts, device="cpu", **changes))


def digest(model):
    result = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        result.update(name.encode() + value.float().numpy().tobytes())
    return result.hexdigest()


def test_weights_are_made_alike_and_nobodys_random_numbers_change(folder):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    decoder = loading.load("random:tiny", "cpu", "float32")
    assert torch.equal(torch.rand(3), expected)
    assert digest(decoder.model) == digest(loading.load_bare_model("random:tiny", "cpu", "float32"))
    weights = decoder.model.get_submodule("model.layers.1.mlp.down_proj").weight
    assert weights.shape == (16, 27) and 0.015 < float(weights.std()) < 0.025
    assert decoder.tokenizer("words").input_ids and not weights.requires_grad
    # the type of the published model where `auto` leaves it to the checkpoint, as it does on a GPU
    read = functools.partial(loading.read_weights, sources.SHAPES_FOLDER / "tiny", torch.device("cpu"))
    kinds = {name: read(name, False, False) for name in loading.DTYPES}
    assert {name: str(item.dtype) for name, item in kinds.items()} == {n: f"torch.{n}" for n in loading.DTYPES}
    with pytest.raises(ModelError, match="random:tiny has no weight files .*: switch offload off"):
        loading.load("random:tiny", "cpu", offload=True)


def test_a_whole_study_runs_and_its_pruned_model_reads_back(folder):
    study, store = a_study(folder), Store(folder / "cache")
    result = pipeline.run(study, store, lambda *_: None)
    vocabulary = tiny_shape.TINY["vocab_size"]
    for losses in result["perplexity"].values():
        # it knows nothing: every token is as likely as every other
        assert all(vocabulary / 2 < value < 2 * vocabulary for value in losses.values())
    results = pipeline.opened(study, store)
    location = results.model_folder(stages.checkpoint(results.graph))
    pruned = checkpoint.load_verified(location)
    mask = results.get(stages.masks, "gprune").ffn.sum(axis=1).tolist()
    assert pruned.config.ffn_widths == mask and sum(mask) < 2 * 27


def test_the_preview_measures_it_too(folder):
    study, store = a_study(folder, methods=("dense",)), Store(folder / "cache")
    pipeline.run(study, store, lambda *_: None, "perplexity")
    results, text = pipeline.opened(study, store), study.evaluation.texts[0]
    source = Source(str(folder / "cache"), results.graph)
    masked = MaskedModel(source.model)
    request = resolve(source, Question(text, DENSE))
    losses = measure_losses(masked, None, request.arguments["text"]).losses
    stored, measured = results.get(stages.perplexity, "dense", text).losses, np.isfinite(losses)
    assert measured.sum() == 2 and request.stored is not None
    np.testing.assert_allclose(losses[measured], stored[measured], rtol=1e-4)
    masked.require_same()


LLAMA = "random:llama2-7b"


def call(command, *words):
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    options = parser.parse_args(list(map(str, words)))
    return options.command(options)


def test_every_shape_is_a_folder_whose_tokens_all_have_a_row():
    largest = vocabulary.tokenizer("demo").get_vocab_size()
    for name, values in sources.SHAPES.items():
        folder = identity.locate(f"random:{name}")
        assert identity.configuration(folder) == values
        assert largest <= values["vocab_size"] == vocabulary.vocabulary_size(f"random:{name}")
        assert identity.weight_files(folder) == []
        assert of_model(f"random:{name}") == Dimensions.of(values)
        assert identity.tokenizer_fingerprint(f"random:{name}") == identity.tokenizer_fingerprint("demo")


def test_fingerprints_tell_shapes_versions_and_makers_apart(monkeypatch):
    results = [identity.fingerprint(f"random:{name}") for name in sources.SHAPES]
    results += [identity.fingerprint(LLAMA, card=card) for card in ("NVIDIA H100", "NVIDIA A10")]
    monkeypatch.setattr(sources, "WEIGHTS", "random weights 2")
    results.append(identity.fingerprint(LLAMA))
    assert len(set(results)) == len(sources.SHAPES) + 3
    assert identity.fingerprint("demo", card="NVIDIA H100") == identity.fingerprint("demo")


def test_a_study_is_read_for_the_device_that_makes_its_model(monkeypatch):
    on_cpu = inputs.read_inputs(synthetic_run.a_study(model=LLAMA))
    assert (on_cpu.model, on_cpu.precision) == (identity.fingerprint(LLAMA), "float32")
    monkeypatch.setattr(machine, "has_gpu", lambda: True)
    monkeypatch.setattr(machine, "cards", lambda: ("NVIDIA H100", "NVIDIA A10"))
    on_gpu = inputs.read_inputs(synthetic_run.a_study(model=LLAMA, device="auto"))
    assert on_gpu.precision == "bfloat16"
    assert on_gpu.model == identity.fingerprint(LLAMA, card="NVIDIA H100")
    second = inputs.read_inputs(synthetic_run.a_study(model=LLAMA, device="cuda:1"))
    assert second.model == identity.fingerprint(LLAMA, card="NVIDIA A10")
    assert inputs.read_inputs(synthetic_run.a_study(model=LLAMA, device="cpu")) == on_cpu
    with pytest.raises(ModelError, match="random:llama2-7b has no weight files .*: switch offload off"):
        inputs.read_inputs(synthetic_run.a_study(model=LLAMA, offload=True))


NO_DEPTH = ["", "layers=", "layers=0", "layers=-1", "layers=02", "layers=513", "layers=two", "layers=2.0"]
NO_DEPTH += ["layer=2", "layers=99999999", "layers=2#layers=3"]
REFUSED = {
    "": "'random:' is not a model with random weights: after random: give one of llama2-7b, ",
    "../../x": "'random:../../x' is not a model with random weights",
    "owner/name": "'random:owner/name' is not a model with random weights",
    "gpt9@0.5": "'random:gpt9@0.5' is not a model with random weights",
    "llama2-7b@0.5": "only `speed` accepts. The retention of a study is a setting of its own: give random:llama2-7b$",
    **{f"llama2-7b#{depth}": "has no valid depth: after # give layers=N, with N from 1 to 512" for depth in NO_DEPTH},
}


@pytest.mark.parametrize("shape", REFUSED)
def test_unknown_shapes_and_depths_are_refused_with_one_sentence_everywhere(shape):
    name, message = f"random:{shape}", REFUSED[shape]
    with pytest.raises(ModelError, match=message) as refused:
        identity.locate(name)
    assert len(str(refused.value)) <= 300
    study_of_name = synthetic_run.a_study(model=name)
    for ask in (
        lambda: call(study, "study", "--model", name),
        lambda: call(reproduce, "reproduce", "main", "--model", name, "--dry-run"),
        lambda: inputs.read_inputs(study_of_name),
        lambda: run_status.require_inputs("/no/such/cache", study_of_name),
    ):
        with pytest.raises(GpruneError, match=message):
            ask()
    assert launch.input_problem(study_of_name) == str(refused.value)


def test_a_depth_of_its_own_makes_another_model_of_the_same_widths(folder, monkeypatch):
    decoder = loading.load("random:tiny#layers=5", "cpu", "float32")
    assert decoder.shape.layers == 5 and decoder.shape.neurons == 27
    assert of_model("random:tiny#layers=5") == Dimensions.of(tiny_shape.TINY | {"num_hidden_layers": 5})
    created = loading.load_bare_model("random:tiny#layers=3@0.5", "cpu", "float32")
    assert len(created.config.ffn_widths) == 3 and created.config.ffn_widths[0] < 27
    names = ["random:tiny", "random:tiny#layers=5", "random:tiny#layers=1", "random:wider#layers=5"]
    assert len({identity.fingerprint(name) for name in names}) == 4
    # its own depth makes no other model, and the key of the shape is what it was
    assert identity.fingerprint("random:tiny#layers=2") == identity.fingerprint("random:tiny")
    assert identity.tokenizer_fingerprint(names[1]) == identity.tokenizer_fingerprint("demo")
    listed = {"num_hidden_layers": 2, "layer_types": ["a", "b"], "scale": [1, 2, 3]}
    assert sources.with_layers(listed, 3) == {
        "num_hidden_layers": 3, "layer_types": ["a", "b", "a"], "scale": [1, 2, 3],
    }  # fmt: skip
    study, store = a_study(folder, "random:tiny#layers=3"), Store(folder / "cache")
    pipeline.run(study, store, lambda *_: None, "masks")
    results = pipeline.opened(study, store)
    assert results.get(stages.masks, "gprune").ffn.shape == (3, 27)
