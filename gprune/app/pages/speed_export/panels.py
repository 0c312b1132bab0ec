"""The figures of the page by name, each from a run and what can be set beside its card."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis import speed as analysis
from gprune.analysis.speed import DENSE
from gprune.app.ui import marks
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, METHOD_SYMBOLS, PALE, label, layer_axis, style
from gprune.app.ui.panel import Panel, panel
from gprune.app.ui.text import in_figure, plain
from gprune.app.ui.unit import NOTHING, Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.records import Array, ModelShape, PruningMasks
from gprune.study.settings import require_choice

ALIGNMENTS = (1, 8, 16, 32, 64, 128, 256)
ROW_PIXELS = 34
_FEW = 8
"""units that all get a tick of their own"""
_EAGER = "eager"
"""mode of decoding that is drawn filled; a captured or compiled step is drawn open"""


@panel("speed", "sx_speed", "Tokens a second, side by side", reads={"phase": "sx_phase"})
def speed(run: Run, *, phase: str = next(iter(analysis.PHASES))) -> Panel:
    """Tokens a second of every model, side by side."""
    require_choice("phase", phase, tuple(analysis.PHASES))
    rows: list[Mapping[str, Any]] = list(run.load(stages.speed).rows)
    table = analysis.speed_table(rows, phase)
    return Panel(
        rate_dots(table, phase),
        "Medians over the repetitions, higher is faster; whiskers their quartiles and no 95 % interval; "
        f"ratios are to {_reference(rows)}, with their interquartile range (IQR).",
        title=headline(rows),
        alt=headline(rows, phase),
        table=lambda: table,
        how="Dots are medians over the repetitions, whiskers their quartiles; the dotted line is the dense "
        f"model, ratios are to {_reference(rows)}. Each other model takes turns with it in every repetition, "
        "and a ratio is formed within each: a machine that slows down slows both alike. Where its speed "
        "changed meanwhile, as wide whiskers tell, read the ratios and not the distances from the line.",
    )


def headline(rows: list[Mapping[str, Any]], phase: str = "decode") -> str:
    """The finding: GPrune's speed beside the reference, and whether the spread leaves it open."""
    reference = _reference(rows)
    ratio, spread = analysis.ratio_of(rows, "gprune", phase)
    if ratio != ratio:
        return f"Tokens a second beside {reference}"
    verb = {"decode": "decodes", "prefill": "reads the prompt"}.get(phase, "answers")
    number = f"{ratio:.2f} times its speed (interquartile range {spread:.2f})"
    if analysis.within_noise(ratio, spread):
        return f"GPrune {verb} as fast as {reference} within noise: {number}"
    return f"GPrune {verb} {'faster' if ratio > 1 else 'slower'} than {reference}: {number}"


def _reference(rows: list[Mapping[str, Any]]) -> str:
    """The model that the ratios are to, in words."""
    first = str(rows[0]["model"])
    return "the dense model" if first == analysis.DENSE else plain(label(first))


@panel("widths", "sx_widths", "Width of every layer", reads={"method": "sx_widths_method"})
def widths(run: Run, *, method: str = "", selected: Selection = NOTHING) -> Panel:
    """FFN neurons that each layer keeps under a method."""
    name, masks, shape = masks_of(run, method)
    kept = analysis.widths(masks)
    figure = width_bars(kept.neurons, shape.neurons, name, "FFN neurons")
    marks.layer_line(figure, selected)
    table = {"layer": range(len(kept.neurons)), "FFN neurons": kept.neurons, "key/value groups": kept.groups}
    return Panel(
        figure,
        f"FFN neurons that each layer keeps; grey is the dense width of {shape.neurons:,}. The largest "
        f"common divisor of the pruned widths is {analysis.pruned_multiple(kept, shape):,}.",
        title=_finding(name, kept, shape),
        table=lambda: pd.DataFrame(table),
    )


@panel("group_widths", "sx_widths", "Width of every layer", reads={"method": "sx_widths_method"})
def group_widths(run: Run, *, method: str = "") -> Panel:
    """Key/value groups that each layer keeps under a method."""
    name, masks, shape = masks_of(run, method)
    kept = analysis.widths(masks)
    return Panel(
        width_bars(kept.groups, shape.kv_heads, name, "key/value groups"),
        f"Key/value groups that each layer keeps, of {shape.kv_heads}; one takes {shape.group_size} "
        f"query head{'s' if shape.group_size > 1 else ''} with it.",
        title=_finding(name, kept, shape),
        alt="key/value groups that each layer keeps",
    )


def _finding(method: str, kept: analysis.Widths, shape: ModelShape) -> str:
    divisor = analysis.pruned_multiple(kept, shape)
    aligned = max(number for number in ALIGNMENTS if divisor % number == 0)
    low, high = int(kept.neurons.min()), int(kept.neurons.max())
    span = f"{low:,} to {high:,}" if low < high else f"{low:,}"
    words = f"all multiples of {aligned}" if aligned > 1 else "not aligned to 8 or more"
    return f"{plain(label(method))} keeps {span} of {shape.neurons:,} neurons a layer, {words}"


def masks_of(run: Run, method: str) -> tuple[str, PruningMasks, ModelShape]:
    """The masks that are meant, where no method is named.

    Raises SettingsError where the run has no such masks, MissingResultError where it has none at all.
    """
    masks, shape = run.masks(), run.shape
    if not masks or shape is None:
        raise MissingResultError("the masks of any method")
    name = method or next(iter(masks))
    require_choice("method", name, tuple(masks))
    return name, masks[name], shape


def rate_dots(table: pd.DataFrame, phase: str) -> go.Figure:
    """Tokens a second of every model, median and quartiles; the dense model is a dotted line a mode.

    `table` is ``analysis.speed.speed_table`` of one phase, in the order of the measurement.
    """
    figure, several = go.Figure(), table["mode"].nunique() > 1
    names = [_row_name(model, mode, several) for model, mode in zip(table["model"], table["mode"], strict=True)]
    hues = [METHOD_COLORS.get(model, GREY) for model in table["model"]]
    # a browser takes about as long for a trace of one dot as for one of many, and whiskers have a trace's hue
    for hue in dict.fromkeys(hues):
        own = [one == hue for one in hues]
        shown = [name for name, is_own in zip(names, own, strict=True) if is_own]
        _rate_marks(figure, table[own], shown, hue)
    for line in table[table["model"] == DENSE].to_dict("records"):
        dash = "dot" if line["mode"] == _EAGER else "dash"
        figure.add_vline(x=line["tokens/s"], line={"color": GREY, "dash": dash, "width": 1.5})
    style(
        figure,
        f"tokens/s, {phase}<br>median and quartiles",
        "",
        112 + ROW_PIXELS * len(table),
        margin={"l": 64, "r": 16, "t": 16, "b": 68},
    )
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names[::-1], automargin=True)
    return figure.update_xaxes(range=[0, 1.08 * float(table[["tokens/s", "high"]].to_numpy().max())])


def _rate_marks(figure: go.Figure, table: pd.DataFrame, names: list[str], hue: str) -> None:
    middle = table["tokens/s"]
    symbols = [METHOD_SYMBOLS.get(model, "circle") for model in table["model"]]
    drawn = [
        f"{symbol}-open" if mode != _EAGER and not symbol.endswith("-open") else symbol
        for mode, symbol in zip(table["mode"], symbols, strict=True)
    ]
    look = {"color": hue, "symbol": drawn, "size": 11, "line": {"width": 2}}
    hover = (
        "%{y}: %{x:,.4g} tokens/s, quartiles %{customdata[1]:,.4g} to %{customdata[2]:,.4g}, "
        "%{customdata[0]:.2f}× dense<extra></extra>"
    )
    told, whiskers = table[["ratio", "low", "high"]], marks.around(middle, table["low"], table["high"], 1.5)
    marks.points(figure, middle, names, look, hover, customdata=told, error_x=whiskers, showlegend=False)


def _row_name(model: str, mode: str, several: bool) -> str:
    name = in_figure(label(model))
    return f"{name}, {mode}" if several else name


def width_bars(kept: Array, full: int, method: str, units: str) -> go.Figure:
    """What every layer keeps, over the dense width in grey.

    `kept` is (layers,) units that stay of `full`; `units` says which: FFN neurons or key/value groups.
    """
    layers = np.arange(len(kept))
    figure = go.Figure()
    dense = {"marker": {"color": PALE}, "name": "dense", "hoverinfo": "skip"}
    figure.add_bar(x=layers, y=np.full(len(kept), full), **dense)
    hover = f"layer %{{x}}: %{{y:,}} of {full:,} {units}<extra></extra>"
    marks.bars(figure, layers, kept, label(method), METHOD_COLORS.get(method, GREY), hover)
    style(figure, "layer", units, 300, barmode="overlay", bargap=0.2)
    layer_axis(figure, len(kept))
    return figure.update_yaxes(range=[0, 1.05 * full], **({"dtick": 1} if full <= _FEW else {}))
