"""What the worker measures is what a run stores, and what a cut model loses; silent units say the same."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from preview.conftest import answered, handler_of, random_masks
from pruned_folder import compensating, with_biases

from gprune.app.preview import Question
from gprune.app.preview.manager import WorkerProcess, describe_memory
from gprune.app.preview.requests import resolve
from gprune.app.preview.worker.loop import RequestHandler
from gprune.app.preview.worker.masked_model import visiting_order
from gprune.evaluation import perplexity as perplexity_module
from gprune.evaluation.perplexity import perplexity
from gprune.models.tiny import tiny_decoder
from gprune.pipeline import stages
from gprune.pipeline.stages import RunContext
from gprune.pruning.surgery import Silenced, cut
from gprune.records import PruningMasks
from gprune.study.methods import METHODS
from gprune.system.errors import ModelError

pytestmark = pytest.mark.slow

NAMES = ("dense", "gprune", "flap", "flap_no_bias", "wanda_sp")


def measured(handler, source, question):
    return answered(handler, resolve(source, question)).losses


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 1e-2)])
def test_at_the_runs_own_masks_every_method_loses_what_is_stored(tiny_run, dtype, tolerance):
    run = tiny_run(dtype)
    handler = handler_of(run.source)
    for method in NAMES:
        for text in run.texts:
            stored = run.source.results.get(stages.perplexity, method, text).losses
            losses = measured(handler, run.source, Question(text, method))
            assert len(stored) == 40
            np.testing.assert_allclose(losses, stored, rtol=tolerance, err_msg=f"{method} on {text}")


@pytest.mark.parametrize("method", ["gprune", "flap", "flap_pooled"])
def test_at_other_masks_it_loses_what_the_cut_model_loses(tiny_run, method):
    run = tiny_run()
    source, text = run.source, run.texts[1]
    study = source.graph.study
    work = RunContext(study, source.graph.inputs, source.results.store.texts)
    handler = handler_of(source)
    means = [
        source.results.get(stages.statistics, role)
        for role in {"gprune": (), "flap": ("primary",), "flap_pooled": ("primary", "auxiliary")}[method]
    ]
    assert bool(means) == bool(METHODS[method].repairs)
    for seed in range(3):
        masks = random_masks(work.decoder.shape, seed)
        model = cut(work.decoder, compensating(masks, *means) if means else masks)
        expected = perplexity(model, work.stream(text), text, study.evaluation).losses
        np.testing.assert_allclose(measured(handler, source, Question(text, method, masks)), expected, rtol=1e-4)


def test_windows_come_in_one_order_for_all_and_a_slice_takes_half_a_second_whatever_the_model(tiny_run):
    source = tiny_run().source
    handler, text = handler_of(source), source.graph.study.evaluation.texts[0]
    order = visiting_order(40)
    assert sorted(order) == list(range(40)) and order[:8].min() < 10 and order[:8].max() >= 30
    request = resolve(source, Question(text))
    first = answered(handler, request, turns=1)
    assert set(np.flatnonzero(np.isfinite(first.losses))) == set(order[:2])
    (pace,) = handler.model.seconds.values()
    assert 0 < pace < 60
    batch = source.graph.study.evaluation.batch
    for pace, size in ((0.1, 5), (0.5, 1), (4.0, 1), (1e-9, batch)):
        handler.model.seconds[request.arguments["text"]] = pace
        assert answered(handler, resolve(source, Question(text, "flap")), turns=1).done == size


def test_a_text_or_a_model_that_has_changed_is_named_and_not_measured(tiny_run, tmp_path):
    source = tiny_run().copied(tmp_path)
    handler, request = handler_of(source), resolve(source, Question(source.graph.study.evaluation.texts[0]))
    other = request.arguments | {"text": replace(request.arguments["text"], digest="0" * 64)}
    kind, problem, usable = handler.answer("losses", other)
    assert kind == "problem" and usable and "has changed since the run" in problem
    assert answered(handler, request).done == 40
    kind, problem, usable = RequestHandler().answer("load", {"model": replace(source.model, fingerprint="0" * 64)})
    assert kind == "problem" and not usable and "has changed since the run" in problem
    (tmp_path / "model" / "config.json").write_text("{}")
    kind, problem, usable = answered(handler, request)
    assert kind == "problem" and not usable and "has changed since the run" in problem
    kind, problem, usable = handler.answer("load", {"model": source.model})
    assert kind == "problem" and not usable and str(tmp_path / "model") in problem


def test_the_memory_is_said_before_the_model_is_loaded_and_refused_if_not_free(tiny_run, tmp_path, monkeypatch):
    source = tiny_run().copied(tmp_path)
    model, size = source.model, sum(file.stat().st_size for file in tmp_path.glob("model/*.safetensors"))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=5 * 2**29))
    weights = f"{size / 2**20:.0f} MiB"
    assert describe_memory(model) == f"it needs {weights} of the 2.5 GiB of free memory"
    assert describe_memory(replace(model, device="cuda")) == f"it needs {weights} of the GPU’s memory"
    halved = describe_memory(replace(model, precision="bfloat16"))
    assert halved.startswith(f"it needs {size // 2 / 2**20:.0f} MiB")
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(ModelError, match=f"the model needs {weights}, more than the 0 MiB of free memory"):
        WorkerProcess(model)
    shutil.rmtree(tmp_path / "model")
    with pytest.raises(ModelError, match="is missing or incomplete"):
        WorkerProcess(model)


def test_where_the_memory_is_too_small_for_a_batch_it_takes_smaller_ones(tiny_run, monkeypatch):
    source = tiny_run().source
    handler, question = handler_of(source), Question(source.graph.study.evaluation.texts[0])
    expected, sizes, maximum = measured(handler, source, question), [], 2
    true = perplexity_module.token_losses

    def small(model, ids):
        sizes.append(len(ids))
        if len(ids) > maximum:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return true(model, ids)

    monkeypatch.setattr(perplexity_module, "token_losses", small)
    np.testing.assert_allclose(measured(handler, source, question), expected, rtol=1e-5)
    assert max(sizes) > 2 and sum(size for size in sizes if size <= maximum) == 40
    maximum = 0
    kind, problem, usable = answered(handler, resolve(source, question))
    assert kind == "problem" and usable and "there is too little memory" in problem


@pytest.mark.parametrize("compensated", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_says_what_the_cut_model_says(family, kv_heads, compensated):
    decoder = tiny_decoder(family, kv_heads=kv_heads)
    masks = random_masks(decoder.shape, seed=kv_heads)
    pruned = with_biases(decoder, masks) if compensated else masks
    ids = torch.randint(3, 64, (3, 9), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        dense = decoder.model(ids).logits
        expected = cut(decoder, pruned)(ids).logits
        with Silenced(decoder, pruned).applied():
            actual = decoder.model(ids).logits
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
        assert not torch.allclose(actual, dense, atol=1e-2)
        assert torch.equal(decoder.model(ids).logits, dense)


def test_the_decoder_stays_as_it_was_and_what_cannot_be_cut_is_refused():
    decoder = tiny_decoder("qwen2")
    before = {name: value.clone() for name, value in decoder.model.state_dict().items()}
    silenced = Silenced(decoder, with_biases(decoder, random_masks(decoder.shape, 0)))
    with pytest.raises(KeyError), silenced.applied():
        assert decoder.down_proj(0).bias is not None
        raise KeyError
    after = decoder.model.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[name], before[name]) for name in before)
    assert not decoder.down_proj(0)._forward_pre_hooks
    decoder = tiny_decoder()
    masks = random_masks(decoder.shape, 0)
    removed = int(np.flatnonzero(~masks.ffn[0])[0])
    decoder.up_proj(0).weight[removed] = float("inf")
    with torch.no_grad(), Silenced(decoder, masks).applied():
        assert torch.isfinite(decoder.model(torch.arange(3, 9)[None]).logits).all()
    decoder = tiny_decoder()
    shape = decoder.shape
    ffn, heads = np.ones((shape.layers, shape.neurons), bool), np.ones((shape.layers, shape.kv_heads), bool)
    ffn[1] = False
    with pytest.raises(ModelError, match="layer 1 would lose all 12 neurons"):
        Silenced(decoder, PruningMasks("test", ffn, heads, 0.5, 0.5))
    with pytest.raises(ModelError, match="the model has"):
        Silenced(decoder, PruningMasks("test", ffn[:, :-1], heads, 0.5, 0.5))
