"""Loads a model that GPrune Studio has pruned: a decoder whose layers differ in width.

This file travels with every pruned checkpoint and needs torch and transformers only:

    AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)

The configuration is that of the dense family with four more fields. Its ``intermediate_size``,
``num_attention_heads`` and ``num_key_value_heads`` are those of the dense model.
"""

import copy
from typing import Any

from torch import nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer


class GpruneLlamaConfig(LlamaConfig):
    """A LLaMA configuration with the widths of each layer."""

    model_type = "gprune_llama"
    ffn_widths: list[int] | None = None
    """FFN neurons of each layer"""
    key_value_groups: list[int] | None = None
    """key/value heads of each layer; query heads are as many times more as in the dense model"""
    o_proj_bias: bool = False
    """whether the attention output projections have a bias"""
    down_proj_bias: bool = False
    """whether the down projections have a bias"""


class GpruneMistralConfig(MistralConfig):
    """A Mistral configuration with the widths of each layer; fields as in ``GpruneLlamaConfig``."""

    model_type = "gprune_mistral"
    ffn_widths: list[int] | None = None
    key_value_groups: list[int] | None = None
    o_proj_bias: bool = False
    down_proj_bias: bool = False


class GpruneQwen2Config(Qwen2Config):
    """A Qwen2 configuration with the widths of each layer; fields as in ``GpruneLlamaConfig``."""

    model_type = "gprune_qwen2"
    ffn_widths: list[int] | None = None
    key_value_groups: list[int] | None = None
    o_proj_bias: bool = False
    down_proj_bias: bool = False


class GpruneQwen3Config(Qwen3Config):
    """A Qwen3 configuration with the widths of each layer; fields as in ``GpruneLlamaConfig``."""

    model_type = "gprune_qwen3"
    ffn_widths: list[int] | None = None
    key_value_groups: list[int] | None = None
    o_proj_bias: bool = False
    down_proj_bias: bool = False


class UnequalLayers:
    """Builds each decoder layer at its own width; comes before the family's causal language model."""

    layer_class: Any
    model: Any
    post_init: Any

    def __init__(self, config: Any) -> None:
        """Builds the family's model without layers, then the layers one by one.

        Raises:
            ValueError: the widths are missing or not one for each layer.
        """
        layers = config.num_hidden_layers
        for name in ("ffn_widths", "key_value_groups"):
            widths = getattr(config, name)
            if widths is None or len(widths) != layers or min(widths) < 1:
                raise ValueError(
                    f"{name} must hold {layers} positive numbers, one for each layer (got {widths})"
                )
        config.num_hidden_layers = 0
        try:
            super().__init__(config)  # type: ignore[call-arg]
        finally:
            config.num_hidden_layers = layers
        self.model.layers = nn.ModuleList(self._layer(config, index) for index in range(layers))
        self.post_init()

    def _layer(self, config: Any, index: int) -> Any:
        narrow = copy.copy(config)
        head_width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        group_size = config.num_attention_heads // config.num_key_value_heads
        narrow.head_dim = head_width
        narrow.intermediate_size = config.ffn_widths[index]
        narrow.num_key_value_heads = config.key_value_groups[index]
        narrow.num_attention_heads = group_size * config.key_value_groups[index]
        layer = self.layer_class(narrow, index)
        for module in layer.modules():
            if getattr(module, "config", None) is narrow:
                # The attention implementation is read from here at run time, so it must be the model's own.
                module.config = config
        if config.o_proj_bias:
            layer.self_attn.o_proj = nn.Linear(narrow.num_attention_heads * head_width, config.hidden_size)
        if config.down_proj_bias:
            layer.mlp.down_proj = nn.Linear(narrow.intermediate_size, config.hidden_size)
        return layer


class GpruneLlamaForCausalLM(UnequalLayers, LlamaForCausalLM):
    """A pruned LLaMA."""

    config_class = GpruneLlamaConfig
    layer_class = LlamaDecoderLayer


class GpruneMistralForCausalLM(UnequalLayers, MistralForCausalLM):
    """A pruned Mistral."""

    config_class = GpruneMistralConfig
    layer_class = MistralDecoderLayer


class GpruneQwen2ForCausalLM(UnequalLayers, Qwen2ForCausalLM):
    """A pruned Qwen2."""

    config_class = GpruneQwen2Config
    layer_class = Qwen2DecoderLayer


class GpruneQwen3ForCausalLM(UnequalLayers, Qwen3ForCausalLM):
    """A pruned Qwen3."""

    config_class = GpruneQwen3Config
    layer_class = Qwen3DecoderLayer


MODEL_CLASSES = {
    model.config_class.model_type: model
    for model in (
        GpruneLlamaForCausalLM,
        GpruneMistralForCausalLM,
        GpruneQwen2ForCausalLM,
        GpruneQwen3ForCausalLM,
    )
}
