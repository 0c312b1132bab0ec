"""Fingerprints and descriptions: content decides, not the name."""

import json
import os

import pytest

from gprune.data import texts
from gprune.data.demo import texts as demo_texts
from gprune.system.errors import CorpusError


def same_content(first, second):
    return texts.fingerprint(first, "calibration") == texts.fingerprint(second, "calibration")


@pytest.fixture
def rows(tmp_path):
    records = ({"prefix": f"p{i}", "gold": f"g{i}"} for i in range(1200))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(tmp_path / "rows.jsonl")


def test_copy_under_another_name_is_the_same_content(tmp_path):
    for name, content in (("a.txt", "words"), ("b.raw", "words"), ("c.txt", "other words")):
        (tmp_path / name).write_text(content)
    assert same_content(f"{tmp_path}/a.txt", f"{tmp_path}/b.raw")
    assert not same_content(f"{tmp_path}/a.txt", f"{tmp_path}/c.txt")
    assert texts.fingerprint(f"{tmp_path}/a.txt", "calibration") == texts.fingerprint(f"{tmp_path}/a.txt", "evaluation")


def test_options_and_files_that_change_the_tokens_change_the_fingerprint(rows, tmp_path, monkeypatch):
    options = ("", "#fields=gold+prefix", "#fields=gold", "#documents=1:", "#documents=:5", "#join=blank-line")
    assert len({texts.fingerprint(rows + option, "calibration") for option in options}) == len(options)
    assert same_content(rows, f"{rows}#fields=prefix+gold")
    assert same_content(f"{rows}#documents=:5", f"{rows}#documents=0:5")
    file, seen = tmp_path / "a.txt", set()
    for content in ("words", "w0rds", "more words"):
        file.write_text(content)
        os.utime(file, ns=(1, 1))
        seen.add(texts.fingerprint(str(file), "calibration"))
        assert f"{len(content)} characters" in texts.describe(str(file))
    assert len(seen) == 3


def test_description_says_what_is_read(rows, tmp_path, monkeypatch):
    expected = "file rows.jsonl, 1,200 documents, 9,780 characters, fields prefix + gold joined"
    assert texts.describe(rows) == expected
    expected = "file rows.jsonl, 10 documents, 50 characters, the field gold"
    assert texts.describe(f"{rows}#fields=gold&documents=-10:") == expected
    (tmp_path / "a.txt").write_text("words")
    assert texts.describe(f"{tmp_path}/a.txt") == "text file a.txt, 5 characters"
    assert texts.describe("python-code", "evaluation").endswith("without its docstrings, split test")
    assert texts.describe("ptb", "evaluation").endswith("split validation, not on this machine yet")
    monkeypatch.setattr("gprune.data.texts.identity._COUNTED_BYTES", 100)
    large = texts.describe(f"{rows}#documents=0:10")
    assert large == "file rows.jsonl, 0 MB, documents 0:10, fields prefix + gold joined"


def test_embedded_text_is_known_by_its_version(monkeypatch):
    first = texts.fingerprint("python-code", "calibration")
    assert first == texts.fingerprint("python-code#split=train", "calibration")
    assert first != texts.fingerprint("python-code", "evaluation")
    assert first != texts.fingerprint("python-reference", "calibration")
    monkeypatch.setitem(demo_texts.VERSIONS, "python-code", "another")
    assert first != texts.fingerprint("python-code", "calibration")


def test_missing_text_has_neither(tmp_path):
    for ask in (texts.describe, texts.fingerprint, texts.prepare):
        with pytest.raises(CorpusError, match="there is no text"):
            ask(f"{tmp_path}/missing.txt", "calibration")
