"""Writes reproduced tables into a document, each between two marks, with all that it takes to repeat it.

    <!-- table: main of demo at demo -->
    ... what stands here is replaced ...
    <!-- end of table -->

A mark that ends with `as csv` gets no table in the document but a file, `results/main.csv` beside `results.md`.
`main` is the name of a table, or `against` for GPrune beside the best baseline and two controls; `demo at demo`
are model and scale of the reproduction. Reproductions that differ in their seeds alone are taken together; of
several groups of them the one with most seeds counts, and of equal ones the latest.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from gprune.analysis import studies
from gprune.analysis.formatting import format_count, percent
from gprune.analysis.paired_test import INTERVAL
from gprune.analysis.studies import Setting, StudyRow, columns, is_perplexity, settings
from gprune.analysis.table import Table
from gprune.analysis.tables import ACCURACY, PERPLEXITY
from gprune.data.published import RULES
from gprune.experiments.reproduction import catalogue
from gprune.experiments.reproduction.assembly import derived_values
from gprune.experiments.reproduction.catalogue import Reproduced, Reproduction
from gprune.experiments.reproduction.cells import decimals, format_cell, heading
from gprune.experiments.reproduction.paper_values import spell_out, without_single_tasks
from gprune.experiments.reproduction.tables import TABLES
from gprune.study import short
from gprune.study.methods import METHODS
from gprune.system.files import make_folder, write_text

AGAINST, MAIN = "against", "main"
END = "<!-- end of table -->"
_BEGIN = re.compile(r"<!-- table: ([a-z0-9-]{1,60}) of (\S{1,200}) at ([a-z]{1,20})( as csv)? -->")
_CACHE = re.compile(r" --cache ('[^']*'|\S+)")
_AGAINST_TITLE = "GPrune against the best baseline of each text, chosen in hindsight, and two controls"


@dataclass(frozen=True, slots=True)
class Source:
    """One table of reproductions that differ in their seeds alone."""

    title: str
    made: tuple[tuple[Reproduction, Reproduced], ...]
    """the reproductions with their table, at least one"""

    def rows(self, rule: str = RULES[0]) -> list[StudyRow]:
        """The rows of all of them under an accuracy rule, each seed once."""
        found: dict[tuple[object, ...], StudyRow] = {}
        for _, table in self.made:
            for row in table.rows[rule]:
                found.setdefault((tuple(row.labels.items()), row.method, row.retention, row.seed), row)
        return list(found.values())


def rewritten(text: str, cache: Path, files: Path = Path("results")) -> tuple[str, list[str]]:
    """Return a document with its tables written anew from a cache, and the tables that the cache lacks.

    Those stay as they were. Tables as CSV are written to the folder `files`. Raises StoreError where a table of
    the cache is damaged.
    """
    pieces, missing, place = [], [], 0
    for begin in _BEGIN.finditer(text):
        end = text.find(END, begin.end())
        if end < 0 or begin.start() < place:
            continue
        source = _source(cache, begin[1], begin[2], begin[3])
        if source is None:
            missing.append(f"{begin[1]} of {begin[2]} at {begin[3]}")
            continue
        if begin[4]:
            make_folder(files)
            write_text(files / f"{begin[1]}.csv", _shown(begin[1], source).to_csv(index=False))
        written = csv_block(begin[1], source, files.name) if begin[4] else block(begin[1], source)
        pieces += [text[place : begin.end()], f"\n{written}\n"]
        place = end
    return "".join([*pieces, text[place:]]), missing


def _source(cache: Path, name: str, model: str, scale: str) -> Source | None:
    found, own = [], MAIN if name == AGAINST else name
    for made in catalogue.reproductions(cache):
        if (short(made.model), str(made.scale.get("name"))) == (model, scale) and own in made.tables:
            table = catalogue.load(cache, made.name, own)
            if table is not None and table.filled:
                found.append((made, table))
    groups = [[pair for pair in found if _but_seeds(pair[0]) == _but_seeds(one[0])] for one in found]
    alike = max(groups, key=len, default=[])
    title = _AGAINST_TITLE if name == AGAINST else alike[0][1].title if alike else ""
    return Source(title, tuple(alike)) if alike else None


def _but_seeds(made: Reproduction) -> tuple[str, dict[str, object]]:
    return made.model, {name: value for name, value in made.scale.items() if name != "seeds"}


def block(name: str, source: Source) -> str:
    """Return a table as Markdown, under what it takes to repeat it and what its figures are."""
    rows = source.rows()
    lines = [
        f"### {name}: {source.title}",
        "",
        *_origin(source, rows),
        "",
        Table(_shown(name, source)).markdown(),
        "",
    ]
    return "\n".join([*lines, *(f"- {note}" for note in _notes(source))]).rstrip()


def csv_block(name: str, source: Source, folder: str) -> str:
    """Return what it takes to repeat a table that is a CSV file, with a link to the file."""
    lines = [f"### [{name}]({folder}/{name}.csv): {source.title}", *_origin(source, source.rows())]
    notes = "; ".join(_notes(source))
    return "\n".join([*lines, f"- Notes: {notes}"] if notes else lines)


def _notes(source: Source) -> list[str]:
    return list(dict.fromkeys(note for _, table in source.made for note in table.notes))


def _origin(source: Source, rows: Iterable[StudyRow]) -> list[str]:
    # where somebody kept the results is no part of what makes them
    commands = dict.fromkeys(_CACHE.sub("", made.command) for made, _ in source.made)
    versions: dict[str, list[str]] = {}
    for _, table in source.made:
        for program, known in table.versions.items():
            versions.setdefault(program, []).extend(one for one in known if one not in versions.get(program, ()))
    commits = ", ".join(versions.pop("commit", []))
    commits = commits or ("none, of a package" if "package" in versions else "not recorded")
    seeds = sorted({row.seed for row in rows if row.values})
    spread = f"half the {INTERVAL} over windows or documents, or the deviation over layers"
    if any(len(one.filled) > 1 for one in studies.settings(rows)):
        spread = f"the deviation over seeds, divided by their number; of a single seed {spread}"
    programs = ", ".join(f"{name} {' and '.join(known)}" for name, known in versions.items())
    return [
        f"- Command: {', '.join(f'`{command}`' for command in commands)}",
        f"- Commit: {commits}; {programs or 'versions not recorded'}",
        f"- Seeds: {', '.join(map(str, seeds))}; ± is {spread}",
    ]


def _shown(name: str, source: Source) -> pd.DataFrame:
    if name == AGAINST:
        return against(source.rows())
    if TABLES[name].is_derived:
        return source.made[0][1].display if len(source.made) == 1 else _derived(name, source)
    return _table(*(studies.settings(source.rows(rule)) for rule in RULES))


def _derived(name: str, source: Source) -> pd.DataFrame:
    """A table that is computed from the rows of others, once a seed: the mean with its deviation."""
    frames = {rule: studies.frame(source.rows(rule)) for rule in RULES}
    made = without_single_tasks(derived_values(name, frames))
    figures = [column for column in ("before", "after", "gain", "reduction") if column in made]
    labels = [column for column in made if column not in (*figures, "seed", "better")]
    lines = []
    for _, each in made.groupby(labels, sort=False):
        line = spell_out(each[labels].iloc[:1]).iloc[0].to_dict()
        line |= {column: _over_seeds(each[column].dropna(), column) for column in figures}
        if "better" in each:
            line["better"] = f"{each['better'].sum()} of {format_count(len(each), 'seed')}"
        lines.append(line)
    return pd.DataFrame(lines)[[column for column in made if column != "seed"]]


def _over_seeds(values: pd.Series, column: str) -> str:
    if values.empty:
        return ""
    # what is equal under every seed may differ in the last bit, which is no deviation
    mean, spread = float(values.mean()), round(float(values.std(ddof=0)), 12)
    return (
        f"{format_cell(mean, column)} ± {format_cell(spread, column)}" if len(values) > 1 else format_cell(mean, column)
    )


def _table(first: list[Setting], other: list[Setting]) -> pd.DataFrame:
    """Every setting with its figures, their spread and their marks."""
    names = [name for name in studies.columns(first) if not name.startswith(ACCURACY)]
    ruled = dict(zip(RULES, (first, other), strict=True)) if ACCURACY in studies.columns(first) else {}
    lines = []
    for place, one in enumerate(first):
        line = dict(one.labels) | ({"kept": f"{one.kept:.1%}"} if np.isfinite(one.kept) else {})
        line |= {heading(name): _cell(one, name) for name in names}
        lines.append(line | {f"{ACCURACY} ({rule})": _cell(own[place], ACCURACY) for rule, own in ruled.items()})
    return pd.DataFrame(lines).fillna("")


def _cell(one: Setting, column: str) -> str:
    if not one.values(column):
        return ""
    shown, spread = f"{one.mean(column):,.{decimals(column)}f}{one.mark(column)}", one.spread(column)
    return shown + (f" ± {spread:,.{decimals(column)}f}" if np.isfinite(spread) else "")


OURS = "gprune:flap"
CONTROLS = ("flap_uniform", "msl_layers")
"""what has nothing learned, and what has no modules"""
_BESIDE = "(GPrune over it)"


def against(rows: Iterable[StudyRow]) -> pd.DataFrame:
    """GPrune on FLAP beside the best baseline and two controls, a line for each retention and text.

    The fair summary of a main table: of the methods that one would otherwise use the best on each text,
    chosen in hindsight, and beside it one ratio for every layer with nothing learned, and one learned
    threshold a layer.

    Text cells: perplexities with their spread, and in brackets GPrune's over each, of several seeds the mean
    of their ratios with its deviation. What was not measured has a dash.
    """
    table = settings(rows)
    found = []
    for ours in (one for one in table if one.method == OURS and one.filled and not one.control):
        others = [one for one in table if one.retention == ours.retention and one is not ours and one.filled]
        for column in filter(is_perplexity, columns([ours])):
            found.append(_line(ours, others, column))
    return pd.DataFrame(found)


def _line(ours: Setting, others: list[Setting], column: str) -> dict[str, str]:
    baselines = (one for one in others if one.method in METHODS and METHODS[one.method].baseline)
    rivals = [one for one in baselines if not one.control and one.values(column)]
    best = min(rivals, key=lambda one: one.mean(column), default=None)
    line = {"retention": percent(ours.retention), "text": column.removeprefix(PERPLEXITY)}
    line["GPrune (FLAP)"] = _figure(ours, column)
    name = METHODS[best.method].label if best is not None else ""
    line[f"best baseline {_BESIDE}"] = f"{name} {_beside(ours, best, column)}".strip()
    for method in CONTROLS:
        control = next((one for one in others if one.method == method and one.values(column)), None)
        line[f"control: {METHODS[method].label} {_BESIDE}"] = _beside(ours, control, column)
    return line


def _figure(one: Setting, column: str) -> str:
    spread = one.spread(column)
    return f"{one.mean(column):,.2f}" + (f" ± {spread:,.2f}" if np.isfinite(spread) else "")


def _beside(ours: Setting, other: Setting | None, column: str) -> str:
    """Another method's figure and in brackets GPrune's over it, over the seeds that both have."""
    if other is None:
        return "–"
    mine, theirs = (
        {row.seed: row.values[column] for row in one.filled if column in row.values} for one in (ours, other)
    )
    each = [mine[seed] / theirs[seed] for seed in mine if seed in theirs]
    if not each:
        return f"{_figure(other, column)} (no seed in common)"
    spread = f" ± {np.std(each):.3f}" if len(each) > 1 else ""
    return f"{_figure(other, column)} ({np.mean(each):.3f}{spread})"
