"""Dataset folders: which files belong to which split, checked against the datasets library."""

from pathlib import Path

import pytest

from gprune.data.texts.layout import splits_of
from gprune.data.texts.naming import parse
from gprune.data.texts.source import documents, resolve
from gprune.system.errors import CorpusError

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


def read(text: str, role: str = "calibration") -> list[str]:
    return list(documents(resolve(text, role)))  # type: ignore[arg-type]


def lay_out(folder: Path, files: dict[str, bytes]) -> Path:
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
    assert read(str(folder)) == ["a", "b", "c"]
    assert read(str(folder), "evaluation") == ["d"]
    assert read(f"{folder}#documents=1:3") == ["b", "c"]
    assert read(f"{folder}/#split=test") == ["d"]


def test_folder_without_the_split_says_which_there_are(tmp_path):
    folder = lay_out(tmp_path / "set", {"train.txt": b"a", "validation.txt": b"b"})
    with pytest.raises(CorpusError, match="no split 'test', only train, validation. Type .*set#split="):
        read(str(folder), "evaluation")
    with pytest.raises(CorpusError, match="Type for example .*set#split=validation"):
        read(f"{folder}#split=validatoin")


def test_configurations(tmp_path, parquet):
    folder = lay_out(tmp_path / "set", {"small/train.parquet": parquet(text=["row"])})
    (folder / "README.md").write_text(CARD)
    with pytest.raises(CorpusError, match="has several configurations: small, large. Type .*config=small"):
        read(str(folder))
    with pytest.raises(CorpusError, match="has no configuration 'smal': small, large. Type .*config=small"):
        read(f"{folder}#config=smal")
    assert read(f"{folder}#config=small") == ["row"]
    (folder / "README.md").write_text("---\nconfigs: [\n---\n")
    with pytest.raises(CorpusError, match="README.md' is not valid YAML"):
        read(f"{folder}#config=small")
    (folder / "README.md").write_text("# no header\n")
    assert read(f"{folder}#config=small") == ["row"]
    with pytest.raises(CorpusError, match="no configuration or folder 'big'; its folders are small"):
        read(f"{folder}#config=big")


def test_default_configuration_and_forms_of_data_files():
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
    assert read(str(tmp_path / "both")) == ["row 3", "row 1"]
    assert read(f"{tmp_path}/both#split=held_out") == ["row 0"]
    with pytest.raises(CorpusError, match="no split 'test', only train, held_out"):
        read(str(tmp_path / "both"), "evaluation")
    rows.save_to_disk(str(tmp_path / "single"))
    assert read(str(tmp_path / "single")) == [f"row {i}" for i in range(5)]
    (tmp_path / "both" / "train" / "state.json").write_text("{}")
    with pytest.raises(CorpusError, match="both' is damaged"):
        read(str(tmp_path / "both"))


def test_folder_of_text_files_keeps_them_whole(tmp_path):
    folder = lay_out(tmp_path / "wiki", {"wiki.train.raw": b" a \n\n b \n", "wiki.valid.raw": b"c"})
    assert read(str(folder)) == [" a \n\n b \n"]
    assert read(f"{folder}#split=validation") == ["c"]
    with pytest.raises(CorpusError, match="wiki.valid.raw' has no fields: leave out fields=text"):
        read(f"{folder}#split=validation&fields=text")
