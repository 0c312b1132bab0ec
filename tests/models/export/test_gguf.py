"""A GGUF file holds every layer's own width, and llama.cpp reads text and computes as the checkpoint does."""

import importlib.util

import numpy as np
import pytest
import torch
from pruned_folder import byte_tokenizer, masks_of, needs_gguf, save, small_decoder
from safetensors.torch import load_file
from tiny_family import assert_close
from transformers import AutoModelForCausalLM

from gprune.models.decoder import Decoder
from gprune.models.export import gguf
from gprune.models.loading import load
from gprune.system.errors import CheckpointError

pytestmark = [pytest.mark.long, needs_gguf]
needs_llama = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed: run make gguf"
)


def fields(file):
    from gguf import GGUFReader

    return {name: field.contents() for name, field in GGUFReader(file).fields.items()}


def tensors(file):
    from gguf import GGUFReader

    return {tensor.name: np.array(tensor.data) for tensor in GGUFReader(file).tensors}


def llama(file, length=256):
    """llama.cpp with a float32 cache, so that only the order of its sums differs from ours."""
    from llama_cpp import GGML_TYPE_F32, Llama

    return Llama(
        str(file),
        n_ctx=length,
        n_batch=length,
        n_threads=1,
        n_threads_batch=1,
        logits_all=True,
        verbose=False,
        type_k=GGML_TYPE_F32,
        type_v=GGML_TYPE_F32,
    )


def their_logits(model, ids):
    model.reset()
    model.eval(ids)
    return torch.tensor(model.scores[: len(ids)])


@torch.inference_mode()
def our_logits(model, ids):
    logits: torch.Tensor = model(torch.tensor([ids])).logits[0].float()
    return logits


def test_every_layer_tells_its_own_widths(tmp_path):
    save(small_decoder(kv_heads=3), tmp_path / "in", tokenizer=byte_tokenizer(), compensated=True)
    size = gguf.save_gguf(tmp_path / "in", tmp_path / "deep" / "out.gguf")
    file = tmp_path / "deep" / "out.gguf"
    assert [location.name for location in file.parent.iterdir()] == ["out.gguf"] and file.stat().st_size == size
    values = fields(file)
    assert values["general.architecture"] == "deci"
    assert values["deci.block_count"] == 3
    assert values["deci.attention.head_count"] == [2, 4, 4]
    assert values["deci.attention.head_count_kv"] == [1, 2, 2]
    assert values["deci.feed_forward_length"] == [3, 11, 7]
    assert values["deci.attention.key_length"] == values["deci.rope.dimension_count"] == 4
    assert values["deci.context_length"] == 512 and values["deci.embedding_length"] == 24
    assert values["deci.rope.freq_base"] == 10000 and values["deci.vocab_size"] == 300
    assert values["deci.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-6)
    assert values["tokenizer.ggml.model"] == "gpt2" and values["tokenizer.ggml.pre"] == "gpt-2"
    assert values["tokenizer.ggml.add_bos_token"] is True and values["tokenizer.ggml.bos_token_id"] == 0
    saved, weights = tensors(file), load_file(tmp_path / "in" / "model.safetensors")
    name = "model.layers.1.mlp.down_proj"
    np.testing.assert_array_equal(saved["blk.1.ffn_down.weight"], weights[f"{name}.weight"])
    np.testing.assert_array_equal(saved["blk.1.ffn_down.bias"], weights[f"{name}.bias"])
    assert len(saved) == len(weights) == 3 + 3 * (9 + 2)


def test_a_weight_beyond_float16_is_told(tmp_path):
    decoder = small_decoder()
    decoder.up_proj(1).weight[:] = 1e5
    save(decoder, tmp_path / "in", tokenizer=byte_tokenizer())
    with pytest.raises(
        CheckpointError, match=r"up_proj\.weight holds 1e\+05, which float16 cannot represent: use float32"
    ):
        gguf.save_gguf(tmp_path / "in", tmp_path / "out.gguf", "float16")
    assert [file.name for file in tmp_path.iterdir()] == ["in"]


def test_a_checkpoint_without_tokenizer_makes_no_file(tmp_path):
    save(small_decoder(), tmp_path / "in")
    with pytest.raises(CheckpointError, match="has no tokenizer: it needs one of tokenizer.json"):
        gguf.save_gguf(tmp_path / "in", tmp_path / "out.gguf")
    assert [file.name for file in tmp_path.iterdir()] == ["in"]


def test_tied_embeddings_are_written_once(tmp_path):
    decoder = small_decoder()
    decoder.model.lm_head.weight = decoder.model.model.embed_tokens.weight
    decoder.model.config.tie_word_embeddings = True
    save(decoder, tmp_path / "in", tokenizer=byte_tokenizer())
    gguf.save_gguf(tmp_path / "in", tmp_path / "out.gguf")
    assert "output.weight" not in tensors(tmp_path / "out.gguf")


@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        ("qwen3", {}, "does not compute what a qwen3 model computes: export it with --padded and convert that"),
        ("gemma3", {}, "does not compute what a gemma3 model computes: use the folder with transformers"),
        ("llama", {"hidden_act": "gelu"}, "uses SiLU, but the model uses 'gelu'"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}},
            "rotary positions of type 'yarn'",
        ),
    ],
)
def test_what_the_architecture_has_not_is_refused(family, changes, words, tmp_path):
    decoder = small_decoder(family)
    for name, value in changes.items():
        setattr(decoder.model.config, name, value)
    decoder = Decoder.from_model(AutoModelForCausalLM.from_config(decoder.model.config))
    save(decoder, tmp_path / "in", tokenizer=byte_tokenizer())
    with pytest.raises(CheckpointError, match=words):
        gguf.save_gguf(tmp_path / "in", tmp_path / "out.gguf")
    assert [file.name for file in tmp_path.iterdir()] == ["in"]


SCALED = {
    "linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
        "rope_theta": 500.0,
    },
}


@needs_llama
@pytest.mark.parametrize("scaling", [None, *SCALED])
@pytest.mark.parametrize(("family", "compensated"), [("llama", True), ("mistral", False), ("qwen2", True)])
def test_llama_cpp_gives_the_same_logits(family, compensated, scaling, tmp_path):
    decoder = small_decoder(family, hidden=48, neurons=40, heads=6, kv_heads=3, head_width=16)
    if scaling is not None:
        weights = decoder.model.state_dict()
        decoder.model.config.rope_parameters = SCALED[scaling]
        changed = AutoModelForCausalLM.from_config(decoder.model.config)
        changed.load_state_dict(weights)
        decoder = Decoder.from_model(changed)
    masks = masks_of(decoder, [1, 3, 2], [3, 40, 17])
    live = save(decoder, tmp_path / "in", masks=masks, compensated=compensated, tokenizer=byte_tokenizer())
    gguf.save_gguf(tmp_path / "in", tmp_path / "out.gguf")
    ids = torch.randint(3, 300, (96,), generator=torch.Generator().manual_seed(4)).tolist()
    actual, expected = our_logits(live, ids), their_logits(llama(tmp_path / "out.gguf"), ids)
    assert_close(expected, actual, 1e-4)


@needs_llama
@pytest.mark.parametrize(
    ("name", "groups", "neurons"),
    [
        ("textllama-6m", [5, 8, 3, 6, 7, 4], [300, 768, 500, 411, 640, 700]),
        ("stories260K", [2, 4, 3, 4, 3], [150, 172, 90, 160, 171]),
    ],
)
def test_a_real_model_predicts_the_same_tokens(name, groups, neurons, shared, tmp_path):
    decoder = load(str(shared / "models" / name), device="cpu")
    masks = masks_of(decoder, groups, neurons)
    live = save(decoder, tmp_path / "in", masks=masks, compensated=True, tokenizer=decoder.tokenizer)
    gguf.save_gguf(tmp_path / "in", tmp_path / "out.gguf")
    model = llama(tmp_path / "out.gguf")
    text = (shared / "data" / "wikitext-2" / "test.txt").read_text()[:8000]
    assert model.tokenize(text.encode(), special=True) == decoder.tokenizer(text).input_ids
    ids = decoder.tokenizer(text).input_ids[:1000]
    windows = [ids[at : at + 250] for at in range(0, 1000, 250)]
    actual = torch.cat([our_logits(live, window) for window in windows])
    expected = torch.cat([their_logits(model, window) for window in windows])
    assert len(expected) == 1000
    assert float((actual.argmax(-1) == expected.argmax(-1)).float().mean()) >= 0.99
    assert_close(expected, actual, 1e-4)
