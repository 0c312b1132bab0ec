"""A tiny cut model with layers of unequal width, and how it is saved."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import nn
from transformers import PreTrainedTokenizerFast

from gprune.models.decoder import Decoder
from gprune.models.export import checkpoint
from gprune.models.tiny import tiny_decoder
from gprune.records import PruningMasks


@pytest.fixture
def decoder_of() -> Callable[..., Decoder]:
    def make(family: str, **settings: Any) -> Decoder:
        return tiny_decoder(family, layers=3, hidden=12, neurons=13, heads=6, kv_heads=3, head_width=6, **settings)

    return make


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({f"w{index}": index for index in range(64)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", pad_token="w0")


@pytest.fixture
def masks() -> PruningMasks:
    ffn = np.zeros((3, 13), bool)
    heads = np.array([[False, True, False], [True, False, True], [True, True, True]])
    for layer, retained in enumerate(([2], [0, 1, 5, 12], range(13))):
        ffn[layer, list(retained)] = True
    return PruningMasks("gprune", ffn, heads, 0.51, 0.5)


@pytest.fixture
def saved(masks: PruningMasks) -> Callable[..., Path]:
    def save(model: nn.Module, tokenizer: Any, folder: Path, pruned: Any = masks, **options: Any) -> Path:
        names = {"source": "dense", "fingerprint": "f00d", "study": {"model": "dense", "retention": 0.5}}
        return checkpoint.save(model, tokenizer, folder, pruned, **names, **options)

    return save
