"""Files of the seven tasks as people have them: read row for row, and measured as lm-eval measures them."""

import json
import re

import pytest
import tiny_study
from evaluation.lm_eval_alone import by_lm_eval_alone
from evaluation.original_files import FORMS, SETS, documented
from evaluation.task_files import ROWS, SPLITS, row, write_rows, write_seven

from gprune.__main__ import main
from gprune.evaluation.accuracy import answered
from gprune.evaluation.tasks import STANDARD_TASKS, documents, doubt, fingerprint, known, own, resolve
from gprune.evaluation.tasks.reading import SIZES
from gprune.models.loading import load
from gprune.study import EvaluationSettings
from gprune.system.errors import CorpusError


def accuracy(*arguments, **options):
    return {task: each.accuracy for task, each in answered(*arguments, **options).items()}


def in_folder(folder):
    return EvaluationSettings(task_folder=str(folder))


def read(task, folder):
    return documents(resolve(task, in_folder(folder)))


@pytest.mark.parametrize(("task", "form"), FORMS)
def test_every_form_gives_the_documents_of_the_hub(task, form, tmp_path):
    file = FORMS[task, form](task, tmp_path, 9)
    found = resolve(task, in_folder(tmp_path))
    assert found.file == file
    assert documents(found) == [row(task, number) for number in range(9)]
    assert fingerprint(found) == fingerprint(resolve(task, in_folder(write_seven(tmp_path / "plain", rows=9))))


@pytest.mark.parametrize(
    "forms", [*SETS[:2], pytest.param(SETS[2], marks=pytest.mark.long)], ids=["authors", "others", "hub"]
)
def test_accuracies_are_those_of_lm_eval_alone_on_the_same_rows(forms, tmp_path):
    texts = tiny_study.write_texts(tmp_path / "texts")
    decoder = load(tiny_study.write_model(tmp_path / "model", texts))
    for task, form in forms.items():
        FORMS[task, form](task, tmp_path / "data", ROWS)
    found = accuracy(decoder.model, decoder.tokenizer, tuple(SPLITS), in_folder(tmp_path / "data"))
    expected = by_lm_eval_alone(decoder, write_seven(tmp_path / "canonical"), tmp_path / "plain")
    assert list(found) == list(SPLITS)
    for task, result in found.items():
        assert (result.acc, result.samples) == (expected[task]["acc,none"], ROWS), task
        if "acc_norm,none" in expected[task]:
            assert result.acc_norm == expected[task]["acc_norm,none"], task


def test_the_title_of_googles_boolq_begins_the_passage_as_in_super_glue(tmp_path):
    line = {"question": "is it wet", "title": "Rain", "answer": True, "passage": "Rain is water."}
    write_rows(tmp_path / "boolq" / "dev.jsonl", [line])
    assert read("boolq", tmp_path) == [{"passage": "Rain -- Rain is water.", "question": "is it wet", "label": 1}]


def test_labels_are_read_only_where_rows_lack_them_and_must_be_as_many(tmp_path):
    file = FORMS["winogrande", "with labels"]("winogrande", tmp_path, 4)
    labels = file.with_name("dev-labels.lst")
    before = fingerprint(resolve("winogrande", in_folder(tmp_path)))
    labels.write_text(labels.read_text().replace("1", "0").replace("2", "1").replace("0", "2"))
    assert [line["answer"] for line in read("winogrande", tmp_path)] == ["2", "1", "2", "1"]
    assert fingerprint(resolve("winogrande", in_folder(tmp_path))) != before
    for more in (3, 5):
        labels.write_text("1\n" * more)
        with pytest.raises(CorpusError, match=f"has 4 rows and 'dev-labels.lst' beside it {more} labels: take"):
            read("winogrande", tmp_path)
    write_rows(file, [row("winogrande", number) for number in range(5)])
    assert [line["answer"] for line in read("winogrande", tmp_path)] == ["1", "2", "1", "2", "1"]
    (tmp_path / "winogrande" / "dev-labels.lst").unlink()
    write_rows(file, [{k: v for k, v in row("winogrande", 0).items() if k != "answer"}])
    with pytest.raises(CorpusError, match="may stand in a file of labels: put it beside as dev-labels.lst"):
        read("winogrande", tmp_path)


@pytest.mark.parametrize(
    ("task", "change", "named"),
    [
        ("boolq", {"passage": 5, "label": 7}, ["text (not 5)", "'passage'", "a number from 0 to 1 (not 7)"]),
        (
            "piqa",
            {"goal": None, "sol1": 3, "sol2": [], "label": "x"},
            ["'goal'", "'sol1'", "'sol2'", "'label'"],
        ),
        (
            "hellaswag",
            {"ctx_a": 1, "ctx_b": 2, "endings": 3, "label": 4.5},
            ["'ctx_a'", "'ctx_b'", "'endings'"],
        ),
        (
            "winogrande",
            {"sentence": "none", "option1": 1, "answer": "3"},
            ["no gap", "'option1'", "'answer'"],
        ),
        (
            "arc_easy",
            {"choices": {"text": 1, "label": 2}, "answerKey": 3},
            ["'text'", "'label'", "'answerKey'"],
        ),
    ],
)
def test_all_wrong_columns_are_named_in_one_sentence(task, change, named, tmp_path):
    write_rows(tmp_path / f"{task}.jsonl", [row(task, 0), {**row(task, 1), **change}])
    with pytest.raises(CorpusError, match=f"the task '{task}': line 2 of ") as caught:
        read(task, tmp_path)
    assert all(words in str(caught.value) for words in named), str(caught.value)


@pytest.mark.parametrize(
    ("task", "rows", "named"),
    [
        (
            "piqa",
            16113,
            "as many as the split train has: piqa is measured on the split validation .1,838 rows",
        ),
        ("winogrande", 640, "as many as the split train_s has"),
        ("arc_easy", 1172, "as many as the split test of arc_challenge has: arc_easy is measured on"),
        ("arc_challenge", 299, "as many as the split validation has"),
    ],
)
def test_rows_that_fit_another_split_are_doubted_by_name(task, rows, named, tmp_path):
    write_rows(tmp_path / f"{task}.jsonl", [row(task, number) for number in range(rows)])
    found = doubt(resolve(task, in_folder(tmp_path)))
    assert re.search(named, found) and f"{rows:,} rows" in found


def test_a_file_that_is_another_one_is_named(tmp_path):
    write_rows(tmp_path / "piqa" / "train.jsonl", [row("piqa", 0)])
    with pytest.raises(CorpusError, match="'piqa' has no data in .*, only piqa/train.jsonl: put one of"):
        resolve("piqa", in_folder(tmp_path))
    file = write_rows(tmp_path / "mine.jsonl", [row("piqa", 0)])
    with pytest.raises(CorpusError, match="These are rows of piqa: give them as that task, in a task folder"):
        documents(resolve(str(file), EvaluationSettings()))
    lines = [{**row("boolq", number), "label": -1} for number in range(SIZES["boolq"]["test"])]
    write_rows(tmp_path / "boolq.jsonl", lines)
    with pytest.raises(CorpusError, match="its 3,245 rows are as many as the split test has: boolq is measured"):
        read("boolq", tmp_path)


def test_the_list_of_tasks_names_file_rows_and_what_is_wrong(tmp_path, capsys):
    for task, form in SETS[0].items():
        FORMS[task, form](task, tmp_path, 3)
    assert main(["tasks", "--task-folder", str(tmp_path)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(lines) == set(known()) and lines["demo_order"].endswith("built in")
    assert lines["piqa"].endswith(f"3 rows, {tmp_path}/piqa/valid.jsonl, labels valid-labels.lst")
    write_rows(tmp_path / "winogrande_1.1" / "dev.jsonl", [row("winogrande", n) for n in range(640)])
    (tmp_path / "BoolQ" / "val.jsonl").unlink()
    assert main(["tasks", "--task-folder", str(tmp_path)]) == 3
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "640 rows" in lines["winogrande"] and "as many as the split train_s has" in lines["winogrande"]
    assert "the task 'boolq' has no data in" in lines["boolq"]


def test_every_example_of_the_documentation_is_read(tmp_path):
    examples = documented()
    assert {task for task, _ in examples} >= set(SPLITS)
    for task, line in examples:
        if task not in SPLITS:
            assert own.check(line)["answer"] == 0
            continue
        labelled = {STANDARD_TASKS[task].answer: "1"} if STANDARD_TASKS[task].answer else {}
        assert STANDARD_TASKS[task].check(labelled | line), json.dumps(line)
