"""Files, folders and fields: what is read, and one clear sentence for what cannot be."""

import bz2
import gzip
import importlib.util
import json
import lzma
import os
import subprocess
import sys

import datasets
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

from gprune.data import texts
from gprune.data.texts.source import read_documents, resolve
from gprune.system.errors import CorpusError


def read(text, role="calibration"):
    return list(read_documents(resolve(str(text), role)))


def assert_refused(path, message, role="calibration"):
    with pytest.raises(CorpusError, match=message):
        read(path, role)


def write_lines(file, *records):
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file


@pytest.mark.parametrize("name", ["a.txt", "a.raw", "a.utf8", "a", "a.py", "a[1]*#b.txt", ".hidden/a.txt"])
def test_text_file_is_one_document_whatever_its_name(tmp_path, name):
    content = " = Grüße = \n\n\n 世界 <unk> \t \n"
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content.encode())
    assert read(tmp_path / name) == [content]


def test_line_ends_of_other_systems_become_line_feeds(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\rthree\n")
    assert read(tmp_path / "a.txt") == ["one\ntwo\nthree\n"]
    (tmp_path / "a.jsonl").write_text('{"text": "one\\r\\ntwo"}\n')
    assert read(tmp_path / "a.jsonl") == ["one\r\ntwo"]


@pytest.mark.parametrize(("ending", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_compressed_files(tmp_path, ending, compress):
    for name, content, documents in (
        (f"a.txt.{ending}", "Grüße", ["Grüße"]),
        (f"a.jsonl.{ending}", '{"text": "one"}\n\n{"text": "two"}\n', ["one", "two"]),
        ("no-ending", "words", ["words"]),
    ):
        (tmp_path / name).write_bytes(compress(content.encode()))
        assert read(tmp_path / name) == documents


def test_broken_compressed_files(tmp_path):
    (tmp_path / "b.jsonl.gz").write_bytes(b"no gzip at all")
    assert_refused(tmp_path / "b.jsonl.gz", "b.jsonl.gz' cannot be read: Not a gzipped file")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"words" * 1000, mtime=0)[:-12])
    assert_refused(tmp_path / "c.txt.gz", "c.txt.gz' cannot be read: Compressed file ended before")
    (tmp_path / "d.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfddata")
    if importlib.util.find_spec("zstandard") is None:
        with pytest.raises(CorpusError, match="Compression type zstd not supported; decompress it, or pip install zst"):
            read(tmp_path / "d.jsonl.zst")


def test_file_that_is_not_utf8_names_the_byte_and_the_remedy(tmp_path):
    (tmp_path / "latin.txt").write_bytes("abc é".encode("latin-1"))
    assert_refused(tmp_path / "latin.txt", "not UTF-8 .byte 0xe9.. Convert .*iconv -f ISO-8859-1 -t UTF-8 .*latin.txt")
    (tmp_path / "rows.jsonl").write_bytes(b'{"text": "ok"}\n{"text": "\xe9"}\n')
    assert_refused(tmp_path / "rows.jsonl", "byte 0xe9")
    (tmp_path / "wide.txt").write_bytes("abc".encode("utf-16"))
    assert_refused(tmp_path / "wide.txt", "not UTF-8.*iconv -f UTF-16")


def test_fields_are_joined_in_the_order_given_or_of_the_file(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", {"text": "T", "a": "A", "b": "B"}, {"a": None, "b": "C"})
    assert read(f"{file}#fields=b+a") == ["BA", "C"]
    assert read(f"{file}#fields=b") == ["B", "C"]
    file = write_lines(tmp_path / "a.jsonl", {"prefix": "P", "gold": "G"}, {"gold": "H", "prefix": "Q"}, {"gold": "I"})
    assert read(file) == ["PG", "QH", "I"]


def test_unclear_fields_are_listed_with_what_to_type(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", {"id": 7, "title": "short", "body": "longer text"})
    assert_refused(file, r"id, title, body. Type for example .*a.jsonl#fields=body")
    with pytest.raises(CorpusError, match="no field 'bdoy', only id, title, body.*documents=0:1&fields=body"):
        read(f"{file}#documents=0:1&fields=bdoy")
    assert_refused(f"{file}#fields=id", "'id' of row 1 of .* holds a int, not text")
    assert_refused(write_lines(tmp_path / "b.jsonl", {"id": 7}), "None of them is text")
    # a column of dates is no text, and is never read as another one
    file = write_lines(tmp_path / "c.jsonl", {"day": "2020-01-31", "body": "words"})
    assert_refused(file, r"which of its fields is the text: day, body. Type .*fields=body")
    assert_refused(f"{file}#fields=day", "'day' of row 1 of .* holds a datetime, not text")
    mixed = write_lines(tmp_path / "d.jsonl", {"id": 7, "text": "one"}, {"id": "x", "text": "two"})
    assert read(mixed) == ["one", "two"]


def test_json_may_be_one_list_and_what_is_no_json_is_refused(tmp_path):
    (tmp_path / "a.json").write_text('[\n {"text": "one"},\n {"text": "two"}\n]\n')
    assert read(tmp_path / "a.json") == ["one", "two"]
    (tmp_path / "b.json").write_text('{"text": "one"}\n{"text": "two"}\n')
    assert read(tmp_path / "b.json") == ["one", "two"]
    for content in (
        '[{"text": "one"},',
        '{"text": "one"}\n\n{"text": oops}\n',
        '{"text": "one"}\n"just text"\n',
        "[" * 9999,
    ):
        (tmp_path / "c.jsonl").write_text(content)
        with pytest.raises(CorpusError, match="c.jsonl' cannot be read: ") as refusal:
            read(tmp_path / "c.jsonl")
        assert len(str(refusal.value)) < 400 and "\n" not in str(refusal.value)
    for content in ('null\n{"text": "one"}\n', '[null, {"text": "one"}]'):
        (tmp_path / "d.json").write_text(content)
        assert_refused(tmp_path / "d.json", "d.json' cannot be read: it begins with null; each line must hold one")
    (tmp_path / "d.jsonl").write_text('{"text": oops}\n')
    assert_refused(tmp_path / "d.jsonl", r'each line must hold one object, like \{"text": "..."\}')


ROWS = ["one", 'two "quoted"', "three"]


@pytest.mark.parametrize("ending", ["arrow", "stream.arrow", "feather", "parquet", "jsonl", "csv", "tsv", "arrow.bin"])
def test_every_format_gives_the_same_rows(tmp_path, ending):
    table, file = pyarrow.table({"id": [1, 2, 3], "text": ROWS}), tmp_path / f"rows.{ending}"
    if ending == "stream.arrow":
        with pyarrow.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    elif ending.startswith("arrow"):
        with pyarrow.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    elif ending == "feather":
        pyarrow.feather.write_feather(table, file)
    elif ending == "parquet":
        pyarrow.parquet.write_table(table, file)
    elif ending == "jsonl":
        write_lines(file, *table.to_pylist())
    else:
        table.to_pandas().to_csv(file, sep="\t" if ending == "tsv" else ",", index=False)
    assert read(file) == ROWS
    assert read(f"{file}#documents=1:") == ROWS[1:]
    assert texts.describe(str(file)) == f"file {file.name}, 3 documents, 20 characters, the field text"


def test_csv_has_its_text_column_read_or_is_refused_with_its_columns(tmp_path):
    (tmp_path / "a.csv").write_text('id,text\n0,"a ""quoted"" word, and more"\n1,\n2,NA\n3,"two\nlines"\n')
    assert read(tmp_path / "a.csv") == ['a "quoted" word, and more', "", "NA", "two\nlines"]
    (tmp_path / "b.csv").write_text("id,title,body\n0,t,words and words\n")
    assert_refused(tmp_path / "b.csv", r"which of its fields is the text: id, title, body. Type .*#fields=body")
    assert read(f"{tmp_path}/b.csv#fields=title+body") == ["twords and words"]
    for name, sign in (("c.csv", ";"), ("d.csv", "\t"), ("e.csv", "|"), ("f.tsv", ",")):
        (tmp_path / name).write_text(f"id{sign}text\n0{sign}words\n1{sign}more words\n")
        message = r"has one column, 'id.+text': separate values by commas in .csv, by tabs"
        assert_refused(tmp_path / name, message)
    (tmp_path / "g.csv").write_text("id;text\n0;words\n1;words, and, more\n")
    assert_refused(tmp_path / "g.csv", r"Expected 1 fields in line 3, saw 3; separate values by commas in .csv")
    (tmp_path / "h.csv").write_text('"Question, answered"\nwords\n')
    assert read(f"{tmp_path}/h.csv#fields=Question, answered") == ["words"]
    (tmp_path / "i.csv").write_text("text\nhello, you\nbye, me\n")
    assert_refused(tmp_path / "i.csv", "more values in a row than columns in its header: quote texts")
    (tmp_path / "A.TSV").write_text("text\tlabel\nhello, you\tx\n")
    assert read(tmp_path / "A.TSV") == ["hello, you"]


def test_the_first_bytes_decide_over_the_ending(tmp_path):
    table = pyarrow.table({"text": ROWS})
    for name in ("a.jsonl", "a.csv", "a.txt"):
        pyarrow.parquet.write_table(table, tmp_path / name)
        assert read(tmp_path / name) == ROWS
    with pyarrow.ipc.new_stream(tmp_path / "stream", table.schema) as writer:
        writer.write_table(table)
    lines = "\r\n".join(json.dumps({"text": row}) for row in ROWS)
    (tmp_path / "lines.txt").write_text(lines, encoding="utf-8-sig")
    assert read(tmp_path / "stream") == read(tmp_path / "lines.txt") == ROWS
    (tmp_path / "b.txt").write_text('{"one object": 1}\nand words\n')
    assert read(tmp_path / "b.txt") == ['{"one object": 1}\nand words\n']
    (tmp_path / "old.feather").write_bytes(b"FEA1\0\0")
    assert_refused(tmp_path / "old.feather", "old.feather' is an old Feather file: save its table as .parquet")
    for name in ("a.parquet.gz", "b.parquet", "c.arrow.GZ"):
        (tmp_path / name).write_bytes(gzip.compress((tmp_path / "a.txt").read_bytes()))
        assert_refused(tmp_path / name, rf"{name}' is a compressed \.(parquet|arrow) file, .*: decompress it")
    (tmp_path / "plain.txt.gz").write_text("words")
    assert_refused(tmp_path / "plain.txt.gz", "remove .gz from its name if it is not compressed")


def test_a_file_that_is_not_what_its_ending_says(tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\n"
    for name in ("d.parquet", "d.arrow"):
        (tmp_path / name).write_bytes(pointer)
        assert_refused(tmp_path / name, f"{name}' is a Git LFS pointer: fetch the file itself")
        folder = lay_out(tmp_path / f"clone of {name}", {f"train-{name}": pointer})
        assert_refused(folder, f"train-{name}' is a Git LFS pointer: fetch the file itself")
        (tmp_path / name).write_bytes(b"neither of them")
        assert_refused(tmp_path / name, f"{name}' cannot be read")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("file.bin", b"PK\3\4" + bytes(60), "is a ZIP archive: unpack it"),
        ("file.bin", gzip.compress(b"a.txt" + bytes(1000), mtime=0), "is binary data, not text"),
        ("file.bin", b"%PDF-1.7 words", "is a PDF document: save its text as .txt"),
        ("file.bin", b"SQLite format 3\0", "is an SQLite database"),
        ("file.bin", b"\x7fELF\0\0", "is binary data, not text: give a text"),
        ("file.bin", b"\x89PNG\r\n", "is not UTF-8"),
        ("a.txt", b"\x89PNG\r\n\x1a\n\0\0\0\r", "is binary data, not text"),
        ("a.jsonl", b" \n", "is empty: give a text with words in it"),
        ("a.csv", b"", "is empty: give a text with words in it"),
        ("a.jsonl", gzip.compress(b'{"text": "one"}', mtime=0), "is compressed and its name does not say so: add .gz"),
        ("a.txt", bz2.compress(b"words"), "is compressed and its name does not say so: add .bz2"),
    ],
)
def test_what_is_no_text_says_what_it_is(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert_refused(tmp_path / name, f"{name}' {message}")


def test_what_is_no_file_and_slices_without_documents_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert_refused(tmp_path / "pipe", "neither a file nor a folder")
    file = write_lines(tmp_path / "a.jsonl", {"text": "one"}, {"text": "two"})
    assert_refused(f"{file}#documents=2:9", "documents=2:9 .* selects none of its 2 documents")


@pytest.mark.parametrize("span", ["2:5", ":3", "3:", "-2:", ":-1", "-4:-1", "0:100", ":"])
def test_documents_option_is_a_python_slice(tmp_path, span):
    rows = [f"row {i}" for i in range(7)]
    file = write_lines(tmp_path / "a.jsonl", *({"text": row} for row in rows))
    start, stop = (int(end) if end else None for end in span.split(":"))
    assert read(f"{file}#documents={span}") == rows[start:stop]


CARD = """---
license: mit
configs:
- config_name: small
  data_files:
  - split: train
    path: small/tr*
  - split: extra
    path: ["small/more-*", "**/deep.parquet"]
- config_name: large
  data_dir: large
---
# About
"""


def lay_out(folder, files):
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("paths", "splits"),
    [
        (["train.txt", "test.txt"], {"train": ["train.txt"], "test": ["test.txt"]}),
        (
            ["data/train-00001-of-00002.txt", "data/train-00000-of-00002.txt", "data/validation-00000-of-00001.txt"],
            {
                "train": ["data/train-00000-of-00002.txt", "data/train-00001-of-00002.txt"],
                "validation": ["data/validation-00000-of-00001.txt"],
            },
        ),
        (
            ["train/a.txt", "train/b.txt", "dev/c.txt"],
            {"train": ["train/a.txt", "train/b.txt"], "validation": ["dev/c.txt"]},
        ),
        (["my-valid.txt", "my_training.txt", "eval.txt"], {"train": ["my_training.txt"], "test": ["eval.txt"]}),
        (["notes.txt"], {"train": ["notes.txt"]}),
        (["wiki.train.raw", "wiki.valid.raw"], {"train": ["wiki.train.raw"], "validation": ["wiki.valid.raw"]}),
    ],
)
def test_files_of_a_folder_belong_to_splits_by_their_names(tmp_path, paths, splits):
    folder = lay_out(tmp_path / "set", {path: path.encode() for path in paths})
    for split, names in splits.items():
        source = resolve(f"{folder}#split={split}", "calibration")
        assert [str(file.relative_to(folder)) for file in source.files] == names
        assert read(f"{folder}#split={split}") == names


def test_folders_of_records(tmp_path, parquet):
    files = {
        "train-00000-of-00002.parquet": parquet(text=["a", "b"]),
        "train-00001-of-00002.parquet": parquet(text=["c"]),
        "test.parquet": parquet(text=["d"]),
        ".git/train.txt": b"hidden",
    }
    folder = lay_out(tmp_path / "set", files)
    assert read(folder) == ["a", "b", "c"] and read(f"{folder}#documents=1:3") == ["b", "c"]
    assert read(folder, "evaluation") == read(f"{folder}/#split=test") == ["d"]
    folder = lay_out(tmp_path / "csv", {"train.csv": b"text\none\nNA\n", "test.csv": b"text\nthree\n"})
    assert read(str(folder)) == ["one", "NA"] and read(str(folder), "evaluation") == ["three"]
    folder = lay_out(tmp_path / "mixed", {"train.parquet": parquet(text=["a"]), "test.csv": b"text\nb\n"})
    assert_refused(str(folder), "mixed' cannot be read: Couldn't infer the same data file format")


def test_folder_without_the_split_says_which_there_are(tmp_path):
    folder = lay_out(tmp_path / "set", {"train.txt": b"a", "validation.txt": b"b"})
    assert_refused(folder, "no split 'test', only train, validation. Type .*set#split=", "evaluation")
    assert_refused(f"{folder}#split=validatoin", "Type for example .*set#split=validation")


def test_configurations(tmp_path, parquet):
    rows = {name: parquet(text=[name]) for name in ("small/train-0", "small/more-1", "a/b/deep", "large/test-0")}
    folder = lay_out(tmp_path / "set", {f"{name}.parquet": content for name, content in rows.items()})
    (folder / "README.md").write_text(CARD)
    assert read(f"{folder}#config=small") == ["small/train-0"]
    assert sorted(read(f"{folder}#config=small&split=extra")) == ["a/b/deep", "small/more-1"]
    assert read(f"{folder}#config=large", "evaluation") == ["large/test-0"]
    assert_refused(str(folder), "has several configurations: small, large. Type .*config=small")
    assert_refused(f"{folder}#config=smal", "has no configuration 'smal': small, large. Type .*config=small")
    (folder / "README.md").write_text(CARD.replace("config_name: small", "config_name: small\n  default: true"))
    assert read(str(folder)) == ["small/train-0"]
    (folder / "README.md").write_text("---\nconfigs: [\n---\n")
    assert_refused(f"{folder}#config=small", "set' cannot be read: while parsing a flow node")
    (folder / "README.md").write_text("# no header\n")
    assert sorted(read(f"{folder}#config=small")) == ["small/train-0"]
    assert_refused(f"{folder}#config=big", "set/big' cannot be read: .*doesn't contain any data files")


def test_folder_saved_to_disk(tmp_path):
    rows = datasets.Dataset.from_dict({"text": [f"row {i}" for i in range(5)], "id": list(range(5))})
    both = datasets.DatasetDict(train=rows.select([3, 1]), held_out=rows.select([0]))
    both.save_to_disk(str(tmp_path / "both"), num_shards={"train": 2, "held_out": 1})
    assert read(str(tmp_path / "both")) == ["row 3", "row 1"]
    assert read(f"{tmp_path}/both#split=held_out") == ["row 0"]
    assert len(resolve(str(tmp_path / "both"), "calibration").files) == 2
    assert_refused(tmp_path / "both", "no split 'test', only train, held_out", "evaluation")
    rows.save_to_disk(str(tmp_path / "single"))
    assert read(str(tmp_path / "single")) == [f"row {i}" for i in range(5)]
    (tmp_path / "both" / "train" / "state.json").write_text("{}")
    assert_refused(str(tmp_path / "both"), "both' cannot be read")


@pytest.mark.process
def test_reading_a_text_loads_no_torch(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", {"text": "one"})
    code = f"""import os, sys
from gprune.data import texts
print(texts.describe({str(file)!r}), 'torch' in sys.modules, os.environ.get('USE_TORCH'))"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "file a.jsonl, 1 documents, 3 characters, the field text False None"


@pytest.mark.parametrize("name", ["text", "json", "csv"])
def test_folder_that_is_called_like_a_reader_is_that_folder(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "other.jsonl", {"text": "another"})
    (tmp_path / name).mkdir()
    write_lines(tmp_path / name / "train.jsonl", {"text": "one"}, {"text": "two"})
    assert read(name) == ["one", "two"]


def test_folder_whose_name_is_a_pattern_does_not_read_its_neighbours(tmp_path):
    for name in ("d1", "d*", "d[1]"):
        (tmp_path / name).mkdir()
        write_lines(tmp_path / name / "train.jsonl", {"text": name})
    assert read(tmp_path / "d1") == ["d1"]
    for name in ("d*", "d[1]"):
        assert_refused(tmp_path / name, "as a pattern: rename the folder")
