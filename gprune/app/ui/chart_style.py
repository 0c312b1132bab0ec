"""Style of every figure, on pages and in papers: fixed colours of methods, titled axes, transparent background.

Each family of methods has a colour of Okabe and Ito (with a darker yellow); variants and controls of a method have its
hue and differ in symbol and dash. Separate hues mark the texts, and another hue marks differences between texts.
Cividis shows magnitudes, purple-orange shows signed values, and grey is reserved for noise floors and references.
Fonts and grid lines come from the app's theme, light or dark.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import plotly.graph_objects as go

from gprune.study.methods import ALL_METHODS, METRICS

BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"
MUSTARD, ROSE, BROWN, INDIGO = "#BFA500", "#E07A8B", "#A05A3B", "#5C5CD6"
"""hues of the methods"""
TEXT_A, TEXT_B, TEXT_C, PAIR = "#8661C1", "#D55E00", "#8C6D31", "#CC4A76"
"""hues of the calibration texts, and of the difference between two of them"""
TEXT_LOOKS = {"A": (TEXT_A, "circle"), "B": (TEXT_B, "square"), "C": (TEXT_C, "diamond")}
"""hue and symbol of each calibration text"""
GREY, PALE = "#8C8C8C", "rgba(140, 140, 140, 0.45)"
MAGNITUDE, SIGNS = "Cividis", "PuOr"
"""colour scales of values without a sign, and of values with a sign: orange below 0, purple above"""
MOST_TICKS = 7
"""maximum number of labelled ticks of an axis"""


class Looks(Mapping[str, str]):
    """Mapping from method to one property of its look, including plug-ins that are registered later."""

    def __init__(self, property_of: Callable[[str], str]) -> None:
        """Store the function that returns the property of a method."""
        self._property_of = property_of

    def __getitem__(self, name: str) -> str:
        """Return the property of a method."""
        if name not in ALL_METHODS:
            raise KeyError(name)
        return self._property_of(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over all methods."""
        return iter(ALL_METHODS)

    def __len__(self) -> int:
        """Return the number of methods."""
        return len(ALL_METHODS)


METHOD_LABELS = Looks(lambda name: ALL_METHODS[name].label[:1].upper() + ALL_METHODS[name].label[1:])
"""labels of methods with a capital first letter"""
_FAMILIES = {
    "dense": (GREY, "line-ns-open"),
    "gprune": (BLUE, "circle"),
    "flap": (ORANGE, "square"),
    "wanda_sp": (GREEN, "diamond"),
    "fang": (PURPLE, "pentagon"),
    "llm_pruner": (SKY, "x"),
    "osscar": (MUSTARD, "cross"),
    "slimllm": (ROSE, "triangle-right"),
    "gates": (BROWN, "triangle-left"),
    "recommended": (INDIGO, "diamond-tall"),
    "reap": (BLUE, "circle"),
    "frequency": (ORANGE, "square"),
    "routed_norm": (GREEN, "diamond"),
    "man": (PURPLE, "pentagon"),
    "random": (GREY, "x"),
}
"""hue and symbol of each family"""
_PLUGIN_COLORS = ("#1B9AAA", "#7A7A00", "#4B4FC7")
_PLUGIN_SYMBOLS = "hexagram star-square bowtie hourglass star-diamond star-triangle-up octagon".split()
"""seven symbols; three hues do not divide seven, so the first 21 methods of plug-ins differ in symbol or hue"""
_PLUGIN_DASHES = ("solid", "dash", "dot", "dashdot")
_SCORINGS = {
    "score_average": ("triangle-up", "dash"),
    "rank_average": ("triangle-down", "dot"),
    "pooled": ("star", "dashdot"),
    "auxiliary": ("triangle-left", "dot"),
    "adapted": ("hexagram", "longdash"),
}
"""symbol and dash of the variants of a method, by their scoring"""
_CONTROLS = {
    "flap_uniform": ("square-cross-open", "longdashdot"),
    "wanda_sp_uniform": ("diamond-cross-open", "longdashdot"),
    "msl_layers": ("hexagon-open", "dash"),
    "msl_random": ("circle-x-open", "dot"),
    "msl_shuffled": ("circle-cross-open", "dashdot"),
    "gprune_no_rasa": ("circle-open", "longdash"),
    "gates_scaled": ("triangle-left-dot", "dashdot"),
}
"""symbol and dash of the controls, and of the variant of gates that learns scales"""


def control_label(method: str) -> str:
    """Return a method's label; a control is marked as such."""
    return f"{label(method)} (control)" if method in ALL_METHODS and ALL_METHODS[method].control else label(method)


def family(method: str) -> str:
    """Return the method whose colour a variant has: `flap` for `flap_pooled`."""
    method_facts = ALL_METHODS.get(method)
    if method_facts is not None and method_facts.decision == "learned":
        return "gprune"
    if method_facts is not None and method_facts.decision == "gated":
        return "gates"
    if method_facts is not None and method_facts.plugin is not None:
        return method
    return (method_facts.metric or method) if method_facts else method.partition(":")[0]


def _color(method: str) -> str:
    index = _plugin_index(method)
    return _FAMILIES[family(method)][0] if index is None else _PLUGIN_COLORS[index % len(_PLUGIN_COLORS)]


def _plugin_index(method: str) -> int | None:
    """Return the index of a method among the plug-ins' methods; None for a built-in method."""
    plugin_methods = [name for name, facts in ALL_METHODS.items() if facts.plugin is not None]
    return plugin_methods.index(method) if method in plugin_methods else None


def _leads_family(method: str) -> bool:
    """Return True if a method has the symbol of its family: no variant, and no control of another method."""
    return method in (family(method), f"experts_{family(method)}")


def _symbol(method: str) -> str:
    index = _plugin_index(method)
    if index is not None:
        return _PLUGIN_SYMBOLS[index % len(_PLUGIN_SYMBOLS)]
    base_symbol = _FAMILIES[family(method)][1]
    return base_symbol if _leads_family(method) else _variant_look(method, (f"{base_symbol}-open", ""))[0]


def _dash(method: str) -> str:
    index = _plugin_index(method)
    if index is not None:
        return _PLUGIN_DASHES[index // len(_PLUGIN_COLORS) % len(_PLUGIN_DASHES)]
    return "solid" if _leads_family(method) else _variant_look(method, ("", "longdash"))[1]


def _variant_look(method: str, default: tuple[str, str]) -> tuple[str, str]:
    """Return symbol and dash of a variant or a control of a method, `default` if they are not in a table."""
    return _CONTROLS.get(method) or _SCORINGS.get(ALL_METHODS[method].scoring, default)


METHOD_COLORS, METHOD_SYMBOLS, METHOD_DASHES = Looks(_color), Looks(_symbol), Looks(_dash)
MOST_LAYER_TICKS = 16
FONT_PIXELS = 13
"""font size of charts"""
TITLE_CHARACTERS = 36
"""maximum number of characters of a line of an axis title that fits on a phone"""
LEGEND_LINE_PIXELS = 20
"""height of one entry of the legend"""
_METRIC_LABELS = {"twflap": "twFLAP (token-weighted)"}


def label(method: str) -> str:
    """Return the display name of a method or a metric."""
    return METHOD_LABELS.get(method) or _METRIC_LABELS.get(method) or METRICS.get(method, method)


def style(figure: go.Figure, x: str, y: str, height: int = 360, **layout: Any) -> go.Figure:
    """Set the axis titles, height in pixels and common layout of a figure, and return it."""
    above_axes = {"x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
    shared: dict[str, Any] = {
        "height": height,
        "margin": {"l": 64, "r": 16, "t": 16, "b": 52},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "legend": above_axes | {"orientation": "h", "traceorder": "normal"},
        "uirevision": "fixed",
        "hoverlabel": {"namelength": -1},
    }
    # Plotly's update methods take milliseconds; setting single values does not
    for name, value in (shared | layout).items():
        figure.layout[name] = value
    figure.layout.font.size = figure.layout.legend.font.size = FONT_PIXELS
    for title, axes in ((x, figure.select_xaxes()), (y, figure.select_yaxes())):
        for axis in axes:
            axis.title.text, axis.zeroline, axis.tickfont.size = title, False, FONT_PIXELS
    return figure


def is_wide(figure: go.Figure) -> bool:
    """Return True if a figure is too wide for a phone: several panels, cells with text, long titles, a large legend."""
    titles = [str(axis.title.text or "").split("<br>") for axis in figure.select_xaxes()]
    has_cells = any(trace.type == "heatmap" for trace in figure.data)
    has_text = has_cells and any(trace.texttemplate or getattr(trace, "mode", "") == "text" for trace in figure.data)
    # on a phone, the entries of the legend are stacked; they must leave at least half of the height
    legend = LEGEND_LINE_PIXELS * sum(bool(trace.name) and trace.showlegend is not False for trace in figure.data)
    has_large_legend = figure.layout.height is not None and 2 * legend > figure.layout.height
    has_long_title = any(len(line) > TITLE_CHARACTERS for title in titles for line in title)
    return len(titles) > 1 or has_text or has_large_legend or has_long_title


def layer_axis(figure: go.Figure, layers: int, axis: str = "x", **options: Any) -> None:
    """Set whole-numbered ticks for an axis of layers, at most MOST_LAYER_TICKS."""
    # rounded up
    step = max(1, -(-layers // MOST_LAYER_TICKS))
    update = figure.update_xaxes if axis == "x" else figure.update_yaxes
    update(tickmode="linear", tick0=0, dtick=step, range=[-0.5, layers - 0.5], **options)


def placeholder_figure(sentence: str) -> go.Figure:
    """Return empty axes that show a sentence until data are ready; drawing them lets the browser load Plotly early."""
    figure = go.Figure()
    style(figure, "", "", 220)
    figure.update_xaxes(showticklabels=False, showgrid=False)
    figure.update_yaxes(showticklabels=False, showgrid=False)
    return figure.add_annotation(text=sentence, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)


def log_ticks(lowest: float, highest: float) -> dict[str, Any]:
    """Return the axis options for log ticks between two positive values.

    The ticks are powers of ten times the largest of several sets of digits that gives at most MOST_TICKS ticks. Over a
    very wide range, some powers of ten are left out; over a narrow range, the ticks are equally spaced round numbers.
    """
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    for digits in (tuple(range(1, 10)), (1, 2, 5), (1, 3), (1,)):
        values = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
        values = [value for value in values if lowest <= value <= highest]
        if len(values) <= MOST_TICKS:
            break
    else:
        values = values[:: -(-len(values) // MOST_TICKS)]
    if len(values) < 2:
        # at most about five steps; equal values get one step of their own size
        least_step = (highest - lowest) / 5 or highest
        unit = 10.0 ** math.floor(math.log10(least_step))
        step = unit * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * unit >= least_step)
        # 1e-9 keeps rounding errors from dropping a tick at an end
        first, last = math.ceil(lowest / step - 1e-9), math.floor(highest / step + 1e-9)
        values = [number * step for number in range(first, last + 1)]
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": values,
        "ticktext": [_tick_label(value) for value in values],
        "minor": {"ticks": "", "showgrid": False},
    }


def _tick_label(value: float) -> str:
    if 1e-4 <= value < 1e6:
        return f"{value:.10f}".rstrip("0").rstrip(".") if value < 1 else f"{value:,.10g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


COLUMNS = {"one": 85, "two": 175}
"""widths of a figure in millimetres, by the columns that it takes"""
WIDTH_LABELS = {"one": "One column, 85 mm", "two": "Two columns, 175 mm"}
_PIXELS_PER_MILLIMETRE = 96 / 25.4
"""in browsers and SVG, 96 pixels are one inch"""
_ASPECTS = {"one": 0.72, "two": 0.5}
"""height over width"""
_PRINT_FONT_PIXELS = 10
"""font size in print: 7.5 points"""


def fit_to_paper(figure: go.Figure, columns: str) -> go.Figure:
    """Return a copy of a figure at the width of one or two columns, a key of COLUMNS."""
    copy = without_webgl(figure)
    width = round(COLUMNS[columns] * _PIXELS_PER_MILLIMETRE)
    copy.update_layout(
        template="plotly_white",
        width=width,
        height=round(width * _ASPECTS[columns]),
        autosize=False,
        paper_bgcolor="white",
        plot_bgcolor="white",
        font={"size": _PRINT_FONT_PIXELS, "family": "Helvetica, Arial, sans-serif", "color": "#1c1c22"},
        margin={"l": 46, "r": 8, "t": 12, "b": 38},
        modebar={"color": "#5b5b66", "activecolor": "#1c1c22", "bgcolor": "white"},
        legend={"font": {"size": _PRINT_FONT_PIXELS - 1}},
    )
    ticks = {"tickfont": {"size": _PRINT_FONT_PIXELS}, "title_standoff": 6, "automargin": True}
    copy.update_xaxes(**ticks)
    copy.update_yaxes(**ticks)
    return copy


def without_webgl(figure: go.Figure) -> go.Figure:
    """Return a copy of a figure without WebGL, whose points would be a bitmap in an SVG file."""
    plain: dict[str, Any] = figure.to_plotly_json()
    for trace in plain["data"]:
        if trace.get("type") == "scattergl":
            trace["type"] = "scatter"
    return go.Figure(plain, skip_invalid=True)
