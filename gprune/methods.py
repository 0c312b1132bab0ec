"""Every pruning method by name: whose decision it takes, from which text's scores, and what it is called.

The rows of the tables of section 4 and of the appendix, and controls that say what each part of them
brings. A study names the methods it compares; a result, a table and a page use the same names.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    control: bool = False
    """whether it is there to say what a part of another method brings, and is no rival of it"""
    modules: str = ""
    """modules of learned masks: the study's own where empty, or layers, random or shuffled"""
    adapts: bool = True
    """whether RASA takes part in learned masks"""
    same_as: str = ""
    """masks that are the same by definition, and share their key"""
    form_of: str = ""
    """the method that it is another form of: with two texts, without bias compensation, in one pass"""

    @property
    def baseline(self) -> bool:
        """Whether people would otherwise use it: no control, no other form of a method, and not GPrune."""
        return not (self.control or self.form_of or self.decision in ("none", "learned"))

    @property
    def changes(self) -> dict[str, str]:
        """Settings under which GPrune itself is this control; modules that no setting names are left out."""
        named = {"modularization.kind": self.modules} if self.modules == "random" else {}
        return named | ({} if self.adapts else {"reliability.selection": "none"})


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
            form_of=name,
        )
        for scoring, words in _SCORING_LABELS.items()
    ]


def _learned(name: str, label: str, modules: str = "") -> Method:
    """A control of GPrune: its supervision, texts and steps, without RASA and with other modules."""
    return Method(name, label, name, "learned", control=True, modules=modules, adapts=False)


def _uniform(metric: str, label: str, same_as: str = "") -> Method:
    """A control of a metric: its scores on the primary text, one ratio in every layer, nothing learned."""
    name = f"{metric}_uniform"
    return Method(name, f"{label}, one ratio", name, "uniform", metric, control=True, same_as=same_as)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("dense", "dense", "dense", "none"),
        Method("gprune", "GPrune", "gprune", "learned"),
        Method("llm_pruner", "LLM-Pruner", "llm_pruner", "llm_pruner", "llm_pruner"),
        Method("wanda_sp", "Wanda-sp", "wanda_sp", "sequential", "wanda_sp"),
        Method(
            "wanda_sp_dense",
            "Wanda-sp, dense statistics",
            "wanda_sp_dense",
            "uniform",
            "wanda_sp",
            form_of="wanda_sp",
        ),
        *_variants("wanda_sp", "Wanda-sp", "uniform", False),
        Method("flap", "FLAP", "flap", "flap", "flap", compensated=True),
        Method("flap_no_bias", "FLAP, no bias compensation", "flap", "flap", "flap", form_of="flap"),
        *_variants("flap", "FLAP", "flap", True),
        Method("fang", "FANG", "fang", "fang", "fang"),
        *_variants("fang", "FANG", "fang", False),
        _uniform("flap", "FLAP"),
        # Wanda-sp without its layer-by-layer pass is one ratio in every layer already
        _uniform("wanda_sp", "Wanda-sp", same_as="wanda_sp_dense"),
        _learned("msl_layers", "MSL, one module a layer", "layers"),
        _learned("msl_random", "MSL, random modules", "random"),
        _learned("msl_shuffled", "MSL, shuffled modules", "shuffled"),
        _learned("gprune_no_rasa", "GPrune, no RASA"),
    )
}

CONTROLS = tuple(name for name, method in METHODS.items() if method.control)
"""what says whether a gain needs the modules, the adaptation and the learning; none is compared by default"""

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


def with_controls(methods: Sequence[str]) -> tuple[str, ...]:
    """Methods, and after them every control that is not among them."""
    return tuple(dict.fromkeys((*methods, *CONTROLS)))


def compensates(method: Method, learned: bool) -> bool:
    """Whether a method moves the removed units' mean into the biases.

    Args:
        method: the method.
        learned: the study's setting for the method whose masks are learned.
    """
    return learned if method.decision == "learned" else method.compensated
