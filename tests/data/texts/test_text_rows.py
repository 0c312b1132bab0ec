"""Files and their fields: what is read, and one clear sentence for what cannot be."""

import gzip
import json
import os
from pathlib import Path

import pyarrow
import pytest

from gprune.data.texts.layout import splits_of
from gprune.data.texts.naming import parse
from gprune.data.texts.source import documents, resolve
from gprune.system.errors import CorpusError


def read(text):
    return list(documents(resolve(str(text), "calibration")))


def write_lines(file, *records):
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
    with pytest.raises(CorpusError, match="byte 0xe9 at offset 4. .*iconv -f ISO-8859-1 -t UTF-8 .*latin.txt"):
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

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CorpusError, match="a.txt' cannot be read: Permission denied"):
        read(tmp_path / "a.txt")


def test_fields_are_joined_in_the_order_given_or_of_the_file(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", {"text": "T", "a": "A", "b": "B"}, {"a": None, "b": "C"})
    assert read(f"{file}#fields=b+a") == ["BA", "C"]
    assert read(f"{file}#fields=b") == ["B", "C"]
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


def test_what_is_no_text_is_refused(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"PK\x03\x04\x00\x00words")
    with pytest.raises(CorpusError, match="model.bin' is a binary file, not text"):
        read(tmp_path / "model.bin")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorpusError, match="neither a file nor a folder"):
        read(tmp_path / "pipe")
    file = write_lines(tmp_path / "a.jsonl", {"text": "one"}, {"text": "two"})
    with pytest.raises(CorpusError, match="documents=2:9 .* selects none of its 2 documents"):
        read(f"{file}#documents=2:9")
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n\n{"text": oops}\n')
    with pytest.raises(CorpusError, match="line 3 of .*a.jsonl' is not JSON"):
        read(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n"just text"\n')
    with pytest.raises(CorpusError, match="line 2 of .* holds a str, not an object"):
        read(tmp_path / "b.jsonl")


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


def read_folder(text, role="calibration"):
    return list(documents(resolve(text, role)))  # type: ignore[arg-type]


def lay_out(folder, files):
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


LAYOUTS = {
    "names": ["train.txt", "test.txt"],
    "shards": [
        "data/train-00001-of-00002.txt",
        "data/train-00000-of-00002.txt",
        "data/validation-00000-of-00001.txt",
    ],
    "folders": ["train/a.txt", "train/b.txt", "dev/c.txt"],
    "synonyms": ["my-valid.txt", "my_training.txt", "eval.txt"],
    "one": ["notes.txt"],
    "config folder": ["penn/train/0000.txt", "penn/test/0000.txt"],
}


@pytest.mark.parametrize("paths", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_split_words_agree_with_the_datasets_library(tmp_path, paths):
    datasets = pytest.importorskip("datasets")
    folder = lay_out(tmp_path / "set", {path: path.encode() for path in paths})
    builder = datasets.load_dataset_builder(str(folder), cache_dir=str(tmp_path / "cache"))
    oracle = {str(split): sorted(files) for split, files in builder.config.data_files.items()}
    splits = splits_of(paths, {}, parse("x"))
    assert {split: [str(folder / path) for path in found] for split, found in splits.items()} == oracle


def test_card_agrees_with_the_datasets_library(tmp_path, parquet):
    datasets = pytest.importorskip("datasets")
    rows = parquet(text=["row"])
    names = ["small/train-0", "small/more-1", "a/b/deep", "large/train-0", "large/test-0"]
    folder = lay_out(tmp_path / "set", {f"{name}.parquet": rows for name in names})
    (folder / "README.md").write_text(CARD)
    for config, split_names in {"small": ("train", "extra"), "large": ("train", "test")}.items():
        builder = datasets.load_dataset_builder(str(folder), config, cache_dir=str(tmp_path / "cache"))
        for split in split_names:
            found = resolve(f"{folder}#config={config}&split={split}", "calibration").files
            assert sorted(map(str, found)) == sorted(builder.config.data_files[split])


def test_folder_of_parquet_and_jsonl(tmp_path, parquet):
    files = {
        "train-00000-of-00002.parquet": parquet(text=["a", "b"]),
        "train-00001-of-00002.parquet": parquet(text=["c"]),
        "test.jsonl": b'{"text": "d"}\n',
        "state.json": b"{}",
        ".git/train.txt": b"hidden",
    }
    folder = lay_out(tmp_path / "set", files)
    assert read_folder(str(folder)) == ["a", "b", "c"]
    assert read_folder(str(folder), "evaluation") == ["d"]
    assert read_folder(f"{folder}#documents=1:3") == ["b", "c"]
    assert read_folder(f"{folder}/#split=test") == ["d"]


def test_folder_without_the_split_says_which_there_are(tmp_path):
    folder = lay_out(tmp_path / "set", {"train.txt": b"a", "validation.txt": b"b"})
    with pytest.raises(CorpusError, match="no split 'test', only train, validation. Type .*set#split="):
        read_folder(str(folder), "evaluation")
    with pytest.raises(CorpusError, match="Type for example .*set#split=validation"):
        read_folder(f"{folder}#split=validatoin")


def test_configurations_and_default_configuration_and_forms_of_data_files(tmp_path, parquet):
    folder = lay_out(tmp_path / "set", {"small/train.parquet": parquet(text=["row"])})
    (folder / "README.md").write_text(CARD)
    with pytest.raises(CorpusError, match="has several configurations: small, large. Type .*config=small"):
        read_folder(str(folder))
    with pytest.raises(CorpusError, match="has no configuration 'smal': small, large. Type .*config=small"):
        read_folder(f"{folder}#config=smal")
    assert read_folder(f"{folder}#config=small") == ["row"]
    (folder / "README.md").write_text("---\nconfigs: [\n---\n")
    with pytest.raises(CorpusError, match="README.md' is not valid YAML"):
        read_folder(f"{folder}#config=small")
    (folder / "README.md").write_text("# no header\n")
    assert read_folder(f"{folder}#config=small") == ["row"]
    with pytest.raises(CorpusError, match="no configuration or folder 'big'; its folders are small"):
        read_folder(f"{folder}#config=big")
    paths = ["a/x.jsonl", "b/x.jsonl", "b/c/x.jsonl"]
    for data_files, expected in (
        ("a/*.jsonl", {"train": ["a/x.jsonl"]}),
        (["a/*", "b/*"], {"train": ["a/x.jsonl", "b/x.jsonl"]}),
        ({"test": "b/**"}, {"test": ["b/c/x.jsonl", "b/x.jsonl"]}),
        ([{"split": "t", "path": "?/x.jsonl"}], {"t": ["a/x.jsonl", "b/x.jsonl"]}),
        ([{"split": "t", "path": "./b/[xc]/x.jsonl"}], {"t": ["b/c/x.jsonl"]}),
    ):
        configs = [
            {"config_name": "other", "data_files": "*"},
            {"config_name": "mine", "default": True, "data_files": data_files},
        ]
        assert splits_of(paths, {"configs": configs}, parse("x")) == expected


def test_folder_saved_to_disk(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"text": [f"row {i}" for i in range(5)], "id": list(range(5))})
    both = datasets.DatasetDict(train=rows.select([3, 1]), held_out=rows.select([0]))
    both.save_to_disk(str(tmp_path / "both"), num_shards={"train": 2, "held_out": 1})
    assert read_folder(str(tmp_path / "both")) == ["row 3", "row 1"]
    assert read_folder(f"{tmp_path}/both#split=held_out") == ["row 0"]
    with pytest.raises(CorpusError, match="no split 'test', only train, held_out"):
        read_folder(str(tmp_path / "both"), "evaluation")
    rows.save_to_disk(str(tmp_path / "single"))
    assert read_folder(str(tmp_path / "single")) == [f"row {i}" for i in range(5)]
    (tmp_path / "both" / "train" / "state.json").write_text("{}")
    with pytest.raises(CorpusError, match="both' is damaged"):
        read_folder(str(tmp_path / "both"))


def test_folder_of_text_files_keeps_them_whole(tmp_path):
    folder = lay_out(tmp_path / "wiki", {"wiki.train.raw": b" a \n\n b \n", "wiki.valid.raw": b"c"})
    assert read_folder(str(folder)) == [" a \n\n b \n"]
    assert read_folder(f"{folder}#split=validation") == ["c"]
    with pytest.raises(CorpusError, match="wiki.valid.raw' has no fields: leave out fields=text"):
        read_folder(f"{folder}#split=validation&fields=text")
