"""A model by a device map says what the model on one device says; offloaded weights are read one at a time."""

from dataclasses import fields, replace

import numpy as np
import pytest
import tiny_study
import torch
from accelerate import dispatch_model
from torch import nn

from gprune import pipeline
from gprune.evaluation.perplexity import token_losses
from gprune.models import devices, loading
from gprune.models.decoder import Decoder
from gprune.models.loading import quiet, read_weights
from gprune.models.tiny import tiny_decoder
from gprune.pipeline import stages
from gprune.pipeline.stages import Graph
from gprune.pipeline.stages.inputs import read_inputs
from gprune.pipeline.stages.results import Results
from gprune.pruning.calibration import collect
from gprune.pruning.calibration.contexts import fit_contexts, project_inputs
from gprune.pruning.calibration.gradients import taylor_scores
from gprune.pruning.surgery import cut
from gprune.records import PruningMasks, Tokens
from gprune.store import Store
from gprune.study import from_dict, run_name
from gprune.study.settings import BaselineSettings, CalibrationSettings, ContextSettings
from gprune.system.errors import SettingsError

TOKENS = Tokens("text", "0" * 64, np.random.default_rng(0).integers(3, 64, (12, 9), dtype=np.int32), 12)


def saved(folder, family="llama", dtype=torch.float32):
    decoder = tiny_decoder(family, layers=3, hidden=8, neurons=13, heads=4, kv_heads=2, head_width=6, dtype=dtype)
    with quiet():
        decoder.model.save_pretrained(folder)
    return folder


def both(folder, dtype):
    """The model in memory, and the same with its layers in their files."""
    in_memory, offloaded = (
        Decoder.from_model(read_weights(folder, torch.device("cpu"), dtype, False, separate))
        for separate in (False, True)
    )
    assert offloaded.offloaded and not in_memory.offloaded
    assert (offloaded.device, offloaded.dtype) == (in_memory.device, in_memory.dtype)
    return in_memory, offloaded


def require_same(first, second):
    for field in fields(first):
        values = [getattr(record, field.name) for record in (first, second)]
        if isinstance(values[0], np.ndarray):
            np.testing.assert_array_equal(*values, err_msg=field.name)


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        *((family, "float32") for family in ("llama", "mistral", "qwen2", "qwen3")),
        ("llama", "bfloat16"),
        ("llama", "float16"),
    ],
)
def test_every_number_is_that_of_the_whole_model(tmp_path, family, dtype):
    # the file's number type is another one, so that the weights are converted as they are read
    in_memory, offloaded = both(saved(tmp_path / "model", family), dtype)
    settings, contexts = (CalibrationSettings(batch=5, shards=2), ContextSettings(count=3, dimensions=2, tokens=99))
    require_same(collect(in_memory, TOKENS, settings), collect(offloaded, TOKENS, settings))
    inputs = [project_inputs(decoder, TOKENS, contexts, 5) for decoder in (in_memory, offloaded)]
    fitted = [fit_contexts(decoder, contexts, seed=0) for decoder in inputs]
    require_same(*fitted)
    require_same(in_memory.weight_norms(), offloaded.weight_norms())
    assert in_memory.size == offloaded.size
    for layer in range(in_memory.shape.layers):
        assert torch.equal(in_memory.neuron_parameters(layer), offloaded.neuron_parameters(layer))


def test_no_more_than_one_projection_is_in_memory(tmp_path):
    _, decoder = both(saved(tmp_path / "model"), "float32")
    linears = [part for layer in decoder.layers for part in layer.modules() if isinstance(part, nn.Linear)]
    inside = nn.ModuleList(decoder.layers)
    sizes: list[int] = []

    def count(*_):
        sizes.append(sum(not parameter.is_meta for parameter in inside.parameters()))

    # accelerate reads a weight inside of forward, behind what is called before it
    for linear in linears:
        inner = linear._old_forward
        linear._old_forward = lambda *arguments, inner=inner: (count(), inner(*arguments))[1]
    decoder.hidden_states(torch.from_numpy(TOKENS.ids.astype(np.int64)))
    assert sizes == [1] * len(linears) and len(linears) == 7 * 3
    assert all(parameter.is_meta for parameter in inside.parameters())


PLACES = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.norm": "cpu", "lm_head": "cpu"}
MASKS = PruningMasks(
    "test", np.random.default_rng(1).random((3, 13)) < 0.6, np.array([[1, 0], [0, 1], [1, 1]], bool), 0.5, 0.5
)


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral"])
def test_a_cut_of_an_offloaded_model_has_its_weights_in_memory_and_the_same_answers(tmp_path, family):
    in_memory, offloaded = both(saved(tmp_path / "model", family), "float32")
    ids = torch.from_numpy(TOKENS.ids[:2].astype(np.int64))
    before = token_losses(in_memory.model, ids)
    for masks in (MASKS, replace(MASKS, ffn=MASKS.ffn[[0, 0, 0]], heads=MASKS.heads[[0, 0, 0]])):
        first, second = cut(in_memory, masks), cut(offloaded, masks)
        assert not any(weight.is_meta for weight in second.parameters())
        assert not any(hasattr(part, "_hf_hook") for part in second.modules())
        assert torch.equal(token_losses(first, ids), token_losses(second, ids))
    # the dense model is as it was
    assert offloaded.offloaded and torch.equal(token_losses(offloaded.model, ids), before)


def test_a_model_with_the_hooks_of_a_device_map_is_cut_and_measured_like_any_other():
    in_memory, hooked = (tiny_decoder(layers=3, neurons=13, kv_heads=2) for _ in range(2))
    places = PLACES | {f"model.layers.{layer}": "cpu" for layer in range(3)}
    mapped = Decoder.from_model(dispatch_model(hooked.model, places, main_device="cpu", force_hooks=True))
    ids = torch.from_numpy(TOKENS.ids[:2].astype(np.int64))
    assert hasattr(mapped.layers[0], "_hf_hook") and mapped.is_mapped and not mapped.offloaded
    for first, second in ((in_memory.model, mapped.model), (cut(in_memory, MASKS), cut(mapped, MASKS))):
        assert torch.equal(token_losses(first, ids), token_losses(second, ids))
    assert torch.equal(token_losses(in_memory.model, ids), token_losses(mapped.model, ids))


def test_one_offloaded_layer_is_enough_to_refuse_gradients(tmp_path):
    folder = saved(tmp_path / "model")
    places = PLACES | {"model.layers.0": "cpu", "model.layers.1": "cpu", "model.layers.2": "disk"}
    decoder = Decoder.from_model(read_weights(folder, torch.device("cpu"), "float32", False, False, places))
    assert decoder.offloaded and not decoder.o_proj(0).weight.is_meta
    with pytest.raises(SettingsError, match="LLM-Pruner needs the whole model in memory, .* switch offload off"):
        taylor_scores(decoder, TOKENS, BaselineSettings(taylor_samples=2, taylor_length=4))


@pytest.mark.parametrize(
    ("device", "gpus", "gib", "expected"),
    [("auto", 2, 1.0, True), ("cuda", 2, 1.0, True), ("cuda:0", 2, 1.0, False), ("auto", 1, 1.0, False)]
    + [("auto", 2, 1.3, False), ("cpu", 2, 1.0, False)],
)
def test_a_model_that_leaves_its_gpu_no_room_lies_over_all(tmp_path, monkeypatch, device, gpus, gib, expected):
    folder = saved(tmp_path / "model")
    size = (folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(devices, "count", lambda: gpus)
    monkeypatch.setattr(devices, "memory", lambda _: (0, int(gib * size)))
    target = torch.device("cpu" if device == "cpu" else devices.GPU)
    assert devices.needs_several_gpus(folder, device, target, "auto") == expected
    # half as many bytes a number
    assert not devices.needs_several_gpus(folder, device, target, torch.bfloat16)


def test_a_run_of_an_offloaded_model_is_the_run_of_the_model(tmp_path):
    values = tiny_study.made(tmp_path)
    study = from_dict(values | {"device": "cpu", "methods": ["dense", "gprune", "flap"]})
    offloaded = replace(study, offload=True)
    assert run_name(study) == run_name(offloaded)

    def ran(run, until):
        return pipeline.run(run, stores[run.offload], lambda *_: None, until)

    stores = {offload: Store(tmp_path / f"cache-{offload}") for offload in (False, True)}
    assert ran(study, "adapted")["keys"] == ran(offloaded, "adapted")["keys"]
    graph = Graph(study, read_inputs(study))
    for stage in (stages.scores(graph, "primary"), stages.drift(graph), stages.modules(graph)):
        require_same(*(Results(store, graph).record(stage) for store in stores.values()))
    plain = [replace(run, methods=("dense", "wanda_sp", "flap", "osscar", "slimllm")) for run in (study, offloaded)]
    first, second = (ran(run, "perplexity")["perplexity"] for run in plain)
    assert first == second and set(first) == {"dense", "wanda_sp", "flap", "osscar", "slimllm"}


@pytest.mark.parametrize("method", ["gprune", "gates", "llm_pruner", "fang", "recommended"])
def test_a_run_that_learns_on_an_offloaded_model_is_refused_before_it_computes(tmp_path, method):
    study = from_dict(tiny_study.made(tmp_path) | {"device": "cpu", "methods": ["dense", method], "offload": True})
    cache = tmp_path / "cache"
    with pytest.raises(SettingsError, match="needs the whole model in memory, and some of its layers are offloaded"):
        pipeline.run(study, Store(cache), lambda *_: None, "perplexity")
    assert not [path for path in cache.rglob("*") if path.suffix in (".npz", ".npy", ".safetensors")]


def test_layers_that_the_gpus_do_not_hold_refuse_learning_when_the_model_is_loaded(tmp_path, monkeypatch):
    study = from_dict(tiny_study.made(tmp_path) | {"device": "cpu", "methods": ["dense", "gprune"]})
    places = PLACES | {"model.layers.0": "cpu", "model.layers.1": "disk"}
    read_model = loading.read_weights
    monkeypatch.setattr(loading, "read_weights", lambda *settings: read_model(*settings[:5], places))
    learned: list[str] = []
    with pytest.raises(SettingsError, match=r"learning the sparsity .* some of its layers are offloaded"):
        pipeline.run(study, Store(tmp_path / "cache"), lambda stage, *_: learned.append(stage))
    assert "statistics_primary" not in learned or "scores_primary" not in learned
