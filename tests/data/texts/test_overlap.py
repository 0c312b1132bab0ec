"""Windows of long documents, and how much of one text stands in another by name, place and content."""

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from gprune.data import texts
from gprune.data.texts import corpus_relation
from gprune.data.texts.corpus_relation import OTHER, PART, SAME, corpus, kinship
from gprune.records import Tokens
from gprune.system.errors import CorpusError


def naive(windows, sequences, run):
    """Every run of every row as a tuple."""
    reference = {tuple(row[i : i + run]) for row in sequences for i in range(len(row) - run + 1)}
    runs = [tuple(row[i : i + run]) for row in windows for i in range(len(row) - run + 1)]
    return sum(item in reference for item in runs) / len(runs)


@pytest.mark.parametrize("run", [1, 2, 3, 5, 8, 13])
def test_the_share_is_that_of_a_naive_count(run):
    random = np.random.default_rng(run)
    # few tokens: runs of every length are met by chance, at every place
    sequences = random.integers(0, 3, (40, 20)).astype(np.int32)
    windows = np.concatenate([random.integers(0, 3, (9, 16)), sequences[:3, 2:18]]).astype(np.int32)
    result = corpus_relation.shared_share(windows, sequences, run)
    assert result == naive(windows, sequences, run) and result > 0


def test_no_run_reaches_over_the_end_of_a_row_and_large_tokens_do_not_overflow():
    sequences = np.array([[2**31 - 1, 7], [8, 2**31 - 2]])
    assert corpus_relation.shared_share(np.array([[7, 8]]), sequences, 2) == 0.0
    assert corpus_relation.shared_share(np.array([[2**31 - 1, 7, 8]]), sequences, 2) == 0.5


def test_a_copy_overlaps_by_what_was_drawn_of_it_and_chance_by_nothing():
    random = np.random.default_rng(0)
    text = random.integers(0, 4096, (200, 64)).astype(np.int32)
    rendered = text[random.permutation(200)[:50]]
    other = random.integers(0, 4096, (50, 64)).astype(np.int32)
    sets = [Tokens("t", "", ids, available) for ids, available in ((rendered, 200), (other, 50))]
    result = corpus_relation.measure_overlap("copy", text, sets, 4096)
    assert result.run == 17 and result.windows == 200
    assert result.share.tolist() == [0.25, 0.0] and result.drawn.tolist() == [0.25, 1.0]


def test_windows_are_the_first_ones_and_the_tail_is_dropped():
    stream = np.arange(10)
    assert corpus_relation.cut(stream, 3).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert [corpus_relation.cut(stream, *sizes).shape for sizes in ((3, 2), (11,))] == [(2, 3), (0, 11)]


WORDS = "she said that the old house by the river had been empty since the flood".split()


@pytest.fixture
def book_corpus(tmp_path):
    """A local folder in the form of BookCorpus: sentences of 1 to 29 words, one a row, in a column `text`."""
    generator = np.random.default_rng(7)
    rows = [" ".join(generator.choice(WORDS, 1 + number % 29)) for number in range(300)]
    folder = tmp_path / "books" / "plain_text" / "train" / "0000.parquet"
    folder.parent.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), folder)
    return str(tmp_path / "books")


def naive_windows(text, tokenizer, samples, length, seed):
    """Every document in a random order, the long ones of them, and a random window in each."""
    result = pyarrow.parquet.read_table(Path(text, "plain_text", "train", "0000.parquet"))["text"].to_pylist()
    numbers = np.random.default_rng(seed).random(len(result))
    every = [tokenizer(result[location])["input_ids"] for location in np.argsort(numbers)]
    chosen = [ids for ids in every if len(ids) >= length][:samples]
    places = np.random.default_rng((seed, 1))
    starts = [places.integers(0, len(ids) - length, endpoint=True) for ids in chosen]
    return np.array([ids[start : start + length] for ids, start in zip(chosen, starts, strict=True)])


def test_windows_are_those_of_the_plain_loop(book_corpus, tokenizer):
    result = texts.draw_windows(book_corpus, tokenizer, samples=12, length=60, seed=3)
    np.testing.assert_array_equal(result.ids, naive_windows(book_corpus, tokenizer, 12, 60, 3))
    assert len({row.tobytes() for row in result.ids}) == 12
    other = texts.draw_windows(book_corpus, tokenizer, samples=12, length=60, seed=4)
    assert other.fingerprint != result.fingerprint


def test_long_documents_are_drawn_alike_often_and_too_few_are_counted(book_corpus, tokenizer):
    draws = [texts.draw_windows(book_corpus, tokenizer, 40, 60, seed).ids for seed in range(20)]
    # a window begins with the special token only where it begins with its document
    assert 0 < np.mean([ids[:, 0] == tokenizer.bos_token_id for ids in draws]) < 0.3
    with pytest.raises(CorpusError, match=r"has \d+ of 300 documents with 110 tokens or more, but 90 were requested"):
        texts.draw_windows(book_corpus, tokenizer, samples=90, length=110, seed=0)


def test_book_corpus_is_read_by_name(small_hub, parquet, tokenizer):
    rows = [" ".join(WORDS * 3)] * 5
    small_hub.repositories["bookcorpus/bookcorpus"] = {"plain_text/train/0000.parquet": parquet(text=rows)}
    assert texts.draw_windows("bookcorpus", tokenizer, 5, 40, 0).ids.shape == (5, 40)
    assert "BookCorpus" in texts.describe("bookcorpus") and "split train" in texts.describe("bookcorpus")


def kin(evaluated, calibrated):
    return kinship(corpus(evaluated, "evaluation"), corpus(calibrated, "calibration"))


@pytest.mark.parametrize(
    ("evaluated", "calibrated", "expected"),
    [
        # the split that a role means where none is typed: test, or PTB's and C4's validation
        ("wikitext2", "wikitext2", PART),
        ("wikitext2", "wikitext2#split=test", SAME),
        ("ptb", "ptb#split=validation", SAME),
        ("python-code", "python-code", PART),
        ("python-code#split=train", "python-code", SAME),
        ("c4", "wikitext2", OTHER),
        ("python-code", "python-reference", OTHER),
        # one corpus under another owner, as a folder or as a file is still that corpus
        ("hub:Salesforce/wikitext#config=wikitext-103-raw-v1", "wikitext2", PART),
        ("hub:somebody/wikitext#split=train", "wikitext2", SAME),
        ("hub:x/b", "hub:y/b", PART),
        ("hub:x/b", "hub:x/c", OTHER),
        ("data/wikitext-2-raw/wiki.test.raw", "wikitext2", PART),
        ("data/ptb/ptb.test.txt", "ptb", PART),
        ("data/penn-treebank/words.txt", "ptb", PART),
        ("data/webtext/c4.utf8", "data/c4/c4.jsonl", PART),
        # names that only hold the letters
        ("data/adaptbase.txt", "ptb", OTHER),
        ("data/abc4.txt", "c4", OTHER),
        # files whose names differ in a split only
        ("data/law.test.txt", "data/law.train.txt", PART),
        ("data/law/test.txt", "data/law/train.txt", PART),
        ("data/law/test.txt", "data/./law/test.txt", SAME),
        ("data/law.txt", "data/medicine.txt", OTHER),
        ("texts/user/law-test-0123456789ab.txt", "texts/user/law-train-ba9876543210.txt", PART),
        # slices of documents
        ("a.jsonl#documents=100:200", "a.jsonl#documents=0:100", PART),
        ("a.jsonl#documents=99:200", "a.jsonl#documents=0:100", SAME),
        ("a.jsonl#documents=-5:", "a.jsonl#documents=0:100", SAME),
        # what cannot be a name at all is itself
        ("a#b=c", "a#b=c", SAME),
        ("a\0b", "c", OTHER),
    ],
)
def test_texts_are_related_by_corpus_split_and_documents(evaluated, calibrated, expected):
    assert kin(evaluated, calibrated) == expected


def test_files_are_known_by_their_resolved_path(tmp_path):
    first, link = tmp_path / "law.txt", tmp_path / "another.txt"
    first.write_text("a", encoding="utf-8")
    link.symlink_to(first)
    assert kin(str(link), str(first)) == SAME
    folder = tmp_path / "novels"
    folder.mkdir()
    assert kin(str(folder), str(folder)) == PART and kin(str(folder), f"{folder}#split=test") == SAME
    assert kin(str(folder / "train.txt"), f"{folder}#split=train") == SAME
