"""Small mixture-of-experts models of every family, with random router biases and correction biases."""

import warnings
from pathlib import Path
from typing import Any

import tiny_study
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from gprune.models.expert_decoder import ExpertDecoder

EXPERTS = 12
METHODS = ("dense", "experts_reap", "experts_frequency_auxiliary", "experts_man_score_average", "experts_reap_adapted")
METHODS += ("experts_random",)
_USUAL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 320,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
    "num_experts_per_tok": 2,
}
_LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 16}
_SHARED = {"moe_intermediate_size": 16, "intermediate_size": 48, "first_k_dense_replace": 1, "n_shared_experts": 1}
_LOCAL = {"num_local_experts": EXPERTS, "intermediate_size": 16}
MIXTURES: dict[str, dict[str, Any]] = {
    "qwen3_moe": {
        "num_experts": EXPERTS,
        "moe_intermediate_size": 16,
        "intermediate_size": 48,
        "norm_topk_prob": True,
        "mlp_only_layers": [1],
    },
    "qwen2_moe": {
        "num_experts": EXPERTS,
        "moe_intermediate_size": 16,
        "intermediate_size": 48,
        "shared_expert_intermediate_size": 24,
    },
    "mixtral": _LOCAL,
    "olmoe": {"num_experts": EXPERTS, "intermediate_size": 16, "norm_topk_prob": False},
    "gpt_oss": _LOCAL | {"layer_types": ["full_attention"] * 3},
    "deepseek_v3": _SHARED
    | _LATENT
    | {"n_routed_experts": EXPERTS, "n_group": 3, "topk_group": 2, "num_key_value_heads": 4},
    "glm4_moe": _SHARED | {"n_routed_experts": EXPERTS, "n_group": 1, "topk_group": 1},
    "granitemoe": _LOCAL,
    "ernie4_5_moe": {
        "moe_num_experts": EXPERTS,
        "moe_k": 2,
        "moe_intermediate_size": 16,
        "intermediate_size": 48,
        "moe_num_shared_experts": 1,
    },
    "phimoe": _LOCAL | {"rope_theta": 10000.0},
    "minimax": _LOCAL,
}
"""fields of the configuration of each family that differ from the usual ones"""


def tiny_mixture(family: str, seed: int = 0, **fields: Any) -> ExpertDecoder:
    """A random model whose router decides clearly, so that no rounding changes the selected experts."""
    values = {**_USUAL, **MIXTURES[family], **fields}
    if "moe_k" in values:
        del values["num_experts_per_tok"]
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **values)).eval()
    generator = torch.Generator().manual_seed(seed)
    decoder = ExpertDecoder.from_model(model)
    routers = {id(tensor) for mixture in decoder.mixtures for tensor in mixture.router.parameters()}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if (
            "norm" in name
            or not tensor.is_floating_point()
            or any(word in name for word in ("inv_freq", "slope", "decay"))
        ):
            continue
        scale = 1.0 if id(tensor) in routers or "correction" in name or "embed" in name else 0.2
        tensor.data.copy_(torch.randn(tensor.shape, generator=generator) * scale)
    return decoder


def study_of(folder: Path, family: str = "qwen3_moe", **changes) -> dict:
    """A study of a tiny mixture with its own tokenizer."""
    values = tiny_study.made(folder, methods=METHODS, device="cpu")
    values["calibration"] = {"samples": 32, "length": 32, "batch": 8, "shards": 4}
    values["reliability"] = {"drift_quantile": 0.5}
    decoder = tiny_mixture(family)
    for name, tensor in decoder.model.named_buffers():
        # a large bias would leave some experts without tokens
        tensor.data *= 0.02 if "correction" in name else 1
    decoder.model.save_pretrained(values["model"])
    return values | changes
