"""A model laid over several GPUs, and what processes tell each other."""

import numpy as np
import pytest
import torch
from accelerate import dispatch_model

from gprune.evaluation.perplexity import token_losses
from gprune.models.decoder import Decoder
from gprune.models.distributed.rpc import Order, made, plain
from gprune.models.sharding import require_on_gpus, spread, too_large
from gprune.models.tiny import tiny_decoder
from gprune.pruning.surgery import cut
from gprune.records import PruningMasks
from gprune.system import errors
from gprune.system.errors import MethodError, ModelError

IDS = torch.from_numpy(np.random.default_rng(0).integers(3, 64, (2, 9)))


def test_a_model_with_the_hooks_of_a_device_map_is_cut_and_measured_like_any_other():
    """The hooks hand on what goes from one device to the next; here all of them are the CPU."""
    plain, hooked = (tiny_decoder(layers=3, neurons=13, kv_heads=2) for _ in range(2))
    places = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    places |= {f"model.layers.{layer}": "cpu" for layer in range(3)}
    spread = Decoder.from_model(dispatch_model(hooked.model, places, main_device="cpu", force_hooks=True))
    assert hasattr(spread.layers[0], "_hf_hook") and not spread.offloaded
    rng = np.random.default_rng(1)
    masks = PruningMasks("test", rng.random((3, 13)) < 0.6, np.array([[1, 0], [0, 1], [1, 1]], bool), 0.5, 0.5)
    for one, other in ((plain.model, spread.model), (cut(plain, masks), cut(spread, masks))):
        assert torch.equal(token_losses(one, IDS), token_losses(other, IDS))
    # the dense one is as it was
    assert torch.equal(token_losses(plain.model, IDS), token_losses(spread.model, IDS))


@pytest.mark.parametrize("left", ["cpu", "disk"])
def test_a_model_that_all_gpus_together_do_not_hold_is_refused(left):
    with pytest.raises(ModelError, match=r"does not fit the GPUs that were asked for \(1 of its parts"):
        require_on_gpus({"model.layers.0": 0, "model.layers.1": left}, "a model")


def test_without_accelerate_one_sentence_says_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="the package accelerate, which lays it over several, is not installed"):
        spread("demo", "float32", False, 2)


def test_on_a_cpu_no_model_is_laid_over_several():
    assert not too_large("demo", "cpu", "float32")


def test_what_needs_the_whole_model_leaves_a_method_out_where_others_could_help(monkeypatch):
    decoder = tiny_decoder()
    monkeypatch.setattr(Decoder, "offloaded", True)
    decoder.in_company = True
    with pytest.raises(MethodError, match="LLM-Pruner needs the whole model on one GPU"):
        decoder.require_whole("LLM-Pruner")


def test_an_order_arrives_with_its_values_and_arrays():
    arrays = {"ids": np.arange(6, dtype=np.int32).reshape(2, 3)[:, ::2], "none": np.zeros((0, 4))}
    found = Order.decoded(Order("learning", {"text": "Zoë’s\n", "shards": 4}, arrays).encoded().tobytes())
    assert (found.name, found.values) == ("learning", {"text": "Zoë’s\n", "shards": 4})
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)


@pytest.mark.parametrize("kind", [errors.NumericsError, errors.SettingsError, errors.MethodError])
def test_an_error_arrives_as_what_it_is(kind):
    found = made(plain(kind("a sentence: do this")).encode())
    assert type(found) is kind and str(found) == "a sentence: do this"


@pytest.mark.parametrize("data", [b'{"kind": "DamagedError", "words": "x"}', b'{"kind": "os", "words": "x"}'])
def test_an_error_of_another_making_is_one_of_ours(data):
    found = made(data)
    assert type(found) is errors.RanksError and str(found) == "x"
