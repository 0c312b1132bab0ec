"""Named profiles of settings: the paper's values, and the result of a search on a development model.

`paper` is a study's defaults. `recommended` applies the settings in `recommended.json`. That file is frozen: results on
other models do not change it (docs/method.md, Development and test).
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gprune.study import ChoiceSettings
from gprune.study.methods import METHODS
from gprune.system import safe_parsing
from gprune.system.units import join_words

RECIPE = Path(__file__).with_name("recipe.json")
"""file with the figures of the search for the recommended recipe"""
NAMES = ("paper", "recommended")
PROPOSED = NAMES[0]
"""name of the default profile of a new study"""
PROPOSAL = (
    "The default is the paper’s settings, because its claims are for them. The recommended settings were chosen on "
    "one small model; Compare, view Fair study, shows their effect on others."
)
"""explanation of the default for users"""


@dataclass(frozen=True, slots=True)
class Profile:
    """A named set of settings."""

    settings: tuple[tuple[str, Any], ...]
    """dotted fields of a study and their values"""
    why: str
    """origin of the settings, in one sentence"""


@cache
def profile(name: str) -> Profile:
    """Return the profile with one of NAMES."""
    if name == NAMES[0]:
        return Profile((), "The settings that the paper states, and this project's defaults for the others.")
    values = safe_parsing.json_file(Path(__file__).with_name("recommended.json"), "the recommended profile")
    why = (
        f"The best of {values['configurations']} configurations searched on {values['model']}, a model used for no "
        f"other result: perplexity there is {-values['gain']['perplexity']:.1%} lower than under the paper's settings."
    )
    return Profile(tuple(values["settings"].items()), why)


@cache
def recipe() -> str:
    """Describe the recommended recipe and its measured gain in a few sentences.

    The figures are those of the development models (docs/method.md, Development and test).
    """
    labels = [METHODS[name].label for name in ChoiceSettings().masks]
    summary = (
        f"Recommended recipe, a method of its own: it tries the masks of {join_words(labels)} with several "
        "repairs and keeps the best pair on held-out text."
    )
    evidence = _read_evidence()
    return (
        f"{summary} On {join_words(evidence['models'])}, on which its weights were chosen, its perplexity on unseen "
        f"text is {evidence['to GPrune']:.2f}× GPrune’s and {evidence['to the best unrepaired']:.2f}× that of the "
        f"best masks without repair ({evidence['cases']} cases)."
    )


def development_models() -> tuple[str, ...]:
    """Return the short names of the models on which the weights of the recommended recipe were selected."""
    return tuple(_read_evidence()["models"])


def _read_evidence() -> dict[str, Any]:
    """Return the figures of the search."""
    return dict(safe_parsing.json_file(RECIPE, "the evidence of the recommended recipe"))
