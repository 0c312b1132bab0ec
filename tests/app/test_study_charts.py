"""Figures of methods and studies: one colour a family, axes with units, and the numbers they draw."""

import plotly.graph_objects as go
import pytest

from gprune.app.figures import comparison
from gprune.app.ui import chart_style as style
from gprune.study.methods import METHODS


def test_every_method_has_its_familys_colour_and_a_look_of_its_own():
    families = {}
    for name in METHODS:
        families.setdefault(style.family(name), set()).add(style.METHOD_COLORS[name])
    assert {family: len(colors) for family, colors in families.items()} == dict.fromkeys(families, 1)
    assert len({next(iter(colors)) for colors in families.values()}) == len(families) == 10
    looks = [(style.METHOD_COLORS[name], style.METHOD_SYMBOLS[name]) for name in METHODS]
    assert len(set(looks)) == len(METHODS)
    lines = [(style.METHOD_COLORS[name], style.METHOD_DASHES[name]) for name in METHODS]
    assert len(set(lines)) == len(METHODS)
    assert style.label("fang_pooled") == "FANG, pooled" and style.label("dense") == "Dense"
    assert style.label("unheard") == "unheard" and style.family("gprune:flap") == "gprune"
    for name in METHODS:
        marker, line = {"symbol": style.METHOD_SYMBOLS[name]}, {"dash": style.METHOD_DASHES[name]}
        assert go.Scatter(marker=marker, line=line).marker.symbol == style.METHOD_SYMBOLS[name]


@pytest.mark.parametrize(
    ("values", "inside"), [((38.0, 41.0), 3), ((20.0, 300.0), 3), ((5.0, 4000.0), 3), ((40.0,), 1)]
)
def test_a_log_axis_has_round_ticks_within_its_range(values, inside):
    axis = comparison.log_axis([*values, float("inf"), float("nan")])
    low, high = (10.0**end for end in axis["range"])
    assert low < min(values) and high > max(values)
    assert inside <= sum(low <= tick <= high for tick in axis["tickvals"]) <= 12
    assert comparison.log_axis([float("inf")]) == {"type": "log"}
