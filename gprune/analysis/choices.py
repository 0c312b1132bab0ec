"""What was tried before a repair, or masks and repair, were chosen: as a table and as marks."""

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
    """what was chosen by; NaN where it could not be made"""
    figures: dict[str, float]
    """perplexities and divergence, by what is measured"""
    result: str
    """chosen, reference, chosen and reference, not possible, or empty"""

    @property
    def chosen(self) -> bool:
        """Whether it is the one."""
        return self.result.startswith("chosen")


def tried(choices: Mapping[str, Choice], described: Callable[[str], str]) -> list[Tried]:
    """Every candidate of some choices, by method, the best of each first; `described` words a repair."""
    return [
        Tried(
            method=method,
            masks=of_masks(one.masks[place]).name,
            repair=described(one.repairs[place]),
            number=float(one.numbers[place]),
            figures={
                measured(name): float(value) for name, value in zip(one.measures, one.figures[place], strict=True)
            },
            result=_result(one, place),
        )
        for method, one in choices.items()
        for place in one.order
    ]


def measured(name: str) -> str:
    """A measure of a choice in words, as a column has it."""
    return "KL to dense ↓" if name == DIVERGENCE else f"PPL, held-out {name} ↓"


def _result(one: Choice, place: int) -> str:
    words = ["chosen"] * (place == one.chosen) + ["reference"] * (place == one.reference)
    return "not possible" if one.numbers[place] != one.numbers[place] else " and ".join(words)


def weighed(one: Choice) -> str:
    """What a choice's number is made of, in a sentence without its end."""
    words = {name: f"perplexity on held-out {name}" for name in one.measures} | {
        DIVERGENCE: "divergence KL(dense ‖ pruned) on fresh text of the model’s own"
    }
    parts = [f"{words[name]} {percent(weight)}" for name, weight in zip(one.measures, one.weights, strict=True)]
    return f"the weighted geometric mean of ratios to the reference ({'; '.join(parts)})"


def table(found: list[Tried]) -> pd.DataFrame:
    """One row a candidate; what it was tried for stands there where that differs."""
    made = pd.DataFrame(
        [
            {
                _FOR: METHODS[one.method].label,
                "masks": METHODS[one.masks].label,
                "repair": one.repair,
                "result": one.result,
                NUMBER: one.number,
                **one.figures,
            }
            for one in found
        ]
    )
    return made if len({one.method for one in found}) > 1 else made.drop(columns=_FOR)
