"""Figures of the speed page: tokens a second beside the dense model, and what every layer keeps."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis.speed import DENSE
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, METHOD_SYMBOLS, PALE, label, layer_axis, style
from gprune.app.ui.text import in_figure
from gprune.records import Array

ROW_PIXELS = 34
_FEW = 8
"""units that all get a tick of their own"""
_EAGER = "eager"
"""mode of decoding that is drawn filled; a captured or compiled step is drawn open"""


def dots(table: pd.DataFrame, phase: str) -> go.Figure:
    """Tokens a second of every model, median and quartiles; the dense model is a dotted line a mode.

    `table` is ``analysis.speed.speed_table`` of one phase, in the order of the measurement.
    """
    figure, several = go.Figure(), table["mode"].nunique() > 1
    names = [
        _row_name(model, mode, several) for model, mode in zip(table["model"], table["mode"], strict=True)
    ]
    hues = [METHOD_COLORS.get(model, GREY) for model in table["model"]]
    # a browser takes about as long for a trace of one dot as for one of many, and whiskers have a trace's hue
    for hue in dict.fromkeys(hues):
        own = [one == hue for one in hues]
        figure.add_trace(
            _marks(table[own], [name for name, is_own in zip(names, own, strict=True) if is_own], hue)
        )
    for line in table[table["model"] == DENSE].to_dict("records"):
        dash = "dot" if line["mode"] == _EAGER else "dash"
        figure.add_vline(x=line["tokens/s"], line={"color": GREY, "dash": dash, "width": 1.5})
    style(figure, f"tokens a second, {phase} (higher is better)", "", 96 + ROW_PIXELS * len(table))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names[::-1], automargin=True)
    figure.update_xaxes(range=[0, 1.08 * float(table[["tokens/s", "high"]].to_numpy().max())])
    return figure


def _marks(table: pd.DataFrame, names: list[str], hue: str) -> go.Scatter:
    middle = table["tokens/s"]
    symbols = [METHOD_SYMBOLS.get(model, "circle") for model in table["model"]]
    drawn = [
        f"{symbol}-open" if _is_open(mode, symbol) else symbol
        for mode, symbol in zip(table["mode"], symbols, strict=True)
    ]
    return go.Scatter(
        x=middle,
        y=names,
        customdata=table["ratio"],
        mode="markers",
        marker={"color": hue, "symbol": drawn, "size": 11, "line": {"width": 2}},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": table["high"] - middle,
            "arrayminus": middle - table["low"],
            "thickness": 1.5,
        },
        showlegend=False,
        hovertemplate="%{y}: %{x:,.4g} tokens/s, %{customdata:.2f}× dense<extra></extra>",
    )


def _row_name(model: str, mode: str, several: bool) -> str:
    name = in_figure(label(model))
    return f"{name}, {mode}" if several else name


def _is_open(mode: str, symbol: str) -> bool:
    return mode != _EAGER and not symbol.endswith("-open")


def widths(kept: Array, full: int, method: str, units: str) -> go.Figure:
    """What every layer keeps, over the dense width in grey.

    `kept` is (layers,) units that stay of `full`; `units` says which: FFN neurons or key/value groups.
    """
    layers = np.arange(len(kept))
    figure = go.Figure()
    figure.add_bar(
        x=layers, y=np.full(len(kept), full), marker={"color": PALE}, name="dense", hoverinfo="skip"
    )
    figure.add_bar(
        x=layers,
        y=kept,
        name=label(method),
        marker={"color": METHOD_COLORS.get(method, GREY)},
        hovertemplate=f"layer %{{x}}: %{{y:,}} of {full:,} {units}<extra></extra>",
    )
    style(figure, "layer", units, 300, barmode="overlay", bargap=0.2)
    layer_axis(figure, len(kept))
    figure.update_yaxes(range=[0, 1.05 * full], **({"dtick": 1} if full <= _FEW else {}))
    return figure
