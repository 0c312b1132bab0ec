"""Answers: what does training a pruned model on gain, for each method by the same steps on the same texts?

What is measured after recovery is compared with the same method before it, and with other methods after
theirs; never with a method whose weights no gradient has changed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from gprune.analysis.paired_test import Difference, Measurement, difference


@dataclass(frozen=True, slots=True)
class Recovered:
    """A method on one text, before and after its recovery."""

    before: Measurement
    after: Measurement

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.after.method

    @property
    def text(self) -> str:
        """The evaluation text."""
        return self.after.text

    @property
    def change(self) -> Difference:
        """What recovery changes, paired by window; negative is better."""
        return difference(self.after, self.before)


def of_text(found: list[Recovered], text: str) -> list[Recovered]:
    """The methods that were measured on a text, the best one after recovery first."""
    return sorted((one for one in found if one.text == text), key=lambda one: one.after.perplexity)


def table(found: list[Recovered], label: Callable[[str], str]) -> pd.DataFrame:
    """One row a method and text; `label` gives a method's name."""
    return pd.DataFrame(
        [
            {
                "method": label(one.method),
                "text": one.text,
                "before": one.before.perplexity,
                "after recovery": one.after.perplexity,
                "change %": 100 * one.change.change,
                "± %": 100 * one.change.margin,
            }
            for text in dict.fromkeys(one.text for one in found)
            for one in of_text(found, text)
        ]
    )
