"""The answers behind an accuracy: the likelihoods of a plain loop, and the questions as they were asked."""

from dataclasses import replace

import numpy as np
import pytest
import tiny_study
from evaluation.task_files import SPLITS, row, write_rows, write_seven
from evaluation.test_accuracy import OWN

from gprune import pipeline
from gprune.analysis import changed_answers
from gprune.evaluation import accuracy as measuring
from gprune.evaluation.accuracy import answered, questions
from gprune.evaluation.tasks import asked
from gprune.models.decoder import Decoder
from gprune.models.loading import load
from gprune.pipeline import stages
from gprune.pipeline.stages import Graph, Results
from gprune.store import Store
from gprune.study import EvaluationSettings, from_dict
from gprune.system.errors import SettingsError


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder = tmp_path_factory.mktemp("tiny")
    texts = tiny_study.write_texts(folder / "texts")
    return load(tiny_study.write_model(folder / "model", texts))


def likelihoods(decoder: Decoder, question: str, choices: list[str]) -> list[float]:
    """By plain transformers, one choice at a time."""
    import torch

    found = []
    for choice in choices:
        context = decoder.tokenizer.encode(question) or [decoder.tokenizer.bos_token_id]
        whole = decoder.tokenizer.encode(f"{question} {choice}")
        ids = whole if question else context + whole
        with torch.no_grad():
            logits = decoder.model(torch.tensor([ids[:-1]])).logits[0].float().log_softmax(dim=-1)
        found.append(sum(float(logits[place - 1, ids[place]]) for place in range(len(context), len(ids))))
    return found


def test_likelihoods_are_those_of_a_loop_and_right_is_the_right_one(decoder, tmp_path):
    own = str(write_rows(tmp_path / "own.jsonl", OWN))
    found = answered(decoder.model, decoder.tokenizer, (own,), EvaluationSettings(batch=2))[own]
    expected = [value for one in OWN for value in likelihoods(decoder, one["question"], one["choices"])]
    np.testing.assert_allclose(found.answers.likelihoods, expected, rtol=2e-5)
    assert found.answers.right.tolist() == [0, 1, 3, 1] and found.answers.counts.tolist() == [3, 2, 4, 2]
    assert found.answers.lengths.tolist() == [len(choice) for one in OWN for choice in one["choices"]]
    assert found.questions.asked(2) == ("2024", [" was a year", " {{answer}}", " 12", " no"])


def test_of_all_seven_tasks_the_accuracy_is_what_the_answers_say(decoder, tmp_path):
    settings = EvaluationSettings(task_folder=str(write_seven(tmp_path / "data")), batch=4)
    found = answered(decoder.model, decoder.tokenizer, tuple(SPLITS), settings)
    for task, one in found.items():
        assert changed_answers.choices(one.answers, changed_answers.ACC).hit.mean() == one.accuracy.acc, task
        if one.accuracy.acc_norm == one.accuracy.acc_norm:
            assert (
                changed_answers.choices(one.answers, changed_answers.ACC_NORM).hit.mean()
                == one.accuracy.acc_norm
            ), task
        assert one.answers.documents == len(one.answers.counts) == len(one.questions.counts)
        # the same without a model
        alone = questions(task, settings)
        assert [alone.asked(n) for n in range(6)] == [one.questions.asked(n) for n in range(6)]
    text, options = found["winogrande"].questions.asked(1)
    gap = row("winogrande", 1)
    ending = gap["sentence"].partition("_")
    assert text == "" and options == [f"{ending[0]}{gap[one]}{ending[2]}" for one in ("option1", "option2")]
    assert found["boolq"].questions.asked(0)[0].endswith("does a kettle do it?\nAnswer:")


@pytest.mark.slow
def test_a_model_is_not_asked_again_unless_a_person_wants_it(tmp_path, monkeypatch):
    values = tiny_study.made(tmp_path)
    values["evaluation"] |= {"tasks": [str(write_rows(tmp_path / "own.jsonl", OWN))]}
    study, store = from_dict(values | {"methods": ["dense", "flap"]}), Store(tmp_path / "cache")
    calls, ask = [], measuring.answered
    monkeypatch.setattr(measuring, "answered", lambda *given: calls.append(1) or ask(*given))
    pipeline.run(study, store, lambda *_: None, "perplexity")
    results: Results = pipeline.opened(study, store)
    task = study.evaluation.tasks[0]
    first = results.get(stages.answers, "flap", task).likelihoods.copy()
    assert len(calls) == 2 and results.get(stages.questions, task).asked(1)[0] == "Two and two make"

    graph: Graph = results.graph
    before = stages.accuracy(graph, "flap", task).key
    for stage in (stages.answers(graph, "dense", task), stages.answers(graph, "flap", task)):
        store.discard(stage.kind, stage.key)
    store.discard("questions", stages.questions(graph, task).key)
    # as in the runs of versions that kept none
    pipeline.run(replace(study, name="another name"), store, lambda *_: None, "perplexity")
    assert len(calls) == 2 and not results.has(stages.answers, "flap", task)
    pipeline.run(study, store, lambda *_: None, "answers")
    assert len(calls) == 4 and stages.accuracy(graph, "flap", task).key == before
    np.testing.assert_array_equal(results.get(stages.answers, "flap", task).likelihoods, first)
    assert results.has(stages.questions, task)
    with pytest.raises(SettingsError, match="at least one task for a run until answers"):
        pipeline.run(study.with_settings({"evaluation.tasks": []}), store, lambda *_: None, "answers")


def test_no_more_is_kept_than_is_said(decoder, tmp_path, monkeypatch):
    monkeypatch.setattr(asked, "MOST_QUESTIONS", 3)
    monkeypatch.setattr(asked, "MOST_OPTIONS", 6)
    own = str(write_rows(tmp_path / "own.jsonl", OWN))
    found = answered(decoder.model, decoder.tokenizer, (own,), EvaluationSettings())[own]
    assert found.answers.documents == 4 and found.answers.counts.tolist() == [3, 2]
    assert found.questions.counts.tolist() == [3, 2]
