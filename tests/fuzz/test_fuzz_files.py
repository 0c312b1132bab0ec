"""Files that the command line and a run read: read or refused with an error of ours, whatever is in them."""

import gzip
import json
from typing import Any

import datasets
import pytest
from fuzz import odd
from hypothesis import strategies as st

from gprune.app.preview.worker import messages
from gprune.data.texts import naming, source
from gprune.evaluation import tasks
from gprune.models import families, identity
from gprune.models.export import pruning_file
from gprune.pipeline import runs
from gprune.study import from_dict, from_file
from gprune.study.fields import assignment
from gprune.system import safe_parsing

pytestmark = pytest.mark.slow

STUDY = from_dict({"model": "demo", "primary": "python-reference", "auxiliary": "science-docs"})
QUESTION = {"question": "two and two is", "choices": ["four", "five"], "answer": 0}
STANDARD = {
    "passage": "p",
    "question": "q",
    "label": 1,
    "goal": "g",
    "sol1": "a",
    "sol2": "b",
    "ctx_a": "c",
    "ctx_b": "d",
    "activity_label": "e",
    "endings": ["f", "g"],
    "sentence": "the _ h",
    "option1": "i",
    "option2": "j",
    "answer": "1",
    "choices": {"text": ["k", "l"], "label": ["A", "B"]},
    "answerKey": "A",
    "question_stem": "m",
}
PRUNING = {
    "source": "demo",
    "fingerprint": "0" * 64,
    "run": "demo-1",
    "method": "flap",
    "retention": 0.5,
    "target": 0.5,
    "repairs": ["bias_compensation"],
    "recovery": "",
    "trained": False,
    "padded": False,
    "neurons": 4,
    "key_value_groups": 2,
    "kept_neurons": [[0, 1], [2, 3]],
    "kept_key_value_groups": [[0], [1]],
    "probe_tokens": [0, 1],
    "probe_logits": [0.5, -0.5],
    "study": {},
}
CONFIG = {"model_type": "llama", "dtype": "float32", "intermediate_size": 8, "vocab_size": 9, "auto_map": {}}
INDEX = {"metadata": {"total_size": 9}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
RECORD = {
    "run": "demo-0123456789",
    "study": STUDY.to_dict(),
    "state": "done",
    "until": None,
    "error": None,
    "started": "2026-01-31T12:00:00+00:00",
    "seconds": 1.5,
    "expected": {"tokens": 1.0},
    "stages": {"tokens": {"key": "0" * 32, "seconds": 0.5, "reused": False}},
    "texts": {"A": "words"},
    "missing_tasks": {},
    "unavailable": {},
    "result": {"retention": 0.5},
    "provenance": {"inputs": {"model": "a", "calibration": {"A": "b"}}, "commit": "c"},
}
MASKS = {"shape": [2, 4], "bits": "/w=="}
MESSAGE = {
    "id": 1,
    "masks": {"ffn": MASKS, "heads": MASKS},
    "losses": [1.5, 2.0],
    "problem": "",
    "ready": True,
}


def test_json_and_paths(fuzz, tmp_path):
    soup = st.lists(
        st.sampled_from(["[", "]", "{", "}", ",", ":", '"a"', "1", "-", "e", "NaN", *odd.RAW.values()])
    ).map("".join)
    fuzz(
        st.binary(max_size=80) | odd.values.map(odd.written) | soup,
        lambda data: safe_parsing.json_value(data, "the file"),
    )
    (tmp_path / "here").write_text("")

    def read(name):
        if isinstance(name, str):
            safe_parsing.path(name, "the model")
        place = safe_parsing.inside(tmp_path, name, "the index").resolve()
        assert place.is_relative_to(tmp_path.resolve())

    parts = st.lists(
        st.sampled_from(["..", ".", "/", "here", "~", "~root", "\0", "\ud800", "a" * 300, " "]), max_size=8
    )
    fuzz(odd.scalars | parts.map("/".join) | parts.map("".join), read)


def test_study_files_and_settings(fuzz, tmp_path):
    file = tmp_path / "study.json"

    def read(data):
        file.write_bytes(data)
        study = from_file(file)
        assert from_dict(study.to_dict()) == study and len(study.digest) == 64
        study.to_json().encode()

    fuzz(odd.files(STUDY.to_dict()), read)
    fields = st.sampled_from(list(_fields())) | odd.words
    signs = st.sampled_from(["=", "=", "=", "", "=="])
    given = st.tuples(fields, signs, odd.values.map(odd.written) | odd.words).map("".join)
    fuzz(given, lambda word: STUDY.with_settings(dict([assignment(word)])))


def _fields():
    from gprune.study import field_names

    return field_names()


def test_text_names(fuzz, tmp_path, monkeypatch):
    # a folder is a text as well: beside this one stand those of all other tests
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    (inside / "a#b.jsonl").write_text('{"text": "words"}\n')
    sound = st.sampled_from(["documents=0:1", "fields=text", "split=train", "join=blank-line"])
    slices = st.integers(-(10**25), 10**25).map(lambda number: f"documents={number}:")
    pairs = st.tuples(st.sampled_from([*naming.OPTIONS, "x", ""]), st.just("="), odd.words).map("".join)
    options = st.lists(sound | sound | slices | pairs, min_size=1, max_size=2).map("&".join)
    known = ["a#b.jsonl", "a#b.jsonl", "python-code", "wikitext2", "hub:a/b", "hub:", ".", "~nosuchuser"]
    places = st.sampled_from(known) | odd.words
    names = st.tuples(places, st.sampled_from(["#", "#", "", "##"]), options).map("".join)

    def read(name):
        found = source.resolve(name, "calibration")
        if found.kind == "records":
            list(source.documents(found))

    fuzz(names, read)


def test_rows(fuzz, tmp_path):
    def read(case):
        data, suffix, options = case
        file = tmp_path / f"rows{suffix}"
        file.write_bytes(gzip.compress(data) if suffix.endswith(".gz") and not data.startswith(b"\0") else data)
        for document in source.documents(source.resolve(f"{file}{options}", "calibration")):
            assert isinstance(document, str)

    row = {"text": "some words", "id": 1, "meta": {"a": [1.5]}}
    # pyarrow ends the process on tens of thousands of nested objects, and on a null that is compressed
    data = (odd.lines(row) | odd.files([row, row])).filter(
        lambda data: data.count(b"{") < 10_000 and not data.lstrip(b"\xef\xbb\xbf[ \t\r\n").startswith(b"null")
    )
    suffixes = st.sampled_from([".jsonl", ".json", ".txt", ".csv", ".jsonl.gz", ".txt.gz", ".parquet", ".arrow"])
    fuzz(
        st.tuples(data, suffixes, st.sampled_from(["", "", "#fields=text", "#fields=id+text", "#documents=1:2"])),
        read,
    )


def test_saved_datasets(fuzz, tmp_path):
    folder = tmp_path / "set"
    datasets.DatasetDict(train=datasets.Dataset.from_dict({"text": ["words"]})).save_to_disk(str(folder))

    def read(case):
        (folder / "dataset_dict.json").write_bytes(case[0])
        (folder / "train" / "state.json").write_bytes(case[1])
        assert list(source.documents(source.resolve(str(folder), "calibration"))) == ["words"]

    state = json.loads((folder / "train" / "state.json").read_bytes())
    fuzz(st.tuples(odd.files({"splits": ["train"]}), odd.files(state)), read)


def test_task_files_and_task_names(fuzz, tmp_path, monkeypatch):
    # the index of all tasks takes seconds, and a word is compared with thousands of names
    monkeypatch.setattr(tasks.registry, "_full_manager", tasks.registry._paper_manager)
    file = tmp_path / "task.jsonl"

    def read(case):
        file.write_bytes(case[1])
        kind: Any = "own" if case[0] == "own" else "registered"
        found = tasks.read_documents(tasks.TaskSource(case[0], kind, file))
        assert found and all(isinstance(row, dict) for row in found)

    own = st.tuples(st.just("own"), odd.lines(QUESTION))
    fuzz(own | st.tuples(st.sampled_from(sorted(tasks.STANDARD_TASKS)), odd.lines(STANDARD)), read)
    names = st.tuples(odd.words, st.sampled_from(["", ".jsonl", ".parquet"])).map("".join)
    settings = STUDY.evaluation
    fuzz(names, lambda name: tasks.resolve(name, settings))


def test_pruning_records(fuzz, tmp_path):
    def read(data):
        (tmp_path / "pruning.json").write_bytes(data)
        masks = pruning_file.read_record(tmp_path).pruned.masks
        assert masks.ffn.ndim == 2 and masks.ffn.dtype == bool

    fuzz(odd.files(PRUNING), read)


def test_checkpoints(fuzz, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "two.safetensors").write_text("x")
    for name in ("one.safetensors", "two.safetensors"):
        (folder / name).write_text("x")

    def read(case):
        (folder / "config.json").write_bytes(case[0])
        (folder / "model.safetensors.index.json").write_bytes(case[1])
        for file in identity.weight_files(folder):
            assert file.resolve().parent == folder
        families.layout_of(identity.configuration(folder).get("model_type"), "the model")

    fuzz(st.tuples(odd.files(CONFIG), odd.files(INDEX)), read)


def test_run_records_and_messages(fuzz, tmp_path):
    file = tmp_path / "demo-0123456789" / "run.json"
    file.parent.mkdir()

    def read(data):
        file.write_bytes(data)
        record = runs.load(file)
        from_dict(record["study"])

    fuzz(odd.files(RECORD), read)

    def read(data):
        message = messages.read(data)
        if message is not None:
            masks = messages.unpacked(message.get("masks"))
            assert masks.ffn.size <= 8 * len(data)

    fuzz(odd.files(MESSAGE), read)


def test_command_lines(fuzz, tmp_path, capfd):
    from gprune.__main__ import main

    given = st.sampled_from(
        ["--samples", "--retention", "--preset", "--name", "--seed", "--set", "--primary", "--length"]
    )
    given = given | st.sampled_from(["--methods", "--dtype", "--model", "study", "-h"]) | odd.words

    def read(words):
        try:
            code = main(["study", "--model", "demo", *words])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        out, err = capfd.readouterr()
        assert code in (0, 2) and "Traceback" not in err, err
        assert code == 0 or len(err.splitlines()[-1]) <= 340, err

    fuzz(st.lists(given, max_size=5), read)
