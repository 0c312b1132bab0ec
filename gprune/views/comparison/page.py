"""Compare: which method is better, by how much, is it beyond noise, and at the same budget?

Three views: the methods of runs side by side, the studies of the paper made here, and what the paper reports.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pandas as pd
import streamlit as st

from gprune.analysis import comparison as analysis
from gprune.methods import METHODS
from gprune.study import Study
from gprune.views.comparison import charts as figures
from gprune.views.comparison import marked_table, paper, study_cards
from gprune.views.frame import derived, frame
from gprune.views.frame.card import Card, card
from gprune.views.frame.chart_style import METHOD_LABELS, label
from gprune.views.frame.loaders import MissingResultError, Run
from gprune.views.frame.text import in_figure, plain

METHODS_VIEW, STUDIES, PAPER = "Methods", "Studies", "Paper"
_RUNS, _LAST = "cp_runs", "cp_last_run"
REASON = "left out because"


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "Compare", "Which method is better, by how much, is it beyond noise, and at the same budget?"
    )
    run = frame.require_run()
    view = st.segmented_control(
        "View",
        (METHODS_VIEW, STUDIES, PAPER),
        default=METHODS_VIEW if run else PAPER,
        required=True,
        key="cp_view",
        bind="query-params",
        label_visibility="collapsed",
        help="Methods of the chosen runs; tables of the paper made here; the paper’s own figures.",
    )
    if view == STUDIES:
        study_cards.show(run)
    elif view == PAPER:
        paper.show()
    elif run is not None:
        _methods(run)


def _methods(run: Run) -> None:
    runs = _choose(run)
    with card("cp_table", "Perplexity of every method", run) as drawn:
        rows = _filtered(_rows(runs))
        _verdict(drawn, rows, runs)
        _table(drawn, rows, runs)
    with card("cp_charts", "Perplexity on a log axis", run) as drawn:
        _charts(drawn, run, _filtered(_rows(runs), draw=False), runs)


def _choose(run: Run) -> list[Run]:
    situation = frame.situation()
    shown, last = st.session_state.get(_RUNS), st.session_state.get(_LAST, run.name)
    follows = last != run.name and shown == [last]
    if follows:
        st.session_state[_RUNS] = [run.name]
    st.session_state[_LAST] = run.name
    asked = [*st.query_params.get_all(_RUNS), *(shown or ())]
    names = [other.name for other in frame.listed(situation.runs, (run.name, *asked))]
    # a value that was just set admits no default beside it
    default = None if follows else [run.name]
    chosen = st.multiselect("Runs side by side", names, default, key=_RUNS, bind="query-params")
    found = [other for name in chosen if (other := situation.run_named(name)) is not None]
    for other in found:
        if not derived.measured(other):
            st.caption(f"{plain(other.name)} has no perplexities yet.")
    return found or [run]


def _rows(runs: list[Run]) -> list[analysis.Row]:
    rows = analysis.rows([item for run in runs for item in derived.measurements(run)])
    if not rows:
        raise MissingResultError("the perplexity of any method")
    return rows + [row for run in runs for row in analysis.unavailable(run.name, derived.unavailable(run))]


def _filtered(rows: list[analysis.Row], draw: bool = True) -> list[analysis.Row]:
    """The rows of the chosen methods; all where none is chosen."""
    there = {row.method for row in rows}
    options = [name for name in METHODS if name in there] + sorted(there - set(METHODS))
    key = f"cp_methods_{crc32(' '.join(options).encode()):08x}"
    chosen = st.session_state.get(key, options)
    if draw:
        count = len(chosen) or len(options)
        with st.popover(
            f"Methods: {count} of {len(options)}", icon=":material/filter_list:", key="cp_filter"
        ):
            chosen = st.multiselect("Methods", options, options, format_func=label, key=key)
    return [row for row in rows if row.method in (chosen or options)]


def _names(rows: list[analysis.Row], runs: list[Run]) -> list[str]:
    """What to call each row: the method, with those words of the run in which the pruned rows differ."""
    studies = {run.name: run.study for run in runs}
    pruned = list(dict.fromkeys(row.run for row in rows if row.method != analysis.DENSE))
    words = {name: _words(name, studies[name]) for name in pruned}
    differ = [len(set(column)) > 1 for column in zip(*words.values(), strict=True)]
    names = []
    for row in rows:
        own = () if row.method == analysis.DENSE else words[row.run]
        tail = ", ".join(word for word, keep in zip(own, differ, strict=False) if keep)
        names.append(f"{label(row.method)} · {tail}" if tail else label(row.method))
    return _distinct(names, rows)


def _words(name: str, study: Study) -> tuple[str, ...]:
    return study.name or name, f"keep {study.retention:.0%}", label(study.metric), f"seed {study.seed}"


def _distinct(names: list[str], rows: list[analysis.Row]) -> list[str]:
    """Adds the run's hash to names that would be equal."""
    return [
        f"{name} ({row.run.rsplit('-', 1)[-1]})" if names.count(name) > 1 else name
        for name, row in zip(names, rows, strict=True)
    ]


def _verdict(drawn: Card, rows: list[analysis.Row], runs: list[Run]) -> None:
    with st.container(horizontal=True, gap="xsmall"):
        for windows in sorted({cell.windows_read for row in rows for cell in row.cells.values()}):
            st.badge(
                windows, color="grey", help="Perplexities of other windows are not comparable with these."
            )
        seeds = sorted({run.study.seed for run in runs})
        if len(seeds) == 1:
            st.badge("one seed", color="orange", help="No spread over seeds is known.")
    _still_to_come(rows, runs)
    obstacles = analysis.obstacles(rows)
    if obstacles:
        st.warning("No winner is called: " + plain("; ".join(obstacles)) + ".", icon=":material/balance:")
        return
    winners = {text: _best(rows, text) for text in analysis.texts(rows)}
    found = {method for method in winners.values() if method}
    if len(found) == 1 and all(winners.values()):
        best = plain(label(found.pop()))
        drawn.title(f"{best} has the lowest perplexity of the pruned models on every text")
    close = [text for text in winners if analysis.undecided(rows, text)]
    if close:
        st.caption(
            f"Too close to call between best and second-best, within {analysis.CLOSE:.0f} standard errors of "
            f"their difference: {plain(', '.join(close))}."
        )


def _still_to_come(rows: list[analysis.Row], runs: list[Run]) -> None:
    """Names the methods of unfinished runs that have no perplexity yet."""
    there = {row.name for row in rows} | {(run.name, analysis.DENSE) for run in runs}
    waiting = [name for run in runs if not run.complete for name in run.study.methods]
    missing = [name for name in dict.fromkeys(waiting) if not any(method == name for _, method in there)]
    if missing:
        st.caption(f"Not measured yet: {plain(', '.join(map(label, missing)))}.")


def _best(rows: list[analysis.Row], text: str) -> str:
    marks = analysis.glyphs(rows, text)
    return next((method for (_, method), mark in marks.items() if mark == analysis.BEST), "")


def _table(drawn: Card, rows: list[analysis.Row], runs: list[Run]) -> None:
    names = _names(rows, runs)
    measured = [name for row, name in zip(rows, names, strict=True) if row.cells] or names
    pinned, deltas = marked_table.reference(measured, ("cp_pinned", "cp_deltas"), 320)
    index = names.index(pinned)
    baseline = rows[index]
    titles = {text: f"{text} ({_role(text, runs)}) ↓" for text in analysis.texts(rows)}
    against = baseline if deltas else None
    lines = [_line(row, name, rows, against, titles) for row, name in zip(rows, names, strict=True)]
    table = pd.DataFrame(lines)
    st.dataframe(
        table,
        hide_index=True,
        height=marked_table.height(table),
        column_config=_columns(list(titles.values())),
        placeholder="–",
        alt="perplexity of every method on every text",
    )
    _explain(names[index], analysis.unpaired(rows, baseline), deltas)
    _left_out(rows)
    marked_table.exports(
        drawn,
        table,
        "Perplexity of every method, lower is better",
        f"{runs[0].name}-cp_table",
        lambda: analysis.long_table(rows, baseline.name, METHOD_LABELS),
    )


def _left_out(rows: list[analysis.Row]) -> None:
    """Says in full why methods have no numbers: the table's last column may be out of sight."""
    for reason in dict.fromkeys(row.reason for row in rows if row.reason):
        names = dict.fromkeys(label(row.method) for row in rows if row.reason == reason)
        st.caption(f"Left out: {plain('; '.join(names))}. {plain(reason)}.")


def _columns(titles: list[str]) -> dict[str, Any]:
    return {
        "method": st.column_config.TextColumn(pinned=True),
        "parameters": st.column_config.NumberColumn(format="localized"),
        "kept": st.column_config.NumberColumn(format="percent"),
    } | marked_table.columns(titles, REASON)


def _explain(pinned: str, unpaired: list[str], deltas: bool) -> None:
    change = (
        f"in brackets the change against {plain(pinned)} ± its own standard error, paired over the windows "
        "that both read. "
    )
    st.caption(
        f"Perplexity ± one standard error over windows, lower is better ↓{'; ' + change if deltas else '. '}"
        f"{analysis.BEST} best and {analysis.SECOND} second-best pruned model. “kept” is the retained "
        "fraction of the decoder layers’ linear weights that was really met. A and B: the text has the "
        "name of that calibration text; held out: of neither, so it shows how well a method generalizes."
    )
    if unpaired and deltas:
        st.caption(
            f"† Not the same windows as {plain(pinned)} ({plain(', '.join(unpaired))}): there the two "
            "standard errors are added as if independent."
        )


def _role(text: str, runs: list[Run]) -> str:
    """Which calibration text an evaluation text has the name of, in all the runs shown."""
    roles = [{run.study.auxiliary: "B", run.study.primary: "A"}.get(text, "held out") for run in runs]
    return " or ".join(dict.fromkeys(roles)) + (", by run" if len(set(roles)) > 1 else "")


def _line(
    row: analysis.Row,
    name: str,
    rows: list[analysis.Row],
    baseline: analysis.Row | None,
    titles: dict[str, str],
) -> dict[str, Any]:
    line: dict[str, Any] = {"method": name, "kept": row.retention, "parameters": row.parameters or None}
    for text, title in titles.items():
        cell = row.cells.get(text)
        mark = analysis.glyphs(rows, text).get(row.name, "")
        line[title] = _cell(cell, baseline.cells.get(text) if baseline else None, mark) if cell else "–"
    return line | ({REASON: row.reason} if any(other.reason for other in rows) else {})


def _cell(cell: analysis.Measurement, against: analysis.Measurement | None, mark: str) -> str:
    words, change = f"{cell.perplexity:,.2f} ± {cell.standard_error:,.2f}", ""
    if against is not None and against is not cell:
        if cell.windows_read != against.windows_read:
            # other windows of a text can be easier by more than pruning costs
            change = "(other windows)"
        else:
            found = analysis.difference(cell, against)
            change = f"({found.change:+.1%} ± {found.error:.1%}{'' if found.paired else ' †'})"
    return marked_table.cell(words, change, mark)


def _charts(drawn: Card, run: Run, rows: list[analysis.Row], runs: list[Run]) -> None:
    names = [in_figure(name) for name in _names(rows, runs)]
    for text in analysis.texts(rows):
        st.plotly_chart(
            figures.dots(rows, text, names),
            key=f"cp_chart_{text}",
            config={
                "displaylogo": False,
                "toImageButtonOptions": {"format": "svg", "filename": f"{run.name}-ppl"},
            },
            alt=f"perplexity of every method on {text}",
        )
    st.caption(
        "Whiskers are each method's own standard error over windows. All methods of a run read the same "
        "windows, so overlapping whiskers decide nothing: the table's differences are paired. The dotted "
        "line is the dense model."
    )
    drawn.tools(lambda: analysis.long_table(rows, None, METHOD_LABELS))
