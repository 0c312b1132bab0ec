"""Table of the mixture-of-experts families whose experts can be pruned, and checks of their configurations.

Attention, shared experts and dense FFNs of these models are not changed. ``tests/models/test_expert_families.py``
compares each family with models of transformers. Needs no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gprune.models import families, identity, loadable
from gprune.records.experts import kept_experts
from gprune.system.errors import ModelError
from gprune.system.safe_parsing import quote


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


def expert_layout_of(model_type: object, name: str) -> ExpertLayout:
    """Return the layout of a model type; `name` describes the model. Raises ModelError if it is not supported."""
    if isinstance(model_type, str) and model_type in EXPERT_FAMILIES:
        return EXPERT_FAMILIES[model_type]
    kind = "is a dense model" if model_type in families.FAMILIES else f"is of model type {quote(model_type)}"
    raise ModelError(
        f"{name} {kind}, whose experts cannot be pruned here: choose a model of one of the types "
        f"{', '.join(EXPERT_FAMILIES)}, or methods that prune neurons"
    )


def require_expert_model(folder: Path) -> ExpertLayout:
    """Return the layout of the mixture-of-experts model in a folder.

    Raises ModelError if its experts cannot be pruned, its weights are quantized, or it cannot be loaded unchanged.
    """
    values, name = identity.configuration(folder), f"the model {str(folder)!r}"
    layout = expert_layout_of(values.get("model_type"), name)
    quantization = values.get("quantization_config")
    if isinstance(quantization, Mapping) and quantization.get("quant_method") == "mxfp4":
        raise ModelError(
            f"the weights of {name} are quantized (mxfp4): load it with Mxfp4Config(dequantize=True), save it in "
            "bfloat16, and use that folder"
        )
    loadable.require_whole(folder)
    return layout


def require_expert_retention(values: Mapping[str, Any], retention: float) -> None:
    """Raise SettingsError if the router of a configuration needs more experts than a retention keeps."""
    defaults = EXPERT_FAMILIES[str(values["model_type"])].defaults

    def size(*names: str) -> int:
        return next((int(source[name]) for source in (values, defaults) for name in names if source.get(name)), 1)

    count, top_k, groups, top_groups = size(*COUNTS), size(*TOP_K), size(GROUPS[0]), size(GROUPS[1])
    kept_experts(count, top_k, groups, top_groups, retention)
