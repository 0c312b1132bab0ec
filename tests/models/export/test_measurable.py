"""Models to measure: folders of any kind, and published shapes with random weights, whole and cut."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from gprune.models.export import measurable
from gprune.models.shapes import SHAPES
from gprune.models.tiny import tiny_decoder


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_random_weights_of_a_folders_shape_whole_and_cut(family, tmp_path):
    decoder = tiny_decoder(family, neurons=48, kv_heads=2, hidden=16)
    decoder.model.config.save_pretrained(tmp_path)
    whole = measurable.load(f"random:{tmp_path}", "cpu", "float32")
    assert sum(p.numel() for p in whole.parameters()) == sum(p.numel() for p in decoder.model.parameters())
    half = measurable.load(f"random:{tmp_path}@0.5", "cpu", "bfloat16", align=8)
    for layer in half.model.layers:
        # 1 of 2 groups leaves half of the weights to the neurons: 24 of 48, a multiple of 8
        assert layer.mlp.down_proj.in_features == 24
        assert layer.self_attn.k_proj.out_features == 4
        assert layer.self_attn.q_proj.out_features == 8
    assert {str(p.dtype) for p in half.parameters()} == {"torch.bfloat16"}
    assert not any(p.requires_grad for p in half.parameters())


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama2-7b", 6.738),
        ("llama2-13b", 13.016),
        ("llama3-8b", 8.030),
        ("mistral-7b", 7.248),
        ("qwen2.5-7b", 7.616),
        ("qwen3-8b", 8.191),
    ],
)
def test_shapes_have_the_published_parameters(name, billions):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**SHAPES[name]))
    assert sum(p.numel() for p in model.parameters()) / 1e9 == pytest.approx(billions, abs=5e-4)
