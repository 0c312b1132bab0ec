"""The bundled demo study: a real shift between two texts that every installation carries.

The algorithm is the paper's, whole; the sample counts are scaled down so that it ends within a minute on two
CPU cores: 72 sequences of 128 tokens a text instead of 2048, and 40 windows a text for the perplexity instead of
all; steps of 16 sequences instead of 32, so that fewer sequences still make 18 of them; contexts from 2048 tokens
instead of 16384.
Every other value is the paper's or this project's default.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from gprune.study import (
    CalibrationSettings,
    ContextSettings,
    EvaluationSettings,
    SparsitySettings,
    Study,
    from_file,
)
from gprune.system.errors import SettingsError
from gprune.system.nearest import did_you_mean

TEXTS = ("python-reference", "science-docs", "python-code")
TABLE = "unicode-table"
"""text B of the demo with strong drift"""


@cache
def demo_study() -> Study:
    """The demo: reference prose against science documentation, with code as the third text."""
    primary, auxiliary, substitute = TEXTS
    return Study(
        name="Bundled demo",
        model="demo",
        primary=primary,
        auxiliary=auxiliary,
        substitute=substitute,
        methods=("dense", "gprune", "llm_pruner", "wanda_sp", "flap", "flap_no_bias", "fang"),
        calibration=CalibrationSettings(samples=72),
        contexts=ContextSettings(tokens=2048),
        sparsity=SparsitySettings(epochs=2, batch=16),
        evaluation=EvaluationSettings(texts=TEXTS, windows=40),
    )


@cache
def strong_drift_demo() -> Study:
    """The demo with a table as text B: ranks of neurons on A say little of those on B."""
    demo = demo_study()
    texts = (demo.primary, TABLE, demo.substitute or "")
    evaluation = replace(demo.evaluation, texts=texts)
    return replace(demo, name="Bundled demo, strong drift", auxiliary=TABLE, evaluation=evaluation)


DEMOS: Mapping[str, Callable[[], Study]] = {"demo": demo_study, "demo-strong-drift": strong_drift_demo}
"""the bundled studies by what commands call them"""


def bundled_study(name: str, *, pipe: bool = False) -> Study:
    """A bundled study by its name, or that of a file, which is meant where one of that name stands here.

    `pipe` allows one. Raises SettingsError if there is neither, or the file holds no valid study.
    """
    if name in DEMOS and not os.path.exists(name):
        return DEMOS[name]()
    try:
        return from_file(name, pipe=pipe)
    except SettingsError as error:
        near = "" if os.path.exists(name) else did_you_mean(name, DEMOS)
        if not near:
            raise
        raise SettingsError(f"{error}{near}") from error


def name_of(study: Study) -> str:
    """Return the command-line name of a bundled study; empty for any other."""
    return next((name for name, build in DEMOS.items() if build() == study), "")
