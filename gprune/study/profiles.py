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
NAMES = ("paper", "recommended")
PROPOSED = NAMES[0]
"""default profile of a new study"""
PROPOSAL = (
    "The paper’s are proposed: what it claims is claimed for them, and the recommended ones were chosen on "
    "one small model; what those bring on others stands in Compare, view Fair study."
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
        return Profile((), "What the paper states; what it leaves open carries this project's defaults.")
    values = safe_parsing.json_file(Path(__file__).with_name("recommended.json"), "the recommended profile")
    why = (
        f"The best of {values['configurations']} configurations searched on {values['model']}, which no result is "
        f"reported on: perplexity there {-values['gain']['perplexity']:.1%} lower than under the paper's settings."
    )
    return Profile(tuple(values["settings"].items()), why)


@cache
def recipe() -> str:
    """Describe the recommended recipe and its measured gain in a few sentences.

    The figures are those of the development models (docs/method.md, Development and test).
    """
    labels = [METHODS[name].label for name in ChoiceSettings().masks]
    words = (
        f"Recommended recipe, a method of its own: it tries the masks of {join_words(labels)} with several "
        "repairs and takes what is best on held-out text."
    )
    evidence = _evidence()
    return (
        f"{words} On {join_words(evidence['models'])}, which its weights were chosen on, it had "
        f"{evidence['to GPrune']:.2f} of GPrune’s perplexity on unseen text and "
        f"{evidence['to the best unrepaired']:.2f} of the best masks’ without repair ({evidence['cases']} cases)."
    )


def development_models() -> tuple[str, ...]:
    """Return the short names of the models on which the weights of the recommended recipe were selected."""
    return tuple(_evidence()["models"])


def _evidence() -> dict[str, Any]:
    """Return the figures of the search."""
    return dict(safe_parsing.json_file(RECIPE, "the evidence of the recommended recipe"))
