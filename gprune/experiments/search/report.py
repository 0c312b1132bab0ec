"""Answers: what did every configuration of a search reach, and what follows?

<folder>/search.md, search.csv       every configuration of every round
         profile.json                what won, as gprune.study.profiles reads it
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gprune.analysis.paired_test import in_percent
from gprune.analysis.table import Table
from gprune.experiments.search.halving import Round, Score, gain, winner
from gprune.experiments.search.plan import Plan, words
from gprune.study import short
from gprune.study.methods import METHODS
from gprune.system.errors import StoreError
from gprune.system.files import make_folder, write_json, write_text

FILES = ("search.md", "search.csv", "profile.json")


@dataclass(frozen=True, slots=True)
class Made:
    """How a search was made."""

    command: str
    """the command line"""
    versions: dict[str, str]
    """of this project and what it runs on"""


def write(folder: Path, plan: Plan, rounds: Sequence[Round], made: Made) -> None:
    """Writes the report, the numbers and, after the last round, what won. StoreError where it cannot."""
    try:
        make_folder(folder)
        write_text(folder / FILES[0], markdown(plan, rounds, made))
        write_text(folder / FILES[1], Table(numbers(plan, rounds)).csv())
        if len(rounds) == len(plan.rungs):
            write_json(folder / FILES[2], profile(plan, rounds, made))
    except OSError as error:
        raise StoreError(f"the folder {folder} cannot be written ({error}): choose another with --out") from error


def numbers(plan: Plan, rounds: Sequence[Round]) -> pd.DataFrame:
    """One row a configuration, round, seed and text: mean loss, perplexity and its standard error."""
    rows: list[dict[str, Any]] = []
    for number, done in enumerate(rounds, start=1):
        for place, score in enumerate(done.scores):
            known: dict[str, Any] = {"round": number, "place": place}
            known |= {"configuration": score.configuration.number, "settings": words(score.configuration)}
            for seed, losses in zip(done.rung.seeds, score.losses, strict=True):
                for index, text in enumerate(plan.study.evaluation.texts):
                    row = known | {"seed": seed, "text": short(text)}
                    rows.append(row | _measured(None if losses is None else losses[index]))
    return pd.DataFrame(rows)


def _measured(losses: np.ndarray | None) -> dict[str, float]:
    if losses is None:
        return {"windows": 0, "loss": math.inf, "perplexity": math.inf, "standard_error": math.nan}
    mean = float(losses.mean())
    error = float(losses.std(ddof=1) / math.sqrt(len(losses))) if len(losses) > 1 else math.nan
    value = math.exp(mean) if mean < 700 else math.inf
    return {"windows": len(losses), "loss": mean, "perplexity": value, "standard_error": error * value}


def profile(plan: Plan, rounds: Sequence[Round], made: Made) -> dict[str, Any]:
    """What won, and by how much, as plain values."""
    last = rounds[-1]
    best = winner(last)
    found: dict[str, Any] = {
        "title": plan.title,
        "model": short(plan.study.model),
        "texts": [short(text) for text in plan.study.evaluation.texts],
        "configurations": len(rounds[0].scores),
        "seeds": list(last.rung.seeds),
        "settings": dict(best.configuration.settings),
        "command": made.command,
        "versions": made.versions,
    }
    if best is not last.scores[0]:
        difference = gain(best, last.scores[0])
        found["gain"] = {"perplexity": difference.change, "standard_error": difference.error}
    return found


def markdown(plan: Plan, rounds: Sequence[Round], made: Made) -> str:
    """The report for people."""
    study = plan.study
    texts = ", ".join(short(text) for text in study.evaluation.texts)
    lines = [
        f"# {plan.title}",
        f"Model {short(study.model)}, calibrated on {short(study.primary)} (A) and "
        f"{short(study.auxiliary)} (B), retention {study.retention:.0%}, base metric {study.metric}. "
        f"Objective: mean loss of the model pruned by {METHODS[plan.method].label} on {texts}, shown as "
        "change of perplexity against the study's own settings on the same windows (negative is better). ± "
        "is its 95 % interval over windows and seeds.",
        "Configuration 0 is the study as it stands and takes part in every round. Whoever wins among many "
        "wins partly by luck: the last round, on most data and under several seeds, is what counts, and "
        "nothing here is a result about other models.",
        f"Command: `{made.command}`",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in sorted(made.versions.items())),
        "## What is searched",
        Table.of(
            ("setting", "values", "the study's own"),
            [
                (f"`{name}`", ", ".join(map(_cell, values)), _cell(attrgetter(name)(study)))
                for name, values in plan.space.items()
            ],
        ).markdown(),
    ]
    for number, done in enumerate(rounds, start=1):
        lines += _round(plan, number, done)
    if len(rounds) == len(plan.rungs):
        lines += ["## What follows", _verdict(plan, rounds)]
    return "\n\n".join(lines) + "\n"


def _round(plan: Plan, number: int, done: Round) -> list[str]:
    rung = done.rung
    sizes = ", ".join(f"{name} {_cell(value)}" for name, value in rung.settings.items()) or "the study's own sizes"
    names = [f"perplexity, {short(text)}" for text in plan.study.evaluation.texts]
    heads = ("configuration", "change of perplexity", *names, "settings")
    return [
        f"## Round {number}: {rung.configurations} configurations, seeds {', '.join(map(str, rung.seeds))}",
        f"{sizes}.",
        Table.of(heads, [_row(score, done.scores[0]) for score in done.scores]).markdown(),
    ]


def _row(score: Score, own: Score) -> list[str]:
    means = score.by_text()
    cells = [_perplexity(means[:, text]) for text in range(means.shape[1])]
    change = "0" if score is own else _change(score, own)
    return [str(score.configuration.number), change, *cells, words(score.configuration)]


def _change(score: Score, own: Score) -> str:
    if not np.isfinite([score.objective, own.objective]).all():
        return "could not be run"
    return in_percent(gain(score, own))


def _perplexity(losses: np.ndarray) -> str:
    """Mean over seeds, and their standard deviation where there are several."""
    values = np.exp(np.minimum(losses, 700.0))
    if not np.isfinite(losses).all():
        return "none"
    return f"{values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")


def _verdict(plan: Plan, rounds: Sequence[Round]) -> str:
    last, drawn = rounds[-1], len(rounds[0].scores) - 1
    best = winner(last)
    if best is last.scores[0]:
        return (
            f"None of {drawn} configurations is clearly better than the study's own settings (by two "
            "standard errors): these stay."
        )
    kept = "the profile `recommended`" if plan.method == "gprune" else f"what {plan.method} does by default"
    return (
        f"Configuration {best.configuration.number} of {drawn} changes the perplexity under the study's own "
        f"settings by {in_percent(gain(best, last.scores[0]))}: {words(best.configuration)}. It is "
        f"{kept}."
    )


def _cell(value: Any) -> str:
    return "/".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
