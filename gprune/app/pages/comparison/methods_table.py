"""The table of methods against a baseline: numbers in columns, and what may be called a difference."""

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from pandas.io.formats.style import Styler

from gprune.analysis import comparison as analysis
from gprune.analysis.comparison import Line
from gprune.analysis.formatting import percent, signed
from gprune.analysis.paired_test import BETTER, INTERVAL, NOISE, WORSE, Difference, interval_in_percent
from gprune.analysis.table import guarded
from gprune.analysis.verdict import BEST, SECOND, is_same_budget, obstacles, stars, winners
from gprune.app.pages.comparison import inputs_card
from gprune.app.pages.comparison.lines import Shown
from gprune.app.ui import tables
from gprune.app.ui.card import Card
from gprune.app.ui.chart_style import METHOD_LABELS, label
from gprune.app.ui.text import plain, said
from gprune.study.methods import METHODS
from gprune.system.units import listed

REASON = "left out because"
METHOD, RETENTION, SEEDS = ("", "method"), ("", "retention"), ("", "seeds")
PERPLEXITY, SPREAD, CHANGE, ERROR = "PPL ↓", "s.d.", "Δ %", "± %"
GLYPHS = {BETTER: "▼", WORSE: "▲", NOISE: "≈"}
OTHER_BUDGET = "≠"
_WIDTHS = {"retention": 66, "seeds": 44, PERPLEXITY: 70, SPREAD: 50, CHANGE: 72, ERROR: 44}
"""pixels: three texts with their differences stand side by side in a window of 1280"""
_LETTER, _WIDEST = 7, 300
"""pixels of a letter, and the most that the methods' names get"""
_MOST = 11
"""columns that fit there; a wider table keeps the methods in sight while it is moved"""
_PINNED = "background-color: rgba(140, 140, 140, 0.16); "
_BOLD, _PALE = "font-weight: 700; ", "color: #8C8C8C; "


def show(drawn: Card, shown: Shown) -> None:
    """Draws badges, verdict, table and exports."""
    _badges(shown)
    _verdict(drawn, shown)
    numbers = table(shown)
    tables.show(
        styled(numbers, shown),
        height=tables.height(len(numbers)) + tables.ROW_PIXELS,
        column_config=_columns(numbers),
        placeholder="–",
        alt=f"perplexity of every method on every text, against {shown.names[shown.pinned.name]}",
    )
    _explain(shown)
    inputs_card.notices(shown)
    drawn.reads(lambda: as_text(shown))
    drawn.tools(
        lambda: analysis.long_table(shown.rows, shown.pinned.name, METHOD_LABELS),
        switch=False,
        how="Lower perplexity is better. Δ is the change against the baseline, ± its 95 % interval, both "
        "paired over the same windows: where the interval holds 0 nothing is decided. A line of another "
        "budget keeps more or fewer weights and is no rival.",
    )


def table(shown: Shown) -> pd.DataFrame:
    """The numbers of the table; groups of columns are the texts."""
    several, reasons = any(len(line.seeds) > 1 for line in shown.lines), _has_reasons(shown)
    lines = []
    for line in shown.lines:
        cells: dict[tuple[str, str], Any] = {METHOD: guarded(shown.names[line.name])}
        cells |= {RETENTION: line.retention}
        cells |= {SEEDS: len(line.seeds)} if several else {}
        for text in shown.texts:
            cells |= _numbers(line, text, shown, several)
        lines.append(cells | ({("", REASON): guarded(line.reason)} if reasons else {}))
    return pd.DataFrame(lines, columns=pd.MultiIndex.from_tuples(lines[0]))


def heading(text: str, shown: Shown) -> str:
    """Title of a text's columns."""
    return str(guarded(f"{text} · {shown.role(text)}"))


def _numbers(line: Line, text: str, shown: Shown, several: bool) -> dict[tuple[str, str], Any]:
    title = heading(text, shown)
    found: dict[tuple[str, str], Any] = {(title, PERPLEXITY): line.mean(text)}
    found |= {(title, SPREAD): line.spread(text)} if several else {}
    if shown.differences:
        change = _change(line, text, shown)
        known = isinstance(change, Difference)
        found[title, CHANGE] = 100.0 * change.change if known else float("nan")
        found[title, ERROR] = 100.0 * change.margin if known else float("nan")
    return found


def _change(line: Line, text: str, shown: Shown) -> Any:
    """The difference to the pinned line; None on that line itself, and a reason where there is none."""
    return None if line is shown.pinned else analysis.change(line, shown.pinned, text)


def styled(numbers: pd.DataFrame, shown: Shown) -> Styler:
    """The table with its signs: they are drawn only, the cells stay numbers and can be sorted."""
    made = numbers.style.format(precision=2, thousands=",")
    signs = {text: stars(shown.ranking(text)) for text in shown.texts}
    marks, looks = analysis.marks(shown.rows), []
    for place, line in enumerate(shown.lines):
        cells = {RETENTION: (percent(line.retention, 1), "")} if np.isfinite(line.retention) else {}
        for text in shown.texts:
            sign, mark = signs[text].get(line.name, ""), marks.of(text, *line.stamps(text))
            cells |= _cells(line, text, shown, sign, mark)
        # a line at once: pandas looks up the place of every cell that it is asked for alone
        words: dict[Any, Any] = {column: lambda _, said=said: said for column, (said, _) in cells.items()}
        made = made.format(words, subset=pd.IndexSlice[[place], :], precision=2, thousands=",")
        ground = "" if place else _PINNED
        looks.append([ground + cells.get(column, ("", ""))[1] for column in numbers.columns])
    styles = pd.DataFrame(looks, numbers.index, numbers.columns)
    return made.apply(lambda _: styles, axis=None)


def _cells(line: Line, text: str, shown: Shown, sign: str, mark: str) -> dict[tuple[str, str], tuple[str, str]]:
    """What the cells of a text say besides their numbers, and how they look."""
    if not np.isfinite(line.mean(text)):
        return {}
    title = heading(text, shown)
    weight = _BOLD if sign == BEST else ""
    # thousands leave no room for decimals
    digits = 2 if line.mean(text) < 1000 else 0
    found = {(title, PERPLEXITY): (f"{line.mean(text):,.{digits}f}{mark} {sign}".strip(), weight)}
    change = _change(line, text, shown) if shown.differences else None
    if isinstance(change, Difference) and np.isfinite(change.change):
        fair = is_same_budget(line, shown.pinned)
        look = _BOLD if fair and not change.close else _PALE
        glyph = GLYPHS[change.verdict] if fair else OTHER_BUDGET
        found[title, CHANGE] = f"{glyph} {signed(100 * change.change, '.1f')}", look
        found[title, ERROR] = interval_in_percent(change, 1).strip("±() %"), look
    return found


def _columns(numbers: pd.DataFrame) -> Any:
    """Widths of the columns, by position: the hidden index is the first."""
    found: dict[int, Any] = {}
    room = min(20 + _LETTER * max(map(len, numbers[METHOD])), _WIDEST)
    for place, (_, name) in enumerate(numbers.columns, start=1):
        kind = st.column_config.TextColumn if name in ("method", REASON) else st.column_config.NumberColumn
        width: Any = room if name == "method" else _WIDTHS.get(name, "large")
        found[place] = kind(width=width, pinned=name == "method" and len(numbers.columns) > _MOST)
    return found


def as_text(shown: Shown) -> pd.DataFrame:
    """The table as it is read on paper: a text a column, with difference and sign."""
    lines, signs = [], {text: stars(shown.ranking(text)) for text in shown.texts}
    for line in shown.lines:
        cells = {"method": shown.names[line.name], "retention": line.retention}
        for text in shown.texts:
            cells[f"{text} ({shown.role(text)}) ↓"] = _words(line, text, shown, signs[text].get(line.name, ""))
        lines.append(cells | ({REASON: line.reason} if _has_reasons(shown) else {}))
    return pd.DataFrame(lines)


def _words(line: Line, text: str, shown: Shown, sign: str) -> str:
    if not line.by_seed(text):
        return "–"
    found, change = _change(line, text, shown) if shown.differences else None, ""
    if isinstance(found, Difference):
        change = f"({signed(found.change, '.1%')} {interval_in_percent(found, 1)})"
    mark = analysis.marks(shown.rows).of(text, *line.stamps(text))
    value = f"{line.mean(text):,.2f}{mark} ± {line.margin(text):,.2f}"
    return " ".join(filter(None, (value, change, sign)))


def _has_reasons(shown: Shown) -> bool:
    return any(line.reason for line in shown.lines)


def _badges(shown: Shown) -> None:
    with st.container(horizontal=True, gap="xsmall"):
        for windows in sorted({cell.windows_read for row in shown.rows for cell in row.cells.values()}):
            st.badge(windows, color="grey", help="Perplexities of other windows are not comparable with these.")
        if len({run.study.seed for run in shown.runs}) == 1:
            st.badge("one seed", color="orange", help="No spread over seeds is known.")


def _verdict(drawn: Card, shown: Shown) -> None:
    if missing := shown.missing:
        st.caption(f"Not measured yet: {plain(', '.join(map(label, missing)))}.")
        return
    if reasons := obstacles(shown.rows):
        st.warning("No winner is called: " + plain("; ".join(reasons)) + ".", icon=":material/balance:")
        return
    best = {text: winners(shown.ranking(text)) for text in shown.texts}
    close = {text: names for text, names in best.items() if len(names) > 1}
    every = {name for names in best.values() for name in names}
    if len(every) == 1 and not close:
        method = every.pop()[1]
        name = f"The control “{plain(label(method))}”" if METHODS[method].control else plain(label(method))
        drawn.title(f"{name} has the lowest perplexity of the pruned models on every text")
    if close:
        told = "; ".join(f"{listed([shown.names[name] for name in names])} on {text}" for text, names in close.items())
        st.caption(f"Too close to call, the {INTERVAL} of their difference holds 0: {plain(told)}.")


def _explain(shown: Shown) -> None:
    """One line on the signs, then in full why cells are empty."""
    pinned, several = plain(shown.names[shown.pinned.name]), any(len(one.seeds) > 1 for one in shown.lines)
    words = f"{BEST} best and {SECOND} second-best pruned model; those within noise share a sign."
    if shown.differences:
        words += (
            f" Δ: change against {pinned} ± its {INTERVAL}; {GLYPHS[BETTER]} better, {GLYPHS[WORSE]} "
            f"worse, {GLYPHS[NOISE]} within noise (it holds 0)."
        )
        if not all(is_same_budget(line, shown.pinned) for line in shown.lines):
            words += f" {OTHER_BUDGET} another retention: neither better nor worse."
    if several:
        words += " PPL is the mean over seeds, s.d. their deviation."
    st.caption(words)
    marks = analysis.marks(shown.rows)
    tables.stamps(marks.usual.values())
    tables.footnotes(marks)
    if shown.differences:
        for (text, reason), methods in analysis.without_change(shown.lines, shown.pinned).items():
            names = plain(", ".join(dict.fromkeys(map(label, methods))))
            st.caption(f"– on {plain(text)}, {names}: no difference to {pinned}, because of {said(reason)}.")
    for reason in dict.fromkeys(line.reason for line in shown.lines if line.reason):
        left_out = dict.fromkeys(label(line.method) for line in shown.lines if line.reason == reason)
        st.caption(f"Left out: {plain('; '.join(left_out))}. {said(reason)}.")
