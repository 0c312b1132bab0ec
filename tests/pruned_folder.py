"""Tiny pruned models with other widths in every layer, with and without bias compensation, as folders."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_records import the_moments
from tiny_family import tiny_decoder
from tiny_tokenizer import byte_level
from transformers import PreTrainedTokenizerFast

from gprune.models.decoder import Decoder
from gprune.models.export import checkpoint
from gprune.pruning.surgery import cut
from gprune.records import REPAIRS, ActivationStatistics, PrunedModel, PruningMasks

needs_gguf = pytest.mark.skipif(
    importlib.util.find_spec("gguf") is None, reason="the package gguf is not installed: run make gguf"
)

VOCABULARY = 300
TEXT = "the river was named after the old town, and the town's people were 1987 strong\n\n  or so it is said"


def statistics(decoder: Decoder) -> ActivationStatistics:
    """Random means, so that compensation gives every output channel another bias."""
    shape, rng = decoder.shape, np.random.default_rng(3)
    widths = {"ffn": shape.neurons, "attention": shape.heads * shape.head_width}
    inputs = {part: rng.normal(size=(shape.layers, 1, 1, width)) for part, width in widths.items()}
    return the_moments(inputs, [[0]], "text")


def compensating(masks: PruningMasks, *means: ActivationStatistics) -> PrunedModel:
    """A model with bias compensation from the means of a text or two."""
    return PrunedModel(masks, (REPAIRS["bias_compensation"],), {"means": means})


def with_biases(decoder: Decoder, masks: PruningMasks) -> PrunedModel:
    """The same from random means."""
    return compensating(masks, statistics(decoder))


def masks_of(decoder: Decoder, groups: list[int], neurons: list[int], seed: int = 1) -> PruningMasks:
    """Random units, as many in each layer as is asked for."""
    shape, rng = decoder.shape, np.random.default_rng(seed)
    ffn, heads = np.zeros((shape.layers, shape.neurons), bool), np.zeros((shape.layers, shape.kv_heads), bool)
    for layer in range(shape.layers):
        ffn[layer, rng.permutation(shape.neurons)[: neurons[layer]]] = True
        heads[layer, rng.permutation(shape.kv_heads)[: groups[layer]]] = True
    return PruningMasks("gprune", ffn, heads, 0.51, 0.5)


def small_decoder(family: str = "llama", **sizes: Any) -> Decoder:
    """Three layers of grouped-query attention, 13 neurons."""
    usual = {"layers": 3, "hidden": 24, "neurons": 13, "heads": 6, "kv_heads": 3, "head_width": 4}
    return tiny_decoder(family, **(usual | {"vocabulary": VOCABULARY} | sizes))


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE with a start token, trained on one sentence."""
    trained = byte_level([TEXT], VOCABULARY - 4, "<s>", "</s>", begins=True)
    return PreTrainedTokenizerFast(tokenizer_object=trained, bos_token="<s>", eos_token="</s>")


def save(decoder: Decoder, folder: Path, *, masks=None, compensated=False, tokenizer=None, fingerprint="f00d") -> Any:
    """Cuts, saves, and gives back the live model."""
    masks = masks or masks_of(decoder, [1, 2, 2], [3, 11, 7])
    pruned = with_biases(decoder, masks) if compensated else PrunedModel(masks)
    live = cut(decoder, pruned)
    checkpoint.save(live, tokenizer, folder, pruned, source="dense", fingerprint=fingerprint, study={"retention": 0.5})
    return live
