"""Choices of the page and the masks that follow from them."""

from collections.abc import Mapping

from gprune.analysis import whatif
from gprune.analysis.formatting import percent
from gprune.app.ui.chart_style import label
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import PruningMasks
from gprune.study import ReliabilitySettings
from gprune.study.methods import BUILT_IN, METHODS


def own_masks(run: Run) -> PruningMasks:
    """Return the run's masks of GPrune; MissingResultError if they are not there."""
    return run.load(stages.masks, "gprune")


def choice(run: Run, settings: ReliabilitySettings) -> whatif.LabChoice:
    """GPrune at the run's own retention under some thresholds."""
    return whatif.LabChoice("gprune", run.study.retention, whatif.ADAPTED, settings)


def methods(run: Run) -> dict[str, str]:
    """Every method that decides which units go, by name; those that cannot be decided here say so later."""
    methods = {name: METHODS[name] for name in (*run.study.methods, *BUILT_IN)}
    names = [name for name, method in methods.items() if method.decision != "none" and not method.learns]
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
    return f"{label(wanted.method)}, {percent(wanted.retention)} kept, scored from {texts(run)[wanted.scoring]}"
