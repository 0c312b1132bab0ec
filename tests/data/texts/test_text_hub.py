"""Hub texts: the cache first, then a small hub on this machine, then plain words where neither helps."""

import gzip
import json
import shutil
import socket

import numpy as np
import pytest
from huggingface_hub import constants
from small_hub import COMMIT

from gprune.data import texts
from gprune.data.texts import hub
from gprune.data.texts.source import documents, resolve
from gprune.system.errors import CorpusError

WIKITEXT = "Salesforce/wikitext"
WIKITEXT_TRAIN = "wikitext-2-raw-v1/train-00000-of-00001.parquet"
CARD = b"---\nconfigs:\n- config_name: en\n  data_files:\n  - split: train\n    path: en/train-*\n---\n"


def read(text, role="calibration", download=True):
    return list(documents(resolve(text, role, download)))  # type: ignore[arg-type]


def c4_rows(count):
    rows = ({"text": f"document {i} " + "word " * 20, "url": "u"} for i in range(count))
    return gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())


@pytest.mark.parametrize("text", ["wikitext2", "ptb", "c4", "hub:someone/something"])
def test_offline_variable_fails_at_once(text):
    with pytest.raises(CorpusError, match="not on this machine and HF_HUB_OFFLINE forbids.*local file"):
        texts.prepare(text, "calibration")
    assert "not on this machine yet" in texts.describe(text)


def test_no_network_is_said_without_the_clients_retries(monkeypatch):
    attempts = []

    def unreachable(address, timeout):
        attempts.append((address, timeout))
        raise OSError("Name or service not known")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.invalid")
    monkeypatch.setattr(hub.urllib.request, "getproxies", dict)
    monkeypatch.setattr(socket, "create_connection", unreachable)
    for text in ("c4", "hub:someone/something"):
        with pytest.raises(CorpusError, match="there is no network .hub.invalid does not answer.*local file"):
            texts.prepare(text, "calibration")
    assert attempts == [(("hub.invalid", 443), 3.0)] * 2


def test_cached_copy_without_a_reference_is_found(put_in_cache, parquet):
    files = {"penn_treebank/train/0000.parquet": parquet(sentence=["no it was n't"])}
    put_in_cache("ptb-text-only/ptb_text_only", files, revision="")
    assert read("ptb") == ["no it was n't"]
    put_in_cache("a/b", {"train.parquet": parquet(text=["row"])}, revision="")
    assert read("hub:a/b") == ["row"]
    with pytest.raises(CorpusError, match="HF_HUB_OFFLINE forbids"):
        read("hub:a/b#revision=v2")


def test_cached_copy_says_what_it_lacks(put_in_cache, parquet):
    put_in_cache("a/b", {"en/train-0.parquet": parquet(text=["row"]), "README.md": CARD})
    assert read("hub:a/b#config=en") == ["row"]
    with pytest.raises(CorpusError, match="has no configuration 'de': en"):
        read("hub:a/b#config=de")
    with pytest.raises(CorpusError, match="no split 'test', only train"):
        read("hub:a/b", "evaluation")


def test_known_text_is_downloaded_once(small_hub, parquet):
    small_hub.repositories[WIKITEXT] = {WIKITEXT_TRAIN: parquet(text=["one", "two"])}
    assert read("wikitext2", download=False) == []
    assert read("wikitext2") == ["one", "two"]
    requests = len(small_hub.requests)
    assert read("wikitext2") == ["one", "two"]
    assert len(small_hub.requests) == requests > 0


def test_a_disk_that_is_too_small_is_told_before_the_download(small_hub, parquet, hub_cache, monkeypatch):
    small_hub.repositories[WIKITEXT] = {WIKITEXT_TRAIN: parquet(text=["one"])}
    usage = shutil.disk_usage(hub_cache.parent)
    monkeypatch.setattr("gprune.system.limits.shutil.disk_usage", lambda place: usage._replace(free=10))
    with pytest.raises(CorpusError, match="of 'Salesforce/wikitext' needs [0-9.]+ KiB, but '.*' has 0.0 KiB free"):
        texts.prepare("wikitext2", "calibration")
    assert not list(hub_cache.rglob("*.parquet"))


def shards(parquet, count, folder="en"):
    """Files of one split with 40 documents of 50 characters each."""
    names = (f"{folder}/train-{number:05}-of-{count:05}.parquet" for number in range(count))
    return {name: parquet(text=[f"{name} {row:02} ".ljust(50, "x") for row in range(40)]) for name in names}


@pytest.mark.parametrize(
    ("options", "tokens", "files"),
    [("", 100, 1), ("", 126, 2), ("", 10**6, 3), ("", None, 3), ("&documents=:40", None, 1)]
    + [("&documents=41:60", None, 2), ("&documents=20:", 100, 2), ("&documents=-5:", 1, 3)],
)
def test_files_of_a_split_are_read_until_there_is_enough(small_hub, parquet, options, tokens, files):
    every = shards(parquet, 3)
    small_hub.repositories["a/b"] = {**every, **shards(parquet, 1, "de"), "README.md": CARD}
    text = "hub:a/b#config=en" + options
    found = resolve(text, "calibration", True, tokens).files
    assert [file.name for file in found] == [path.rpartition("/")[2] for path in every][:files]
    requested = {request.rpartition("/")[2] for request in small_hub.requests if "parquet" in request}
    assert requested == {file.name for file in found}
    assert not any("/de/" in request for request in small_hub.requests)
    # what is there gives the same, with a network or without
    for download in (True, False):
        assert resolve(text, "calibration", download, tokens).files == found
    small_hub.repositories.clear()
    assert resolve(text, "calibration", True, tokens).files == found


def test_a_split_goes_on_at_the_commit_that_it_began_with(small_hub, put_in_cache, parquet):
    every = shards(parquet, 3, "data")
    first, second, third = every
    # another client has left the last file, which is no beginning
    snapshot = put_in_cache("a/b", {first: every[first], third: every[third]}, revision="")
    assert resolve("hub:a/b", "calibration").files == (snapshot / first,)
    small_hub.repositories["a/b"] = every
    assert len(resolve("hub:a/b", "calibration", True).files) == 3
    asked = [request for request in small_hub.requests if request.endswith(".parquet")]
    assert asked and all(f"resolve/{COMMIT}/{second}" in request for request in asked)


def test_the_disk_has_room_for_a_whole_split_or_nothing_is_fetched(small_hub, parquet, hub_cache, monkeypatch):
    every = shards(parquet, 3)
    small_hub.repositories["a/b"] = every
    usage = shutil.disk_usage(hub_cache.parent)
    room = sum(len(content) for content in every.values()) - 1
    monkeypatch.setattr("gprune.system.limits.shutil.disk_usage", lambda place: usage._replace(free=room))
    with pytest.raises(CorpusError, match="the download of 'a/b' needs"):
        texts.prepare("hub:a/b", "calibration")
    texts.prepare("hub:a/b", "calibration", tokens=1)
    assert [file.name[:11] for file in hub_cache.rglob("*.parquet")] == ["train-00000"]


def test_the_key_of_a_split_is_the_list_of_the_files_that_are_read(put_in_cache, parquet, tmp_path):
    every = shards(parquet, 2)
    put_in_cache("a/b", every)
    (tmp_path / "copy.parquet").write_bytes(next(iter(every.values())))
    one = texts.fingerprint(f"{tmp_path}/copy.parquet", "calibration")
    assert texts.fingerprint("hub:a/b", "calibration", tokens=100) == one
    assert texts.fingerprint("hub:a/b", "calibration", tokens=126) not in ("", one)
    assert texts.fingerprint("hub:a/b", "calibration") == texts.fingerprint("hub:a/b", "calibration", tokens=126)


def test_tokens_come_from_as_many_files_as_they_take(small_hub, parquet, tokenizer):
    small_hub.repositories["a/b"] = shards(parquet, 3)
    few = texts.draw("hub:a/b", tokenizer, samples=2, length=8, seed=0)
    assert few.available == 8 and len(resolve("hub:a/b", "calibration").files) == 1
    one = len(texts.stream("hub:a/b#split=train", tokenizer, limit=10**9)) // 3
    many = texts.draw("hub:a/b", tokenizer, samples=one // 8 + 1, length=8, seed=0)
    assert many.available * 8 > one
    windows = texts.draw_windows("hub:a/b", tokenizer, samples=60, length=8, seed=0)
    assert windows.ids.shape == (60, 8)


def test_loading_scripts_are_not_run_and_refusals_of_the_hub_are_one_sentence(small_hub, parquet):
    small_hub.repositories["a/script"] = {"script.py": b"raise SystemExit", "README.md": b"# hi"}
    with pytest.raises(CorpusError, match="loading script .*not run.*hub:a/script#revision=refs/convert/parquet"):
        read("hub:a/script")
    assert not any("script.py" in request for request in small_hub.requests)
    with pytest.raises(CorpusError, match="the hub has no dataset 'no/one', or it is private"):
        read("hub:no/one")
    small_hub.repositories["allenai/c4"] = {}
    with pytest.raises(CorpusError, match="'allenai/c4' has no file 'en/c4-train.00000-of-01024.json.gz'"):
        read("c4")
    small_hub.repositories["a/empty"] = {"notes.pdf": b""}
    with pytest.raises(CorpusError, match="'hub:a/empty' holds no data files"):
        read("hub:a/empty")


def test_documents_of_a_hub_text_are_read_no_further_than_needed(put_in_cache, tokenizer):
    put_in_cache("allenai/c4", {"en/c4-train.00000-of-01024.json.gz": c4_rows(4000)})
    few = texts.draw("c4", tokenizer, samples=4, length=16, seed=0)
    assert few.available == 4 * 4
    whole = texts.draw("c4#documents=0:4000", tokenizer, samples=3000, length=16, seed=0)
    assert whole.available > 4 * 4
    again = texts.draw("c4", tokenizer, samples=4, length=16, seed=0)
    np.testing.assert_array_equal(few.ids, again.ids)


def test_rows_of_wikitext_are_one_string(put_in_cache, parquet, tokenizer):
    rows = ["", " = the fox = \n", "", " the quick brown fox . \n"] * 30
    put_in_cache(WIKITEXT, {"wikitext-2-raw-v1/test-00000-of-00001.parquet": parquet(text=rows)})
    expected = tokenizer("\n\n".join(rows), verbose=False)["input_ids"]
    np.testing.assert_array_equal(texts.stream("wikitext2", tokenizer), expected)
    put_in_cache(WIKITEXT, {WIKITEXT_TRAIN: parquet(text=rows)})
    drawn = texts.draw("wikitext2", tokenizer, samples=2, length=8, seed=0)
    assert drawn.available == len(expected) // 8


def test_proxy_is_what_is_probed(monkeypatch):
    monkeypatch.setattr(hub.urllib.request, "proxy_bypass", lambda host: host == "inside.example")
    for proxies, expected in (
        ({}, ("hub.example", 443)),
        ({"https": "http://proxy.example:3128"}, ("proxy.example", 3128)),
        ({"https": "proxy.example:3128"}, ("proxy.example", 3128)),
        ({"all": "http://proxy.example"}, ("proxy.example", 80)),
    ):
        monkeypatch.setattr(hub.urllib.request, "getproxies", lambda proxies=proxies: proxies)
        assert hub._first_hop("https://hub.example") == expected
    assert hub._first_hop("https://inside.example") == ("inside.example", 443)
