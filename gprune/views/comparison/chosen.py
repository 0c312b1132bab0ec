"""What the Methods view compares: runs, their methods, and the pinned line; all of it is in the address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from gprune.analysis import comparison as analysis
from gprune.analysis import run_settings, unseen
from gprune.analysis.comparison import Line, Row
from gprune.analysis.signs import percent
from gprune.analysis.unseen import Standing
from gprune.methods import METHODS
from gprune.settings import require_choice
from gprune.views.frame import address, derived, frame, run_choice, story
from gprune.views.frame.chart_style import called, label
from gprune.views.frame.loaders import MissingResultError, Run
from gprune.views.frame.run_labels import labels
from gprune.views.frame.text import plain

RUNS = "cp_runs"
_LAST = "cp_last_run"
_BASES = {"twflap": "fang"}
"""the method that scores by a metric, where it is not called like it"""


@dataclass(frozen=True, slots=True)
class Shown:
    """What the cards of the view draw."""

    runs: list[Run]
    rows: list[Row]
    """every method of every run"""
    lines: list[Line]
    """the rows, those of several seeds together, the pinned one on top"""
    names: dict[tuple[str, str], str]
    """what to call a line"""
    pinned: Line
    differences: bool
    """whether the table shows the differences to the pinned line"""
    asked: Mapping[str, Any]
    """what of it is not so by itself, as options of the figures"""
    standings: Mapping[str, Mapping[str, Standing]]
    """what the evaluation texts of each run are to its calibration texts, by run"""

    @property
    def texts(self) -> list[str]:
        """The evaluation texts, unseen ones first."""
        return sorted(analysis.texts(self.rows), key=lambda text: self.role(text) != unseen.UNSEEN)

    def standing(self, text: str) -> Standing | None:
        """What an evaluation text is in the first of the runs that measure it."""
        return next((known[text] for known in self.standings.values() if text in known), None)

    def role(self, text: str) -> str:
        """What an evaluation text is to the calibration texts of the runs that measure it."""
        known = [known[text] for known in self.standings.values() if text in known]
        roles = list(dict.fromkeys(standing.brief for standing in known))
        return " or ".join(roles) + (", by run" if len(roles) > 1 else "")


def runs(run: Run) -> list[Run]:
    """Asks for the runs; as long as only one is shown, it is that of the frame."""
    situation = frame.situation()
    shown = address.several(RUNS, [other.name for other in situation.runs], [run.name])
    last = st.session_state.get(_LAST, run.name)
    if last != run.name and shown == [last]:
        shown = [run.name]
        address.put(RUNS, shown)
    st.session_state[_LAST] = run.name
    known = labels(situation.runs)
    listed = run_choice.listed(situation.runs, (run.name, *shown))
    names = {other.name: run_choice.run_label(other, known) for other in listed}
    asked = address.multiselect("Runs side by side", names, RUNS, [run.name])
    found = [other for name in asked if (other := situation.run_named(name)) is not None]
    for other in found:
        if not derived.measured(other):
            st.caption(f"{plain(known[other.name])} has no perplexities yet.")
    return found or [run]


def shown(chosen: list[Run]) -> Shown:
    """Asks for methods, the pinned line and how seeds are shown.

    Raises:
        MissingResultError: none of the runs has a perplexity.
    """
    rows = measured_rows(chosen)
    groups = run_settings.seed_groups({run.name: run.study for run in chosen})
    with st.container(horizontal=True, vertical_alignment="bottom"):
        methods = _picked(rows)
        several = run_settings.has_several_seeds(groups)
        together = not several or address.toggle("Seeds together", "cp_seeds", True)
        found = composed(chosen, rows, methods, together=together)
        pinned = _pinned(found)
        differences = address.toggle("Show differences", "cp_deltas", True)
    return composed(chosen, rows, methods, together=together, pinned=pinned, differences=differences)


def composed(
    chosen: list[Run],
    rows: list[Row],
    methods: Sequence[str] = (),
    *,
    together: bool = True,
    pinned: str = "",
    differences: bool = True,
) -> Shown:
    """What the cards draw, from plain choices.

    Args:
        chosen: the runs.
        rows: every method of them; see `measured_rows`.
        methods: those that are shown; all where none is named.
        together: whether runs that differ in their seed alone are one line.
        pinned: the pinned line as an address names it; the metric's own method where left out.
        differences: see `Shown`.

    Raises:
        SettingsError: there is no such line.
    """
    kept = [row for row in rows if row.method in methods] if methods else rows
    groups = run_settings.seed_groups({run.name: run.study for run in chosen})
    several = run_settings.has_several_seeds(groups)
    lines = analysis.lines(kept, groups if together and several else None)
    measured, default = _measured(lines, chosen[0].study.metric)
    require_choice("pinned", pinned or default, tuple(measured))
    first = measured[pinned or default]
    ordered = [first, *(line for line in lines if line is not first)]
    asked = {"methods": tuple(methods), "together": together, "pinned": pinned if pinned != default else ""}
    standings = {run.name: story.standings(run) for run in chosen}
    return Shown(chosen, kept, ordered, _names(lines, chosen), first, differences, asked, standings)


def measured_rows(chosen: list[Run]) -> list[Row]:
    """Every method of some runs, those that could not run as well.

    Raises:
        MissingResultError: none of the runs has a perplexity.
    """
    rows = analysis.rows([item for run in chosen for item in derived.measurements(run)])
    if not rows:
        raise MissingResultError("the perplexity of any method")
    return rows + [row for run in chosen for row in analysis.unavailable(run.name, derived.unavailable(run))]


def _picked(rows: list[Row]) -> list[str]:
    """Asks for methods; none means all."""
    there = {row.method for row in rows}
    options = [name for name in METHODS if name in there]
    picked = address.several("cp_methods", options, ())
    count = len(picked) or len(options)
    with st.popover(f"Methods: {count} of {len(options)}", icon=":material/filter_list:", key="cp_filter"):
        names = {name: label(name) for name in options}
        return address.multiselect("Methods", names, "cp_methods", (), placeholder="all methods")


def _pinned(found: Shown) -> str:
    """Asks for the line that the others are compared with, as an address names it."""
    measured, default = _measured(found.lines, found.runs[0].study.metric)
    options = {key: found.names[line.name] for key, line in measured.items()}
    return address.selectbox("Pinned baseline", options, "cp_pinned", default, width=260)


def _measured(lines: list[Line], metric: str) -> tuple[dict[str, Line], str]:
    """The lines that others can be compared with, and the one of the metric's own method."""
    measured = {_key(line): line for line in lines if any(row.cells for row in line.rows)} or {
        _key(line): line for line in lines
    }
    own = _BASES.get(metric, metric)
    default = next((key for key, line in measured.items() if line.method == own), next(iter(measured)))
    return measured, default


def _key(line: Line) -> str:
    """How an address names a line."""
    run, method = line.name
    return f"{method}@{run}"


def _names(lines: list[Line], chosen: list[Run]) -> dict[tuple[str, str], str]:
    """What to call each line: the method, with those words of the run in which the pruned lines differ."""
    runs = {run.name: run for run in chosen}
    words = {line.name: _words(line, runs) for line in lines if line.method != analysis.DENSE}
    differ = [len(set(column)) > 1 for column in zip(*words.values(), strict=True)]
    names = {}
    for line in lines:
        own = words.get(line.name, ())
        tail = ", ".join(word for word, keep in zip(own, differ, strict=False) if keep)
        name = called(line.method)
        names[line.name] = f"{name} · {tail}" if tail else name
    return _distinct(names)


def _words(line: Line, runs: dict[str, Run]) -> tuple[str, ...]:
    run = runs[line.rows[0].run]
    study, count = run.study, len(line.seeds)
    seeds = f"{count} seeds" if count > 1 else f"seed {study.seed}"
    return run.title or run.name, f"keep {percent(study.retention)}", label(study.metric), seeds


def _distinct(names: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """Adds the run's hash to names that would be equal."""
    every = list(names.values())
    return {
        line: f"{name} ({line[0].rsplit('-', 1)[-1]})" if every.count(name) > 1 else name
        for line, name in names.items()
    }
