"""Tokens: disjoint calibration sequences, the evaluation stream, and their seeds."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import ByT5Tokenizer

from gprune.data import texts as corpora
from gprune.data.texts import tokens
from gprune.system.errors import CorpusError

WORDS = "the quick brown fox jumps over the lazy dog and 世界 too\n"


class Counter:
    """A tokenizer whose ids are the positions of the characters: every position is its own token."""

    def __call__(self, batch, **_):
        return {"input_ids": [list(range(len(string))) for string in batch]}


@pytest.fixture
def plain(tmp_path):
    (tmp_path / "plain.txt").write_text(WORDS * 200)
    return str(tmp_path / "plain.txt")


@pytest.fixture
def rows(tmp_path):
    records = [{"text": WORDS * (1 + i % 3)} for i in range(3000)]
    records.insert(5, {"text": ""})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(tmp_path / "rows.jsonl")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(characters=st.integers(1, 400), length=st.integers(1, 40), samples=st.integers(1, 12), seed=st.integers(0, 99))
def test_every_position_is_used_at_most_once(tmp_path, characters, length, samples, seed):
    (tmp_path / "a.txt").write_text("x" * characters)
    available = characters // length
    if available < samples:
        with pytest.raises(CorpusError, match=f"gives {available} sequences of {length} tokens"):
            corpora.draw(f"{tmp_path}/a.txt", Counter(), samples, length, seed)
        return
    sample = corpora.draw(f"{tmp_path}/a.txt", Counter(), samples, length, seed)
    assert sample.ids.shape == (samples, length) and sample.ids.dtype == np.int32
    assert sample.available == available
    assert len(np.unique(sample.ids)) == samples * length
    np.testing.assert_array_equal(np.diff(sample.ids, axis=1), 1)
    assert (sample.ids[:, 0] % length == 0).all()


def test_same_seed_same_bytes_and_join_makes_one_string_of_all_documents(plain, tokenizer, rows):
    first, again, other = (corpora.draw(plain, tokenizer, 20, 16, seed) for seed in (3, 3, 4))
    assert first.ids.tobytes() == again.ids.tobytes() and first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint and first.text == plain
    flow = corpora.stream(plain, tokenizer)
    blocks = {row.tobytes() for row in flow[: len(flow) // 16 * 16].reshape(-1, 16)}
    assert {row.tobytes() for row in other.ids} <= blocks
    sample = corpora.draw(plain, tokenizer, 3, 5, 0)
    expected = hashlib.sha256(b"(3, 5)" + sample.ids.astype("<i4").tobytes()).hexdigest()
    assert sample.fingerprint == expected
    flow = corpora.stream(f"{rows}#documents=0:10&join=blank-line", tokenizer)
    texts = [json.loads(line)["text"] for line in Path(rows).read_text().splitlines()[:10]]
    np.testing.assert_array_equal(flow, tokenizer("\n\n".join(texts), verbose=False)["input_ids"])


def test_stream_with_a_limit_is_the_same_prefix(rows, tokenizer):
    full = corpora.stream(rows, tokenizer)
    for limit in (1, 17, 5000, 60_000, 10**9):
        np.testing.assert_array_equal(corpora.stream(rows, tokenizer, limit=limit), full[:limit])


def test_limit_stops_reading_and_tokenizer_written_in_python(rows):
    class Watched(Counter):
        batches = 0

        def __call__(self, batch, **options):
            self.batches += 1
            return super().__call__(batch, **options)

    for limit, expected in ((10, 1), (None, 3)):
        watched = Watched()
        corpora.stream(rows, watched, limit=limit)
        assert watched.batches == expected
    slow = ByT5Tokenizer()
    flow = corpora.stream(f"{rows}#documents=0:2", slow)
    texts = [json.loads(line)["text"] for line in Path(rows).read_text().splitlines()[:2]]
    expected = [byte + 3 for text in texts for byte in [*text.encode(), slow.eos_token_id - 3]]
    np.testing.assert_array_equal(flow, expected)


@pytest.mark.parametrize("content", ["", " \n\n\t ", "\ufeff"])
def test_empty_text(tmp_path, tokenizer, content):
    (tmp_path / "empty.txt").write_text(content)
    with pytest.raises(CorpusError, match="empty.txt' is empty: give a text with words"):
        corpora.draw(f"{tmp_path}/empty.txt", tokenizer, 2, 8, 0)
    with pytest.raises(CorpusError, match="is empty"):
        corpora.stream(f"{tmp_path}/empty.txt", tokenizer)


def test_missing_tokenizers_and_short_texts_are_refused(plain, tokenizer, tmp_path):
    with pytest.raises(CorpusError, match="the model's folder has no tokenizer"):
        corpora.stream(plain, None)
    (tmp_path / "short.txt").write_text("one two three four five six seven eight nine ten")
    message = r"gives 0 sequences of 128 tokens \(\d+ tokens in all\), but 2,048 were requested: request"
    with pytest.raises(CorpusError, match=message):
        corpora.draw(f"{tmp_path}/short.txt", tokenizer, 2048, 128, 0)
    assert len(corpora.stream(f"{tmp_path}/short.txt", tokenizer)) > 10


def test_half_a_surrogate_pair_does_not_stop_the_run(tokenizer):
    flow = tokens.text_stream([json.loads('"ab \\ud83d cd \\ud83d\\ude00"')], tokenizer)
    np.testing.assert_array_equal(flow, tokenizer("ab \ufffd cd \U0001f600")["input_ids"])


def test_embedded_text(tmp_path, tokenizer, monkeypatch):
    requested = []
    documents = lambda *names: requested.append(names) or [WORDS] * 40  # noqa: E731
    monkeypatch.setattr("gprune.data.demo.texts.documents", documents)
    sample = corpora.draw("python-code#documents=0:20", tokenizer, 4, 8, 0, cache=tmp_path)
    assert sample.available == 20 * len(tokenizer(WORDS)["input_ids"]) // 8
    corpora.stream("python-code", tokenizer, cache=tmp_path, limit=10)
    assert requested == [("python-code", "train"), ("python-code", "test")]
