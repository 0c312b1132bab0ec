"""A model whose layers stay in their files says what the whole model says, and holds one weight at a time."""

from dataclasses import replace

import numpy as np
import pytest
import tiny_study
import torch
from torch import nn

from gprune import pipeline
from gprune.models.decoder import Decoder
from gprune.models.loading import quiet, read_weights
from gprune.models.tiny import tiny_decoder
from gprune.pipeline import stages
from gprune.pipeline.stages import Graph
from gprune.pipeline.stages.inputs import read
from gprune.pipeline.stages.results import Results
from gprune.pruning.calibration import collect
from gprune.pruning.calibration.contexts import fit_contexts, project_inputs
from gprune.pruning.calibration.gradients import taylor_scores
from gprune.pruning.surgery import cut
from gprune.records import PruningMasks, Tokens
from gprune.store import Store
from gprune.study import from_dict, run_name
from gprune.study.settings import BaselineSettings, CalibrationSettings, ContextSettings
from gprune.system.errors import ModelError, SettingsError

TOKENS = Tokens("text", "0" * 64, np.random.default_rng(0).integers(3, 64, (12, 9), dtype=np.int32), 12)


def saved(folder, family="llama", dtype=torch.float32):
    decoder = tiny_decoder(family, layers=3, hidden=8, neurons=13, heads=4, kv_heads=2, head_width=6, dtype=dtype)
    with quiet():
        decoder.model.save_pretrained(folder)
    return folder


def both(folder, dtype):
    """The model in memory, and the same with its layers in their files."""
    whole, offloaded = (
        Decoder.from_model(read_weights(folder, torch.device("cpu"), dtype, False, wanted)) for wanted in (False, True)
    )
    assert offloaded.offloaded and not whole.offloaded
    assert (offloaded.device, offloaded.dtype) == (whole.device, whole.dtype)
    return whole, offloaded


def arrays_of(record):
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def require_same(first, second):
    for name, value in arrays_of(first).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, getattr(second, name), err_msg=name)


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
    whole, offloaded = both(saved(tmp_path / "model", family), dtype)
    settings, contexts = (
        CalibrationSettings(batch=5, shards=2),
        ContextSettings(count=3, dimensions=2, tokens=99),
    )
    require_same(collect(whole, TOKENS, settings), collect(offloaded, TOKENS, settings))
    inputs = [project_inputs(one, TOKENS, contexts, 5) for one in (whole, offloaded)]
    made = [fit_contexts(one, contexts, seed=0) for one in inputs]
    require_same(*made)
    require_same(whole.weight_norms(), offloaded.weight_norms())
    assert whole.size == offloaded.size
    for layer in range(whole.shape.layers):
        assert torch.equal(whole.neuron_parameters(layer), offloaded.neuron_parameters(layer))


def test_no_more_than_one_projection_is_in_memory(tmp_path):
    _, decoder = both(saved(tmp_path / "model"), "float32")
    linears = [part for layer in decoder.layers for part in layer.modules() if isinstance(part, nn.Linear)]
    inside = nn.ModuleList(decoder.layers)
    seen: list[int] = []

    def count(*_):
        seen.append(sum(not parameter.is_meta for parameter in inside.parameters()))

    # accelerate reads a weight inside of forward, behind what is called before it
    for linear in linears:
        inner = linear._old_forward
        linear._old_forward = lambda *given, inner=inner: (count(), inner(*given))[1]
    decoder.hidden_states(torch.from_numpy(TOKENS.ids.astype(np.int64)))
    assert seen == [1] * len(linears) and len(linears) == 7 * 3
    assert all(parameter.is_meta for parameter in inside.parameters())


def test_what_changes_or_copies_weights_is_refused_with_what_to_do(tmp_path):
    _, decoder = both(saved(tmp_path / "model"), "float32")
    masks = PruningMasks("flap", np.ones((3, 13), bool), np.ones((3, 2), bool), 1.0, 1.0)
    sentence = "needs the whole model in memory.*switch offload off, or stop before .--until adapted."
    with pytest.raises(SettingsError, match=f"pruning {sentence}"):
        cut(decoder, masks)
    with pytest.raises(SettingsError, match=f"LLM-Pruner {sentence}"):
        taylor_scores(decoder, TOKENS, BaselineSettings(taylor_samples=2, taylor_length=4))


def test_a_weight_that_is_not_finite_is_named(tmp_path):
    from safetensors.torch import load_file, save_file

    file = saved(tmp_path / "model") / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.2.mlp.down_proj.weight"][0, 3] = float("nan")
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"model\.layers\.2\.mlp\.down_proj\.weight in .* holds 1 values"):
        both(file.parent, "float32")


def test_a_run_of_an_offloaded_model_is_the_run_of_the_model(tmp_path):
    values = tiny_study.made(tmp_path)
    study = from_dict(values | {"device": "cpu", "methods": ["dense", "gprune", "flap"]})
    offloaded = replace(study, offload=True)
    assert run_name(study) == run_name(offloaded)

    def ran(one, until):
        return pipeline.run(one, stores[one.offload], lambda *_: None, until)

    stores = {wanted: Store(tmp_path / f"cache-{wanted}") for wanted in (False, True)}
    assert ran(study, "adapted")["keys"] == ran(offloaded, "adapted")["keys"]
    graph = Graph(study, read(study))
    for stage in (stages.scores(graph, "primary"), stages.drift(graph), stages.modules(graph)):
        require_same(*(Results(store, graph).record(stage) for store in stores.values()))
    with pytest.raises(SettingsError, match="learning needs the whole model in memory"):
        ran(offloaded, "masks")
    dense = [replace(one, methods=("dense",)) for one in (study, offloaded)]
    first, second = (ran(one, "perplexity")["perplexity"] for one in dense)
    assert first == second and first["dense"]
