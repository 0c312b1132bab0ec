"""What the cards of the page compute, each once for its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from gprune import stages, whatif
from gprune.analysis.signs import percent
from gprune.methods import METHODS
from gprune.records import PruningMasks
from gprune.study import ReliabilitySettings
from gprune.views.frame import derived
from gprune.views.frame.chart_style import label
from gprune.views.frame.loaders import Run


def lab_masks(run: Run, choice: whatif.LabChoice) -> PruningMasks:
    """The masks of a choice; nothing is learned anew.

    Args:
        run: the run whose scores, modules and learned thresholds are used.
        choice: method, retention, text and RASA setting.

    Raises:
        MissingResultError: the run lacks what GPrune's masks follow from.
        MethodError: the method cannot be decided here, see `whatif.obstacle`.
        SettingsError: the retention is below what the floors of the layers cost.
    """
    if choice.method != "gprune":
        return _of_baseline(run, _identity(run), choice)
    keys = [run.key(stages.scores, text) for text in stages.PAIR]
    keys += [run.key(stages.partition), run.key(stages.modules), run.key(stages.learning)]
    return _of_gprune(run, run.root, tuple(keys), run.study.sparsity.alignment, run.study.seed, choice)


def own_masks(run: Run) -> PruningMasks:
    """What the run itself has decided.

    Raises:
        MissingResultError: it has not come that far.
    """
    return run.load(stages.masks, "gprune")


def choice(run: Run, settings: ReliabilitySettings) -> whatif.LabChoice:
    """GPrune at the run's own retention under some thresholds."""
    return whatif.LabChoice("gprune", run.study.retention, whatif.ADAPTED, settings)


def methods(run: Run) -> dict[str, str]:
    """Every method that decides which units go, by name; those that cannot be decided here say so later."""
    names = [name for name, method in METHODS.items() if method.decision not in ("none", "learned")]
    own = [name for name in run.study.methods if name in names]
    return {name: label(name) for name in dict.fromkeys(["gprune", *own, *names])}


def texts(run: Run) -> Mapping[str, str]:
    """Whose scores can decide."""
    return {
        whatif.PRIMARY: f"A: {run.study.primary}",
        whatif.AUXILIARY: f"B: {run.study.auxiliary}",
        whatif.ADAPTED: "A, adapted by the lines",
    }


def described(run: Run, wanted: whatif.LabChoice) -> str:
    """A choice in short: `FLAP, 50 % kept, scored from B: science-docs`."""
    return (
        f"{label(wanted.method)}, {percent(wanted.retention)} kept, scored from {texts(run)[wanted.scoring]}"
    )


@st.cache_resource(max_entries=64, show_spinner=False)
def _of_gprune(
    _run: Run, root: str, keys: tuple[str, ...], alignment: int, seed: int, choice: whatif.LabChoice
) -> PruningMasks:
    base = _prepared(_run, root, keys, alignment)
    if choice.scoring == whatif.ADAPTED:
        source = derived.preview(_run, choice.settings)[1].source
    else:
        source = whatif.whole(base, choice.scoring)
    return whatif.relocated(base, source, choice.retention)


@st.cache_resource(max_entries=4, show_spinner=False)
def _prepared(_run: Run, root: str, keys: tuple[str, ...], alignment: int) -> whatif.Prepared:
    return whatif.prepared(_run)


@st.cache_resource(max_entries=64, show_spinner=False)
def _of_baseline(_run: Run, identity: str, choice: whatif.LabChoice) -> PruningMasks:
    adapted: Any = None
    if choice.scoring == whatif.ADAPTED:
        adapted = derived.preview(_run, choice.settings)[1].scores
    return whatif.decide(_run.results, choice.method, choice.retention, choice.scoring, adapted)


def _identity(run: Run) -> str:
    """What the decisions of a run's baselines follow from."""
    return f"{run.root} {run.study.to_json()} {run.graph.inputs!r}"
