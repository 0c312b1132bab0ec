"""Write reproduced tables into a document between pairs of marks, with the commands that reproduce them.

    <!-- table: main of demo at demo -->
    ... this part is replaced ...
    <!-- end of table -->

`main` is the name of a table, or `against` for GPrune compared with the best baseline and two controls. `demo at
demo` is the model and the scale of the reproduction. If a mark ends with `as csv`, the table is written to a file,
such as `results/main.csv` for `results.md`. Reproductions that differ only in their seeds form one table; of
several such groups the one with the most seeds is used, and of equal ones the latest.
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
from gprune.experiments.reproduction.cells import decimals, format_cell, heading, spell_out, without_single_tasks
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
    """A table of one or more reproductions that differ only in their seeds."""

    title: str
    reproductions: tuple[tuple[Reproduction, Reproduced], ...]
    """at least one reproduction with its table"""

    def rows(self, rule: str = RULES[0]) -> list[StudyRow]:
        """Return the rows of all reproductions under an accuracy rule, each seed once."""
        rows: dict[tuple[object, ...], StudyRow] = {}
        for _, table in self.reproductions:
            for row in table.rows[rule]:
                rows.setdefault((tuple(row.labels.items()), row.method, row.retention, row.seed), row)
        return list(rows.values())


def rewritten(text: str, cache: Path, files: Path = Path("results")) -> tuple[str, list[str]]:
    """Return a document with its tables replaced from a cache, and the tables that the cache lacks.

    Tables that the cache lacks stay as they are. CSV files are written to the folder `files`. Raises StoreError if
    a table of the cache is damaged.
    """
    pieces, missing, position = [], [], 0
    for begin in _BEGIN.finditer(text):
        end = text.find(END, begin.end())
        if end < 0 or begin.start() < position:
            continue
        source = _source(cache, begin[1], begin[2], begin[3])
        if source is None:
            missing.append(f"{begin[1]} of {begin[2]} at {begin[3]}")
            continue
        if begin[4]:
            make_folder(files)
            write_text(files / f"{begin[1]}.csv", _table_of(begin[1], source).to_csv(index=False))
        content = csv_block(begin[1], source, files.name) if begin[4] else block(begin[1], source)
        pieces += [text[position : begin.end()], f"\n{content}\n"]
        position = end
    return "".join([*pieces, text[position:]]), missing


def _source(cache: Path, name: str, model: str, scale: str) -> Source | None:
    pairs, table_name = [], MAIN if name == AGAINST else name
    for reproduction in catalogue.reproductions(cache):
        is_match = (short(reproduction.model), str(reproduction.scale.get("name"))) == (model, scale)
        if is_match and table_name in reproduction.tables:
            table = catalogue.load(cache, reproduction.name, table_name)
            if table is not None and table.filled:
                pairs.append((reproduction, table))
    groups = [[pair for pair in pairs if _without_seeds(pair[0]) == _without_seeds(first)] for first, _ in pairs]
    group = max(groups, key=len, default=[])
    title = _AGAINST_TITLE if name == AGAINST else group[0][1].title if group else ""
    return Source(title, tuple(group)) if group else None


def _without_seeds(reproduction: Reproduction) -> tuple[str, dict[str, object]]:
    return reproduction.model, {name: value for name, value in reproduction.scale.items() if name != "seeds"}


def block(name: str, source: Source) -> str:
    """Return a table as Markdown with its title, its commands and versions, and its notes."""
    rows = source.rows()
    lines = [
        f"### {name}: {source.title}",
        "",
        *_origin(source, rows),
        "",
        Table(_table_of(name, source)).markdown(),
        "",
    ]
    return "\n".join([*lines, *(f"- {note}" for note in _notes(source))]).rstrip()


def csv_block(name: str, source: Source, folder: str) -> str:
    """Return the link, the commands and versions, and the notes of a table that is a CSV file."""
    lines = [f"### [{name}]({folder}/{name}.csv): {source.title}", *_origin(source, source.rows())]
    notes = "; ".join(_notes(source))
    return "\n".join([*lines, f"- Notes: {notes}"] if notes else lines)


def _notes(source: Source) -> list[str]:
    return list(dict.fromkeys(note for _, table in source.reproductions for note in table.notes))


def _origin(source: Source, rows: Iterable[StudyRow]) -> list[str]:
    # the folder of the cache differs between machines
    commands = dict.fromkeys(_CACHE.sub("", reproduction.command) for reproduction, _ in source.reproductions)
    versions: dict[str, list[str]] = {}
    for _, table in source.reproductions:
        for program, numbers in table.versions.items():
            versions.setdefault(program, []).extend(
                number for number in numbers if number not in versions.get(program, ())
            )
    commits = ", ".join(versions.pop("commit", []))
    commits = commits or ("none, of a package" if "package" in versions else "not recorded")
    seeds = sorted({row.seed for row in rows if row.values})
    spread = f"half the width of the {INTERVAL} over windows or documents, or the standard deviation over layers"
    if any(len(setting.filled) > 1 for setting in studies.settings(rows)):
        spread = f"the standard deviation over seeds (ddof 0). With one seed, ± is {spread}"
    programs = ", ".join(f"{name} {' and '.join(numbers)}" for name, numbers in versions.items())
    return [
        f"- Command: {', '.join(f'`{command}`' for command in commands)}",
        f"- Commit: {commits}; {programs or 'versions not recorded'}",
        f"- Seeds: {', '.join(map(str, seeds))}; ± is {spread}",
    ]


def _table_of(name: str, source: Source) -> pd.DataFrame:
    if name == AGAINST:
        return against(source.rows())
    if TABLES[name].is_derived:
        return source.reproductions[0][1].display if len(source.reproductions) == 1 else _derived(name, source)
    return _table(*(studies.settings(source.rows(rule)) for rule in RULES))


def _derived(name: str, source: Source) -> pd.DataFrame:
    """Return a table that is computed from other tables per seed, as means with their deviations."""
    frames = {rule: studies.frame(source.rows(rule)) for rule in RULES}
    values = without_single_tasks(derived_values(name, frames))
    figures = [column for column in ("before", "after", "gain", "reduction") if column in values]
    labels = [column for column in values if column not in (*figures, "seed", "better")]
    lines = []
    for _, group in values.groupby(labels, sort=False):
        line = spell_out(group[labels].iloc[:1]).iloc[0].to_dict()
        line |= {column: _over_seeds(group[column].dropna(), column) for column in figures}
        if "better" in group:
            line["better"] = f"{group['better'].sum()} of {format_count(len(group), 'seed')}"
        lines.append(line)
    return pd.DataFrame(lines)[[column for column in values if column != "seed"]]


def _over_seeds(values: pd.Series, column: str) -> str:
    if values.empty:
        return ""
    # values that are equal under every seed may differ in the last bit: round that away
    mean, spread = float(values.mean()), round(float(values.std(ddof=0)), 12)
    return (
        f"{format_cell(mean, column)} ± {format_cell(spread, column)}" if len(values) > 1 else format_cell(mean, column)
    )


def _table(first: list[Setting], second: list[Setting]) -> pd.DataFrame:
    """Return a line per setting with its values, their spread and their marks."""
    names = [name for name in studies.columns(first) if not name.startswith(ACCURACY)]
    by_rule = dict(zip(RULES, (first, second), strict=True)) if ACCURACY in studies.columns(first) else {}
    lines = []
    for index, setting in enumerate(first):
        line = dict(setting.labels) | ({"kept": f"{setting.kept:.1%}"} if np.isfinite(setting.kept) else {})
        line |= {heading(name): _cell(setting, name) for name in names}
        lines.append(line | {f"{ACCURACY} ({rule})": _cell(rows[index], ACCURACY) for rule, rows in by_rule.items()})
    return pd.DataFrame(lines).fillna("")


def _cell(setting: Setting, column: str) -> str:
    if not setting.values(column):
        return ""
    value = f"{setting.mean(column):,.{decimals(column)}f}{setting.mark(column)}"
    spread = setting.spread(column)
    return value + (f" ± {spread:,.{decimals(column)}f}" if np.isfinite(spread) else "")


OURS = "gprune:flap"
CONTROLS = ("flap_uniform", "msl_layers")
"""one retention for every layer without learning, and one learned threshold per layer instead of per module"""
_BESIDE = "(GPrune over it)"


def against(rows: Iterable[StudyRow]) -> pd.DataFrame:
    """Compare GPrune on FLAP with the best baseline and two controls, in a line per retention and text.

    The best baseline is chosen per text in hindsight. The controls are one retention for every layer without
    learning, and one learned threshold per layer.

    Cells are perplexities with their spread. The brackets hold GPrune's perplexity divided by that of the cell; with
    several seeds, the mean and the deviation of these ratios. A dash stands for a missing measurement.
    """
    table = settings(rows)
    lines = []
    for ours in (row for row in table if row.method == OURS and row.filled and not row.control):
        others = [row for row in table if row.retention == ours.retention and row is not ours and row.filled]
        lines += [_line(ours, others, column) for column in filter(is_perplexity, columns([ours]))]
    return pd.DataFrame(lines)


def _line(ours: Setting, others: list[Setting], column: str) -> dict[str, str]:
    baselines = (row for row in others if row.method in METHODS and METHODS[row.method].baseline)
    measured_baselines = [row for row in baselines if not row.control and row.values(column)]
    best = min(measured_baselines, key=lambda row: row.mean(column), default=None)
    line = {"retention": percent(ours.retention), "text": column.removeprefix(PERPLEXITY)}
    line["GPrune (FLAP)"] = _perplexity(ours, column)
    name = METHODS[best.method].label if best is not None else ""
    line[f"best baseline {_BESIDE}"] = f"{name} {_compare(ours, best, column)}".strip()
    for method in CONTROLS:
        control = next((row for row in others if row.method == method and row.values(column)), None)
        line[f"control: {METHODS[method].label} {_BESIDE}"] = _compare(ours, control, column)
    return line


def _perplexity(setting: Setting, column: str) -> str:
    spread = setting.spread(column)
    return f"{setting.mean(column):,.2f}" + (f" ± {spread:,.2f}" if np.isfinite(spread) else "")


def _compare(ours: Setting, other: Setting | None, column: str) -> str:
    """Return another method's perplexity and in brackets the ratio of GPrune's to it, over their common seeds."""
    if other is None:
        return "–"
    our_values, other_values = (
        {row.seed: row.values[column] for row in setting.filled if column in row.values} for setting in (ours, other)
    )
    ratios = [our_values[seed] / other_values[seed] for seed in our_values if seed in other_values]
    if not ratios:
        return f"{_perplexity(other, column)} (no seed in common)"
    spread = f" ± {np.std(ratios):.3f}" if len(ratios) > 1 else ""
    return f"{_perplexity(other, column)} ({np.mean(ratios):.3f}{spread})"
