"""A padded model is an ordinary one that computes what the pruned one computes, and its cost is told."""

import json

import pytest
import torch
from pruned_folder import masks_of, save, small_decoder
from safetensors.torch import load_file
from tiny_family import assert_close
from transformers import AutoConfig, AutoModelForCausalLM

from gprune.__main__ import main
from gprune.models import loading
from gprune.models.export.model_card import read_record
from gprune.models.export.padded import save_padded
from gprune.models.sources import SHAPES
from gprune.models.tiny import tiny_decoder
from gprune.system.errors import CheckpointError

NAMES = ("intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
IDS = torch.randint(3, 300, (2, 9), generator=torch.Generator().manual_seed(5))


def configuration(folder):
    return json.loads((folder / "config.json").read_text())


def test_every_layer_gets_the_width_of_the_widest_and_zeros(tmp_path):
    save(small_decoder(), tmp_path / "in", compensated=True)
    save_padded(tmp_path / "in", tmp_path / "out")
    assert [configuration(tmp_path / "out")[name] for name in NAMES] == [11, 4, 2, 4]
    tensors, before = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "in"))
    layer = "model.layers.0."
    # one of two groups and 3 of 11 neurons are real here: 8 query rows, 4 key and value rows
    for name, rows, columns in (
        ("self_attn.q_proj", 8, 24),
        ("self_attn.k_proj", 4, 24),
        ("self_attn.v_proj", 4, 24),
        ("self_attn.o_proj", 24, 8),
        ("mlp.gate_proj", 3, 24),
        ("mlp.down_proj", 24, 3),
    ):
        wide, narrow = tensors[f"{layer}{name}.weight"], before[f"{layer}{name}.weight"]
        assert narrow.shape == (rows, columns)
        assert torch.equal(wide[:rows, :columns], narrow)
        assert not wide[rows:].any() and not wide[:, columns:].any()
    assert not tensors[f"{layer}self_attn.k_proj.bias"].any()
    assert torch.equal(tensors[f"{layer}mlp.down_proj.bias"], before[f"{layer}mlp.down_proj.bias"])


@pytest.mark.parametrize(("family", "groups"), [("llama", 6), ("mistral", 5)])
def test_llama_needs_heads_that_divide_the_hidden_size(family, groups, tmp_path):
    decoder = small_decoder(family, heads=6, kv_heads=6)
    live = save(decoder, tmp_path / "in", masks=masks_of(decoder, [5, 1, 2], [1, 2, 3]))
    save_padded(tmp_path / "in", tmp_path / "out")
    values = configuration(tmp_path / "out")
    assert (values["num_key_value_heads"], values["intermediate_size"]) == (groups, 3)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert_close(loaded(IDS).logits, live(IDS).logits)


def test_a_window_in_use_cannot_become_llama(tmp_path):
    decoder = small_decoder("mistral")
    decoder.model.config.sliding_window = 8
    save(decoder, tmp_path / "in", compensated=True)
    with pytest.raises(CheckpointError, match="prune without bias compensation"):
        save_padded(tmp_path / "in", tmp_path / "out")
    live = save(decoder, tmp_path / "plain")
    save_padded(tmp_path / "plain", tmp_path / "out")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert (loaded.config.model_type, loaded.config.sliding_window) == ("mistral", 8)
    long = torch.arange(3, 43)[None]
    assert_close(loaded(long).logits, live(long).logits)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_random_weights_of_a_folders_shape_whole_and_cut(family, tmp_path):
    decoder = tiny_decoder(family, neurons=48, kv_heads=2, hidden=16)
    decoder.model.config.save_pretrained(tmp_path)
    model = loading.load_bare_model(f"random:{tmp_path}", "cpu", "float32")
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in decoder.model.parameters())
    half = loading.load_bare_model(f"random:{tmp_path}@0.5", "cpu", "bfloat16", align=8)
    for layer in half.model.layers:
        # 1 of 2 groups leaves half of the weights to the neurons: 24 of 48, a multiple of 8
        assert layer.mlp.down_proj.in_features == 24
        assert layer.self_attn.k_proj.out_features == 4
        assert layer.self_attn.q_proj.out_features == 8
    assert {str(p.dtype) for p in half.parameters()} == {"torch.bfloat16"}
    assert not any(p.requires_grad for p in half.parameters())


PUBLISHED = {"llama2-7b": 6.738, "llama2-13b": 13.016, "llama3-8b": 8.030}
PUBLISHED |= {"mistral-7b": 7.248, "qwen2.5-7b": 7.616, "qwen3-8b": 8.191}


@pytest.mark.parametrize(("name", "billions"), PUBLISHED.items())
def test_shapes_have_the_published_parameters(name, billions):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**SHAPES[name]))
    assert sum(p.numel() for p in model.parameters()) / 1e9 == pytest.approx(billions, abs=5e-4)


def test_a_padded_folder_lists_the_kept_units_and_models_reads_them(tmp_path, capsys):
    save(small_decoder(), tmp_path / "in")
    save_padded(tmp_path / "in", tmp_path / "out")
    records = [read_record(tmp_path / name) for name in ("in", "out")]
    assert [record.padded for record in records] == [False, True]
    assert [record.widths for record in records] == [([3, 11, 7], [1, 2, 2])] * 2
    assert records[0].model_copy(update={"padded": True}) == records[1]
    for name, form in (("in", "of its own width"), ("out", "padded with zeros to the same width: a stock model")):
        assert main(["models", str(tmp_path / name)]) == 0
        lines = capsys.readouterr().out
        assert f"pruned here by gprune to 51.00% of the decoder's weights, every layer {form}" in lines
        assert "pruned from       dense (f00d)" in lines
