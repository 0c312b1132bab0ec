"""Table of the mixture-of-experts families whose experts can be pruned.

Attention, shared experts and dense FFNs of these models are not changed. ``tests/models/test_expert_families.py``
compares each family with models of transformers. Needs no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpertLayout:
    """A family: its label, and the names of the parts of its mixtures."""

    label: str
    """display name"""
    defaults: Mapping[str, int]
    """default values of the fields in ``COUNTS``, ``TOP_K`` and ``GROUPS`` that the configuration may omit"""
    mixture: str = "mlp"
    """path of the mixture, relative to a layer; layers without experts there are dense"""
    router: str = "gate"
    """path of the router, relative to the mixture"""
    layers: str = "model.layers"
    """path of the list of decoder layers, relative to the model"""


COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""names of the number of experts in configurations"""
TOP_K = ("num_experts_per_tok", "moe_k")
"""names of the number of experts that process a token"""
GROUPS = ("n_group", "topk_group")
"""names of the number of router groups, and of the groups that are selected for a token"""

EXPERT_FAMILIES: dict[str, ExpertLayout] = {
    "qwen3_moe": ExpertLayout("Qwen3 MoE", {"num_experts": 128, "num_experts_per_tok": 8}),
    "qwen2_moe": ExpertLayout("Qwen2 MoE", {"num_experts": 60, "num_experts_per_tok": 4}),
    "mixtral": ExpertLayout("Mixtral", {"num_local_experts": 8, "num_experts_per_tok": 2}),
    "olmoe": ExpertLayout("OLMoE", {"num_experts": 64, "num_experts_per_tok": 8}),
    "gpt_oss": ExpertLayout("gpt-oss", {"num_local_experts": 128, "num_experts_per_tok": 4}, router="router"),
    "deepseek_v3": ExpertLayout(
        "DeepSeek-V3", {"n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4}
    ),
    "glm4_moe": ExpertLayout(
        "GLM-4 MoE", {"n_routed_experts": 128, "num_experts_per_tok": 8, "n_group": 1, "topk_group": 1}
    ),
    "granitemoe": ExpertLayout(
        "Granite MoE", {"num_local_experts": 8, "num_experts_per_tok": 2}, "block_sparse_moe", "router"
    ),
    "ernie4_5_moe": ExpertLayout("ERNIE 4.5 MoE", {"moe_num_experts": 64, "moe_k": 6}),
    "phimoe": ExpertLayout("Phi-MoE", {"num_local_experts": 16, "num_experts_per_tok": 2}, router="router"),
    "minimax": ExpertLayout("MiniMax", {"num_local_experts": 8, "num_experts_per_tok": 2}),
}
"""Supported model types."""
