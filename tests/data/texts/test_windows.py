"""The sequences of LLM-Pruner's released code: one window each of random documents that are long enough."""

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from transformers import PreTrainedTokenizerFast

from gprune.data import texts
from gprune.data.texts import windows
from gprune.system.errors import CorpusError

WORDS = "she said that the old house by the river had been empty since the flood".split()


@pytest.fixture
def book_corpus(tmp_path: Path) -> str:
    """A local folder in the form of BookCorpus: sentences of 1 to 29 words, one a row, in a column `text`."""
    generator = np.random.default_rng(7)
    rows = [" ".join(generator.choice(WORDS, 1 + number % 29)) for number in range(300)]
    place = tmp_path / "books" / "plain_text" / "train" / "0000.parquet"
    place.parent.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), place)
    return str(tmp_path / "books")


def naive(text: str, tokenizer: PreTrainedTokenizerFast, samples: int, length: int, seed: int) -> np.ndarray:
    """Every document in a random order, the long ones of them, and a random window in each."""
    found = pyarrow.parquet.read_table(Path(text, "plain_text", "train", "0000.parquet"))["text"].to_pylist()
    numbers = np.random.default_rng(seed).random(len(found))
    every = [tokenizer(found[place])["input_ids"] for place in np.argsort(numbers)]
    chosen = [ids for ids in every if len(ids) >= length][:samples]
    places = np.random.default_rng((seed, 1))
    starts = [places.integers(0, len(ids) - length, endpoint=True) for ids in chosen]
    return np.array([ids[start : start + length] for ids, start in zip(chosen, starts, strict=True)])


@pytest.mark.parametrize("kept", [1, 2, 256])
def test_windows_are_those_of_the_plain_loop(book_corpus, tokenizer, kept, monkeypatch):
    monkeypatch.setattr(windows, "_KEPT", kept)
    found = texts.draw_windows(book_corpus, tokenizer, samples=12, length=60, seed=3)
    np.testing.assert_array_equal(found.ids, naive(book_corpus, tokenizer, 12, 60, 3))
    assert len({row.tobytes() for row in found.ids}) == 12
    other = texts.draw_windows(book_corpus, tokenizer, samples=12, length=60, seed=4)
    assert other.fingerprint != found.fingerprint


def test_documents_that_are_long_enough_are_drawn_alike_often(book_corpus, tokenizer):
    draws = [texts.draw_windows(book_corpus, tokenizer, 40, 60, seed).ids[:, :60] for seed in range(20)]
    firsts = np.concatenate([ids[:, 0] for ids in draws])
    # a window begins with the special token only where it begins with its document
    begins = np.mean(firsts == tokenizer.bos_token_id)
    assert 0 < begins < 0.3


def test_too_few_long_documents_are_counted(book_corpus, tokenizer):
    with pytest.raises(
        CorpusError, match=r"has \d+ of 300 documents with 110 tokens or more, and 90 were asked"
    ):
        texts.draw_windows(book_corpus, tokenizer, samples=90, length=110, seed=0)


def test_book_corpus_is_read_by_name_from_the_cache_and_missed_in_one_sentence(
    put_in_cache, parquet, tokenizer
):
    with pytest.raises(
        CorpusError, match="'bookcorpus/bookcorpus' is not on this machine and HF_HUB_OFFLINE"
    ):
        texts.prepare("bookcorpus", "calibration")
    rows = [" ".join(WORDS * 3)] * 5
    put_in_cache(
        "bookcorpus/bookcorpus",
        {"plain_text/train/0000.parquet": parquet(text=rows)},
        revision="refs/convert/parquet",
    )
    assert texts.draw_windows("bookcorpus", tokenizer, 5, 40, 0).ids.shape == (5, 40)
    assert "BookCorpus" in texts.describe("bookcorpus") and "split train" in texts.describe("bookcorpus")
