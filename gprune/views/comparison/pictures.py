"""The figures of the view of methods by name, each from a run and what can be set beside its card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from gprune import run_records, stages
from gprune.analysis import kept_units
from gprune.analysis.comparison import DENSE, Line
from gprune.analysis.kept_units import KINDS, NEURONS
from gprune.errors import MethodError, SettingsError, StoreError
from gprune.methods import METHODS
from gprune.records import PruningMasks
from gprune.settings import require_choice
from gprune.store import Store
from gprune.untrusted import quoted
from gprune.views.comparison import charts
from gprune.views.comparison.chosen import Shown, composed, measured_rows
from gprune.views.frame import marks
from gprune.views.frame.loaders import Run, all_runs
from gprune.views.frame.picture import picture
from gprune.views.frame.selection import NOTHING, Selection
from gprune.views.frame.text import in_figure


@picture("perplexity")
def perplexity(
    run: Run,
    *,
    text: str = "",
    runs: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    together: bool = True,
    pinned: str = "",
) -> go.Figure:
    """Perplexity of every method on a text, an unseen one where none is named."""
    shown = shown_of(run, runs, methods, together, pinned)
    require_choice("text", text or shown.texts[0], tuple(shown.texts))
    return charts.dots(shown.lines, text or shown.texts[0], names_of(shown))


@picture("differences")
def differences(
    run: Run,
    *,
    runs: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    together: bool = True,
    pinned: str = "",
) -> go.Figure:
    """Difference of every method to the pinned one, window by window."""
    shown = shown_of(run, runs, methods, together, pinned)
    figure = charts.changes(shown.lines, shown.pinned, shown.texts, names_of(shown))
    if figure is None:
        raise MethodError(f"no other method was measured on the windows of {shown.names[shown.pinned.name]}")
    return figure


@picture("kept_units")
def kept_units_by_layer(
    run: Run,
    *,
    other: str = "",
    kind: str = NEURONS,
    runs: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    together: bool = True,
    pinned: str = "",
    selected: Selection = NOTHING,
) -> go.Figure:
    """Units of each layer that the pinned method and another one keep, and that both keep."""
    shown = shown_of(run, runs, methods, together, pinned)
    first, others = comparable(shown)
    require_choice("kind", kind, tuple(KINDS))
    if first is None or not others:
        raise MethodError("kept units need the masks of two methods on the same model")
    require_choice("other", other or default_of(others), tuple(others))
    figure = kept_by(shown, first, others[other or default_of(others)], kind)
    marks.layer_line(figure, selected)
    return figure


def kept_by(shown: Shown, first: Line, second: Line, kind: str) -> go.Figure:
    """The figure of two lines that have masks of one shape."""
    one, other = (masks_of(line, shown.runs) for line in (first, second))
    if one is None or other is None or one.ffn.shape != other.ffn.shape:
        raise MethodError("these masks are of models of another shape")
    names = in_figure(shown.names[first.name]), in_figure(shown.names[second.name])
    found = kept_units.overlap(one, other, kind)
    return charts.kept(found, (first.method, second.method), names, kind)


def shown_of(run: Run, runs: tuple[str, ...], methods: tuple[str, ...], together: bool, pinned: str) -> Shown:
    """What the cards draw of a run, or of several of its cache.

    Raises:
        StoreError: there is no such run, or none has a perplexity.
        SettingsError: a name is none, or a method or a line is not among them.
    """
    chosen = [run]
    if runs:
        readable, damaged = all_runs(run.root)
        known, reasons = {one.name: one for one in readable}, {one.name: one.reason for one in damaged}
        for name in runs:
            if not isinstance(name, str):
                raise SettingsError(f"runs must be names of runs (got {quoted(name)})")
            if name not in known:
                run_records.required(Store(Path(run.root)), name)
                raise StoreError(reasons.get(name, f"the run {quoted(name)} is there since now: ask again"))
        chosen = [known[name] for name in runs]
    rows = measured_rows(chosen)
    there = tuple(dict.fromkeys(row.method for row in rows))
    for method in methods:
        require_choice("methods", method, there)
    return composed(chosen, rows, methods, together=together, pinned=pinned)


def asked_of(run: Run, shown: Shown) -> dict[str, Any]:
    """What a page shows, as options."""
    names = tuple(one.name for one in shown.runs)
    return {"runs": () if names == (run.name,) else names, **shown.asked}


def names_of(shown: Shown) -> dict[tuple[str, str], str]:
    """What to call the lines in a figure."""
    return {line.name: in_figure(shown.names[line.name]) for line in shown.lines}


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
    run, name = _home(line, runs), METHODS[line.method].masks
    if line.method == DENSE or not run.has(stages.masks, name):
        return None
    return run.load(stages.masks, name)


def _home(line: Line, runs: list[Run]) -> Run:
    return next(run for run in runs if run.name == line.rows[0].run)


def _model(line: Line, shown: Shown) -> str:
    run = _home(line, shown.runs)
    return run.graph.inputs.model or run.study.model
