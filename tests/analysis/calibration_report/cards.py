"""A card whose numbers a test chooses."""

from dataclasses import replace

import numpy as np

from gprune.analysis.calibration_report.card import Origin, Size, TextCard, TextComparison
from gprune.analysis.resampling import Law, Resampled

DRIFT = {"drift": 0.1, "drift_sampling": 0.02, "drift_beyond": 0.1}
DECISIONS = {"changed": 0.2, "changed_sampling": 0.05, "groups_changed": 0.125}
JACCARD = {"": 0.6, "_chance": 0.3, "_sampling": 0.9, "_halves": 0.85, "_across": 0.58}
CONTENT = {"token_distance": 0.4, "half_distance": 0.45, "distinct_shared": 0.5, "runs_shared": 0.0, "run": 13}
PLAIN = TextComparison(
    "B", "b", "ptb", **DRIFT, **DECISIONS, **{f"jaccard{key}": x for key, x in JACCARD.items()}, **CONTENT
)


def against(**changes):
    return replace(PLAIN, **changes)


def a_card(*texts, drift=None, name="a", run="r", sequences=100, available=1000, **changes):
    """A text of 100 sequences; two samples of n of them are sqrt(0.04 / n) apart: 0.02 at 100."""
    sizes = np.array([25.0, 50.0])
    size = Size(sequences, 128, available, 5000, 200, 4096, 0.25, 0.3)
    law = Law(0.04, 0.0) if drift is None else drift
    rendered = np.array([[law.at(n)] * 4 for n in sizes])
    result = Resampled(sizes, rendered, rendered)
    undecided = 0.3 if texts else float("nan")
    return replace(
        TextCard("A", name, "wiki", "", Origin(run, "m", "flap", 0.5), size, result, law, law, texts, undecided),
        **changes,
    )
