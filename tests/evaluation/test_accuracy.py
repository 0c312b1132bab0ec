"""Zero-shot accuracy, against lm-eval called by itself and against a loop over plain transformers."""

import math
from dataclasses import replace

import numpy as np
import pytest
import tiny_study
import torch
from evaluation.lm_eval_alone import by_lm_eval_alone
from evaluation.task_files import OWN, ROWS, SPLITS, row, write_rows, write_seven
from transformers import AutoModelForCausalLM

from gprune import pipeline
from gprune.analysis import changed_answers
from gprune.evaluation import accuracy as measuring
from gprune.evaluation.accuracy import measure_tasks, questions
from gprune.models.decoder import Decoder
from gprune.models.loading import load
from gprune.pipeline import stages
from gprune.pipeline.stages import Graph, Results
from gprune.pruning.surgery import cut
from gprune.records import PruningMasks
from gprune.store import Store
from gprune.study import EvaluationSettings, from_dict
from gprune.system.errors import Cancelled, CorpusError, NumericsError


def accuracy(model, tokenizer, tasks, *arguments):
    return {task: measure_tasks(model, tokenizer, task, *arguments).accuracy for task in tasks}


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    texts = tiny_study.write_texts(folder / "texts")
    return load(tiny_study.write_model(folder / "model", texts))


@pytest.fixture
def task(tmp_path):
    return str(write_rows(tmp_path / "own.jsonl", OWN))


@pytest.mark.parametrize("is_trained", [False, pytest.param(True, marks=pytest.mark.long)])
def test_seven_tasks_equal_lm_eval_alone(is_trained, decoder, shared, tmp_path):
    if is_trained:
        decoder = load(str(shared / "models" / "textllama-6m"), device="cpu")
    data = write_seven(tmp_path / "data")
    settings = EvaluationSettings(task_folder=str(data), batch=4)
    by_task = {task: measure_tasks(decoder.model, decoder.tokenizer, task, settings) for task in SPLITS}
    expected = by_lm_eval_alone(decoder, data, tmp_path / "plain")
    for task, measured in by_task.items():
        result, answers = measured.accuracy, measured.answers
        assert changed_answers.choices(answers, changed_answers.ACC).hit.mean() == result.acc, task
        assert answers.documents == len(answers.counts) == len(measured.questions.counts)
        # the same without a model
        alone = questions(task, settings)
        assert [alone.question_at(n) for n in range(6)] == [measured.questions.question_at(n) for n in range(6)]
        assert result.acc == expected[task]["acc,none"], task
        assert result.acc_error == expected[task]["acc_stderr,none"], task
        if task in ("boolq", "winogrande"):
            assert "acc_norm,none" not in expected[task]
            assert math.isnan(result.acc_norm) and math.isnan(result.acc_norm_error)
            assert result.chance == 0.5
        else:
            assert result.acc_norm == expected[task]["acc_norm,none"], task
            assert changed_answers.choices(answers, changed_answers.ACC_NORM).hit.mean() == result.acc_norm, task
            assert result.acc_norm_error == expected[task]["acc_norm_stderr,none"], task
        assert (result.task, result.samples, result.limit) == (task, ROWS, 0)
        assert "lm-eval 0.4" in result.version and len(result.data) == 64
    chances = {task: measured.accuracy.chance for task, measured in by_task.items()}
    assert chances["piqa"] == 0.5 and chances["hellaswag"] == 0.25 == chances["openbookqa"]
    text, options = by_task["winogrande"].questions.question_at(1)
    gap = row("winogrande", 1)
    ending = gap["sentence"].partition("_")
    assert text == "" and options == [f"{ending[0]}{gap[name]}{ending[2]}" for name in ("option1", "option2")]
    assert by_task["boolq"].questions.question_at(0)[0].endswith("does a kettle do it?\nAnswer:")


def likelihoods(decoder, row):
    """Log-likelihoods by plain transformers, one choice at a time."""
    values = []
    for choice in row["choices"]:
        context = decoder.tokenizer.encode(row["question"]) or [decoder.tokenizer.bos_token_id]
        sequence = decoder.tokenizer.encode(f"{row['question']} {choice}")
        ids = sequence if row["question"] else context + sequence
        with torch.no_grad():
            logits = decoder.model(torch.tensor([ids[:-1]])).logits[0].float().log_softmax(dim=-1)
        values.append(sum(float(logits[position - 1, ids[position]]) for position in range(len(context), len(ids))))
    return values


def naive_choice(decoder, row):
    """Index of the highest log-likelihood, and of the highest divided by the choice's characters."""
    values, lengths = likelihoods(decoder, row), [len(choice) for choice in row["choices"]]
    return int(np.argmax(values)), int(np.argmax(np.divide(values, lengths)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_own_task_equals_a_loop(decoder, task, dtype):
    converted = Decoder.from_model(
        AutoModelForCausalLM.from_config(decoder.model.config).to(dtype).eval(), decoder.tokenizer
    )
    converted.model.load_state_dict(decoder.model.state_dict())
    right = [row["answer"] for row in OWN]
    chosen = [naive_choice(converted, row) for row in OWN]
    measured = measure_tasks(converted.model, converted.tokenizer, task, EvaluationSettings(batch=1))
    actual, answers = measured.accuracy, measured.answers
    hits = np.array(
        [[plain == answer, normed == answer] for (plain, normed), answer in zip(chosen, right, strict=True)]
    )
    assert (actual.acc, actual.acc_norm) == tuple(hits.mean(axis=0))
    assert actual.acc_error == pytest.approx(hits[:, 0].std(ddof=1) / 2, rel=1e-12)
    assert actual.chance == pytest.approx((1 / 3 + 1 / 2 + 1 / 4 + 1 / 2) / 4, rel=1e-12)
    expected = [value for row in OWN for value in likelihoods(converted, row)]
    np.testing.assert_allclose(answers.likelihoods, expected, rtol=2e-5 if dtype == torch.float32 else 2e-2)
    assert answers.right.tolist() == right and answers.counts.tolist() == [3, 2, 4, 2]
    assert answers.lengths.tolist() == [len(choice) for question in OWN for choice in question["choices"]]
    assert measured.questions.question_at(2) == ("2024", [" was a year", " {{answer}}", " 12", " no"])


def test_limit_takes_the_first_documents(decoder, tmp_path):
    data = write_seven(tmp_path / "all")
    first = write_seven(tmp_path / "first", rows=2)
    tasks = ("hellaswag", "winogrande")
    limited = accuracy(decoder.model, decoder.tokenizer, tasks, EvaluationSettings(task_folder=str(data), limit=2))
    short = accuracy(decoder.model, decoder.tokenizer, tasks, EvaluationSettings(task_folder=str(first)))
    for task in tasks:
        assert limited[task].acc == short[task].acc
        assert (limited[task].samples, limited[task].limit) == (2, 2)
        assert (short[task].samples, short[task].limit) == (2, 0)


def test_batch_changes_nothing_and_model_and_tokenizer_stay_as_they_were(decoder, task):
    decoder.model.train()
    padding = decoder.tokenizer.pad_token
    unbatched = accuracy(decoder.model, decoder.tokenizer, (task,), EvaluationSettings(batch=1))[task]
    many = accuracy(decoder.model, decoder.tokenizer, (task,), EvaluationSettings(batch=64))[task]
    assert (unbatched.acc, unbatched.acc_norm) == (many.acc, many.acc_norm)
    assert decoder.model.training
    assert decoder.tokenizer.pad_token == padding is None
    decoder.model.eval()


def test_progress_counts_every_choice(decoder, task):
    reports = []
    accuracy(decoder.model, decoder.tokenizer, (task,), EvaluationSettings(batch=2), lambda *step: reports.append(step))
    answering = [(done, total) for done, total, message in reports if message.endswith("answering")]
    choices = sum(len(row["choices"]) for row in OWN)
    assert answering[-1] == (choices, choices)
    assert answering == sorted(answering) and len(answering) == -(-choices // 2)
    assert all(message.startswith("tasks: ") for *_, message in reports)


def test_cancelling_ends_it_and_its_bars_stay_off_the_terminal(decoder, task, capsys):
    def stop(done, total, message):
        if message.endswith("answering"):
            raise Cancelled("stopped")

    with pytest.raises(Cancelled, match="stopped"):
        accuracy(decoder.model, decoder.tokenizer, (task,), EvaluationSettings(), stop)
    assert capsys.readouterr().err == ""


def test_what_cannot_be_measured_is_refused(decoder, task, tmp_path):
    broken = cut(decoder, PruningMasks("dense", np.ones((2, 27), bool), np.ones((2, 2), bool), 1.0, 1.0))
    with torch.no_grad():
        broken.model.layers[0].mlp.down_proj.weight.fill_(math.nan)
    with pytest.raises(NumericsError, match="log-likelihood of the choice ' [a-z ]+' is NaN.*bfloat16"):
        accuracy(broken, decoder.tokenizer, (task,), EvaluationSettings())
    rows = [{"question": "Say", "choices": ["yes", "z" * 200], "answer": 0}]
    task = str(write_rows(tmp_path / "long.jsonl", rows))
    with pytest.raises(CorpusError, match="the choice ' z.* has 201 tokens and the model reads at most 64"):
        accuracy(decoder.model, decoder.tokenizer, (task,), EvaluationSettings())
    with pytest.raises(CorpusError, match="needs a tokenizer"):
        accuracy(decoder.model, None, (task,), EvaluationSettings())


@pytest.mark.slow
def test_a_model_is_asked_again_only_where_its_answers_are_missing(tmp_path, monkeypatch):
    values = tiny_study.made(tmp_path)
    values["evaluation"] |= {"tasks": [str(write_rows(tmp_path / "own.jsonl", OWN))]}
    study, store = from_dict(values | {"methods": ["dense", "flap"]}), Store(tmp_path / "cache")
    calls, ask = [], measuring.measure_tasks
    monkeypatch.setattr(measuring, "measure_tasks", lambda *arguments: calls.append(1) or ask(*arguments))
    pipeline.run(study, store, lambda *_: None, "perplexity")
    results: Results = pipeline.opened(study, store)
    task = study.evaluation.tasks[0]
    first = results.get(stages.answers, "flap", task).likelihoods.copy()
    assert len(calls) == 2 and results.get(stages.questions, task).question_at(1)[0] == "Two and two make"

    graph: Graph = results.graph
    before = stages.accuracy(graph, "flap", task).key
    for stage in (stages.answers(graph, "dense", task), stages.answers(graph, "flap", task)):
        store.discard(stage.kind, stage.key)
    store.discard("questions", stages.questions(graph, task).key)
    # a run computes what is missing, and nothing twice
    for name in ("another name", study.name):
        pipeline.run(replace(study, name=name), store, lambda *_: None, "perplexity")
        assert len(calls) == 4 and stages.accuracy(graph, "flap", task).key == before
    np.testing.assert_array_equal(results.get(stages.answers, "flap", task).likelihoods, first)
    assert results.has(stages.questions, task)


def test_no_more_is_kept_than_is_said(decoder, task, monkeypatch):
    monkeypatch.setattr(measuring, "MOST_QUESTIONS", 3)
    monkeypatch.setattr(measuring, "MOST_OPTIONS", 6)
    measured = measure_tasks(decoder.model, decoder.tokenizer, task, EvaluationSettings())
    assert measured.answers.documents == 4 and measured.answers.counts.tolist() == [3, 2]
    assert measured.questions.counts.tolist() == [3, 2]
