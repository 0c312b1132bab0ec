"""Measured speeds and accuracies as a run's record holds them, made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from views.synthetic_run import read

EVIL = "<script>alert(1)</script> ![x](http://example.org/x.png)"


def speed_rows(modes: tuple[str, ...] = ("eager",), ratio: float = 1.5) -> list[dict[str, Any]]:
    rows = []
    for model, factor in (("dense", 1.0), ("gprune", ratio), ("flap", 1.2)):
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


def an_accuracy(acc: float, acc_norm: float | None, chance: float = 0.25) -> dict[str, Any]:
    error = None if acc_norm is None else 0.04
    return {
        "acc": acc,
        "acc_norm": acc_norm,
        "acc_error": 0.03,
        "acc_norm_error": error,
        "samples": 200,
        "chance": chance,
        "version": "1.0, lm-eval 0.4.13",
    }


ACCURACY = {
    "dense": {"piqa": an_accuracy(0.8, 0.7, 0.5), "boolq": an_accuracy(0.6, None, 0.5)},
    "gprune": {"piqa": an_accuracy(0.5, 0.7, 0.5), "boolq": an_accuracy(0.55, None, 0.5)},
}


def add(cache: Path, name: str, **result: Any) -> None:
    """Enters measurements into the record of a run."""
    values = read(cache, name)
    values["result"] = (values["result"] or {}) | result
    (cache / "runs" / name / "run.json").write_text(json.dumps(values), encoding="utf-8")


def add_speed(cache: Path, name: str, **changes: Any) -> None:
    speed = {"setting": "float32 on cpu, batch 1", "machine": EVIL, "rows": speed_rows(**changes)}
    add(cache, name, speed=speed)
