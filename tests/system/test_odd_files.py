"""Files and values that no reader had reckoned with: read, or refused in one sentence, case by case."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest

from gprune.data.texts import source
from gprune.evaluation import tasks
from gprune.models import identity
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, ModelError, UnreadableError

DEEP = "[" * 100_000


@contextmanager
def refused(kind, words):
    """A refusal that is shown as one sentence."""
    with pytest.raises(kind, match=words) as refusal:
        yield refusal
    message = safe_parsing.sentence(refusal.value)
    assert len(message) <= 300 and "\n" not in message


@pytest.mark.parametrize("line", [DEEP, '{"text": ' + DEEP, '{"text": 1e999999}', "[1, 2"])
def test_a_row_that_is_hostile(tmp_path, line):
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n' + line + "\n")
    with refused(CorpusError, "a.jsonl' cannot be read"):
        list(source.read_documents(source.resolve(f"{tmp_path}/a.jsonl", "calibration")))


def snapshot(tmp_path):
    """A model as the hub's cache keeps it: files are links to blobs."""
    home = tmp_path / "models--owner--name"
    folder = home / "snapshots" / "0123abcd"
    folder.mkdir(parents=True)
    (home / "blobs").mkdir()
    for number, name in enumerate(("config.json", identity.INDEX_FILE, "one.safetensors", "tokenizer.json")):
        (home / "blobs" / str(number)).write_text('{"weight_map": {"a": "one.safetensors"}}')
        (folder / name).symlink_to(Path("..", "..", "blobs", str(number)))
    return folder


def test_the_hubs_own_links_are_followed(tmp_path):
    folder = snapshot(tmp_path)
    assert identity.configuration(folder) and len(identity.weight_files(folder)) == 2
    assert len(identity.fingerprint(str(folder))) == len(identity.tokenizer_fingerprint(str(folder))) == 64


@pytest.mark.parametrize("name", [3, ["a"], None])
def test_a_weight_map_that_names_no_files(tmp_path, name):
    (tmp_path / identity.INDEX_FILE).write_text(json.dumps({"weight_map": {"a": name}}))
    with refused(ModelError, "index.json' cannot be read .*copy the model again"):
        identity.weight_files(tmp_path)


@pytest.mark.parametrize("content", [DEEP, '{"a": ' + "9" * 5000 + "}", "[]", '{"a": 1', "\0"])
def test_a_configuration_that_is_hostile(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with refused(ModelError, "config.json' .*copy the model again"):
        identity.configuration(tmp_path)


ANSWERS = ["9" * 5000, "²", 10**18, -1, [0], {"a": DEEP[:30]}]
QUESTIONS = {
    "piqa": {"goal": "g", "sol1": "a", "sol2": "b"},
    # where SuperGLUE writes true and false
    "boolq": {"passage": "p", "question": "q"},
}


@pytest.mark.parametrize(
    ("task", "answer"), [*((task, answer) for task in QUESTIONS for answer in ANSWERS), ("piqa", True)]
)
def test_an_answer_that_is_none(tmp_path, task, answer):
    (tmp_path / "task.jsonl").write_text(json.dumps(QUESTIONS[task] | {"label": answer}))
    with refused(CorpusError, "in the column 'label', which must be one of"):
        tasks.read_documents(tasks.TaskSource(task, "registered", tmp_path / "task.jsonl"))


REFUSED = {
    "deep lists": "[" * 100_000 + "]" * 100_000,
    "a number of 5,000 digits": "9" * 5000,
    "not a number": "[NaN]",
    "infinity": "[-Infinity]",
    "half a file": '{"a": [1, 2',
    "no text": b"\xff\xfe\x00",
    "nothing": b"",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_hostile_json_is_refused_in_one_sentence_that_names_it(data):
    with pytest.raises(UnreadableError) as refusal:
        safe_parsing.json_value(data, "the file 'a.json'")
    message = str(refusal.value)
    assert message.startswith("the file 'a.json' ") and len(message) <= 300 and "\n" not in message


def test_a_sentence_keeps_its_remedy_and_a_value_its_ends():
    long = safe_parsing.sentence("The start. " + "x" * 1000 + " do this instead")
    assert len(long) <= 300 and long.startswith("The start.") and long.endswith("do this instead")
    assert len(safe_parsing.quote("y" * 1000)) == 80


def test_the_nearest_name_is_told_and_nothing_where_none_is_near():
    assert safe_parsing.closest("retentoin", iter(["retention", "repair"])) == "retention"
    assert safe_parsing.did_you_mean("retentoin", {"retention": 1}) == " (did you mean retention?)"
    assert safe_parsing.closest("zzzz", ["retention"]) == safe_parsing.did_you_mean("zzzz", []) == ""


def test_words_of_any_length_are_compared_by_their_beginning():
    assert safe_parsing.closest("a" * 200 + "b" * 10_000_000, ["a" * 200]) == "a" * 200
