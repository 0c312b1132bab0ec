"""The gain of further training of a pruned model, by the same steps on the same texts for each method.

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
        """Return the evaluation text."""
        return self.after.text

    @property
    def change(self) -> Difference:
        """Return the change by recovery, paired by window; negative is better."""
        return difference(self.after, self.before)


def recoveries_on(recoveries: list[Recovered], text: str) -> list[Recovered]:
    """Return the methods that were measured on a text, the best one after recovery first."""
    return sorted((item for item in recoveries if item.text == text), key=lambda item: item.after.perplexity)


def recovery_table(recoveries: list[Recovered], label: Callable[[str], str]) -> pd.DataFrame:
    """Return one row a method and text; `label` gives a method's name."""
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
