"""The bundled demo studies: distribution shift between two texts that are part of every installation.

The complete algorithm runs with reduced sample counts, so that a run takes less than 45 seconds on two CPU cores: 48
sequences of 128 tokens per text instead of 2048, 32 windows per text for the perplexity instead of all, 12 sequences
per step instead of 32 (16 steps), and contexts from 2048 tokens instead of 16384. All other values are the paper's or
this project's defaults.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from gprune.study import Study, from_file
from gprune.study.settings import CalibrationSettings, ContextSettings, EvaluationSettings, SparsitySettings
from gprune.system.errors import SettingsError
from gprune.system.safe_parsing import did_you_mean

TEXTS = ("python-reference", "science-docs", "python-code")
TABLE = "unicode-table"
"""text B of the demo with strong drift"""


@cache
def demo_study() -> Study:
    """Return the demo study: reference prose and science documentation, with code as the third text."""
    primary, auxiliary, substitute = TEXTS
    return Study(
        name="Bundled demo",
        model="demo",
        primary=primary,
        auxiliary=auxiliary,
        substitute=substitute,
        methods=("dense", "gprune", "llm_pruner", "wanda_sp", "flap", "flap_no_bias", "fang"),
        calibration=CalibrationSettings(samples=48),
        contexts=ContextSettings(tokens=2048),
        sparsity=SparsitySettings(epochs=2, batch=12),
        evaluation=EvaluationSettings(texts=TEXTS, windows=32),
    )


@cache
def strong_drift_demo() -> Study:
    """Return the demo study with a table as text B, for which the ranks on A and B are almost unrelated."""
    demo = demo_study()
    texts = (demo.primary, TABLE, demo.substitute or "")
    evaluation = replace(demo.evaluation, texts=texts)
    return replace(demo, name="Bundled demo, strong drift", auxiliary=TABLE, evaluation=evaluation)


@cache
def own_answers_demo() -> Study:
    """Return the demo study with documentation as text A, and the model's continuations of its prompts as text B."""
    _, primary, substitute = TEXTS
    return replace(
        demo_study(),
        name="Bundled demo, own answers",
        primary=primary,
        auxiliary=f"own answers=self:{primary}#prompt=16",
        substitute=substitute,
    )


@cache
def experts_demo() -> Study:
    """Return the demo study of the bundled mixture of experts: documentation as text A, and code as text B."""
    substitute, primary, auxiliary = TEXTS
    return replace(
        demo_study(),
        name="Bundled demo, experts",
        model="demo-experts",
        primary=primary,
        auxiliary=auxiliary,
        substitute=substitute,
        methods=(
            "dense",
            "experts_reap",
            "experts_reap_auxiliary",
            "experts_reap_score_average",
            "experts_reap_adapted",
            "experts_frequency",
            "experts_random",
        ),
    )


DEMOS: Mapping[str, Callable[[], Study]] = {
    "demo": demo_study,
    "demo-strong-drift": strong_drift_demo,
    "demo-own-answers": own_answers_demo,
    "demo-experts": experts_demo,
}
"""the bundled studies by their command-line names"""


def read_study(name: str, *, pipe: bool = False) -> Study:
    """Return a bundled study by name, or the study in a file; an existing file takes precedence.

    `pipe` also allows a pipe. Raises SettingsError if there is neither a bundled study nor a file of this name, or the
    file has no valid study.
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
