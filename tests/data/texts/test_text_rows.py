"""Files and their fields: what is read, and one clear sentence for what cannot be."""

import gzip
import json
import os
from pathlib import Path

import pyarrow
import pytest

from gprune.data.texts.source import documents, resolve
from gprune.system.errors import CorpusError


def read(text: str | Path) -> list[str]:
    return list(documents(resolve(str(text), "calibration")))


def write_lines(file: Path, *records: object) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file


@pytest.mark.parametrize("name", ["a.txt", "a.raw", "a.utf8", "a", "a.csv", "a.py"])
def test_text_file_is_read_unchanged_whatever_its_suffix(tmp_path, name):
    content = " = Grüße = \r\n\r\n\n 世界 <unk> \t \n"
    (tmp_path / name).write_bytes(content.encode())
    assert read(tmp_path / name) == [content]


def test_compressed_files(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("Grüße".encode()))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "one"}\n\n{"text": "two"}\n'))
    assert read(tmp_path / "a.txt.gz") == ["Grüße"]
    assert read(tmp_path / "a.jsonl.gz") == ["one", "two"]
    (tmp_path / "b.jsonl.gz").write_bytes(b"no gzip at all")
    with pytest.raises(CorpusError, match="b.jsonl.gz' cannot be read: Not a gzipped file"):
        read(tmp_path / "b.jsonl.gz")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"words" * 1000)[:-12])
    with pytest.raises(CorpusError, match="c.txt.gz' cannot be read"):
        read(tmp_path / "c.txt.gz")


def test_file_that_is_not_utf8_names_the_byte_and_the_remedy(tmp_path):
    (tmp_path / "latin.txt").write_bytes("abc é".encode("latin-1"))
    with pytest.raises(
        CorpusError, match="byte 0xe9 at offset 4. .*iconv -f ISO-8859-1 -t UTF-8 .*latin.txt"
    ):
        read(tmp_path / "latin.txt")
    (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbfab\xff")
    with pytest.raises(CorpusError, match="byte 0xff at offset 5[.]"):
        read(tmp_path / "marked.txt")
    (tmp_path / "rows.jsonl").write_bytes(b'{"text": "ok"}\n{"text": "\xe9"}\n')
    with pytest.raises(CorpusError, match="byte 0xe9 at offset 25[.]"):
        read(tmp_path / "rows.jsonl")
    (tmp_path / "wide.txt").write_bytes("abc".encode("utf-16"))
    with pytest.raises(CorpusError, match="is UTF-16, not UTF-8.*iconv -f UTF-16"):
        read(tmp_path / "wide.txt")


def test_unreadable_file(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("words")

    def refuse(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CorpusError, match="a.txt' cannot be read: Permission denied"):
        read(tmp_path / "a.txt")


def test_named_fields_are_joined_directly_in_the_order_given(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", {"text": "T", "a": "A", "b": "B"}, {"a": None, "b": "C"})
    assert read(f"{file}#fields=b+a") == ["BA", "C"]
    assert read(f"{file}#fields=b") == ["B", "C"]


def test_without_a_name_all_text_fields_are_joined_in_file_order(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", {"prefix": "P", "gold": "G"}, {"gold": "H", "prefix": "Q"})
    assert read(file) == ["PG", "QH"]


def test_unclear_fields_are_listed_with_what_to_type(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", {"id": 7, "title": "short", "body": "longer text"})
    with pytest.raises(CorpusError, match=r"id, title, body. Type for example .*a.jsonl#fields=body"):
        read(file)
    with pytest.raises(CorpusError, match="no field 'bdoy', only id, title, body.*documents=0:1&fields=body"):
        read(f"{file}#documents=0:1&fields=bdoy")
    with pytest.raises(CorpusError, match="'id' of line 1 of .* holds a int, not text"):
        read(f"{file}#fields=id")
    with pytest.raises(CorpusError, match="None of them is text"):
        read(write_lines(tmp_path / "b.jsonl", {"id": 7}))
    with pytest.raises(CorpusError, match="which of its fields is the text: none"):
        read(write_lines(tmp_path / "c.jsonl", {}))


def test_later_records_must_have_the_fields(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", {"a": "A", "b": "B"}, {"a": "A"})
    with pytest.raises(CorpusError, match="line 2 of .* has the fields a and the first one a, b"):
        read(file)
    with pytest.raises(CorpusError, match="line 2 of .* lacks the field 'b'"):
        read(f"{file}#fields=b")
    file = write_lines(tmp_path / "b.jsonl", {"a": "A"}, {"a": "A", "id": 3})
    with pytest.raises(CorpusError, match="line 2 of .* has the fields a, id .*#fields=a"):
        read(file)


def test_malformed_json_names_the_line(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n\n{"text": oops}\n')
    with pytest.raises(CorpusError, match="line 3 of .*a.jsonl' is not JSON"):
        read(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n"just text"\n')
    with pytest.raises(CorpusError, match="line 2 of .* holds a str, not an object"):
        read(tmp_path / "b.jsonl")


def test_json_may_be_one_list(tmp_path):
    (tmp_path / "a.json").write_text('[\n {"text": "one"},\n {"text": "two"}\n]\n')
    assert read(tmp_path / "a.json") == ["one", "two"]
    (tmp_path / "b.json").write_text('{"text": "one"}\n{"text": "two"}\n')
    assert read(tmp_path / "b.json") == ["one", "two"]
    (tmp_path / "c.json").write_text('[{"text": "one"}, 5]')
    with pytest.raises(CorpusError, match="entry 2 of .* holds a int"):
        read(tmp_path / "c.json")
    (tmp_path / "d.json").write_text('[{"text": "one"},')
    with pytest.raises(CorpusError, match="d.json' is not JSON"):
        read(tmp_path / "d.json")


def test_parquet_and_arrow_files(tmp_path, parquet):
    (tmp_path / "a.parquet").write_bytes(parquet(sentence=["one", "two"]))
    assert read(tmp_path / "a.parquet") == ["one", "two"]
    (tmp_path / "b.parquet").write_bytes(parquet(id=[1], text=["one"]))
    assert read(tmp_path / "b.parquet") == ["one"]
    table = pyarrow.table({"text": ["x", "y"]})
    with pyarrow.ipc.new_stream(tmp_path / "c.arrow", table.schema) as writer:
        writer.write_table(table)
    assert read(tmp_path / "c.arrow") == ["x", "y"]
    for name in ("d.parquet", "d.arrow"):
        (tmp_path / name).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
        with pytest.raises(CorpusError, match=f"{name}' is not a readable"):
            read(tmp_path / name)


@pytest.mark.parametrize("span", ["2:5", ":3", "3:", "-2:", ":-1", "-4:-1", "0:100", ":"])
def test_documents_option_is_a_python_slice(tmp_path, span):
    rows = [f"row {i}" for i in range(7)]
    file = write_lines(tmp_path / "a.jsonl", *({"text": row} for row in rows))
    start, stop = (int(end) if end else None for end in span.split(":"))
    assert read(f"{file}#documents={span}") == rows[start:stop]


def test_binary_file_is_refused(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"PK\x03\x04\x00\x00words")
    with pytest.raises(CorpusError, match="model.bin' is a binary file, not text"):
        read(tmp_path / "model.bin")


def test_pipe_is_neither_file_nor_folder(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorpusError, match="neither a file nor a folder"):
        read(tmp_path / "pipe")


def test_empty_slice_says_how_many_documents_there_are(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", {"text": "one"}, {"text": "two"})
    with pytest.raises(CorpusError, match="documents=2:9 .* selects none of its 2 documents"):
        read(f"{file}#documents=2:9")
