"""Zero-shot accuracy, against lm-eval called by itself and against a loop over plain transformers."""

import math
from pathlib import Path

import numpy as np
import pytest
import tiny_study
import torch
from evaluation.lm_eval_alone import by_lm_eval_alone
from evaluation.task_files import ROWS, SPLITS, write_rows, write_seven
from transformers import AutoModelForCausalLM

from gprune.evaluation.accuracy import accuracy
from gprune.models.decoder import Decoder
from gprune.models.loading import load
from gprune.pruning.surgery import cut
from gprune.records import PruningMasks
from gprune.study import EvaluationSettings
from gprune.system.errors import Cancelled, CorpusError, NumericsError

OWN = [
    {"question": "The opposite of hot is", "choices": ["cold", "a very warm day", "blue"], "answer": 0},
    {"question": "Two and two make", "choices": ["four", "five"], "answer": "five"},
    {"question": "2024", "choices": ["was a year", "{{answer}}", "12", "no"], "answer": 3},
    {"question": "", "choices": ["He reads the book.", "Book the reads he."], "answer": 1},
]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder = tmp_path_factory.mktemp("tiny")
    texts = tiny_study.write_texts(folder / "texts")
    return load(tiny_study.write_model(folder / "model", texts))


@pytest.fixture
def own(tmp_path: Path) -> str:
    return str(write_rows(tmp_path / "own.jsonl", OWN))


def compare_with_lm_eval(decoder: Decoder, folder: Path) -> None:
    data = write_seven(folder / "data")
    settings = EvaluationSettings(task_folder=str(data), batch=4)
    found = accuracy(decoder.model, decoder.tokenizer, tuple(SPLITS), settings)
    expected = by_lm_eval_alone(decoder, data, folder / "plain")
    assert list(found) == list(SPLITS)
    for task, result in found.items():
        assert result.acc == expected[task]["acc,none"], task
        assert result.acc_error == expected[task]["acc_stderr,none"], task
        if task in ("boolq", "winogrande"):
            assert "acc_norm,none" not in expected[task]
            assert math.isnan(result.acc_norm) and math.isnan(result.acc_norm_error)
            assert result.chance == 0.5
        else:
            assert result.acc_norm == expected[task]["acc_norm,none"], task
            assert result.acc_norm_error == expected[task]["acc_norm_stderr,none"], task
        assert (result.task, result.samples, result.limit) == (task, ROWS, 0)
        assert "lm-eval 0.4" in result.version and len(result.data) == 64
    assert found["piqa"].chance == 0.5 and found["hellaswag"].chance == 0.25 == found["openbookqa"].chance


def test_seven_tasks_equal_lm_eval_alone(decoder, tmp_path):
    compare_with_lm_eval(decoder, tmp_path)


@pytest.mark.long
def test_seven_tasks_equal_lm_eval_alone_on_a_trained_model(shared, tmp_path):
    compare_with_lm_eval(load(str(shared / "models" / "textllama-6m"), device="cpu"), tmp_path)


def naive_choice(decoder: Decoder, row: dict) -> tuple[int, int]:
    """Index of the highest log-likelihood, and of the highest divided by the choice's characters."""
    likelihoods = []
    for choice in row["choices"]:
        context = decoder.tokenizer.encode(row["question"]) or [decoder.tokenizer.bos_token_id]
        whole = decoder.tokenizer.encode(f"{row['question']} {choice}")
        ids = whole if row["question"] else context + whole
        with torch.no_grad():
            logits = decoder.model(torch.tensor([ids[:-1]])).logits[0].float().log_softmax(dim=-1)
        places = range(len(context), len(ids))
        likelihoods.append(sum(float(logits[place - 1, ids[place]]) for place in places))
    lengths = [len(choice) for choice in row["choices"]]
    return int(np.argmax(likelihoods)), int(np.argmax(np.divide(likelihoods, lengths)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_own_task_equals_a_loop(decoder, own, dtype):
    converted = Decoder.from_model(
        AutoModelForCausalLM.from_config(decoder.model.config).to(dtype).eval(), decoder.tokenizer
    )
    converted.model.load_state_dict(decoder.model.state_dict())
    right = [0, 1, 3, 1]
    chosen = [naive_choice(converted, row) for row in OWN]
    found = accuracy(converted.model, converted.tokenizer, (own,), EvaluationSettings(batch=1))[own]
    hits = np.array(
        [[plain == answer, normed == answer] for (plain, normed), answer in zip(chosen, right, strict=True)]
    )
    assert (found.acc, found.acc_norm) == tuple(hits.mean(axis=0))
    assert found.acc_error == pytest.approx(hits[:, 0].std(ddof=1) / 2, rel=1e-12)
    assert found.chance == pytest.approx((1 / 3 + 1 / 2 + 1 / 4 + 1 / 2) / 4, rel=1e-12)


def test_limit_takes_the_first_documents(decoder, tmp_path):
    data = write_seven(tmp_path / "all")
    first = write_seven(tmp_path / "first", rows=2)
    tasks = ("hellaswag", "winogrande")
    limited = accuracy(
        decoder.model, decoder.tokenizer, tasks, EvaluationSettings(task_folder=str(data), limit=2)
    )
    short = accuracy(decoder.model, decoder.tokenizer, tasks, EvaluationSettings(task_folder=str(first)))
    for task in tasks:
        assert limited[task].acc == short[task].acc
        assert (limited[task].samples, limited[task].limit) == (2, 2)
        assert (short[task].samples, short[task].limit) == (2, 0)


def test_batch_changes_nothing_and_model_and_tokenizer_stay_as_they_were(decoder, own):
    decoder.model.train()
    padding = decoder.tokenizer.pad_token
    one = accuracy(decoder.model, decoder.tokenizer, (own,), EvaluationSettings(batch=1))[own]
    many = accuracy(decoder.model, decoder.tokenizer, (own,), EvaluationSettings(batch=64))[own]
    assert (one.acc, one.acc_norm) == (many.acc, many.acc_norm)
    assert decoder.model.training
    assert decoder.tokenizer.pad_token == padding is None
    decoder.model.eval()


def test_progress_counts_every_choice(decoder, own):
    seen: list[tuple[int, int, str]] = []
    accuracy(
        decoder.model, decoder.tokenizer, (own,), EvaluationSettings(batch=2), lambda *step: seen.append(step)
    )
    answering = [(done, total) for done, total, message in seen if message.endswith("answering")]
    choices = sum(len(row["choices"]) for row in OWN)
    assert answering[-1] == (choices, choices)
    assert answering == sorted(answering) and len(answering) == -(-choices // 2)
    assert all(message.startswith("zero-shot accuracy: ") for *_, message in seen)


def test_cancelling_ends_it_and_gives_lm_eval_its_bars_back(decoder, own):
    import lm_eval.models.huggingface as harness
    from tqdm import tqdm

    def stop(done: int, total: int, message: str) -> None:
        if message.endswith("answering"):
            raise Cancelled("stopped")

    with pytest.raises(Cancelled, match="stopped"):
        accuracy(decoder.model, decoder.tokenizer, (own,), EvaluationSettings(), stop)
    assert harness.tqdm is tqdm


def test_what_cannot_be_measured_is_refused_and_no_tasks_give_nothing(decoder, own, tmp_path):
    broken = cut(decoder, PruningMasks("dense", np.ones((2, 27), bool), np.ones((2, 2), bool), 1.0, 1.0))
    with torch.no_grad():
        broken.model.layers[0].mlp.down_proj.weight.fill_(math.nan)
    with pytest.raises(NumericsError, match="log-likelihood of the choice ' cold' is NaN.*bfloat16"):
        accuracy(broken, decoder.tokenizer, (own,), EvaluationSettings())
    rows = [{"question": "Say", "choices": ["yes", "z" * 200], "answer": 0}]
    task = str(write_rows(tmp_path / "long.jsonl", rows))
    with pytest.raises(CorpusError, match="the choice ' z.* has 201 tokens and the model reads at most 64"):
        accuracy(decoder.model, decoder.tokenizer, (task,), EvaluationSettings())
    with pytest.raises(CorpusError, match="needs a tokenizer"):
        accuracy(decoder.model, None, (own,), EvaluationSettings())
    assert accuracy(torch.nn.Linear(1, 1), None, (), EvaluationSettings()) == {}
