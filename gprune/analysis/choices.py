"""The candidates for a repair, or for masks and repair, as a table and as marks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd

from gprune.analysis.formatting import percent
from gprune.pruning.choosing import DIVERGENCE
from gprune.records import Choice
from gprune.study.methods import METHODS, of_masks

NUMBER, _FOR = "number ↓", "chosen for"
"""the columns of what was chosen by, and of the method that it was chosen for"""


@dataclass(frozen=True, slots=True)
class Tried:
    """One candidate."""

    method: str
    """the method that it was tried for"""
    masks: str
    """the method whose masks it has"""
    repair: str
    """its repair in words"""
    number: float
    """what was chosen by, or NaN if it could not be made"""
    figures: dict[str, float]
    """perplexities and divergence, by what is measured"""
    result: str
    """chosen, reference, both, failed, or empty"""

    @property
    def chosen(self) -> bool:
        """Return True if it was chosen."""
        return self.result.startswith("chosen")


def tried_candidates(choices: Mapping[str, Choice], describe: Callable[[str], str]) -> list[Tried]:
    """Return every candidate of some choices, by method, the best of each first; `describe` words a repair."""
    return [
        Tried(
            method=method,
            masks=of_masks(choice.masks[index]).name,
            repair=describe(choice.repairs[index]),
            number=float(choice.numbers[index]),
            figures={
                measure_label(name): float(value)
                for name, value in zip(choice.measures, choice.figures[index], strict=True)
            },
            result=_result(choice, index),
        )
        for method, choice in choices.items()
        for index in choice.order
    ]


def measure_label(name: str) -> str:
    """Return a measure of a choice in words, as a column has it."""
    return "KL to dense ↓" if name == DIVERGENCE else f"PPL, held-out {name} ↓"


def _result(choice: Choice, index: int) -> str:
    marks = ["chosen"] * (index == choice.chosen) + ["reference"] * (index == choice.reference)
    return "failed, next run retries" if choice.numbers[index] != choice.numbers[index] else " and ".join(marks)


def weighting(choice: Choice) -> str:
    """Return the parts of a choice's number, in a sentence without its end."""
    labels = {name: f"perplexity on held-out {name}" for name in choice.measures} | {
        DIVERGENCE: "divergence KL(dense ‖ pruned) on fresh text of the model’s own"
    }
    weighted = [
        f"{labels[name]} {percent(weight)}" for name, weight in zip(choice.measures, choice.weights, strict=True)
    ]
    return f"the weighted geometric mean of ratios to the reference ({'; '.join(weighted)})"


def candidate_table(candidates: list[Tried]) -> pd.DataFrame:
    """Return one row a candidate, with its method if that differs."""
    table = pd.DataFrame(
        [
            {
                _FOR: METHODS[candidate.method].label,
                "masks": METHODS[candidate.masks].label,
                "repair": candidate.repair,
                "result": candidate.result,
                NUMBER: candidate.number,
                **candidate.figures,
            }
            for candidate in candidates
        ]
    )
    return table if len({candidate.method for candidate in candidates}) > 1 else table.drop(columns=_FOR)
