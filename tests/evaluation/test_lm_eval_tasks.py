"""Any task of lm-eval: few-shot, generative, by its own command, in its last two releases; refused where it must be."""

import json
import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_study
import torch
from evaluation.lm_eval_alone import by_command, write_definition, write_definitions
from evaluation.task_files import OWN, SPLITS, row, write_rows, write_seven
from other_versions import environment_of, install, require_passing

from gprune.__main__ import main
from gprune.analysis import accuracy as analysis
from gprune.analysis import changed_answers
from gprune.evaluation.accuracy import InMemoryModel, measure_tasks, questions
from gprune.evaluation.protocol import of_accuracy
from gprune.evaluation.tasks import fingerprint, loading, resolve
from gprune.models.loading import load
from gprune.study import EvaluationSettings, from_dict, run_name
from gprune.system.errors import Cancelled, CorpusError, NumericsError, SettingsError

OLDER = "0.4.12"
SUMS = [
    {
        "question": f"Tom has {n} apples and buys {n + 1}. How many has he?",
        "answer": f"{n} + {n + 1} = {2 * n + 1}.\n#### {2 * n + 1}",
    }
    for n in range(8)
]
# of own questions, as docs/tasks.md says them
OWN_DEFINITION = {
    "output_type": "multiple_choice",
    "validation_split": "validation",
    "doc_to_text": "question",
    "doc_to_choice": "choices",
    "doc_to_target": "answer",
    "target_delimiter": " ",
    "metric_list": [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")],
}


@pytest.fixture(scope="module")
def demo():
    return load("demo")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = write_seven(tmp_path_factory.mktemp("rows"))
    write_rows(folder / "gsm8k.jsonl", SUMS)
    return folder


def measure(decoder, task, on_progress=lambda *_: None, **settings):
    return measure_tasks(decoder.model, decoder.tokenizer, task, EvaluationSettings(**settings), on_progress)


def test_examples_stand_before_each_question_and_are_other_questions(demo, data, tmp_path):
    plain, visible = (measure(demo, "boolq", task_folder=str(data), few_shot=count) for count in (None, 2))
    for number in range(6):
        alone, text = plain.questions.question_at(number)[0], visible.questions.question_at(number)[0]
        assert text.endswith(alone) and text.count("\nAnswer:") == 3 and text.count(alone) == 1
    assert (plain.accuracy.few_shot, visible.accuracy.few_shot) == (0, 2)
    assert "2-shot" in of_accuracy(visible.accuracy, {}).line and "zero-shot" in of_accuracy(plain.accuracy, {}).line
    assert visible.accuracy.data != plain.accuracy.data and visible.accuracy.samples == 6
    again = questions("boolq", EvaluationSettings(task_folder=str(data), few_shot=2))
    assert [again.question_at(n) for n in range(6)] == [visible.questions.question_at(n) for n in range(6)]
    write_rows(tmp_path / "boolq.jsonl", [row("boolq", 0)])
    with pytest.raises(CorpusError, match="has 1 rows, too few for 2 few-shot examples per question"):
        measure(demo, "boolq", task_folder=str(tmp_path), few_shot=2)


@pytest.mark.slow
def test_a_generative_task_keeps_every_metric_under_its_name_and_every_question(demo, data, monkeypatch):
    said = ["He has 1.\n#### 1", "It is 3", "#### 4", "#### 7", "", "#### 11", "so 13", "#### 0"]
    monkeypatch.setattr(InMemoryModel, "generate_until", lambda self, requests: [said[r.doc_id] for r in requests])
    result = measure(demo, "gsm8k", task_folder=str(data))
    figures = result.accuracy
    assert figures.metric == "exact_match,strict-match" and figures.acc == 3 / 8
    assert figures.metrics == {"exact_match,strict-match": 3 / 8, "exact_match,flexible-extract": 5 / 8}
    assert figures.acc_error == pytest.approx(np.std([1, 0, 0, 1, 0, 1, 0, 0], ddof=1) / math.sqrt(8))
    assert math.isnan(figures.acc_norm) and math.isnan(figures.chance) and figures.is_share
    assert "lm-eval 0.4" in figures.version and figures.samples == 8
    # five examples are the definition's own
    assert result.questions.question_at(1)[0].count("Question:") <= 6
    assert result.questions.question_at(1)[1] == ["1 + 2 = 3.\n#### 3"]
    chosen = changed_answers.choices(result.answers, changed_answers.ACC)
    assert result.answers.scored and chosen.hit.tolist() == [True, False, False, True, False, True, False, False]
    assert analysis.metric_of(figures, "max") == "exact_match,strict-match"
    assert analysis.mean_accuracy([figures], "fixed").value == 3 / 8


@pytest.mark.long
def test_a_generative_task_runs_on_the_demo_reports_and_can_be_cancelled(demo, data):
    steps = []

    def stop(*step):
        steps.append(step)
        if step[0] == 4:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled, match="stopped"):
        measure(demo, "gsm8k", stop, task_folder=str(data), limit=4, batch=2)
    assert steps == [(2, 4, "tasks: answering"), (4, 4, "tasks: answering")]


@pytest.mark.long
def test_fewer_go_through_the_model_where_memory_runs_out_and_the_answers_are_the_same(demo, data, monkeypatch):
    for task, call, halves in (("gsm8k", "generate", [2, 1]), ("piqa", "forward", [4, 2, 1])):
        settings = {"task_folder": str(data), "limit": halves[0], "batch": halves[0]}
        expected, original, sizes, notices = measure(demo, task, **settings), getattr(demo.model, call), [], []

        def short_of_memory(*arguments, original=original, sizes=sizes, **keywords):
            ids = keywords.get("input_ids", arguments[0] if arguments else None)
            sizes.append(len(ids))
            if len(ids) > 1:
                raise torch.OutOfMemoryError("tried to allocate 2.00 GiB")
            return original(*arguments, **keywords)

        monkeypatch.setattr(demo.model, call, short_of_memory)
        result = measure(demo, task, lambda *step, notices=notices: notices.append(step[2]), **settings)
        monkeypatch.undo()
        assert sizes[: len(halves)] == halves and f"memory ran out with {halves[0]} sequences" in notices[0]
        assert (result.accuracy.acc, result.accuracy.metrics) == (expected.accuracy.acc, expected.accuracy.metrics)
        assert result.accuracy.samples == halves[0] and 0 <= result.accuracy.acc <= 1


def test_text_likelihoods_are_measured_and_nan_is_refused(demo):
    from lm_eval.api.instance import Instance

    model = InMemoryModel(demo.model, demo.tokenizer, 2, lambda *_: None)
    texts = ["The river is wide.", "A kettle boils water in the kitchen.", "def read(self):"]
    requests = [Instance("loglikelihood_rolling", {}, (text,), 0) for text in texts]
    likelihoods = model.loglikelihood_rolling(requests)
    for text, likelihood in zip(texts, likelihoods, strict=True):
        ids = torch.tensor([[model.prefix_token_id, *demo.tokenizer.encode(text)]])
        with torch.no_grad():
            logits = demo.model(ids[:, :-1]).logits[0].float().log_softmax(-1)
        expected = sum(float(logits[location, token]) for location, token in enumerate(ids[0, 1:]))
        assert likelihood == pytest.approx(expected, rel=1e-5)
    broken = load("demo")
    broken.model.get_input_embeddings().weight.data.fill_(math.nan)
    with pytest.raises(NumericsError, match="log-likelihood of the text 'The river is wide.' is NaN"):
        InMemoryModel(broken.model, demo.tokenizer, 2, lambda *_: None).loglikelihood_rolling(requests)


@pytest.mark.slow
def test_what_cannot_be_run_is_refused_in_one_sentence(data, demo):
    for task in ("humaneval", "mbpp"):
        with pytest.raises(SettingsError, match=f"the task '{task}' executes code that the model writes"):
            resolve(task, EvaluationSettings())
    with pytest.raises(SettingsError, match="'mmlu' is a group of lm-eval without rows of its own"):
        resolve("mmlu", EvaluationSettings(task_folder=str(data)))
    tiny = load("demo")
    tiny.model.config.max_position_embeddings = 128
    with pytest.raises(CorpusError, match="generates up to 256 tokens and the model reads at most 128"):
        measure(tiny, "gsm8k", task_folder=str(data))


@pytest.mark.slow
def test_a_study_takes_any_name_and_a_run_without_its_data_is_refused_before_it_computes(tmp_path, capsys):
    values = tiny_study.made(tmp_path)
    command = ["study", *(word for name in ("model", "primary", "auxiliary") for word in (f"--{name}", values[name]))]
    assert main([*command, "--tasks", "gsm8k", "--few-shot", "3", "--limit", "20"]) == 0
    saved = capsys.readouterr().out
    study = from_dict(json.loads(saved))
    assert (study.evaluation.tasks, study.evaluation.few_shot, study.evaluation.limit) == (("gsm8k",), 3, 20)
    assert run_name(study) != run_name(study.with_settings({"evaluation.few_shot": None}))
    assert main([*command, "--tasks", "gsm8"]) != 0
    assert "did you mean gsm8k?" in capsys.readouterr().err
    assert main([*command, "--tasks", "humaneval"]) != 0
    assert "executes code that the model writes" in capsys.readouterr().err
    file, cache = tmp_path / "study.json", tmp_path / "cache"
    file.write_text(saved)
    assert main(["run", str(file), "--cache", str(cache)]) != 0
    error = capsys.readouterr().err
    assert "the task 'gsm8k' has no data: " in error
    assert "set evaluation.task_folder to a folder with gsm8k.jsonl" in error
    assert not list(cache.rglob("*.npy"))


@pytest.mark.slow
def test_a_group_is_measured_as_lm_eval_does_and_a_collection_is_named(demo, data, monkeypatch):
    """Over the definitions of a small group of our own, as a manager of lm-eval knows it."""
    from lm_eval.tasks import TaskManager

    folder = data.parent / "group"
    write_definitions(data, folder)
    members = "task: [boolq_plain, winogrande_plain]\n"
    group = f"group: pair\n{members}aggregate_metric_list: [{{metric: acc, weight_by_size: true}}]\n"
    (folder / "pair.yaml").write_text(group)
    (folder / "loose.yaml").write_text(f"group: loose\n{members}")
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    build = loading._build_manager
    monkeypatch.setattr(loading, "_build_manager", lambda of_paper: build(of_paper) if of_paper else manager)
    result = measure(demo, "pair", batch=4)
    parts = [measure(demo, task, task_folder=str(data)) for task in ("boolq", "winogrande")]
    assert result.accuracy.acc == pytest.approx(np.mean([each.accuracy.acc for each in parts]))
    hits = [changed_answers.choices(each.answers, changed_answers.ACC).hit for each in (result, *parts)]
    assert hits[0].tolist() == [*hits[1], *hits[2]] and result.accuracy.samples == 12
    assert result.accuracy.acc_error == pytest.approx(np.std(hits[0], ddof=1) / math.sqrt(12))
    with pytest.raises(SettingsError, match="'loose' is a collection of lm-eval's tasks without a score of its own"):
        measure(demo, "loose")


@pytest.mark.long
@pytest.mark.process
def test_accuracies_are_those_of_lm_evals_command_on_the_exported_folder(tmp_path):
    from gprune import pipeline
    from gprune.store import Store

    data = write_seven(tmp_path / "rows")
    questions, sums = write_rows(tmp_path / "own.jsonl", OWN), write_rows(data / "gsm8k.jsonl", SUMS)
    values = tiny_study.made(tmp_path)
    study = from_dict(values | {"model": "demo", "methods": ["dense", "gprune"]}).with_settings(
        {
            "evaluation.tasks": [*SPLITS, str(questions), "gsm8k"],
            "evaluation.task_folder": str(data),
            "evaluation.batch": 4,
        }
    )
    result = pipeline.run(study, Store(tmp_path / "cache"), tiny_study.silent)
    measured = result["accuracy"]["gprune"]
    definitions = tmp_path / "definitions"
    names = write_definitions(data, definitions)
    write_definition(definitions, "own", None, questions, OWN_DEFINITION)
    import lm_eval

    packaged = Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k.yaml"
    write_definition(definitions, "sums", packaged, sums, {"test_split": "test", "fewshot_split": "test"})
    # with examples before each question
    shots = {f"{task}_shots": data / f"{task}.jsonl" for task in ("boolq", "piqa")}
    for name, file in shots.items():
        plain = definitions / f"{file.stem}_plain.yaml"
        write_definition(definitions, name, plain, file, {"validation_split": "validation", "num_fewshot": 2})
    expected = by_command(Path(result["checkpoint"]), definitions, [*names, "own", "sums", *shots])
    for task, name in zip([*SPLITS, str(questions)], [*names, "own"], strict=True):
        assert measured[task]["acc"] == expected[name]["acc,none"], task
        assert measured[task]["acc_norm"] == expected[name].get("acc_norm,none"), task
        assert measured[task]["acc_error"] == pytest.approx(expected[name]["acc_stderr,none"], rel=1e-9), task
    for metric, value in measured["gsm8k"]["metrics"].items():
        assert value == expected["sums"][metric], metric
    few_shot = study.with_settings({"evaluation.few_shot": 2, "evaluation.tasks": ["boolq", "piqa"]})
    measured = pipeline.run(few_shot, Store(tmp_path / "cache"), tiny_study.silent)["accuracy"]["gprune"]
    assert [measured[task]["acc"] for task in ("boolq", "piqa")] == [expected[name]["acc,none"] for name in shots]


@pytest.mark.long
@pytest.mark.process
def test_the_tests_of_tasks_pass_in_the_release_before(tmp_path):
    install(tmp_path, f"lm_eval=={OLDER}")
    environment, check = environment_of(tmp_path), [sys.executable, "-c", "import lm_eval; print(lm_eval.__version__)"]
    completed = subprocess.run(check, env=environment, capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == OLDER
    names = ("lm_eval_tasks", "accuracy", "accuracy_tasks")
    files = (str(Path(__file__).with_name(f"test_{name}.py")) for name in names)
    require_passing(10, environment, *files, "-m", "not long")


def test_requests_and_their_examples_decide_the_fingerprint(data):
    settings = [EvaluationSettings(few_shot=count, task_folder=str(data)) for count in (None, 0, 1, 1)]
    prints = [fingerprint(resolve("boolq", settings[0]), item) for item in settings]
    assert prints[0] == prints[1] != prints[2] == prints[3]


def test_shuffled_options_are_scored_as_they_were_asked_and_as_lm_eval_shuffles_them(demo, tmp_path):
    """GPQA shuffles its options by Python's random numbers whenever its rows are processed."""
    names = ["Correct Answer", *(f"Incorrect Answer {number}" for number in (1, 2, 3))]
    rows = [{"Question": f"q{n}"} | {name: f"{name} to {n}" for name in names} for n in range(12)]
    write_rows(tmp_path / "gpqa_main_zeroshot.jsonl", rows)
    settings = EvaluationSettings(task_folder=str(tmp_path))
    random.seed(3)
    following = random.Random(3).random()
    result = measure_tasks(demo.model, demo.tokenizer, "gpqa_main_zeroshot", settings)
    assert random.random() == following
    shuffled, expected = random.Random(0), []
    for row_ in rows:
        options = [row_[name] for name in (*names[1:], names[0])]
        shuffled.shuffle(options)
        expected.append(options.index(row_["Correct Answer"]))
    assert result.answers.right.tolist() == expected
    chosen = result.answers.likelihoods.reshape(12, 4).argmax(axis=1)
    assert result.accuracy.acc == np.mean(chosen == expected)
    assert result.accuracy.data == fingerprint(resolve("gpqa_main_zeroshot", settings), settings)


def test_answer_that_is_no_option_counts_as_wrong_as_in_lm_eval(demo, tmp_path):
    rows = [{"text": "a b", "label": 0}, {"text": "c d", "label": 5}]
    write_rows(tmp_path / "mnli.jsonl", [{"premise": "a.", "hypothesis": "b.", **each} for each in rows])
    result = measure_tasks(demo.model, demo.tokenizer, "mnli", EvaluationSettings(task_folder=str(tmp_path)))
    assert result.accuracy.samples == 2 and result.accuracy.acc in (0, 0.5)
    assert result.answers.scored
