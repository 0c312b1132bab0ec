"""What is measured of models, made up: perplexities, accuracies and speeds in their true form."""

from typing import Any

import numpy as np
from made_runs import Makers, Task, an_accuracy, digest

from gprune.records import Accuracy, Answers, GeneratedAnswers, Perplexity, Questions, Throughput

EVIL = "<script>alert(1)</script> ![x](http://example.org/x.png)"
LEVELS = {"dense": 40.0, "gprune": 62.0, "flap": 118.0, "flap_no_bias": 121.0, "wanda_sp": 190.0}
"""perplexity of a method on the first text"""


def perplexity(task: Task) -> Perplexity:
    usual = LEVELS.get(task.stage.id.method, 150.0) * (1 + (task.stage.id.item or 0))
    losses = np.log(usual) + 0.4 * task.random.normal(size=task.study.evaluation.windows or 96)
    mean, error = float(np.exp(losses.mean())), float(losses.std(ddof=1) / np.sqrt(len(losses)))
    return Perplexity(task.asked, "128", 128, len(losses), mean, mean * error, losses)


ACCURACY = {
    "dense": {"piqa": an_accuracy("piqa", 0.8, 0.7, 0.5), "boolq": an_accuracy("boolq", 0.6, None, 0.5)},
    "gprune": {"piqa": an_accuracy("piqa", 0.5, 0.7, 0.5), "boolq": an_accuracy("boolq", 0.55, None, 0.5)},
}


def accuracy(task: Task) -> Accuracy:
    reference = ACCURACY.get(task.stage.id.method, {}).get(task.asked)
    return reference or an_accuracy(task.asked, float(task.random.random()))


OPTIONS = 4


def answers(task: Task) -> Answers:
    """What all models find of a question, and beside it each pruned model's own."""
    shared = np.random.default_rng(int(digest(task.asked)[:8], 16))
    count = task.study.evaluation.limit or 100
    right, likelihoods = shared.integers(0, OPTIONS, count), shared.normal(-20.0, 4.0, (count, OPTIONS))
    likelihoods[np.arange(count), right] += 4.0
    if task.stage.id.method != "dense":
        likelihoods += task.random.normal(scale=3.0, size=likelihoods.shape)
    lengths = shared.integers(5, 40, count * OPTIONS).astype(np.int32)
    counts = np.full(count, OPTIONS, np.int32)
    flat = likelihoods.ravel().astype(np.float32)
    return Answers(task.asked, count, flat, lengths, counts, right.astype(np.int32))


def questions(task: Task) -> Questions:
    """Questions that are no mark-up, whatever they look like."""
    count = task.study.evaluation.limit or 100
    requested = [(f"Question {n} {EVIL}", [f" option {n}.{k} **bold**" for k in range(OPTIONS)]) for n in range(count)]
    return Questions.of(task.asked, requested)


def open_answers(task: Task) -> GeneratedAnswers:
    """Every fifth answer is cut off and loops, the next is empty; more of the pruned models' are wrong."""
    limit, count = 3 if task.stage.id.method == "dense" else 8, task.study.evaluation.limit or 100
    texts = ["", f"answer {EVIL}", "la la la la"]
    return GeneratedAnswers.of(
        task.asked, [(n, texts[min(n % 5, 2)], 9, n % 5 == 2, n % 5 == 2, n % 10 >= limit) for n in range(count)]
    )


def speed_rows(
    modes: tuple[str, ...] = ("eager",), ratio: float = 1.5, models: tuple[str, ...] = ("dense", "gprune", "flap")
) -> list[dict[str, Any]]:
    rows = []
    for model in models:
        factor = {"dense": 1.0, "gprune": ratio, "flap": 1.2}.get(model, 1.1)
        seconds = [1 / (50 * factor * (1 + 0.01 * step)) for step in range(-2, 3)]
        reference = {"model": model, "parameters": 1_000_000, "tokens_per_second": 50 * factor, "spread": factor}
        reference |= {"ratio": factor, "ratio_spread": 0.0 if model == "dense" else 0.1, "seconds": seconds}
        reference |= {"peak_bytes": 3 * 2**20, "memory": "allocated"}
        phases = [(mode, phase) for mode in modes for phase in ("prefill", "decode", "whole")]
        # graphs are captured of what is decoded alone
        retained = [(mode, phase) for mode, phase in phases if phase != "prefill" or mode == modes[0]]
        rows += [reference | {"phase": phase, "mode": mode} for mode, phase in retained]
    return rows


def a_throughput(**changes: Any) -> Throughput:
    return Throughput("float32 on cpu, batch 1", EVIL, tuple(speed_rows(**changes)))


def speed(task: Task) -> Throughput:
    return a_throughput(models=tuple(task.able))


_MAKERS = (perplexity, accuracy, answers, questions, open_answers, speed)
MAKERS: Makers = {maker.__name__: maker for maker in _MAKERS} | {"generated_answers": open_answers}
