"""What is measured of models, made up: perplexities, accuracies and speeds in their true form."""

from __future__ import annotations

from typing import Any

import numpy as np
from views.synthetic_calibration import Task, digest

from gprune.records import Accuracy, Perplexity, Throughput

EVIL = "<script>alert(1)</script> ![x](http://example.org/x.png)"
LEVELS = {"dense": 40.0, "gprune": 62.0, "flap": 118.0, "flap_no_bias": 121.0, "wanda_sp": 190.0}
"""perplexity of a method on the first text"""


def perplexity(task: Task) -> Perplexity:
    method, item = task.stage.id.method, task.stage.id.item or 0
    losses = np.log(LEVELS.get(method, 150.0) * (1 + item)) + task.noise(96, scale=0.4)
    mean, error = float(np.exp(losses.mean())), float(losses.std(ddof=1) / np.sqrt(len(losses)))
    text = task.study.evaluation.texts[item]
    return Perplexity(text, "128", 128, len(losses), mean, mean * error, losses)


def an_accuracy(task: str, acc: float, acc_norm: float | None, chance: float = 0.25) -> Accuracy:
    missing = float("nan")
    return Accuracy(
        task=task,
        acc=acc,
        acc_norm=missing if acc_norm is None else acc_norm,
        acc_error=0.03,
        acc_norm_error=missing if acc_norm is None else 0.04,
        samples=200,
        limit=200,
        chance=chance,
        version="1.0, lm-eval 0.4.13",
        data=digest(task),
    )


ACCURACY = {
    "dense": {"piqa": an_accuracy("piqa", 0.8, 0.7, 0.5), "boolq": an_accuracy("boolq", 0.6, None, 0.5)},
    "gprune": {"piqa": an_accuracy("piqa", 0.5, 0.7, 0.5), "boolq": an_accuracy("boolq", 0.55, None, 0.5)},
}


def accuracy(task: Task) -> Accuracy:
    name = task.study.evaluation.tasks[task.stage.id.item or 0]
    known = ACCURACY.get(task.stage.id.method, {}).get(name)
    return known or an_accuracy(name, float(task.random.random()), None)


def speed_rows(
    modes: tuple[str, ...] = ("eager",),
    ratio: float = 1.5,
    models: tuple[str, ...] = ("dense", "gprune", "flap"),
) -> list[dict[str, Any]]:
    rows = []
    for model in models:
        factor = {"dense": 1.0, "gprune": ratio, "flap": 1.2}.get(model, 1.1)
        for mode in modes:
            for phase in ("prefill", "decode", "whole"):
                if phase == "prefill" and mode != modes[0]:
                    continue
                seconds = [1 / (50 * factor * (1 + 0.01 * step)) for step in range(-2, 3)]
                rows.append(
                    {
                        "model": model,
                        "parameters": 1_000_000,
                        "phase": phase,
                        "mode": mode,
                        "tokens_per_second": 50 * factor,
                        "spread": factor,
                        "ratio": factor,
                        "ratio_spread": 0.0 if model == "dense" else 0.1,
                        "peak_bytes": 3 * 2**20,
                        "memory": "allocated",
                        "seconds": seconds,
                    }
                )
    return rows


def a_throughput(**changes: Any) -> Throughput:
    return Throughput("float32 on cpu, batch 1", EVIL, tuple(speed_rows(**changes)))


def speed(task: Task) -> Throughput:
    return a_throughput(models=task.study.methods)


MAKERS = {made.__name__: made for made in (perplexity, accuracy, speed)}
"""what makes a record, by kind"""
