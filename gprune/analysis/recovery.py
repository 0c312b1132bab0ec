"""Gain by recovery (training after pruning), with the same steps and texts for each method.

A recovered model is compared with the same method before recovery and with other recovered models, but not with other
methods without recovery.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from gprune.analysis.paired_test import Difference, Measurement, difference


@dataclass(frozen=True, slots=True)
class Recovered:
    """Perplexity of a method on one text before and after recovery."""

    before: Measurement
    after: Measurement

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return self.after.method

    @property
    def text(self) -> str:
        """Return the evaluation text."""
        return self.after.text

    @property
    def change(self) -> Difference:
        """Return the change by recovery, paired by window; negative is better."""
        return difference(self.after, self.before)


def recoveries_on(recoveries: list[Recovered], text: str) -> list[Recovered]:
    """Return the recoveries measured on a text, in ascending order of perplexity after recovery."""
    return sorted((item for item in recoveries if item.text == text), key=lambda item: item.after.perplexity)


def recovery_table(recoveries: list[Recovered], label: Callable[[str], str]) -> pd.DataFrame:
    """Return a table with one row per text and method; `label` returns a method's label."""
    return pd.DataFrame(
        [
            {
                "method": label(item.method),
                "text": item.text,
                "before": item.before.perplexity,
                "after recovery": item.after.perplexity,
                "change %": 100 * item.change.change,
                "± %": 100 * item.change.margin,
            }
            for text in dict.fromkeys(item.text for item in recoveries)
            for item in recoveries_on(recoveries, text)
        ]
    )
