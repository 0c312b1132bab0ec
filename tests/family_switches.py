"""Sizes of a tiny model of any family, and each family's switches that are not its defaults."""

SIZES = {"hidden": 32, "neurons": 13, "heads": 4, "kv_heads": 2, "head_width": 8}
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
BIASES = {"attention_bias": True, "mlp_bias": True}
MULTIPLIERS = {"residual_multiplier": 0.4, "embedding_multiplier": 5.0, "attention_multiplier": 0.2}

SWITCHES = {
    "llama": [{"tie_word_embeddings": True, **BIASES}],
    "mistral": [{"sliding_window": 4}],
    "qwen2": [{"use_sliding_window": True, "max_window_layers": 1, "sliding_window": 4}],
    "qwen3": [{"attention_bias": True}],
    "gemma": [{"tie_word_embeddings": True, "attention_bias": True}],
    "gemma2": [{"final_logit_softcapping": 8.0, "attn_logit_softcapping": 0.5, **SLIDING}],
    "gemma3_text": [{"final_logit_softcapping": 8.0, "attn_logit_softcapping": 0.5, **SLIDING}],
    "olmo": [{"clip_qkv": 0.5, "attention_bias": True}],
    "olmo2": [{"attention_bias": True}],
    "olmo3": [SLIDING],
    "smollm3": [{"no_rope_layers": [1, 0], "use_sliding_window": True, **SLIDING, **BIASES}],
    "granite": [{"logits_scaling": 3.0, **MULTIPLIERS, **BIASES}],
    "cohere": [
        {"use_qk_norm": True, "logit_scale": 2.0, "attention_bias": True},
        {"tie_word_embeddings": True, "logit_scale": 1.0},
    ],
    "cohere2": [{"logit_scale": 2.0, "attention_bias": True, **SLIDING}],
    "exaone4": [SLIDING],
    "ministral": [SLIDING],
    "ministral3": [{"sliding_window": 4}],
    "stablelm": [{"qk_layernorm": True, "use_parallel_residual": True, "use_qkv_bias": True}, {"qk_layernorm": True}],
    "helium": [BIASES],
    "seed_oss": [{"attention_out_bias": True, **BIASES}],
    "ernie4_5": [{"use_bias": True}],
    "hunyuan_v1_dense": [{"attention_bias": True}],
    "phi3": [{"sliding_window": 4, "tie_word_embeddings": True}],
    "glm": [{"attention_bias": True}],
    "glm4": [{"attention_bias": True}],
    "gemma3": [{"tie_word_embeddings": True, **SLIDING}],
    "mistral3": [{"text": "ministral3", "sliding_window": 4}],
    "qwen2_vl": [{"tie_word_embeddings": True}],
    "qwen2_5_vl": [{"tie_word_embeddings": True}],
}
