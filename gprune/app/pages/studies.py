"""Tab *Studies* of Compare: tables of the paper made here, the bundled fair study, and the published tables."""

import shlex
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from gprune.analysis import studies as analysis
from gprune.analysis import tables as gains
from gprune.analysis.claims import VERDICTS
from gprune.analysis.formatting import format_count, format_signed, percent
from gprune.analysis.paired_test import INTERVAL
from gprune.analysis.studies import Setting, StudyRow
from gprune.analysis.verdict import BEST, SECOND
from gprune.app.ui import address, components, documents, frame, run_choice, tables
from gprune.app.ui.card import Card, card, published_badge
from gprune.app.ui.run_choice import labels
from gprune.app.ui.text import escape, escape_error
from gprune.data import published
from gprune.evaluation.protocol import PUBLISHED
from gprune.experiments.reproduction import catalogue
from gprune.experiments.reproduction.assembly import gaps
from gprune.experiments.reproduction.catalogue import Reproduced, Reproduction
from gprune.experiments.reproduction.cells import format_number, heading
from gprune.experiments.reproduction.documents import MEASURED
from gprune.experiments.reproduction.scale import SCALES
from gprune.experiments.reproduction.tables import TABLES
from gprune.pipeline.runs.opened import Run
from gprune.study import short

OWN, FAIR, PAPER = "studies", "fair", "paper"
REASON = "not filled because"
"""column of the reasons why rows have no values"""
MAIN = "main"
"""name of the published main table"""
_OPENED = "cp_study_run"
"""address key of the run behind a row"""
_NARROW = {"boolq": 56, "piqa": 56, "ARC-e": 60, "ARC-c": 60, "openbookqa": 88, "accuracy": 66}
"""widths of columns in pixels, with which the table of all tasks fits into a window of 1280 pixels"""
_COLUMN_NAMES = {"mean_accuracy": "accuracy", "arc_easy": "ARC-e", "arc_challenge": "ARC-c"}
_RULE_HELP = (
    "max: the higher of raw and length-normalised accuracy of each task. fixed: the normalised accuracy if the "
    "task has one (appendix, robustness to the evaluation protocol)."
)


def show() -> None:
    """Draw the page."""
    frame.page_title("Studies", "Do the results of the paper hold here and on other models?")
    run = frame.require_run()
    views = {OWN: "Own studies", FAIR: "Fair study", PAPER: "Paper"}
    view = address.segmented_control("View", views, "cp_view", OWN if run else PAPER, label_visibility="collapsed")
    if view == OWN:
        _show_own(run)
    elif view == FAIR:
        _show_fair()
    else:
        _show_paper()


def _show_own(run: Run | None) -> None:
    root = Path(frame.situation().root)
    table: Reproduced | None = None
    with card("cp_studies", "Paper tables measured here") as content:
        series, name, rule = _choose_table(catalogue.reproductions(root), run)
        table = catalogue.load(root, series.name, name) if series else None
        st.caption(f"{_capitalise(TABLES[name].title)}.")
        if series is None or table is None or not table.filled:
            _explain_missing(series, name, table, run)
            return
        rows = table.rows[rule]
        _show_badges(series, table, rows, run)
        if TABLES[name].is_derived:
            _show_gains(content, rows)
        else:
            _show_rows(content, table, rows)
        _show_published(table)


def _choose_table(reproductions: list[Reproduction], run: Run | None) -> tuple[Reproduction | None, str, str]:
    """Draw the fields; return the model and scale, None if there are none, the name of the table, and max or fixed."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        names = {name: name.replace("-", " ").capitalize() for name in TABLES} | {MAIN: "Main comparison"}
        name = address.selectbox("Table", names, "cp_study", MAIN, width=220)
        if not reproductions:
            return None, name, "max"
        default = next(
            (series for series in reproductions if run is not None and series.model == run.study.model),
            reproductions[0],
        )
        titles = {
            series.name: f"{short(series.model)}, scale {series.scale.get('name', '?')}" for series in reproductions
        }
        chosen = address.selectbox("Model and scale", titles, "cp_series", default.name, width=280)
        series = next(series for series in reproductions if series.name == chosen)
        rule = "max"
        if series.scale.get("tasks"):
            rule = address.segmented_control("Accuracy", published.RULES, "cp_study_rule", "max", help=_RULE_HELP)
    return series, name, rule


def reproduce_command(name: str, model: str, scale: str = "demo") -> str:
    """Return the command that computes a table."""
    scale = scale if scale in SCALES else "demo"
    return f"python -m gprune reproduce {shlex.quote(name)} --model {shlex.quote(model)} --scale {scale}"


def continue_command(name: str, series: Reproduction) -> str:
    """Return the command that completes a table: the recorded command if the scale has custom settings."""
    scale = str(series.scale.get("name", ""))
    if series.command and not series.name.endswith(f"-{scale}"):
        return series.command
    return reproduce_command(name, series.model, scale)


def _explain_missing(series: Reproduction | None, name: str, table: Reproduced | None, run: Run | None) -> None:
    missing = "No results for this table yet." if table is None else "No row of this table is measured yet."
    st.info(missing, icon=":material/table_view:")
    if series is None:
        # the tables are of methods that prune neurons
        model = run.study.model if run is not None and not run.study.prunes_experts else "demo"
        rerun_command = reproduce_command(name, model)
    elif table is None:
        rerun_command = reproduce_command(name, series.model, str(series.scale.get("name", "demo")))
    else:
        rerun_command = continue_command(name, series)
    st.code(rerun_command, language="bash", wrap_lines=True)
    st.caption("Finished studies are reused. Add `--dry-run` to see which studies would run.")
    if table is not None:
        _show_reasons(table.rows["max"])
        _show_published(table)


def _show_reasons(rows: tuple[StudyRow, ...]) -> None:
    """Show why rows have no values: the first five reasons, with the number of rows of each."""
    reasons = list(dict.fromkeys(row.reason for row in rows if row.reason))
    for reason in reasons[:5]:
        count = sum(row.reason == reason for row in rows)
        st.caption(f"{count} of {len(rows)} rows: {escape_error(reason)}.")


def _show_badges(series: Reproduction, table: Reproduced, rows: tuple[StudyRow, ...], run: Run | None) -> None:
    complete = table.filled == len(rows)
    with st.container(horizontal=True, gap="xsmall"):
        st.badge("measured here", icon=":material/science:", color="green")
        st.badge(f"{table.filled} of {len(rows)} rows", color="grey" if complete else "orange")
        if len({row.seed for row in rows if row.values}) == 1:
            st.badge("one seed", color="orange", help="No spread over seeds is known.")
        if run is not None and series.model != run.study.model:
            st.badge("different model than the run’s", color="violet")
    if not complete:
        _show_reasons(rows)
        st.code(continue_command(table.name, series), language="bash", wrap_lines=True)


def _show_rows(content: Card, table: Reproduced, rows: tuple[StudyRow, ...]) -> None:
    seeded = any(analysis.SEED in row.labels for row in rows)
    is_per_seed = seeded and address.toggle("One row per seed", "cp_study_each")
    settings = analysis.settings(rows, is_per_seed)
    columns = _choose_columns(settings)
    filled = [setting for setting in settings if setting.filled]
    baseline = _choose_baseline(settings, filled) if any(map(analysis.is_ranked, columns)) else None
    table_shown = _build_row_table(settings, columns, baseline)
    tables.show(
        table_shown,
        height=tables.height(len(table_shown)),
        key=f"cp_study_rows_{table.name}_{is_per_seed}",
        on_row=partial(_select_row, settings),
        column_config=_set_row_columns(table_shown, settings),
        alt=f"measured rows of the table {table.name}",
    )
    _explain_rows(content, table, settings, columns)
    _open_run(settings)
    content.set_printed_table(lambda: table_shown)
    content.tools(
        lambda: analysis.settings_table(settings, baseline or filled[0]),
        switch=False,
        how="Each row is a setting; with several seeds it shows their mean and standard deviation. Brackets show "
        "the change against the baseline. Only rows with equal retention and design choice compete. Select a row to "
        "open its run.",
    )


def _choose_baseline(settings: list[Setting], filled: list[Setting]) -> Setting:
    keys = dict(zip(analysis.keys(settings), settings, strict=True))
    names = {key: setting.name for key, setting in keys.items() if setting in filled}
    return keys[address.selectbox("Baseline", names, "cp_study_pinned", next(iter(names)), width=340)]


def _choose_columns(settings: list[Setting]) -> list[str]:
    columns = analysis.columns(settings)
    tasks = [name for name in columns if name.startswith("accuracy:")]
    if tasks and address.toggle(f"Show all {len(tasks)} tasks", "cp_study_tasks"):
        return columns
    return [name for name in columns if name not in tasks]


def _build_row_table(settings: list[Setting], columns: list[str], baseline: Setting | None) -> pd.DataFrame:
    """Return a table with one row per setting; cells have mean, spread, change against the baseline, and star."""
    stars = {column: analysis.mark_settings(settings, column) for column in columns}
    several, reasons = any(len(setting.rows) > 1 for setting in settings), any(setting.reason for setting in settings)
    lines = []
    for index, setting in enumerate(settings):
        line: dict[str, Any] = dict(setting.labels)
        line |= {"n": len(setting.filled)} if several else {}
        line["kept"] = percent(setting.kept, 1) if np.isfinite(setting.kept) else "–"
        for column in columns:
            arrow = " ↓" if analysis.is_perplexity(column) else " ↑" if analysis.is_ranked(column) else ""
            line[heading(column) + arrow] = _format_row_cell(setting, baseline, column, stars[column].get(index, ""))
        lines.append(line | ({REASON: setting.reason} if reasons else {}))
    table_shown = pd.DataFrame(lines)
    return table_shown if (table_shown["kept"] != "–").any() else table_shown.drop(columns="kept")


def _format_row_cell(setting: Setting, baseline: Setting | None, column: str, star: str) -> str:
    if not setting.values(column):
        return "–"
    digits = 2 if analysis.is_ranked(column) else 3
    parts = [f"{setting.mean(column):,.{digits}f}{setting.mark(column)}"]
    if np.isfinite(setting.spread(column)):
        parts.append(f"± {setting.spread(column):,.{digits}f}")
    if baseline is not None and baseline is not setting and baseline.values(column):
        form = ".1%" if analysis.is_perplexity(column) else f".{digits}f"
        parts.append(f"({format_signed(analysis.relative_change(setting, baseline, column), form)})")
    return " ".join(filter(None, (*parts, star)))


def _set_row_columns(table_shown: pd.DataFrame, settings: list[Setting]) -> dict[str, Any]:
    names = {name for setting in settings for name in setting.labels}
    text = st.column_config.TextColumn
    columns: dict[str, Any] = {name: text(alignment="right") for name in table_shown.columns if name not in names}
    columns[REASON] = text(width="large")
    if "method" in names:
        columns["method"] = text(width=min(20 + 7 * int(table_shown["method"].str.len().max()), 280))
    return columns | {"n": st.column_config.NumberColumn(help="seeds with results")}


def _explain_rows(content: Card, table: Reproduced, settings: list[Setting], columns: list[str]) -> None:
    ranked = [column for column in columns if analysis.is_ranked(column)]
    unfair = analysis.unfair_blocks(settings)
    if ranked and unfair:
        st.warning("No best row: " + escape("; ".join(unfair.values())) + ".", icon=":material/balance:")
    several = any(len(setting.filled) > 1 for setting in settings)
    spread = "standard deviation over the n seeds" if several else f"{INTERVAL} over windows"
    words = [f"Mean ± {spread if ranked else 'standard deviation over layers, if there are any'}"]
    if ranked:
        within = " within a block of equal retention or design choice"
        words.append(f"{BEST} best and {SECOND} second-best pruned row{within}, controls included")
    st.caption("; ".join([*words, *map(escape, table.notes)]) + ".")
    for name, measures in analysis.good_controls(settings).items():
        names = escape(", ".join(heading(column) for column in measures))
        st.caption(f":orange[:material/science:] {_capitalise(name)} does as well as GPrune or better on {names}.")
    # the title names a setting only if it is best in every column, all rows compete, and no row lacks values
    best = {settings[i].name for c in ranked for i, mark in analysis.mark_settings(settings, c).items() if mark == BEST}
    blocks = {setting.block for setting in settings if setting.ranked}
    if len(best) == len(blocks) == 1 and not any(setting.reason for setting in settings):
        content.set_title(f"{_capitalise(best.pop())} is best on every measure of “{table.name}”")


def _capitalise(name: str) -> str:
    """Return a name with a capital first letter, escaped for Markdown."""
    return escape(name[:1].upper() + name[1:])


def _select_row(settings: list[Setting], index: int) -> None:
    if run := next((row.run for row in settings[index].rows if row.run), ""):
        address.set_value(_OPENED, run)


def _open_run(settings: list[Setting]) -> None:
    """Offer to show the run behind a row on every page."""
    present = labels(frame.situation().runs)
    names: dict[str, str] = {}
    for setting in settings:
        for row in setting.rows:
            if row.run in present:
                seed = f", seed {row.seed}" if len(setting.rows) > 1 else ""
                names.setdefault(row.run, f"{setting.name}{seed} · {present[row.run]}")
    if not names:
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = address.selectbox(
            "Run behind a row",
            names,
            _OPENED,
            next(iter(names)),
            width=460,
            help="Selecting a row chooses its run here.",
        )
        if components.button("Show this run on every page", key="cp_study_open", icon=":material/open_in_new:"):
            run_choice.choose_run(chosen)
            st.rerun()


def _show_published(table: Reproduced) -> None:
    if not len(table.published):
        return
    with st.expander("The same table in the paper", icon=":material/menu_book:"):
        published_badge()
        st.caption(f"{escape(table.published_title)}.")
        tables.show(table.published, alt=f"published figures of the table {table.name}")


def _show_gains(content: Card, rows: tuple[StudyRow, ...]) -> None:
    """Draw how GPrune changes each base metric, and the gap between the metrics before and after."""
    gain = gains.gain_by_retention(analysis.frame(rows))
    columns = {column: heading(column) for column in gain["metric"]}
    if not columns:
        st.info(
            "No retention has results of a base metric alone and with GPrune yet.", icon=":material/hourglass_empty:"
        )
        return
    column = address.selectbox("Measure", columns, "cp_gain_measure", next(iter(columns)), width=280)
    chosen = gain[gain["metric"] == column].drop(columns="metric")
    content.set_title(f"GPrune against its base metric: {heading(column)} in {format_count(len(chosen), 'comparison')}")
    forms: dict[str, Any] = {"forms": {"before": "%.2f", "after": "%.2f"}}
    caption = "Before: the base metric alone. After: GPrune with this metric, at the same retention."
    content.table(
        chosen, caption=caption, words={"retention": percent}, alt="change of each base metric by GPrune", **forms
    )
    gap = gaps(analysis.frame(rows)).drop(columns="seed", errors="ignore")
    if len(gap):
        st.markdown("**Gap between Wanda-sp and FLAP, before and after GPrune**")
        gap["metric"] = gap["metric"].map(heading)
        words = {"retention": percent, "reduction": percent}
        tables.show(gap, words=words, alt="gap between the base metrics before and after GPrune", **forms)
        st.caption("Absolute difference of the two base metrics. A negative reduction means that the gap grows.")


def _show_fair() -> None:
    """Show the bundled fair study: first its claims, then its tables in expanders."""
    document = documents.fair_study()
    with card("cp_recorded", "A fair comparison on other models") as content:
        if document is None:
            st.info(
                "This installation does not include the fair study. `python -m gprune reproduce study --report "
                "study.md` measures the bundled model and writes a study of it.",
                icon=":material/menu_book:",
            )
            return
        content.set_title(document.title)
        st.badge("recorded, not this run", icon=":material/history_edu:", color="grey")
        measured = [line for line in document.opening.splitlines() if line.startswith(MEASURED)]
        st.caption(" ".join(measured).removesuffix(":"))
        parts = dict(document.parts)
        if verdicts := parts.pop(VERDICTS, ""):
            st.subheader(VERDICTS)
            st.markdown(verdicts)
        for title, text in ({"Measurements and command": document.opening} | parts).items():
            with st.expander(title):
                st.markdown(text)
        st.download_button("Markdown", document.text, "study.md", "text/markdown", icon=":material/download:")


def _show_paper() -> None:
    with card("cp_published", "Results reported by the paper") as content:
        model, name, rule = _choose_published()
        with st.container(horizontal=True, gap="xsmall"):
            published_badge()
            st.badge(escape(model), color="grey")
        st.caption(f"{escape(model)}: {escape(published.TABLES[name])}.")
        table = published_table(model, name, rule)
        tables.show(
            table,
            height=tables.height(len(table)),
            column_config=_published_columns(table),
            alt="published figures of the paper",
        )
        if name == MAIN:
            st.caption("Perplexity: lower is better; accuracies in points: higher is better; one seed.")
        st.caption(f":material/straighten: The paper’s protocol: {escape(PUBLISHED)}.")
        how = "The authors’ figures, on their models, texts and windows. Compare rows within a block only."
        content.tools(lambda: table, switch=False, how=how)


def _choose_published() -> tuple[str, str, str]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        models = published.MODELS
        model = address.selectbox("Model", models, "cp_paper_model", models[0], width=200)
        names = [name for name in published.TABLES if published.table(name, model)]
        name = address.selectbox("Table", names, "cp_paper_table", MAIN, width=240)
        rule = "max"
        if name == MAIN:
            rule = address.segmented_control("Accuracy", published.RULES, "cp_paper_rule", rule, help=_RULE_HELP)
    return model, name, rule


def published_table(model: str, name: str, rule: str) -> pd.DataFrame:
    """Return a published table of a model as text cells; `rule` is max or fixed."""
    return pd.DataFrame(map(_published_row, published.table(name, model, rule))).fillna("–")


def _published_columns(table: pd.DataFrame) -> dict[str, Any]:
    text_columns = ("retention", "method", "variant", "note", "base", "metric", "unit", "better", "seed")
    numbers = [name for name in table.columns if name not in text_columns]
    text = st.column_config.TextColumn
    columns: dict[str, Any] = {name: text(alignment="right", width=_NARROW.get(name)) for name in numbers}
    return columns | ({"note": text(width="large")} if "note" in table.columns else {})


def _published_row(figure: published.Figure) -> dict[str, str]:
    row = {"retention": "" if figure.retention is None else percent(figure.retention)}
    row["method"] = published.paper_name(figure.method) if figure.method else ""
    row |= {"variant": figure.variant, "seed": str(figure.seed) if figure.table == "seeds" else ""}
    cells = {name: value for name, value in row.items() if value}
    for column, value in figure.values.items():
        is_ppl = column.endswith("_ppl")
        name = f"{column.removesuffix('_ppl')} PPL ↓" if is_ppl else _COLUMN_NAMES.get(column, column.replace("_", " "))
        # perplexities and accuracies have the same number of decimals
        is_score = is_ppl or column == "mean_accuracy" or column in published.TASKS
        is_large_integer = float(value).is_integer() and abs(value) >= 100
        cells[name] = f"{value:,.0f}" if is_large_integer else format_number(value, "accuracy" if is_score else column)
    return cells | ({"note": figure.note} if figure.note else {})
