"""Compare: which method is better, by how much, is it beyond noise, and at the same budget?"""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from gprune.analysis import comparison as analysis
from gprune.analysis import published
from gprune.study import Study
from gprune.views import derived, frame
from gprune.views.card import Card, card
from gprune.views.charts import comparison as figures
from gprune.views.charts.style import METHOD_LABELS, label
from gprune.views.loaders import MissingResultError, Run
from gprune.views.text import in_figure, plain

Name = tuple[str, str]


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "Compare", "Which method is better, by how much, is it beyond noise, and at the same budget?"
    )
    run = frame.require_run()
    if run is None:
        return
    runs = _choose(run)
    with card("cp_table", "Perplexity of every method", run) as drawn:
        rows = _rows(runs)
        _verdict(drawn, rows, runs)
        _table(drawn, rows, runs)
    with card("cp_charts", "Perplexity on a log axis", run):
        _charts(run, _rows(runs), runs)
    with card("cp_published", "What the paper reports", run):
        st.caption(
            "Perplexity of LLaMA2-7B in windows of 128 tokens, one seed. Published, not run here: a run of "
            "another "
            "model is not to be compared with it."
        )
        with st.expander("Published perplexities of LLaMA2-7B"):
            st.dataframe(_published(), hide_index=True, alt="published perplexities")


def _choose(run: Run) -> list[Run]:
    situation = frame.situation()
    names = [other.name for other in situation.runs]
    chosen = st.multiselect("Runs side by side", names, [run.name], key="cp_runs", bind="query-params")
    found = [other for name in chosen if (other := situation.run_named(name)) is not None]
    for other in found:
        if not any(name.startswith("perplexity.") for name in other.stages):
            st.caption(f"{plain(other.name)} has no perplexities yet.")
    return found or [run]


def _rows(runs: list[Run]) -> list[analysis.Row]:
    rows = analysis.rows([item for run in runs for item in derived.measurements(run)])
    if not rows:
        raise MissingResultError("perplexity.dense.0")
    return rows


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
        for protocol in sorted({cell.protocol for row in rows for cell in row.cells.values()}):
            st.badge(
                protocol, color="grey", help="Perplexities of other windows are not comparable with these."
            )
        seeds = sorted({run.study.seed for run in runs})
        if len(seeds) == 1:
            st.badge("one seed", color="orange", help="No spread over seeds is known.")
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


def _best(rows: list[analysis.Row], text: str) -> str:
    marks = analysis.glyphs(rows, text)
    return next((method for (_, method), mark in marks.items() if mark == analysis.BEST), "")


def _table(drawn: Card, rows: list[analysis.Row], runs: list[Run]) -> None:
    names = _names(rows, runs)
    pinned = st.selectbox("Differences against", names, 0, key="cp_pinned", width=320)
    index = names.index(pinned) if pinned in names else 0
    baseline = rows[index]
    titles = {text: f"{text} ({_role(text, runs)}) ↓" for text in analysis.texts(rows)}
    lines = [_line(row, name, rows, baseline, titles) for row, name in zip(rows, names, strict=True)]
    whole = st.column_config.NumberColumn(format="localized")
    st.dataframe(
        pd.DataFrame(lines),
        hide_index=True,
        column_config={"parameters": whole, "kept": st.column_config.NumberColumn(format="percent")},
        alt="perplexity of every method on every text",
    )
    _explain(names[index], analysis.unpaired(rows, baseline))
    drawn.tools(lambda: analysis.long_table(rows, baseline.name, METHOD_LABELS), switch=False)


def _explain(pinned: str, unpaired: list[str]) -> None:
    st.caption(
        f"Perplexity ± one standard error over windows, lower is better ↓; in brackets the change against "
        f"{plain(pinned)} ± its own standard error, paired over the windows that both read. "
        f"{analysis.BEST} best and {analysis.SECOND} second-best pruned model. “kept” is the retained "
        "fraction of the decoder layers’ linear weights that was really met. A and B: the text has the "
        "name of that calibration text; held out: of neither, so it shows how well a method generalizes."
    )
    if unpaired:
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
    baseline: analysis.Row,
    titles: dict[str, str],
) -> dict[str, Any]:
    line: dict[str, Any] = {"method": name, "kept": row.retention, "parameters": row.parameters or None}
    for text, title in titles.items():
        cell = row.cells.get(text)
        mark = analysis.glyphs(rows, text).get(row.name, "")
        line[title] = _cell(cell, baseline.cells.get(text), mark) if cell else "–"
    return line


def _cell(cell: analysis.Measurement, against: analysis.Measurement | None, mark: str) -> str:
    words = f"{cell.perplexity:,.2f} ± {cell.standard_error:,.2f}"
    if against is not None and against is not cell:
        found = analysis.difference(cell, against)
        words += f" ({found.change:+.1%} ± {found.error:.1%}{'' if found.paired else ' †'})"
    return f"{words} {mark}".strip()


def _charts(run: Run, rows: list[analysis.Row], runs: list[Run]) -> None:
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


def _published() -> pd.DataFrame:
    table = published.perplexities()
    table["retained"] = [f"{value:.0%}" for value in table["retained"]]
    return table
