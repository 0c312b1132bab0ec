"""Fixtures of the corpora tests: a tiny tokenizer, an empty hub cache, and a small hub on this machine."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from huggingface_hub import constants
from small_hub import SmallHub, serving
from tiny_tokenizer import byte_level
from transformers import PreTrainedTokenizerFast


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE that puts <s> before each text, as LLaMA's tokenizer does."""
    lines = ["the quick brown fox jumps over the lazy dog"] * 4
    backend = byte_level(lines, 320, "<s>", begins=True)
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", model_max_length=64)


@pytest.fixture(autouse=True)
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty caches, so that no test sees or changes the machine's own."""
    folder = tmp_path / "hub-cache"
    monkeypatch.setenv("GPRUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    return folder


@pytest.fixture
def parquet() -> Callable[..., bytes]:
    """Makes the bytes of a parquet file from columns."""

    def make(**columns: list[Any]) -> bytes:
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
        return buffer.getvalue()

    return make


@pytest.fixture
def small_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallHub]:
    """A hub on this machine that the hub's client talks to."""
    with serving(monkeypatch) as hub:
        yield hub
