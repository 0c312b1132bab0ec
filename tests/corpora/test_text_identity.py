"""Fingerprints and descriptions: content decides, not the name."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gprune import corpora
from gprune.errors import CorpusError


def same_content(first: str, second: str) -> bool:
    return corpora.fingerprint(first, "calibration") == corpora.fingerprint(second, "calibration")


@pytest.fixture
def rows(tmp_path: Path) -> str:
    records = ({"prefix": f"p{i}", "gold": f"g{i}"} for i in range(1200))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(tmp_path / "rows.jsonl")


def test_copy_under_another_name_is_the_same_content(tmp_path: Path):
    (tmp_path / "a.txt").write_text("words")
    (tmp_path / "b.raw").write_text("words")
    (tmp_path / "c.txt").write_text("other words")
    assert same_content(f"{tmp_path}/a.txt", f"{tmp_path}/b.raw")
    assert not same_content(f"{tmp_path}/a.txt", f"{tmp_path}/c.txt")
    assert corpora.fingerprint(f"{tmp_path}/a.txt", "calibration") == corpora.fingerprint(
        f"{tmp_path}/a.txt", "evaluation"
    )


def test_options_that_change_the_tokens_change_the_fingerprint(rows: str):
    prints = [
        corpora.fingerprint(rows + options, "calibration")
        for options in (
            "",
            "#fields=gold+prefix",
            "#fields=gold",
            "#documents=1:",
            "#documents=:5",
            "#join=blank-line",
        )
    ]
    assert len(set(prints)) == len(prints)
    assert same_content(rows, f"{rows}#fields=prefix+gold")
    assert same_content(f"{rows}#documents=:5", f"{rows}#documents=0:5")


def test_file_that_changes_is_a_new_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "a.txt"
    file.write_text("words")
    before = corpora.fingerprint(str(file), "calibration")
    file.write_text("w0rds")
    os.utime(file, ns=(1, 1))
    assert corpora.fingerprint(str(file), "calibration") != before
    assert "5 characters" in corpora.describe(str(file))
    file.write_text("more words")
    assert "10 characters" in corpora.describe(str(file))


def test_unchanged_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.txt").write_text("words")
    # a file that is younger than a tick of the system's clock could change unseen
    time.sleep(0.06)
    corpora.fingerprint(f"{tmp_path}/a.txt", "calibration")
    monkeypatch.setattr("hashlib.file_digest", None)
    corpora.fingerprint(f"{tmp_path}/a.txt", "evaluation")


def test_splits_of_a_folder_differ(tmp_path: Path):
    (tmp_path / "train.txt").write_text("train words")
    (tmp_path / "test.txt").write_text("test words")
    calibration = corpora.fingerprint(str(tmp_path), "calibration")
    assert calibration != corpora.fingerprint(str(tmp_path), "evaluation")
    assert calibration == corpora.fingerprint(f"{tmp_path}/train.txt", "calibration")


def test_embedded_text_is_known_by_its_version(monkeypatch: pytest.MonkeyPatch):
    first = corpora.fingerprint("python-code", "calibration")
    assert first == corpora.fingerprint("python-code#split=train", "calibration")
    assert first != corpora.fingerprint("python-code", "evaluation")
    assert first != corpora.fingerprint("python-reference", "calibration")
    monkeypatch.setattr("gprune.demo.texts.version", lambda name: "another")
    assert first != corpora.fingerprint("python-code", "calibration")


def test_embedded_text_without_its_package(monkeypatch: pytest.MonkeyPatch):
    def version(name: str) -> str:
        raise ModuleNotFoundError("missing", name="sklearn")

    monkeypatch.setattr("gprune.demo.texts.version", version)
    with pytest.raises(CorpusError, match="'science-docs' cannot be built: it needs the package 'sklearn'"):
        corpora.fingerprint("science-docs", "calibration")


def test_hub_text_is_known_by_name_until_it_is_here(
    put_in_cache: Callable[..., Path], parquet: Callable[..., bytes], tmp_path: Path
):
    names = ("wikitext2", "wikitext2#split=test", "ptb", "c4", "hub:a/b", "hub:a/b#config=en")
    assert len({corpora.fingerprint(name, "calibration") for name in names}) == len(names)
    before = corpora.fingerprint("c4", "calibration")
    put_in_cache("allenai/c4", {"en/c4-train.00000-of-01024.json.gz": b""})
    assert corpora.fingerprint("c4", "calibration") != before
    content = parquet(text=["row"])
    put_in_cache("a/b", {"train.parquet": content})
    (tmp_path / "copy.parquet").write_bytes(content)
    assert same_content("hub:a/b", f"{tmp_path}/copy.parquet")


def test_description_says_what_is_read(rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    expected = "file rows.jsonl, 1,200 documents, 9,780 characters, fields prefix + gold joined"
    assert corpora.describe(rows) == expected
    one = corpora.describe(f"{rows}#fields=gold&documents=-10:")
    assert one == "file rows.jsonl, 10 documents, 50 characters, the field gold"
    (tmp_path / "a.txt").write_text("words")
    assert corpora.describe(f"{tmp_path}/a.txt") == "text file a.txt, 5 characters"
    assert corpora.describe("python-code", "evaluation").endswith("without its docstrings, split test")
    assert corpora.describe("ptb", "evaluation").endswith("split validation, not on this machine yet")
    monkeypatch.setattr("gprune.corpora.identity._COUNTED_BYTES", 100)
    large = corpora.describe(f"{rows}#documents=0:10")
    assert large == "file rows.jsonl, 0 MB, documents 0:10, fields prefix + gold joined"


def test_description_of_a_folder(tmp_path: Path, parquet: Callable[..., bytes]):
    for shard in range(2):
        (tmp_path / f"train-{shard}.parquet").write_bytes(parquet(text=["row", "rows"]))
    folder = f"dataset folder {tmp_path.name}"
    assert corpora.describe(str(tmp_path)) == (
        f"{folder}, split train, 2 files, 4 documents, 14 characters, the field text"
    )


def test_missing_text_has_neither(tmp_path: Path):
    for ask in (corpora.describe, corpora.fingerprint, corpora.prepare):
        with pytest.raises(CorpusError, match="there is no text"):
            ask(f"{tmp_path}/missing.txt", "calibration")
