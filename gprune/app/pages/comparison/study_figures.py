"""The figures below a study's table: gains by retention, rows side by side, and Figures 1 and 3."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots

from gprune.analysis import studies as analysis
from gprune.analysis import tables as gains
from gprune.analysis.formatting import counted, percent
from gprune.analysis.studies import Setting, is_perplexity
from gprune.app.pages.comparison import studies
from gprune.app.pages.comparison.charts import logarithmic
from gprune.app.pages.comparison.studies import StudyTable
from gprune.app.ui import marks, tables, url_state
from gprune.app.ui.card import Card, card
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, METHOD_SYMBOLS, family, label, style
from gprune.app.ui.panel import Panel
from gprune.app.ui.text import in_figure
from gprune.experiments.reproduction import catalogue
from gprune.experiments.reproduction.assembly import gaps
from gprune.experiments.reproduction.cells import heading

MAIN_LIKE = ("main", "metric-gap", "gain-by-retention")
BINS = {
    "figure-3a": {"retained, GPrune": "gprune", "retained, FLAP": "flap"},
    "figure-3b": {"Jaccard": "gprune", "Jaccard by chance": ""},
}
_BIN_WORDS = {
    "figure-3a": "Modules in bins of equally many, by the mean rank drift of their neurons: where the two "
    "lines part, GPrune spends its budget differently.",
    "figure-3b": "Modules in bins of equally many, by the mean rank drift of their neurons; the grey line is "
    "what independent choices of the same sizes would share.",
}
ROW_PIXELS = 30
_BEFORE, _AFTER = "base metric", "with GPrune"
_UNITS = {
    "rank correlation": "rank correlation of the importance scores (Spearman)",
    "ARI": "Adjusted Rand Index, mean over layers",
    "matched overlap": "matched overlap, mean over layers",
}
_STEP_DASHES = ("solid", "dot", "dash", "dashdot")


def show(table: StudyTable, made: catalogue.Reproduction | None) -> None:
    """Draws the figures of a table that has numbers."""
    if table.name in MAIN_LIKE:
        _gains(table)
        return
    settings = analysis.settings(table.rows)
    histogram = studies.curves(made) if table.name == studies.HISTOGRAM and made else None
    with card("cp_study_figure", f"The table “{table.name}” as a figure") as drawn:
        if histogram is not None:
            drawn.title("Rank drift when the text changes, and when it is drawn again")
            shown = Panel(
                drift_curves(histogram),
                "Blue: the text changes; grey: the same text re-sampled, which is the noise. The farther "
                "blue lies to the right of grey, the more the text decides.",
                table=lambda: histogram,
            )
            drawn.show(shown)
        elif table.name in BINS:
            filled = [setting for setting in settings if setting.filled]
            shown = Panel(
                bin_lines(filled, BINS[table.name]),
                _BIN_WORDS[table.name],
                table=lambda: analysis.long_table(filled, filled[0]),
            )
            drawn.show(shown)
        else:
            _rows(drawn, settings)


def _rows(drawn: Card, settings: list[Setting]) -> None:
    columns = analysis.columns(settings)
    titles = {column: heading(column) for column in columns}
    column = url_state.selectbox("Measure", titles, "cp_study_measure", columns[0], width=280)
    drawn.title(f"{heading(column)} of every row")
    shown = Panel(
        row_dots(settings, column),
        "One dot a row with its spread; rows of one colour share a method, and open dots are controls that "
        "the paper does not have.",
        table=lambda: analysis.long_table(settings, next(s for s in settings if s.filled)),
    )
    drawn.show(shown)


def _gains(table: StudyTable) -> None:
    """What GPrune changes, computed from the rows of the main table."""
    rows = analysis.frame(table.rows)
    chosen: pd.DataFrame | None = None
    with card("cp_study_slope", "From the base metric to GPrune") as drawn:
        gain = gains.gain_by_retention(rows)
        columns = list(dict.fromkeys(gain["metric"]))
        if not columns:
            sentence = "No retention has both a base metric and GPrune on it yet."
            st.info(sentence, icon=":material/hourglass_empty:")
            return
        titles = {column: heading(column) for column in columns}
        column = url_state.selectbox("Measure", titles, "cp_gain_measure", columns[0], width=280)
        chosen = gain[gain["metric"] == column]
        _slopes(drawn, chosen, column)
    if chosen is None:
        return
    left, right = st.columns(2)
    with left, card("cp_study_gain", "Gain by retention") as drawn:
        shown = Panel(
            gain_lines(chosen, column),
            "Against the base metric; the dotted line is no change. Below it is better for perplexity, above "
            "it for accuracy.",
            table=lambda: chosen,
        )
        drawn.show(shown)
    with right, card("cp_study_gap", "Gap between base metrics") as drawn:
        _gap(drawn, gaps(rows))


def _slopes(drawn: Card, chosen: pd.DataFrame, column: str) -> None:
    drawn.title(f"GPrune beside its base metric: {heading(column)} in {counted(len(chosen), 'comparison')}")
    direction = "falling" if analysis.is_perplexity(column) else "rising"
    shown = Panel(
        slope_panels(chosen, column),
        f"Left the base metric, right GPrune on it at the same retention: a {direction} line is a gain.",
        table=lambda: chosen,
    )
    drawn.show(shown)


def _gap(drawn: Card, gap: pd.DataFrame) -> None:
    if gap.empty:
        st.info("Needs Wanda-sp, FLAP and GPrune on both at one retention.", icon=":material/hourglass_empty:")
        return
    drawn.title("Gap between Wanda-sp and FLAP, before and after GPrune")
    shown = gap.drop(columns="seed", errors="ignore")
    shown["metric"] = shown["metric"].map(heading)
    tables.show(
        shown,
        forms={"before": "%.2f", "after": "%.2f"},
        shares={"retention": 0, "reduction": 0},
        alt="gap between the base metrics before and after GPrune",
    )
    st.caption(
        "Absolute difference of the two base metrics, before and after GPrune is applied to both; a negative "
        "reduction means that the gap has grown."
    )
    drawn.tools(
        lambda: shown,
        switch=False,
        how="Each row is a retention, a metric and a seed. A reduction of 100 % closes the gap, 0 leaves it as it was.",
    )


def axis_title(column: str) -> str:
    """Title of an axis, with unit and direction."""
    kind, sign, subject = column.partition(":")
    if is_perplexity(column):
        return f"perplexity on {in_figure(subject)} (log scale, lower is better)"
    if kind == "accuracy":
        what = f"accuracy on {in_figure(subject)}" if sign else "mean accuracy"
        return f"{what} (points, higher is better)"
    return _UNITS.get(column, in_figure(column))


def row_dots(table: list[Setting], column: str) -> go.Figure:
    """Every setting as a dot with its spread; controls are open."""
    figure, names = go.Figure(), _distinct([in_figure(setting.name) for setting in table])
    shown = [(s, name) for s, name in zip(table, names, strict=True) if np.isfinite(s.mean(column))]
    for setting, name in shown:
        own, spread = family(setting.method), setting.spread(column)
        symbol = METHOD_SYMBOLS.get(setting.method.partition(":")[0], "circle")
        look = {"color": METHOD_COLORS.get(own, GREY), "symbol": symbol, "size": 11}
        if setting.rows[0].control:
            look |= {"symbol": f"{symbol.removesuffix('-open')}-open", "line": {"width": 2}}
        error = {"type": "data", "array": [spread if np.isfinite(spread) else 0.0], "thickness": 1.5}
        more = {"name": name, "error_x": error, "showlegend": False}
        marks.points(figure, [setting.mean(column)], [name], look, "%{y}: %{x:.4g}<extra></extra>", **more)
    style(figure, axis_title(column), "", 100 + ROW_PIXELS * len(shown))
    if is_perplexity(column) and shown:
        figure.update_xaxes(**logarithmic(setting.mean(column) for setting, _ in shown))
    return figure.update_yaxes(
        type="category", categoryorder="array", categoryarray=[n for _, n in shown][::-1], automargin=True
    )


def _distinct(names: list[str]) -> list[str]:
    """Numbers names that would fall on one line of a chart."""
    return [
        f"{name} ({names[: index + 1].count(name)})" if names.count(name) > 1 else name
        for index, name in enumerate(names)
    ]


def slope_panels(gains: pd.DataFrame, column: str) -> go.Figure:
    """Each base metric beside GPrune on it, one panel a retention; lines of `tables.gain_by_retention`."""
    lines = gains[np.isfinite(gains[["before", "after"]].astype(float)).all(axis=1)]
    kept = sorted(lines["retention"].unique(), reverse=True)
    titles, panels = [f"keep {percent(retention)}" for retention in kept], max(len(kept), 1)
    figure = make_subplots(1, panels, shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.03)
    named: set[str] = set()
    for line in lines.to_dict("records"):
        _slope(figure, line, str(line["base"]) not in named, kept.index(line["retention"]) + 1)
        named.add(str(line["base"]))
    style(figure, "", "", 400, margin={"l": 64, "r": 16, "t": 72, "b": 40})
    figure.update_layout(legend={"y": 1.12})
    figure.update_xaxes(type="category", range=[-0.25, 1.25])
    figure.update_yaxes(title_text=axis_title(column), col=1)
    if is_perplexity(column) and len(lines):
        figure.update_yaxes(**logarithmic(lines[["before", "after"]].to_numpy(dtype=float).ravel()))
    return figure


def _slope(figure: go.Figure, line: dict[Hashable, Any], legend: bool, panel: int) -> None:
    base = str(line["base"])
    name = _base_name(base, str(line["method"]))
    marks.curve(
        figure, [_BEFORE, _AFTER], [line["before"], line["after"]], name,
        {"color": METHOD_COLORS.get(base, GREY), "width": 2}, f"{name}, %{{x}}: %{{y:.2f}}<extra></extra>",
        symbol=[METHOD_SYMBOLS.get(base, "circle"), "circle"], size=10,
        legendgroup=base, showlegend=legend, row=1, col=panel,
    )  # fmt: skip


def _base_name(base: str, method: str) -> str:
    """The base and, where it is scored by another metric, GPrune's: FANG (twFLAP)."""
    own = method.partition(":")[2]
    return label(base) if own in (base, "") else f"{label(base)} → {'twFLAP' if own == 'twflap' else label(own)}"


def gain_lines(gains: pd.DataFrame, column: str) -> go.Figure:
    """What GPrune changes against its base metric, by retention; stronger pruning to the right."""
    figure, ratio = go.Figure(), is_perplexity(column)
    for base, found in gains.groupby("base", sort=False):
        values = 100.0 * (found["gain"] - 1.0) if ratio else found["gain"]
        name = _base_name(str(base), str(found["method"].iloc[0]))
        marks.curve(
            figure, [percent(retention) for retention in found["retention"]], values.to_list(), name,
            {"color": METHOD_COLORS.get(str(base), GREY), "width": 2},
            f"{name}, keep %{{x}}: %{{y:+.1f}}<extra></extra>",
            symbol=METHOD_SYMBOLS.get(str(base), "circle"), size=9,
        )  # fmt: skip
    figure.add_hline(y=0, line={"color": GREY, "dash": "dot", "width": 1.5})
    words = "change of perplexity by GPrune (%)" if ratio else "change of accuracy by GPrune (points)"
    style(figure, "target retention (stronger pruning to the right)", words, 340)
    order = [percent(value) for value in sorted(gains["retention"].unique(), reverse=True)]
    return figure.update_xaxes(type="category", categoryorder="array", categoryarray=order)


def bin_lines(table: list[Setting], curves: dict[str, str]) -> go.Figure:
    """Figures 3a and 3b: measures of drift bins, from the most stable to the most unstable.

    `table` has one setting a bin; `curves` gives each column its method, an empty one to a reference in grey.
    """
    figure = go.Figure()
    for column, method in curves.items():
        color = METHOD_COLORS.get(method, GREY)
        marks.curve(
            figure, [in_figure(setting.name) for setting in table], [one.mean(column) for one in table],
            in_figure(column), {"color": color, "width": 2, "dash": "solid" if method else "dash"},
            "%{x}: %{y:.3f}", symbol=METHOD_SYMBOLS.get(method), size=9,
        )  # fmt: skip
    unit = "Jaccard of the kept neurons" if "Jaccard" in curves else "fraction of neurons kept"
    style(figure, "drift bin (modules from stable to unstable)", unit, 360)
    figure.update_xaxes(type="category")
    return figure.update_yaxes(range=[0, 1.02])


def drift_curves(histogram: pd.DataFrame) -> go.Figure:
    """Figure 1a: share of neurons by rank drift, a step line each; grey where no text changes."""
    figure = go.Figure()
    middle = (histogram["drift from"] + histogram["drift to"]) / 2
    names = [name for name in histogram.columns if name not in ("drift from", "drift to")]
    for index, name in enumerate(names):
        crossed = "re-sampled" not in name
        shown = in_figure(name.removesuffix(", % of neurons"))
        color, dash = METHOD_COLORS["gprune"] if crossed else GREY, _STEP_DASHES[index % len(_STEP_DASHES)]
        line = {"color": color, "dash": dash, "shape": "hvh", "width": 2}
        marks.curve(figure, middle, histogram[name], shown, line, "d ≈ %{x:.2f}: %{y:.2f} %")
    style(figure, "rank drift d (0 = rank unchanged, 1 = from first to last)", "share of neurons (%)", 360)
    present = histogram[names].to_numpy().max(axis=1) > 0.05
    return figure.update_xaxes(range=[0, float(histogram["drift to"][present].max()) if present.any() else 1.0])
