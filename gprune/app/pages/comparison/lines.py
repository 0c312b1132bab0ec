"""What the Methods view compares, from plain choices: runs, their methods, and the pinned line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gprune.analysis import comparison as analysis
from gprune.analysis import run_settings
from gprune.analysis.comparison import Line, Row
from gprune.analysis.formatting import percent
from gprune.analysis.verdict import Expected, missing_methods, own_method, rank_lines
from gprune.app.ui import derived_cache, story
from gprune.app.ui.chart_style import called, label
from gprune.evaluation import holdout
from gprune.evaluation.holdout import HoldoutStatus
from gprune.pipeline import runs as run_records
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run, all_runs
from gprune.pipeline.stages.method_inputs import repair_label
from gprune.records import PruningMasks
from gprune.store import Store
from gprune.study.settings import require_choice
from gprune.system.errors import SettingsError, StoreError
from gprune.system.safe_parsing import quoted


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
    standings: Mapping[str, Mapping[str, HoldoutStatus]]
    """what the evaluation texts of each run are to its calibration texts, by run"""

    @property
    def expected(self) -> Expected:
        """What the comparison must have before anything is claimed."""
        return story.expected(self.runs, self.asked["methods"])

    @property
    def missing(self) -> list[str]:
        """The methods that are not measured on every text yet."""
        known = self.expected
        return list(dict.fromkeys(name for text in known for name in missing_methods(self.lines, text, known)))

    def ranking(self, *names: str) -> dict[tuple[str, str], int]:
        """The ranks of the pruned models on some texts."""
        return rank_lines(self.lines, names, self.expected)

    @property
    def texts(self) -> list[str]:
        """The evaluation texts, unseen ones first."""
        return sorted(analysis.texts(self.rows), key=lambda text: self.role(text) != holdout.UNSEEN)

    def standing(self, text: str) -> HoldoutStatus | None:
        """What an evaluation text is in the first of the runs that measure it."""
        return next((known[text] for known in self.standings.values() if text in known), None)

    def role(self, text: str) -> str:
        """What an evaluation text is to the calibration texts of the runs that measure it."""
        known = [known[text] for known in self.standings.values() if text in known]
        roles = list(dict.fromkeys(standing.brief for standing in known))
        return " or ".join(roles) + (", by run" if len(roles) > 1 else "")


def shown_of(
    run: Run,
    runs: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    together: bool = True,
    pinned: str = "",
) -> Shown:
    """What the cards draw of a run, or of several of its cache.

    Raises StoreError where there is no such run or none has a perplexity, SettingsError where a name is none,
    or a method or a line is not among them.
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


def composed(
    chosen: list[Run],
    rows: list[Row],
    methods: Sequence[str] = (),
    *,
    together: bool = True,
    pinned: str = "",
    differences: bool = True,
) -> Shown:
    """What the cards draw, from plain choices and `measured_rows`; no methods are all of them.

    `pinned` is a line as an address names it, the metric's own method where it is empty; `together` makes
    runs that differ in their seed alone one line. Raises SettingsError where there is no such line.
    """
    kept = [row for row in rows if row.method in methods] if methods else rows
    groups = run_settings.seed_groups({run.name: run.study for run in chosen})
    several = run_settings.has_several_seeds(groups)
    lines = analysis.lines(kept, groups if together and several else None)
    measured, default = measured_lines(lines, chosen[0].study.metric)
    require_choice("pinned", pinned or default, tuple(measured))
    first = measured[pinned or default]
    ordered = [first, *(line for line in lines if line is not first)]
    asked = {"methods": tuple(methods), "together": together, "pinned": pinned if pinned != default else ""}
    standings = {run.name: story.standings(run) for run in chosen}
    return Shown(chosen, kept, ordered, _names(lines, chosen), first, differences, asked, standings)


def measured_rows(chosen: list[Run]) -> list[Row]:
    """Every method of some runs, also those that could not run; MissingResultError without a perplexity."""
    rows = analysis.rows([item for run in chosen for item in derived_cache.measurements(run)])
    if not rows:
        raise MissingResultError("the perplexity of any method")
    return rows + [row for run in chosen for row in analysis.unavailable(run.name, derived_cache.unavailable(run))]


def measured_lines(lines: list[Line], metric: str) -> tuple[dict[str, Line], str]:
    """The lines that others can be compared with, and the one of the metric's own method."""
    measured = {_key(line): line for line in lines if any(row.cells for row in line.rows)} or {
        _key(line): line for line in lines
    }
    own = own_method(metric)
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
    repaired = repair_label(study) or "own repair"
    widths = "equal widths" if study.sparsity.equal else "free widths"
    metric = label(study.metric)
    return run.title or run.name, f"keep {percent(study.retention)}", metric, widths, repaired, seeds


def _distinct(names: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """Adds the run's hash to names that would be equal."""
    every = list(names.values())
    return {
        line: f"{name} ({line[0].rsplit('-', 1)[-1]})" if every.count(name) > 1 else name
        for line, name in names.items()
    }


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
    return first, {key: pruned[key] for key in same if _dense(pruned[key], shown) == _dense(first, shown)}


def default_of(others: dict[str, Line]) -> str:
    """GPrune, or whichever comes first."""
    return next((key for key, line in others.items() if line.method == "gprune"), next(iter(others)))


def masks_of(line: Line, runs: list[Run]) -> PruningMasks | None:
    """The masks of a line's first run; None where there are none."""
    run = _home(line, runs)
    name = run.cutting.get(line.method)
    return run.find(stages.masks, name) if name else None


def _home(line: Line, runs: list[Run]) -> Run:
    return next(run for run in runs if run.name == line.rows[0].run)


def _dense(line: Line, shown: Shown) -> str:
    run = _home(line, shown.runs)
    return run.graph.inputs.model or run.study.model
