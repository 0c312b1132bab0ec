"""Whose masks can be set beside each other: those of two lines of the Methods view, on one model."""

from gprune.analysis.comparison import Line
from gprune.app.pages.comparison.lines import Shown
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import PruningMasks


def both_masks(shown: Shown, first: Line, second: Line) -> tuple[PruningMasks, PruningMasks] | None:
    """The masks of two lines; None where one has none, or they are of models of another shape."""
    one, other = (masks_of(line, shown.runs) for line in (first, second))
    return None if one is None or other is None or one.ffn.shape != other.ffn.shape else (one, other)


def comparable(shown: Shown) -> tuple[Line | None, dict[str, Line]]:
    """The line whose masks are compared, and those that they can be compared with."""
    pruned = {f"{line.method}@{line.name[0]}": line for line in shown.lines if masks_of(line, shown.runs)}
    lines = list(pruned.values())
    first = next((line for line in lines if line is shown.pinned), next(iter(lines), None))
    if first is None:
        return None, {}
    same = (key for key, line in pruned.items() if line is not first)
    return first, {key: pruned[key] for key in same if _model(pruned[key], shown) == _model(first, shown)}


def default_of(others: dict[str, Line]) -> str:
    """GPrune, or whichever comes first."""
    return next((key for key, line in others.items() if line.method == "gprune"), next(iter(others)))


def masks_of(line: Line, runs: list[Run]) -> PruningMasks | None:
    """The masks of a line's first run; None where there are none."""
    run = _home(line, runs)
    name = run.cutting.get(line.method)
    return run.load(stages.masks, name) if name and run.has(stages.masks, name) else None


def _home(line: Line, runs: list[Run]) -> Run:
    return next(run for run in runs if run.name == line.rows[0].run)


def _model(line: Line, shown: Shown) -> str:
    run = _home(line, shown.runs)
    return run.graph.inputs.model or run.study.model
