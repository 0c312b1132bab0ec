"""Where the documents of tasks are found, and what is said of files and rows that a task cannot use."""

import json
from pathlib import Path

import pytest
from evaluation.task_files import SPLITS, row, write_rows, write_seven

from gprune.__main__ import main
from gprune.evaluation.tasks import available, fingerprint, known, read_documents, registry, resolve
from gprune.evaluation.tasks.rows import OWN_COLUMNS, STANDARD_TASKS, check_row
from gprune.study import EvaluationSettings
from gprune.system.errors import CorpusError, SettingsError

GOOD = {"question": "The opposite of hot is", "choices": ["cold", "warm"], "answer": 0}


def in_folder(folder):
    return EvaluationSettings(task_folder=str(folder))


def read(task, settings):
    return read_documents(resolve(task, settings))


@pytest.mark.parametrize("source", ["{}.jsonl", "{}.parquet", "{}/{}.jsonl", "{}/{}.parquet"])
@pytest.mark.parametrize("task", SPLITS)
def test_every_place_and_form_gives_the_same_documents(task, source, tmp_path):
    rows = [row(task, number) for number in range(3)]
    write_rows(tmp_path / source.format(task, SPLITS[task]), [{**line, "ind": 1} for line in rows])
    plain = write_seven(tmp_path / "plain", rows=3)
    assert read(task, in_folder(tmp_path)) == read(task, in_folder(plain)) == rows
    actual, expected = (resolve(task, in_folder(folder)) for folder in (tmp_path, plain))
    assert fingerprint(actual) == fingerprint(expected)


@pytest.mark.parametrize(("task", "column"), [(task, column) for task in SPLITS for column in row(task, 0)])
def test_missing_column_is_named_with_task_file_and_line(task, column, tmp_path):
    rows = [row(task, number) for number in range(3)]
    del rows[1][column]
    file = write_rows(tmp_path / f"{task}.jsonl", rows)
    with pytest.raises(CorpusError) as caught:
        read(task, in_folder(tmp_path))
    message = str(caught.value)
    assert f"the task '{task}': line 2 of '{file}' lacks the column '{column}'; it has " in message
    assert all(other in message for other in rows[1])


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("boolq", {"label": -1}, "holds -1 in the column 'label', which must be a number from 0 to 1"),
        ("boolq", {"label": "yes"}, "holds 'yes' in the column 'label', which must be a number from 0 to 1"),
        ("piqa", {"label": True}, "holds True in the column 'label'"),
        ("boolq", {"passage": None}, "holds None in the column 'passage', which must be text"),
        ("piqa", {"label": 2}, "holds 2 in the column 'label'"),
        ("hellaswag", {"label": ""}, "holds '' in the column 'label', which must be a number from 0 to 3"),
        ("hellaswag", {"endings": "one"}, "holds 'one' in the column 'endings', which must be a list"),
        ("winogrande", {"answer": "3"}, "holds '3' in the column 'answer', which must be one of 1, 2"),
        ("winogrande", {"sentence": "No gap."}, "in the column 'sentence', which must be text with a gap, written _"),
        (
            "arc_easy",
            {"answerKey": "E"},
            "holds 'E' in the column 'answerKey', which must be one of A, B, C, D",
        ),
        ("arc_challenge", {"choices": ["a", "b"]}, "in the column 'choices', which must be an object like"),
        (
            "openbookqa",
            {"choices": {"text": ["a", "b"], "label": ["A", "B", "C"]}},
            "as many entries in text",
        ),
        ("openbookqa", {"choices": {"text": ["a", "b"]}}, "in the column 'choices', which must be an object like"),
    ],
)
def test_wrong_value_is_named_with_its_rule(task, change, message, tmp_path):
    write_rows(tmp_path / f"{task}.jsonl", [row(task, 0), {**row(task, 1), **change}])
    with pytest.raises(CorpusError, match=f"the task '{task}': line 2 of ") as caught:
        read(task, in_folder(tmp_path))
    assert message in str(caught.value)


def test_answers_are_read_in_each_form_the_datasets_use(tmp_path):
    spaced = {**row("openbookqa", 0), "answerKey": " A"}
    write_rows(tmp_path / "openbookqa.jsonl", [spaced])
    write_rows(tmp_path / "hellaswag.jsonl", [{**row("hellaswag", 1), "label": 1}])
    assert read("openbookqa", in_folder(tmp_path))[0]["answerKey"] == "A"
    assert read("hellaswag", in_folder(tmp_path))[0]["label"] == "1"


def test_missing_file_is_named_with_every_place_looked_at(tmp_path):
    with pytest.raises(CorpusError, match="the task 'arc_easy' has no data in ") as caught:
        resolve("arc_easy", in_folder(tmp_path))
    places = "arc_easy.jsonl, arc_easy.parquet, arc_easy/test.jsonl, arc_easy/test.parquet"
    assert str(tmp_path) in str(caught.value) and places in str(caught.value)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("hellaswg", "there is no task 'hellaswg': did you mean hellaswag?"),
        (
            "zzz",
            "known: demo_continuation, .*, openbookqa.*A file of your own questions ends in .jsonl",
        ),
    ],
)
def test_unknown_task_is_refused(task, message):
    with pytest.raises(SettingsError, match=message):
        resolve(task, EvaluationSettings())


def test_own_task_takes_an_index_or_the_choice_itself(tmp_path):
    digits = {"question": "2 + 2 =", "choices": ["4", "0"], "answer": "0"}
    task = str(write_rows(tmp_path / "own.jsonl", [GOOD, {**GOOD, "answer": "warm", "id": 7}, digits]))
    assert [line["answer"] for line in read(task, EvaluationSettings())] == [0, 1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": 2}, "holds 2 in the column 'answer', which must be a number from 0 to 1"),
        ({"answer": -1}, "holds -1 in the column 'answer'"),
        ({"answer": 0.0}, "holds 0.0 in the column 'answer'"),
        ({"answer": "hot"}, "holds 'hot' in the column 'answer', which must be one of cold, warm"),
        ({"choices": ["cold"]}, "which must be a list of at least 2 texts"),
        ({"choices": ["cold", 3]}, "which must be a list of at least 2 texts"),
        ({"choices": ["cold", " "]}, "which must be a list of at least 2 texts, none empty and none twice"),
        ({"choices": ["cold", "cold"]}, "which must be a list of at least 2 texts, none empty and none twice"),
        ({"question": 5}, "holds 5 in the column 'question', which must be text"),
    ],
)
def test_wrong_own_question_is_named_with_its_line(change, message, tmp_path):
    file = write_rows(tmp_path / "own.jsonl", [GOOD, GOOD, {**GOOD, **change}])
    with pytest.raises(CorpusError, match=f"line 3 of '{file}'") as caught:
        read(str(file), EvaluationSettings())
    assert message in str(caught.value)


def test_empty_missing_and_damaged_files_are_named(tmp_path):
    empty = write_rows(tmp_path / "empty.jsonl", [])
    with pytest.raises(CorpusError, match=f"'{empty}' is empty, it must hold one question a line"):
        read(str(empty), EvaluationSettings())
    with pytest.raises(CorpusError, match="there is no file '.*nowhere.jsonl'"):
        read(str(tmp_path / "nowhere.jsonl"), EvaluationSettings())
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(json.dumps(GOOD) + "\n{'question': 1}\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=f"line 2 of '{damaged}' is not JSON"):
        read(str(damaged), EvaluationSettings())


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """An empty cache of datasets, and a hub that cannot be reached; gives the cache."""
    import datasets

    cache = tmp_path / "datasets"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(cache))
    monkeypatch.setattr(registry, "_probe_hub", lambda _: False)
    return cache


def test_without_a_network_only_what_is_cached_is_available(hub):
    (hub / "allenai___openbookqa").mkdir(parents=True)
    reasons = available(tuple(SPLITS), EvaluationSettings())
    assert [task for task, reason in reasons.items() if not reason] == ["openbookqa"]
    assert reasons["hellaswag"] == (
        "the task 'hellaswag' has no data: its dataset Rowan/hellaswag is not on this machine and the hub cannot be "
        "reached. Run it once with a network, set evaluation.task_folder to a folder with hellaswag.jsonl, or leave "
        "the task out"
    )


def test_with_a_network_tasks_are_available_and_nothing_is_fetched_to_see_that(hub, monkeypatch):
    monkeypatch.setattr(registry, "_probe_hub", lambda _: True)
    assert set(available(tuple(SPLITS), EvaluationSettings()).values()) == {""}
    source = resolve("arc_challenge", EvaluationSettings())
    with pytest.raises(CorpusError, match="'arc_challenge' has no local rows"):
        read_documents(source)
    assert len(fingerprint(source, download=False)) == 64
    assert not hub.exists()


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(SettingsError, match="evaluation.task_folder must be a folder .got '.*nowhere'."):
        resolve("boolq", in_folder(tmp_path / "nowhere"))


def test_available_gives_a_reason_for_each_task_that_cannot_be_measured(tmp_path):
    write_rows(tmp_path / "piqa.jsonl", [row("piqa", 0)])
    own = str(write_rows(tmp_path / "own.jsonl", [GOOD]))
    tasks = ("piqa", "boolq", "demo_order", own, str(tmp_path / "none.jsonl"), "nonsense")
    reasons = available(tasks, in_folder(tmp_path))
    assert tuple(reasons) == tasks
    assert [task for task, reason in reasons.items() if not reason] == ["piqa", "demo_order", own]
    assert "'boolq' has no data in" in reasons["boolq"] and "boolq.jsonl" in reasons["boolq"]
    assert "there is no file" in reasons[str(tmp_path / "none.jsonl")]
    assert "there is no task 'nonsense'" in reasons["nonsense"]


def test_the_list_of_tasks_names_file_rows_and_what_is_wrong(tmp_path, capsys):
    write_seven(tmp_path, rows=3)
    assert main(["tasks", "--task-folder", str(tmp_path)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(lines) == set(known()) and lines["demo_order"].endswith("built in")
    assert lines["piqa"].endswith(f"3 rows, {tmp_path}/piqa.jsonl")
    (tmp_path / "boolq.jsonl").unlink()
    write_rows(tmp_path / "winogrande.jsonl", [{**row("winogrande", 0), "answer": "3"}])
    assert main(["tasks", "--task-folder", str(tmp_path)]) == 3
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "the task 'boolq' has no data in" in lines["boolq"]
    assert "line 1 of" in lines["winogrande"] and "one of 1, 2" in lines["winogrande"]


def test_every_example_of_the_documentation_is_read(tmp_path):
    lines = [line for line in Path("docs/tasks.md").read_text(encoding="utf-8").splitlines() if line.startswith('{"')]
    rows = [json.loads(line) for line in lines]
    fitting = [[name for name, task in STANDARD_TASKS.items() if set(task.columns) <= set(line)] for line in rows]
    assert {name for names in fitting for name in names} == set(SPLITS)
    for line, names in zip(rows, fitting, strict=True):
        for name in names:
            assert check_row(line, STANDARD_TASKS[name].columns)
    assert check_row(rows[-1], OWN_COLUMNS)["answer"] == 0
