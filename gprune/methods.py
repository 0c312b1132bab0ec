"""Every pruning method by name: whose decision it takes, from which text's scores, and what it is called.

The rows of the tables of section 4 and of the appendix. A study names the methods it compares; a result, a
table and a page use the same names.
"""

from __future__ import annotations

from dataclasses import dataclass

from gprune.errors import SettingsError

METRICS = {"flap": "FLAP", "wanda_sp": "Wanda-sp", "twflap": "token-weighted FLAP"}
"""importance metrics by name, as people call them"""
SCORINGS = {
    "single": "the primary text",
    "score_average": "the mean of both texts' scores",
    "rank_average": "the mean of both texts' ranks",
    "pooled": "both texts as one",
}
"""from which text a baseline scores its units (appendix, multi-dataset calibration)"""


@dataclass(frozen=True, slots=True)
class Method:
    """One pruning method."""

    name: str
    """as studies and results name it"""
    label: str
    """as pages and tables name it"""
    masks: str
    """the masks it uses; methods that differ in bias compensation only share them"""
    decision: str
    """how the masks are made: none, learned, flap, uniform, sequential, fang or llm_pruner"""
    metric: str = ""
    """base metric of its scores; that of the study where empty"""
    scoring: str = "single"
    """from which text it scores, one of SCORINGS"""
    compensated: bool = False
    """whether the removed units' mean contribution moves into the biases"""


_SCORING_LABELS = {"score_average": "score average", "rank_average": "rank average", "pooled": "pooled"}


def _variants(name: str, label: str, decision: str, compensated: bool) -> list[Method]:
    """The multi-dataset forms of a baseline; each is scored from statistics that are there already."""
    return [
        Method(
            f"{name}_{scoring}",
            f"{label}, {words}",
            f"{name}_{scoring}",
            decision,
            name,
            scoring,
            compensated,
        )
        for scoring, words in _SCORING_LABELS.items()
    ]


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("dense", "dense", "dense", "none"),
        Method("gprune", "GPrune", "gprune", "learned"),
        Method("llm_pruner", "LLM-Pruner", "llm_pruner", "llm_pruner", "llm_pruner"),
        Method("wanda_sp", "Wanda-sp", "wanda_sp", "sequential", "wanda_sp"),
        Method("wanda_sp_dense", "Wanda-sp, dense statistics", "wanda_sp_dense", "uniform", "wanda_sp"),
        *_variants("wanda_sp", "Wanda-sp", "uniform", False),
        Method("flap", "FLAP", "flap", "flap", "flap", compensated=True),
        Method("flap_no_bias", "FLAP, no bias compensation", "flap", "flap", "flap"),
        *_variants("flap", "FLAP", "flap", True),
        Method("fang", "FANG", "fang", "fang", "fang"),
        *_variants("fang", "FANG", "fang", False),
    )
}

DEFAULT = ("dense", "gprune", "flap", "flap_no_bias", "wanda_sp")
"""what a study compares unless it says otherwise"""


def of_masks(masks: str) -> Method:
    """The method whose decision some masks are.

    Raises:
        SettingsError: no method has masks of this name.
    """
    found = next((method for method in METHODS.values() if method.masks == masks), None)
    if found is None:
        raise SettingsError(f"no method has masks called {masks!r}")
    return found


def compensates(method: Method, learned: bool) -> bool:
    """Whether a method moves the removed units' mean into the biases.

    Args:
        method: the method.
        learned: the study's setting for the method whose masks are learned.
    """
    return learned if method.decision == "learned" else method.compensated
