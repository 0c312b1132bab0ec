"""Candidates for a repair, or for masks and repair, as a table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd

from gprune.analysis.formatting import percent
from gprune.pruning.choosing import DIVERGENCE
from gprune.records import Choice
from gprune.study.methods import METHODS, of_masks

NUMBER, _METHOD = "number ↓", "chosen for"
"""column names of the selection criterion (lower is better) and of the method that selects"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One candidate of a selection."""

    method: str
    """method that selects among its candidates"""
    masks: str
    """method whose masks the candidate uses"""
    repair: str
    """label of the candidate's repair"""
    number: float
    """value of the selection criterion, or NaN if the candidate failed"""
    figures: dict[str, float]
    """perplexities and divergence by label"""
    result: str
    """`chosen`, `reference`, `chosen and reference`, a note that the candidate failed, or empty"""

    @property
    def chosen(self) -> bool:
        """Return True if the candidate was selected."""
        return self.result.startswith("chosen")


def candidates_of(choices: Mapping[str, Choice], describe: Callable[[str], str]) -> list[Candidate]:
    """Return the candidates of all selections, the best of each method first; `describe` returns a repair's label."""
    return [
        Candidate(
            method=method,
            masks=of_masks(choice.masks[index]).name,
            repair=describe(choice.repairs[index]),
            number=float(choice.numbers[index]),
            figures={
                measure_label(name): float(value)
                for name, value in zip(choice.measures, choice.figures[index], strict=True)
            },
            result=_describe_result(choice, index),
        )
        for method, choice in choices.items()
        for index in choice.order
    ]


def measure_label(name: str) -> str:
    """Return the column label of a measure: the divergence from the dense model, or a held-out text's perplexity."""
    return "KL to dense ↓" if name == DIVERGENCE else f"PPL, held-out {name} ↓"


def _describe_result(choice: Choice, index: int) -> str:
    roles = ["chosen"] * (index == choice.chosen) + ["reference"] * (index == choice.reference)
    is_nan = choice.numbers[index] != choice.numbers[index]
    return "failed, the next run retries it" if is_nan else " and ".join(roles)


def describe_criterion(choice: Choice) -> str:
    """Describe the selection criterion and its weights, as a phrase."""
    labels = {name: f"perplexity on held-out {name}" for name in choice.measures} | {
        DIVERGENCE: "divergence KL(dense ‖ pruned) on new text that the dense model writes"
    }
    weighted = [
        f"{labels[name]} {percent(weight)}" for name, weight in zip(choice.measures, choice.weights, strict=True)
    ]
    return f"the weighted geometric mean of ratios to the reference ({'; '.join(weighted)})"


def candidate_table(candidates: list[Candidate]) -> pd.DataFrame:
    """Return a table with one row per candidate; a column names the selecting method if there are several."""
    table = pd.DataFrame(
        [
            {
                _METHOD: METHODS[candidate.method].label,
                "masks": METHODS[candidate.masks].label,
                "repair": candidate.repair,
                "result": candidate.result,
                NUMBER: candidate.number,
                **candidate.figures,
            }
            for candidate in candidates
        ]
    )
    return table if len({candidate.method for candidate in candidates}) > 1 else table.drop(columns=_METHOD)
