"""A pruned model leaves and comes back as it was, here and where this project is not installed."""

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
from pruned_folder import masks_of, with_biases
from transformers import AutoModelForCausalLM, AutoTokenizer

from gprune.api.held import prune
from gprune.models.decoder import Decoder
from gprune.models.export import checkpoint, pruning_file
from gprune.models.tiny import tiny_decoder
from gprune.pruning.surgery import cut


def padded_batch():
    ids = torch.randint(3, 64, (2, 7), generator=torch.Generator().manual_seed(5))
    ids[1, :3] = 0
    return ids, (ids != 0).long()


def assert_equal_logits(actual, expected):
    """Up to rounding: kernels differ with the alignment of a tensor in memory."""
    relative = 1e-5 if actual.dtype == torch.float32 else 1e-2
    torch.testing.assert_close(actual, expected, rtol=0, atol=relative * float(expected.abs().max()))


GENERATION = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "pad_token_id": 0}


@pytest.mark.parametrize("compensated", [False, True])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_what_is_loaded_equals_what_was_saved(family, compensated, tmp_path, masks, saved, decoder_of):
    decoder = decoder_of(family)
    pruned = with_biases(decoder, masks) if compensated else masks
    live: Any = cut(decoder, pruned)
    folder = saved(live, None, tmp_path / "out", pruned)
    loaded: Any = checkpoint.load_checkpoint(folder, device="cpu")
    ids, attention = padded_batch()
    assert_equal_logits(loaded(ids).logits, live(ids).logits)
    expected = live.generate(ids, attention_mask=attention, **GENERATION)
    assert torch.equal(loaded.generate(ids, attention_mask=attention, **GENERATION), expected)
    assert type(loaded).__name__ == f"Gprune{family.capitalize()}ForCausalLM"
    assert sum(p.numel() for p in loaded.parameters()) == sum(p.numel() for p in live.parameters())
    checkpoint.load_verified(folder)
    assert pruning_file.read_record(folder).pruned.biased == compensated


def test_folder_holds_weights_configuration_code_tokenizer_and_record(tmp_path, masks, tokenizer, saved, decoder_of):
    folder = saved(cut(decoder_of("llama"), masks), tokenizer, tmp_path / "deep" / "out")
    names = {file.name for file in folder.iterdir()}
    assert names >= {"config.json", "generation_config.json", "model.safetensors", "modeling_gprune.py"}
    assert names >= {"pruning.json", "tokenizer.json", "tokenizer_config.json"}
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl"))]
    assert [file.name for file in folder.parent.iterdir()] == ["out"]
    values = json.loads((folder / "config.json").read_text())
    assert values["model_type"] == "gprune_llama"
    assert values["ffn_widths"] == [1, 4, 13] and values["key_value_groups"] == [1, 2, 3]
    assert not values["o_proj_bias"] and not values["down_proj_bias"]
    assert values["auto_map"]["AutoModelForCausalLM"] == "modeling_gprune.GpruneLlamaForCausalLM"


def test_the_record_gives_back_the_cut(tmp_path, masks, saved, decoder_of):
    decoder = decoder_of("mistral")
    live: Any = cut(decoder, masks)
    plan = pruning_file.read_record(saved(live, None, tmp_path / "out"))
    assert (plan.source, plan.fingerprint) == ("dense", "f00d")
    assert plan.study == {"model": "dense", "retention": 0.5}
    kept = plan.pruned.masks
    assert (kept.method, kept.retention, kept.target) == ("gprune", 0.51, 0.5)
    np.testing.assert_array_equal(kept.ffn, masks.ffn)
    np.testing.assert_array_equal(kept.heads, masks.heads)
    again: Any = cut(decoder, kept)
    assert_equal_logits(again(torch.arange(9)[None]).logits, live(torch.arange(9)[None]).logits)


def test_plain_from_pretrained_after_register(tmp_path, masks, tokenizer, saved, decoder_of):
    live: Any = cut(decoder_of("qwen2"), masks)
    folder = saved(live, tokenizer, tmp_path / "out")
    checkpoint.register_classes()
    checkpoint.register_classes()
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert_equal_logits(loaded(torch.arange(9)[None]).logits, live(torch.arange(9)[None]).logits)
    assert AutoTokenizer.from_pretrained(folder)("w7 w8").input_ids == [7, 8]
    loaded.save_pretrained(tmp_path / "again")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "again")
    assert_equal_logits(again(torch.arange(9)[None]).logits, live(torch.arange(9)[None]).logits)


@pytest.mark.parametrize("family", ["qwen3", "phi3", "stablelm", "olmo2"])
def test_the_natural_way_works_like_that_of_any_model(family, tmp_path):
    decoder = tiny_decoder(family, hidden=32, heads=4, kv_heads=2, head_width=8, neurons=13)
    ids, masks = torch.arange(9)[None], masks_of(decoder, [1, decoder.shape.kv_heads], [4, 9])
    model = prune(decoder.model, masks)
    expected = model(ids).logits
    assert model.config.ffn_widths == [4, 9] and decoder.model.config.model_type == family
    model.save_pretrained(tmp_path / "out")
    assert (tmp_path / "out" / "modeling_gprune.py").is_file()
    checkpoint.register_classes()
    for again in (AutoModelForCausalLM.from_pretrained(tmp_path / "out"), copy.deepcopy(model)):
        assert type(again) is type(model) and torch.equal(again(ids).logits, expected)
    again.requires_grad_(True).train()(ids, labels=ids).loss.backward()
    assert all(weight.grad is not None for weight in again.model.layers[0].parameters())
    assert torch.equal(model(ids).logits, expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_from_a_gpu_and_back(tmp_path, masks, dtype, saved, decoder_of):
    decoder = Decoder.from_model(decoder_of("llama", dtype=dtype).model.cuda())
    live: Any = cut(decoder, with_biases(decoder, masks))
    folder = saved(live, None, tmp_path / "out")
    loaded: Any = checkpoint.load_checkpoint(folder)
    ids = torch.arange(9)[None].cuda()
    assert loaded.device.type == "cuda" and loaded.dtype == dtype
    torch.testing.assert_close(loaded(ids).logits, live(ids).logits, rtol=1e-2, atol=1e-2)
    checkpoint.load_verified(folder)
    assert pruning_file.read_record(folder).source == "dense"
