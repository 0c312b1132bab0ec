"""Studies of the paper, made here: its tables row by row, against a pinned row, and their figures."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from gprune.analysis import studies as analysis
from gprune.analysis.formatting import percent, signed, spaced
from gprune.analysis.paired_test import INTERVAL
from gprune.analysis.studies import Setting
from gprune.analysis.verdict import BEST, SECOND
from gprune.app.pages.comparison import studies, study_figures
from gprune.app.pages.comparison.studies import StudyTable
from gprune.app.ui import buttons, frame, run_choice, tables, url_state
from gprune.app.ui.card import Card, card, published_badge
from gprune.app.ui.run_choice import labels
from gprune.app.ui.text import plain, said
from gprune.data.published import RULES
from gprune.experiments.reproduction import catalogue
from gprune.experiments.reproduction.cells import heading
from gprune.experiments.reproduction.tables import TABLES
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages.method_inputs import repair_given, repaired_alike
from gprune.study.methods import METHODS

REASON = "not filled because"
_OPENED = "cp_study_run"
_LETTER, _MARGIN, _WIDEST = 7, 20, 280
"""pixels of a letter of a method's name, beside it, and the most that the names get"""


@dataclass(frozen=True, slots=True)
class _Choice:
    """What is shown."""

    made: catalogue.Reproduction | None
    name: str
    table: StudyTable | None


def show(run: Run | None) -> None:
    """Draws the cards of the studies."""
    choice: _Choice | None = None
    with card("cp_studies", "Studies of the paper") as drawn:
        choice = _choose(run)
        st.caption(f"{plain(TABLES[choice.name].title)}.")
        if choice.table is None or not choice.table.filled:
            _nothing(choice, run)
            return
        _head(choice, choice.table, run)
        if not TABLES[choice.name].is_derived:
            _measured(drawn, choice.table)
        _beside(choice.table)
    if choice is not None and choice.table is not None:
        study_figures.show(choice.table, choice.made)


def _choose(run: Run | None) -> _Choice:
    made = studies.found(frame.situation().root)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = url_state.selectbox("Table", list(TABLES), "cp_study", "main", width=220)
        if not made:
            return _Choice(None, name, None)
        own = next((item for item in made if run is not None and item.model == run.study.model), made[0])
        titles = {item.name: studies.title(item) for item in made}
        asked = url_state.selectbox("Model and scale", titles, "cp_series", own.name, width=280)
        chosen = next(item for item in made if item.name == asked)
        table = studies.read(frame.situation().root, chosen, name, _rule(chosen))
    return _Choice(chosen, name, table)


def _rule(made: catalogue.Reproduction) -> str:
    """Which figure of a task counts, where the series has measured any task."""
    if not made.scale.get("tasks"):
        return "max"
    return url_state.segmented("Figure that counts", RULES, "cp_study_rule", "max")


def _nothing(choice: _Choice, run: Run | None) -> None:
    """Says how to make a table that is not there, and what it takes."""
    if choice.made is not None:
        model, scale = choice.made.model, str(choice.made.scale.get("name", "demo"))
    else:
        model, scale = run.study.model if run else "demo", "demo"
    tried = choice.table is not None
    st.info(
        "No row of this table has its numbers yet." if tried else "This table has not been made here yet.",
        icon=":material/table_view:",
    )
    again = choice.table.command if choice.table is not None else studies.command(choice.name, model, scale)
    st.code(again, language="bash", wrap_lines=True)
    st.caption(
        f"{plain(studies.effort(choice.name, model, scale, frame.situation().runs))} Add `--dry-run` to see "
        "what would run. The page shows it when it is done."
    )
    if choice.table is not None:
        _reasons(choice.table)
        _beside(choice.table)


def _reasons(table: StudyTable) -> None:
    reasons = list(dict.fromkeys(row.reason for row in table.rows if row.reason))
    for reason in reasons[:5]:
        count = sum(row.reason == reason for row in table.rows)
        st.caption(f"{count} of {len(table.rows)} rows: {said(reason)}.")


def _head(choice: _Choice, table: StudyTable, run: Run | None) -> None:
    seeds = {row.seed for row in table.rows if row.values}
    with st.container(horizontal=True, gap="xsmall"):
        st.badge("measured here", icon=":material/science:", color="green")
        done = table.filled == len(table.rows)
        st.badge(f"{table.filled} of {len(table.rows)} rows", color="grey" if done else "orange")
        if len(seeds) == 1:
            st.badge("one seed", color="orange", help="No spread over seeds is known.")
        if run is not None and choice.made is not None and choice.made.model != run.study.model:
            st.badge("another model than the run’s", color="violet")
    if not done:
        _reasons(table)
        st.code(table.command, language="bash", wrap_lines=True)


def _measured(drawn: Card, table: StudyTable) -> None:
    seeded = any(analysis.SEED in row.labels for row in table.rows)
    each = seeded and url_state.toggle("One row a seed", "cp_study_each")
    settings = analysis.settings(table.rows, each)
    columns = _columns(settings)
    index, deltas = _against(settings, columns)
    shown = _table(settings, columns, index if deltas else None)
    tables.show(
        shown,
        height=tables.height(len(shown)),
        key=f"cp_study_rows_{table.name}_{each}",
        on_row=partial(_select, settings),
        column_config=_column_config(shown, settings),
        alt=f"measured rows of the table {table.name}",
    )
    _explain(drawn, table, settings, columns)
    _open(settings)
    drawn.reads(lambda: shown)
    drawn.tools(
        lambda: analysis.long_table(settings, settings[index]),
        switch=False,
        how="Each row is a setting of the table, of several seeds their mean with its deviation. In "
        "brackets the change against the baseline. Only rows of equal retention and design choice "
        "compete; choose a row to open its run.",
    )


def _against(settings: list[Setting], columns: list[str]) -> tuple[int, bool]:
    """Position of the pinned row, and whether the changes against it are shown."""
    numbers = [index for index, setting in enumerate(settings) if setting.filled]
    if not any(analysis.is_ranked(column) for column in columns):
        return numbers[0], False
    keys = analysis.keys(settings)
    names = {keys[index]: settings[index].name for index in numbers}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pinned = url_state.selectbox("Baseline", names, "cp_study_pinned", next(iter(names)), width=340)
        return keys.index(pinned), url_state.toggle("Show differences", "cp_study_deltas", True)


def _columns(settings: list[Setting]) -> list[str]:
    """The columns that are shown: all but single tasks, unless they are asked for."""
    measured = analysis.columns(settings)
    tasks = [name for name in measured if name.startswith("accuracy:")]
    every = bool(tasks) and url_state.toggle(f"Show all {len(tasks)} tasks", "cp_study_tasks")
    return measured if every else [name for name in measured if name not in tasks]


def _table(settings: list[Setting], columns: list[str], pinned: int | None) -> pd.DataFrame:
    """The measured rows as text: mean, spread, change against the pinned row, and rank sign."""
    marks = {column: analysis.marks(settings, column) for column in columns}
    baseline = settings[pinned] if pinned is not None else None
    several, lines = any(len(setting.rows) > 1 for setting in settings), []
    for index, setting in enumerate(settings):
        line: dict[str, Any] = {name: spaced(words) for name, words in setting.labels.items()}
        if several:
            line["n"] = len(setting.filled)
        line["kept"] = percent(setting.kept, 1) if np.isfinite(setting.kept) else "–"
        for column in columns:
            line[_heading(column)] = _cell(setting, baseline, column, marks[column].get(index, ""))
        lines.append(line | ({REASON: setting.reason} if any(other.reason for other in settings) else {}))
    made = pd.DataFrame(lines)
    return made if (made["kept"] != "–").any() else made.drop(columns="kept")


def _heading(column: str) -> str:
    arrow = " ↓" if analysis.is_perplexity(column) else " ↑" if analysis.is_ranked(column) else ""
    return heading(column) + arrow


def _cell(setting: Setting, baseline: Setting | None, column: str, mark: str) -> str:
    if not setting.values(column):
        return "–"
    digits = 2 if analysis.is_ranked(column) else 3
    words, difference = f"{setting.mean(column):,.{digits}f}{setting.mark(column)}", ""
    if np.isfinite(setting.spread(column)):
        words += f" ± {setting.spread(column):,.{digits}f}"
    if baseline is not None and baseline is not setting and baseline.values(column):
        change = analysis.change(setting, baseline, column)
        difference = f"({signed(change, '.1%' if analysis.is_perplexity(column) else f'.{digits}f')})"
    return " ".join(filter(None, (words, difference, mark)))


def _column_config(shown: pd.DataFrame, settings: list[Setting]) -> dict[str, Any]:
    labels = {name for setting in settings for name in setting.labels}
    text = st.column_config.TextColumn
    config: dict[str, Any] = {name: text(alignment="right") for name in shown.columns if name not in labels}
    config[REASON] = text(width="large")
    if "method" in labels:
        room = _MARGIN + _LETTER * int(shown["method"].str.len().max())
        config["method"] = text(width=min(room, _WIDEST))
    return config | {"n": st.column_config.NumberColumn(help="seeds with numbers")}


def _explain(drawn: Card, table: StudyTable, settings: list[Setting], columns: list[str]) -> None:
    ranked = [column for column in columns if analysis.is_ranked(column)]
    unfair = analysis.unfair_blocks(settings)
    if ranked and unfair:
        st.warning("No best is called: " + plain("; ".join(unfair.values())) + ".", icon=":material/balance:")
    several = any(len(setting.filled) > 1 for setting in settings)
    what = "deviation over the n seeds" if several else f"{INTERVAL} over windows"
    words = [f"Mean ± {what if ranked else 'standard deviation over layers, where there are any'}"]
    if ranked:
        within = " within a block of equal retention or design choice"
        words.append(f"{BEST} best and {SECOND} second-best pruned row{within}, controls among them")
    words += [plain(note) for note in table.notes]
    st.caption("; ".join(words) + ".")
    if repaired := _repaired(settings):
        st.caption(f":material/healing: {plain(repaired)}.")
    for name, measures in analysis.ahead(settings).items():
        told = plain(", ".join(heading(column) for column in measures))
        st.caption(f":orange[:material/science:] {_begun(name)} does as well as GPrune or better on {told}.")
    winners = {settings[i].name for c in ranked for i, mark in analysis.marks(settings, c).items() if mark == BEST}
    blocks = {setting.block for setting in settings if setting.ranked}
    whole = not any(setting.reason for setting in settings)
    if whole and len(winners) == 1 and len(blocks) == 1:
        drawn.title(f"{_begun(winners.pop())} is best on every measure of “{table.name}”")


def _repaired(settings: list[Setting]) -> str:
    """Who is repaired how, of the rows whose runs are here; empty where none is."""
    given = {}
    for setting in settings:
        method = setting.method.partition(":")[0]
        run = next((frame.situation().run_named(row.run) for row in setting.filled if row.run), None)
        if run is not None and method in METHODS and METHODS[method].decision != "none":
            given[setting.name] = repair_given(run.graph, method)
    return repaired_alike(given)


def _begun(name: str) -> str:
    """A row's name at the beginning of a sentence."""
    return plain(name[:1].upper() + name[1:])


def _select(settings: list[Setting], place: int) -> None:
    """A selected row offers its run."""
    if run := next((row.run for row in settings[place].rows if row.run), ""):
        url_state.put(_OPENED, run)


def _open(settings: list[Setting]) -> None:
    """Lets the frame show the run behind a row."""
    present = labels(frame.situation().runs)
    named: dict[str, str] = {}
    for setting in settings:
        for row in setting.rows:
            if row.run in present:
                seed = f", seed {row.seed}" if len(setting.rows) > 1 else ""
                named.setdefault(row.run, f"{setting.name}{seed}")
    if not named:
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        called = {name: f"{words} · {present[name]}" for name, words in named.items()}
        chosen = url_state.selectbox(
            "Run behind a row",
            called,
            _OPENED,
            next(iter(called)),
            width=460,
            help="Selecting a row of the table chooses its run here.",
        )
        if buttons.pressed("Show this run on every page", key="cp_study_open", icon=":material/open_in_new:"):
            run_choice.choose_run(chosen)
            st.rerun()


def _beside(table: StudyTable) -> None:
    """The paper's own figures of the same table, in a table of their own."""
    if not len(table.published):
        return
    with st.expander("The same table in the paper", icon=":material/menu_book:"):
        published_badge()
        st.caption(f"{plain(table.published_title)}.")
        tables.show(table.published.map(spaced), alt=f"published figures of the table {table.name}")
