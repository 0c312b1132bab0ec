"""Hub texts: fetched from a small hub on this machine, stored, and read again without it."""

import gzip
import json
import re
import socket

import numpy as np
import pytest
from huggingface_hub import constants
from small_hub import COMMIT

from gprune.data import texts
from gprune.data.texts.hub_rows import HubRows
from gprune.data.texts.source import read_documents, resolve
from gprune.store import Store
from gprune.system.errors import CorpusError, DamagedError

WIKITEXT = "Salesforce/wikitext"
WIKITEXT_TRAIN = "wikitext-2-raw-v1/train-00000-of-00001.parquet"
C4_TRAIN = "en/c4-train.00000-of-01024.json.gz"
CARD = b"""---
configs:
- config_name: en
  data_files:
  - split: train
    path: en/train-*
- config_name: de
  data_files:
  - split: train
    path: de/train-*
---
"""


def read(text, role="calibration", download=True, tokens=None):
    return list(read_documents(resolve(text, role, download, tokens)))  # type: ignore[arg-type]


def assert_refused(message, *text):
    with pytest.raises(CorpusError, match=message):
        read(*text)


def c4_rows(count):
    rows = ({"text": f"document {i} " + "word " * 20, "timestamp": "2019-04-25T12:57:54Z"} for i in range(count))
    return gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())


def shards(parquet, count, folder="en"):
    """Files of one split with 40 documents of 48 bytes each, and all documents."""
    names = [f"{folder}/train-{number:05}-of-{count:05}.parquet" for number in range(count)]
    rows = [[f"{name} {row:02} ".ljust(48, "x") for row in range(40)] for name in names]
    return {name: parquet(text=part) for name, part in zip(names, rows, strict=True)}, sum(rows, [])


@pytest.fixture
def dataset(small_hub, parquet):
    """A dataset a/b of two configurations; en has three files."""
    files, rows = shards(parquet, 3)
    small_hub.repositories["a/b"] = {**files, **shards(parquet, 1, "de")[0], "README.md": CARD}
    return rows


@pytest.mark.parametrize("text", ["wikitext2", "ptb", "c4", "bookcorpus", "hub:someone/something"])
def test_offline_variable_fails_at_once(text):
    with pytest.raises(CorpusError, match="cannot be downloaded, because HF_HUB_OFFLINE.* local file"):
        texts.prepare(text, "calibration")
    assert "not on this machine yet" in texts.describe(text)
    assert read(text, download=False) == []


def test_no_network_is_one_sentence_with_the_remedy(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        for text in ("c4", "hub:someone/something"):
            with pytest.raises(CorpusError, match="not on this machine and cannot be downloaded: .*Run the study once"):
                texts.prepare(text, "calibration")


def test_known_text_is_fetched_once_and_read_without_the_hub(small_hub, parquet, monkeypatch):
    small_hub.repositories[WIKITEXT] = {WIKITEXT_TRAIN: parquet(text=["one", "two"])}
    assert read("wikitext2", download=False) == [] and read("wikitext2") == ["one", "two"]
    requests = len(small_hub.requests)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for download in (True, False):
        assert read("wikitext2", download=download) == ["one", "two"]
    assert len(small_hub.requests) == requests > 0
    assert texts.describe("wikitext2").endswith(f"split train, 2 documents of commit {COMMIT[:7]} on this machine")


def test_known_texts_are_read_as_their_files_say(small_hub, parquet, tokenizer):
    small_hub.repositories["ptb-text-only/ptb_text_only"] = {
        "penn_treebank/train/0000.parquet": parquet(sentence=["no it was n't", "mr. <unk>"])
    }
    small_hub.repositories["allenai/c4"] = {C4_TRAIN: c4_rows(2)}
    assert read("ptb") == ["no it was n't", "mr. <unk>"]
    assert read("c4") == [f"document {i} " + "word " * 20 for i in range(2)]
    assert read("c4#documents=1:") == ["document 1 " + "word " * 20]


@pytest.mark.parametrize(
    ("options", "tokens", "selected", "stored"),
    # 48 bytes are three tokens
    [("", 1, slice(0, 1), 1), ("", 3, slice(0, 1), 1), ("", 4, slice(0, 2), 2), ("", 121, slice(0, 41), 41)]
    + [("", 10**6, slice(0, 120), 120), ("", None, slice(0, 120), 120), ("&documents=:40", None, slice(0, 40), 40)]
    + [("&documents=41:60", None, slice(41, 60), 19), ("&documents=20:", 7, slice(20, 23), 3)]
    + [("&documents=-5:", 1, slice(115, 120), 5)],
)
def test_as_many_documents_are_fetched_as_are_read(dataset, small_hub, options, tokens, selected, stored):
    text = "hub:a/b#config=en" + options
    assert read(text, tokens=tokens) == dataset[selected] and len(dataset[selected]) == stored
    assert not any("/de/" in request for request in small_hub.requests)
    small_hub.repositories.clear()
    for download in (True, False):
        assert read(text, download=download, tokens=tokens) == dataset[selected]


def test_fewer_tokens_are_a_prefix_of_more_and_more_are_of_the_same_commit(dataset, small_hub, monkeypatch):
    many = read("hub:a/b#config=en", tokens=60)
    requests = len(small_hub.requests)
    assert read("hub:a/b#config=en", tokens=30) == many[:10]
    assert len(small_hub.requests) == requests
    few = texts.fingerprint("hub:a/b#config=en", "calibration", tokens=30)
    assert few != texts.fingerprint("hub:a/b#config=en", "calibration", tokens=60)
    # the key of the few is the same where only they were fetched
    assert texts.fingerprint("hub:a/b#config=en", "calibration", tokens=28) == few
    read("hub:a/b#config=en", tokens=90)
    resolved = [request for request in small_hub.requests[requests:] if re.search("/revision/(?!0123)", request)]
    assert resolved == [] and any(COMMIT in request for request in small_hub.requests[requests:])


def test_a_dataset_that_was_read_to_its_end_is_never_fetched_again(dataset, small_hub):
    assert len(read("hub:a/b#config=de", tokens=1000)) == 40
    requests = len(small_hub.requests)
    for tokens in (10**6, None):
        assert len(read("hub:a/b#config=de", tokens=tokens)) == 40
    assert len(small_hub.requests) == requests


def test_rows_that_were_changed_on_the_disk_are_fetched_again(dataset, small_hub, monkeypatch):
    before = read("hub:a/b#config=en", tokens=9)
    (file,) = Store().texts.glob("hub_rows/*/utf8.npy")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.chmod(0o600)
    file.write_bytes(content)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DamagedError):
        texts.fingerprint("hub:a/b#config=en", "calibration", tokens=9)
    with pytest.raises(CorpusError, match="not on this machine"):
        texts.prepare("hub:a/b#config=en", "calibration", tokens=9)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert read("hub:a/b#config=en", tokens=9) == before
    assert len(list((Store().texts / "damaged").iterdir())) == 1


def test_the_key_holds_the_rows_and_the_commit(dataset, small_hub):
    names = ("hub:a/b#config=en", "hub:a/b#config=de", "hub:a/b#config=en&documents=:3", "c4")
    assert len({texts.fingerprint(name, "calibration") for name in names}) == len(names)
    unfetched = texts.fingerprint("hub:a/b#config=en", "calibration", tokens=9)
    texts.prepare("hub:a/b#config=en", "calibration", tokens=9)
    fetched = texts.fingerprint("hub:a/b#config=en", "calibration", tokens=9)
    named = "hub:a/b#config=en&revision=main&split=train"
    texts.prepare(named, "calibration", tokens=9)
    assert texts.fingerprint(named, "calibration", tokens=9) == fetched != unfetched
    stored = resolve("hub:a/b#config=en", "calibration", tokens=9).rows
    assert stored is not None and stored.revision == COMMIT
    other = HubRows("a/b", "f" * 40, stored.sha256, stored.utf8, stored.ends)
    assert list(other.documents()) == list(stored.documents()) == dataset[:3]


def test_tokens_come_from_as_many_documents_as_they_take(dataset, tokenizer):
    few = texts.draw("hub:a/b#config=en", tokenizer, samples=2, length=8, seed=0)
    assert few.available == 8
    assert len(resolve("hub:a/b#config=en", "calibration", tokens=64).rows.ends) == 22
    all_values = texts.stream("hub:a/b#config=en&split=train", tokenizer)
    np.testing.assert_array_equal(texts.stream("hub:a/b#config=en&split=train", tokenizer, limit=99), all_values[:99])
    windows = texts.draw_windows("hub:a/b#config=en", tokenizer, samples=60, length=8, seed=0)
    assert windows.ids.shape == (60, 8)


def test_loading_scripts_are_not_run_and_refusals_of_the_hub_are_one_sentence(dataset, small_hub, parquet):
    small_hub.repositories["a/script"] = {"script.py": b"raise SystemExit", "README.md": b"# hi"}
    assert_refused("loading script.* not run.*hub:a/script#revision=refs/convert/parquet", "hub:a/script")
    assert_refused("the dataset .no/one. does not exist on the hub, or is private", "hub:no/one")
    small_hub.repositories["allenai/c4"] = {"other.json.gz": b""}
    assert_refused(f"'c4' cannot be read: .*{C4_TRAIN}", "c4")
    small_hub.repositories["a/empty"] = {".gitattributes": b""}
    assert_refused("'hub:a/empty' cannot be read: .*doesn't contain any data files", "hub:a/empty")
    small_hub.repositories["a/pdf"] = {"notes.pdf": b""}
    assert_refused("'hub:a/pdf' is no text dataset: the datasets library reads it as 'pdffolder'", "hub:a/pdf")
    assert_refused("has several configurations: en, de. Type for example hub:a/b#config=en", "hub:a/b")
    assert_refused("has no configuration 'fr': en, de", "hub:a/b#config=fr")
    assert_refused("no split 'test', only train", "hub:a/b#config=en", "evaluation")
    assert_refused("'hub:a/b#config=en&documents=900:' has no documents", "hub:a/b#config=en&documents=900:")
    assert not list(Store().texts.glob("hub_rows/*"))


def test_rows_of_wikitext_are_one_string(small_hub, parquet, tokenizer):
    rows = ["", " = the fox = \n", "", " the quick brown fox . \n"] * 30
    small_hub.repositories[WIKITEXT] = {
        "wikitext-2-raw-v1/test-00000-of-00001.parquet": parquet(text=rows),
        WIKITEXT_TRAIN: parquet(text=rows),
    }
    expected = tokenizer("\n\n".join(rows), verbose=False)["input_ids"]
    np.testing.assert_array_equal(texts.stream("wikitext2", tokenizer), expected)
    sample = texts.draw("wikitext2", tokenizer, samples=2, length=8, seed=0)
    assert sample.available == len(expected) // 8
