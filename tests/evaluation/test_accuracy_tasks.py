"""Where the documents of tasks are found, and what is said of files and rows that a task cannot use."""

import json
from pathlib import Path

import pytest
from evaluation.task_files import SPLITS, row, write_rows, write_seven

from gprune.__main__ import main
from gprune.evaluation.tasks import fingerprint, listed_tasks, read_documents, resolve
from gprune.evaluation.tasks.rows import STANDARD_TASKS, check_prompt, check_question
from gprune.study import EvaluationSettings
from gprune.system.errors import CorpusError, SettingsError

GOOD = {"question": "The opposite of hot is", "choices": ["cold", "warm"], "answer": 0}


def in_folder(folder):
    return EvaluationSettings(task_folder=str(folder))


def read(task, settings):
    return read_documents(resolve(task, settings))


@pytest.mark.parametrize("task", SPLITS)
def test_further_columns_change_nothing(task, tmp_path):
    rows = [row(task, number) for number in range(3)]
    write_rows(tmp_path / f"{task}.jsonl", [{**line, "ind": 1} for line in rows])
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
        ("boolq", {"label": -1}, "holds -1 in the column 'label', which must be one of 0, 1"),
        ("boolq", {"label": "yes"}, "holds 'yes' in the column 'label', which must be one of 0, 1"),
        ("boolq", {"passage": None}, "lacks the column 'passage'"),
        ("piqa", {"label": 2}, "holds 2 in the column 'label'"),
        ("hellaswag", {"label": ""}, "holds '' in the column 'label', which must be one of 0, 1, 2, 3"),
        ("winogrande", {"answer": "3"}, "holds '3' in the column 'answer', which must be one of 1, 2"),
        ("arc_easy", {"answerKey": "E"}, "holds 'E' in the column 'answerKey', which must be one of A, B, C, D"),
        ("arc_challenge", {"choices": ["a", "b"]}, "has no choices in the format of the hub's rows"),
        ("openbookqa", {"choices": {"text": ["a", "b"]}}, "has no choices in the format of the hub's rows"),
        ("own", {"answer": 2}, "holds 2 in the column 'answer', which must be a number from 0 to 1"),
        ("own", {"answer": -1}, "holds -1 in the column 'answer'"),
        ("own", {"answer": 0.0}, "holds 0.0 in the column 'answer'"),
        ("own", {"answer": "hot"}, "holds 'hot' in the column 'answer', which must be one of cold, warm"),
        ("own", {"choices": ["cold"]}, "which must be a list of at least 2 different texts"),
        ("own", {"choices": ["cold", 3]}, "which must be a list of at least 2 different texts"),
        ("own", {"choices": ["cold", " "]}, "which must be a list of at least 2 different texts, none of them empty"),
        ("own", {"choices": ["cold", "cold"]}, "at least 2 different texts, none of them empty"),
        ("own", {"question": 5}, "holds 5 in the column 'question', which must be text"),
    ],
)
def test_wrong_value_is_named_with_its_line_and_rule(task, change, message, tmp_path):
    file = tmp_path / f"{task}.jsonl"
    name, right = (str(file), GOOD) if task == "own" else (task, row(task, 1))
    write_rows(file, [right, {**right, **change}])
    with pytest.raises(CorpusError, match=f"the task '{name}': line 2 of '{file}'") as caught:
        read(name, in_folder(tmp_path))
    assert message in str(caught.value)


def test_answers_are_read_in_each_form_the_datasets_use(tmp_path):
    spaced = {**row("openbookqa", 0), "answerKey": " A"}
    write_rows(tmp_path / "openbookqa.jsonl", [spaced])
    write_rows(tmp_path / "hellaswag.jsonl", [{**row("hellaswag", 1), "label": 1}])
    assert read("openbookqa", in_folder(tmp_path))[0]["answerKey"] == "A"
    assert read("hellaswag", in_folder(tmp_path))[0]["label"] == "1"


def test_missing_file_or_folder_is_named(tmp_path):
    with pytest.raises(CorpusError, match=f"the task 'arc_easy' has no data in '{tmp_path}': put arc_easy.jsonl there"):
        resolve("arc_easy", in_folder(tmp_path))
    with pytest.raises(SettingsError, match="evaluation.task_folder must be a folder .got '.*nowhere'."):
        resolve("boolq", in_folder(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        pytest.param("hellaswg", "there is no task 'hellaswg': did you mean hellaswag?", marks=pytest.mark.long),
        pytest.param(
            "zzz",
            "known: demo_continuation, .*, openbookqa.*A file of your own questions ends in .jsonl",
            marks=pytest.mark.long,
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


def test_empty_and_damaged_files_are_named(tmp_path):
    empty = write_rows(tmp_path / "empty.jsonl", [])
    with pytest.raises(CorpusError, match=f"'{empty}' is empty: write one question per line"):
        read(str(empty), EvaluationSettings())
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(json.dumps(GOOD) + "\n{'question': 1}\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=f"line 2 of '{damaged}' is not JSON"):
        read(str(damaged), EvaluationSettings())


def test_nothing_is_fetched_to_see_where_a_task_is(monkeypatch, tmp_path):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    source = resolve("arc_challenge", EvaluationSettings())
    with pytest.raises(CorpusError, match="'arc_challenge' has no local rows"):
        read_documents(source)
    assert len(fingerprint(source, download=False)) == 64
    assert not (tmp_path / "datasets").exists()


def list_tasks(capsys, folder, *tasks):
    """Return the exit code of the command `tasks`, and what it prints of each task."""
    exit_code = main(["tasks", *tasks, "--task-folder", str(folder)])
    return exit_code, dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())


def test_the_command_lists_the_rows_of_tasks_or_the_reason_for_none(tmp_path, capsys):
    write_seven(tmp_path, rows=3)
    exit_code, words = list_tasks(capsys, tmp_path)
    assert exit_code == 0 and set(words) == set(listed_tasks()) and words["demo_order"] == "built in"
    assert words["piqa"] == f"3 rows, {tmp_path}/piqa.jsonl"
    (tmp_path / "boolq.jsonl").unlink()
    write_rows(tmp_path / "winogrande.jsonl", [{**row("winogrande", 0), "answer": "3"}])
    own_file, absent_file = str(write_rows(tmp_path / "own.jsonl", [GOOD])), str(tmp_path / "none.jsonl")
    names = ("piqa", "boolq", "winogrande", "demo_order", own_file, absent_file, "nonsense")
    exit_code, words = list_tasks(capsys, tmp_path, *names)
    assert exit_code == 3 and tuple(words) == names and words[own_file] == f"1 rows, {own_file}"
    assert "'boolq' has no data in" in words["boolq"] and "boolq.jsonl" in words["boolq"]
    assert "line 1 of" in words["winogrande"] and "one of 1, 2" in words["winogrande"]
    assert "there is no file" in words[absent_file] and "there is no task 'nonsense'" in words["nonsense"]


def test_every_example_of_the_documentation_is_read(tmp_path):
    lines = [line for line in Path("docs/tasks.md").read_text(encoding="utf-8").splitlines() if line.startswith('{"')]
    rows = [json.loads(line) for line in lines]
    fitting = [[name for name, task in STANDARD_TASKS.items() if set(task.columns) <= set(line)] for line in rows]
    assert {name for names in fitting for name in names} == set(SPLITS)
    for line, names in zip(rows, fitting, strict=True):
        for name in names:
            assert STANDARD_TASKS[name].check_row(line)
    prompts = [row for row in rows if "prompt" in row]
    assert [check_prompt(row)["answer"] for row in prompts] == ["21", "Paris"]
    assert check_question(rows[-1 - len(prompts)])["answer"] == 0
