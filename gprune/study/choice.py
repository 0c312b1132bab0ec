"""Settings of what is chosen by measurement: a repair for each method, or the recommended recipe."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, cast, get_args

from gprune.study.settings import SCALED, RepairSettings, SampledText, Several, Text, TextsUsed, Whole
from gprune.system import limits
from gprune.system.forms import Form, Rule, between, checked

MOST_CANDIDATES = 16
"""masks and repairs that the recommended recipe is chosen from at most"""
UNREPAIRED, OWN = "none", "own"
"""words of the candidates that fit nothing: the masks alone, and what their method does by itself"""
TRIED_SCALED = "least_squares_scales"
"""word of the repair that learns scales after least squares"""
_KINDS = ("affine", "least_squares", "least_squares_bias", TRIED_SCALED)
_TEXTS = get_args(TextsUsed)


def _words(candidates: tuple[str, ...]) -> bool:
    parts = [word.partition(":")[::2] for word in candidates]
    return bool(candidates) and all(kind in _KINDS and texts in _TEXTS for kind, texts in parts)


@checked
@dataclass(frozen=True, slots=True)
class ChoiceSettings(Form):
    """Settings of the choice by `repair.kind` auto and by the recommended method."""

    WHERE: ClassVar = "choice."
    check_text: Text = ""
    """text by whose perplexity alone is chosen; empty: by held-out sequences of A and of B, and by how far
    the model is from the dense one on fresh text that this one writes"""
    sequences: Annotated[Whole, between(2, limits.MOST_COUNT)] = 128
    """sequences of each of these texts, of calibration.length tokens: drawn in addition to the calibration
    ones, and only where something is chosen"""
    fresh: SampledText = "self:#seed=1"
    """the fresh text; its seed is none of those that anything is fitted to"""
    repairs: Annotated[
        Several[Text],
        Rule(
            f"repairs as kind:texts, of the kinds {', '.join(_KINDS)} and the texts {', '.join(_TEXTS)}",
            _words,
        ),
        Rule("repairs of which each stands once", lambda words: len(set(words)) == len(words)),
    ] = ("least_squares_bias:both", "least_squares:both_and_sampled", f"{TRIED_SCALED}:both_and_sampled")
    """repairs that are tried beside none and the method's own, as kind:texts (repair.kind, repair.texts); for the
    recommended recipe one with scales, which takes steps of learning, for the first masks alone"""
    masks: Annotated[
        Several[Text],
        Rule("methods of which each stands once", lambda names: bool(names) and len(set(names)) == len(names)),
    ] = ("gprune", "gates", "flap", "wanda_sp_uniform")
    """methods whose masks the recommended recipe is chosen from; the first one's, not repaired, are its
    reference"""


def with_word(settings: RepairSettings, word: str) -> RepairSettings:
    """The settings of a repair that is tried, as kind:texts; target, damping and sampled text as they are."""
    kind, texts = cast(Any, word.split(":"))
    kind = cast(Any, f"least_squares{SCALED}") if kind == TRIED_SCALED else kind
    return replace(settings, kind=kind, texts=texts)
