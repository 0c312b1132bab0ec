"""What the worker measures is what a run stores, and what a cut model loses; silent units say the same."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from preview.conftest import random_masks
from pruned_folder import compensating, with_biases

from gprune.app.preview.request import Question, resolve
from gprune.app.preview.worker import messages
from gprune.app.preview.worker.masked_model import MaskedModel
from gprune.app.preview.worker.worker import RequestHandler
from gprune.evaluation import perplexity as perplexity_module
from gprune.evaluation.perplexity import perplexity
from gprune.models.tiny import tiny_decoder
from gprune.pipeline import stages
from gprune.pipeline.stages import RunContext
from gprune.pruning.surgery import Silenced, cut
from gprune.records import ModelShape, PruningMasks
from gprune.study.methods import METHODS
from gprune.system.errors import ModelError

pytestmark = pytest.mark.slow

NAMES = ("dense", "gprune", "flap", "flap_no_bias", "wanda_sp")


def measured(masked, source, question, numbers=None):
    asked = resolve(source, question)
    windows = len(masked.windows(asked.text))
    numbers = list(range(windows) if numbers is None else numbers)
    sent = {"text": asked.text, "numbers": numbers, "pruned": asked.pruned}
    read = messages.read(messages.line(sent))
    return np.array(masked.losses(read))


@pytest.mark.parametrize(
    ("kv_heads", "dtype", "tolerance"), [(2, "float32", 1e-4), (4, "float32", 1e-4), (2, "bfloat16", 1e-2)]
)
def test_at_the_runs_own_masks_every_method_loses_what_is_stored(tiny_run, kv_heads, dtype, tolerance):
    run = tiny_run(kv_heads, dtype)
    masked = MaskedModel(run.source.model)
    for method in NAMES:
        for text in run.texts:
            stored = run.source.results.get(stages.perplexity, method, text).losses
            found = measured(masked, run.source, Question(text, method))
            assert len(stored) == 40
            np.testing.assert_allclose(found, stored, rtol=tolerance, err_msg=f"{method} on {text}")


@pytest.mark.parametrize("kv_heads", [2, 4])
@pytest.mark.parametrize("method", ["gprune", "flap", "flap_pooled"])
def test_at_other_masks_it_loses_what_the_cut_model_loses(tiny_run, kv_heads, method):
    run = tiny_run(kv_heads)
    source, text = run.source, run.texts[1]
    study = source.graph.study
    work = RunContext(study, source.graph.inputs, source.results.store.texts)
    masked = MaskedModel(source.model)
    means = [
        source.results.get(stages.statistics, role)
        for role in {"gprune": (), "flap": ("primary",), "flap_pooled": ("primary", "auxiliary")}[method]
    ]
    assert bool(means) == bool(METHODS[method].repairs)
    for seed in range(3):
        masks = random_masks(work.decoder.shape, seed)
        model = cut(work.decoder, compensating(masks, *means) if means else masks)
        expected = perplexity(model, work.stream(text), text, study.evaluation).losses
        numbers = list(np.random.default_rng(seed).permutation(40))[:13]
        found = measured(masked, source, Question(text, method, masks), [int(n) for n in numbers])
        np.testing.assert_allclose(found, expected[numbers], rtol=1e-4)


def test_a_text_that_has_changed_is_named(tiny_run, tmp_path):
    source = tiny_run().source
    asked = resolve(source, Question(source.graph.study.evaluation.texts[0]))
    desk = RequestHandler()
    assert desk.answer(messages.line({"model": source.model})) == {"id": None, "ready": True}
    reply = desk.answer(messages.line({"id": "a", "text": {**asked.text, "digest": "0" * 64}}))
    assert reply["id"] == "a" and reply["ready"] and "has changed since the run" in reply["problem"]
    assert desk.answer(messages.line({"id": "b", "text": asked.text})) == {"id": "b", "windows": 40}


def test_a_changed_model_is_not_measured(tiny_run, tmp_path):
    source = tiny_run().copied(tmp_path)
    desk = RequestHandler()
    assert desk.answer(messages.line({"model": source.model})).get("ready")
    (tmp_path / "model" / "config.json").write_text("{}")
    reply = desk.answer(messages.line({"id": "a", "text": {}}))
    assert not reply["ready"] and "has changed since the run" in reply["problem"]
    other = desk.answer(messages.line({"model": {**source.model, "root": str(tmp_path)}}))
    assert not other["ready"] and str(tmp_path / "model") in other["problem"]


def test_a_model_of_other_weights_or_beyond_the_memory_is_not_loaded(tiny_run, monkeypatch):
    source = tiny_run().source
    reply = RequestHandler().answer(messages.line({"model": {**source.model, "fingerprint": "0" * 64}}))
    assert not reply["ready"] and "has changed since the run" in reply["problem"]
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    reply = RequestHandler().answer(messages.line({"model": tiny_run().source.model}))
    assert not reply["ready"] and "GiB of memory that are free" in reply["problem"]


def test_where_the_memory_is_too_small_for_a_batch_it_takes_smaller_ones(tiny_run, monkeypatch):
    source = tiny_run().source
    masked, question = MaskedModel(source.model), Question(source.graph.study.evaluation.texts[0])
    expected, sizes, most = measured(masked, source, question, range(7)), [], 2
    true = perplexity_module.token_losses

    def small(model, ids):
        sizes.append(len(ids))
        if len(ids) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return true(model, ids)

    monkeypatch.setattr(perplexity_module, "token_losses", small)
    np.testing.assert_allclose(measured(masked, source, question, range(7)), expected, rtol=1e-5)
    assert max(sizes) == 7 and sum(size for size in sizes if size <= most) == 7
    most = 0
    desk = RequestHandler()
    desk.masked = masked
    asked = resolve(source, question)
    sent = {"id": 1, "text": asked.text, "numbers": [3], "pruned": asked.pruned}
    reply = desk.answer(messages.line(sent))
    assert "the memory is too small" in reply["problem"] and reply["ready"]


@pytest.mark.parametrize("line", [b"\xff\xfe\n", b"[1]\n", b'{"numbers": [1]}\n', b"\n"])
def test_a_line_that_means_nothing_gets_a_sentence(line):
    assert RequestHandler().answer(line)["problem"]


def test_masks_travel_whole():
    masks = random_masks(ModelShape(3, 13, 4, 2, 2, 8), 4)
    read = messages.unpacked(messages.packed(masks))
    assert np.array_equal(read.ffn, masks.ffn) and np.array_equal(read.heads, masks.heads)


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
