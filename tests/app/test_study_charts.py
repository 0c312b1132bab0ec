"""Figures of methods and studies: one colour a family, axes with units, and the numbers they draw."""

import json

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from gprune.analysis.studies import StudyRow, settings
from gprune.app.figures import comparison, studies
from gprune.app.ui import chart_style as style
from gprune.study.methods import METHODS

GAINS = pd.DataFrame(
    [
        ("wanda_sp", "gprune:wanda_sp", 0.8, "ppl:wiki", 20.0, 18.0, 0.9),
        ("fang", "gprune:twflap", 0.8, "ppl:wiki", 15.0, 15.0, 1.0),
        ("wanda_sp", "gprune:wanda_sp", 0.5, "ppl:wiki", 200.0, 60.0, 0.3),
        ("fang", "gprune:twflap", 0.5, "ppl:wiki", 40.0, float("inf"), float("inf")),
    ],
    columns=["base", "method", "retention", "metric", "before", "after", "gain"],
)


def rows(values, **changes):
    return [
        StudyRow({"method": name}, name, 0.5, 0, "", {"ppl:wiki": value}, **changes) for name, value in values.items()
    ]


def assert_drawable(figure):
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
    text = json.dumps(json.loads(figure.to_json()))
    assert "NaN" not in text and "Infinity" not in text


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
    reference = {"gprune": style.BLUE, "flap": style.ORANGE, "flap_no_bias": style.ORANGE}
    reference |= {
        "recommended": style.INDIGO,
        "wanda_sp": style.GREEN,
        "fang": style.PURPLE,
        "llm_pruner": style.SKY,
        "dense": style.GREY,
    }
    assert {name: style.METHOD_COLORS[name] for name in reference} == reference
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


def test_rows_are_dots_in_their_order_as_high_as_they_are_many():
    table = settings(rows({"flap": 50.0, "gprune:flap": 40.0}) + rows({"wanda_sp_dense": 45.0}, control=True))
    figure = studies.plot_rows(table, "ppl:wiki")
    assert [trace.y[0] for trace in figure.data] == ["flap", "gprune:flap", "wanda_sp_dense"]
    assert [trace.marker.color for trace in figure.data] == [style.ORANGE, style.BLUE, style.GREEN]
    assert [trace.marker.symbol for trace in figure.data] == ["square", "circle", "diamond-open"]
    assert figure.layout.yaxis.categoryarray == ("wanda_sp_dense", "gprune:flap", "flap")
    assert figure.layout.xaxis.type == "log" and "log scale, lower" in figure.layout.xaxis.title.text
    assert_drawable(figure)
    item, many = (settings(rows({f"m{i}": 10.0 + i for i in range(count)})) for count in (1, 20))
    grown = studies.plot_rows(many, "ppl:wiki").layout.height - studies.plot_rows(item, "ppl:wiki").layout.height
    assert grown == 19 * studies.ROW_PIXELS
    twins = settings([StudyRow({"method": "a"}, m, 0.5, 0, "", {"ARI": 0.5}) for m in ("flap", "fang")])
    assert [trace.y[0] for trace in studies.plot_rows(twins, "ARI").data] == ["a (1)", "a (2)"]


def test_slopes_have_a_panel_a_retention_and_leave_out_what_overflowed():
    figure = studies.plot_slopes(GAINS, "ppl:wiki")
    assert [note.text for note in figure.layout.annotations] == ["keep 80%", "keep 50%"]
    assert [(trace.y, trace.xaxis) for trace in figure.data] == [
        ((20.0, 18.0), "x"),
        ((15.0, 15.0), "x"),
        ((200.0, 60.0), "x2"),
    ]
    assert [trace.showlegend for trace in figure.data] == [True, True, False]
    assert figure.data[1].name == "FANG → twFLAP" and figure.data[0].marker.symbol == ("diamond", "circle")
    assert figure.layout.yaxis.type == "log" and "wiki" in figure.layout.yaxis.title.text
    assert_drawable(figure)


def test_bins_and_drift_curves_have_their_colours_and_units():
    values = {"Jaccard": 0.5, "Jaccard by chance": 0.2}
    table = settings([StudyRow({"drift bin": f"bin {i}"}, "gprune:flap", 0.5, 0, "", values) for i in range(5)])
    figure = studies.plot_bins(table, {"Jaccard": "gprune", "Jaccard by chance": ""})
    actual, chance = figure.data
    assert (actual.line.color, actual.line.dash) == (style.BLUE, "solid")
    assert (chance.line.color, chance.line.dash, chance.mode) == (style.GREY, "dash", "lines")
    assert actual.x == tuple(f"bin {i}" for i in range(5)) and figure.layout.yaxis.range == (0, 1.02)
    edges = np.linspace(0, 1, 11)
    names = ("A | B", "half A | half B", "A resampled", "B resampled")
    shares = {f"{name}, % of neurons": [50.0, 30.0, 20.0, *[0.0] * 7] for name in names}
    figure = studies.plot_drift(pd.DataFrame({"drift from": edges[:-1], "drift to": edges[1:]} | shares))
    assert [trace.name for trace in figure.data] == list(names)
    assert [trace.line.color for trace in figure.data] == [style.BLUE] * 2 + [style.GREY] * 2
    assert figure.layout.xaxis.range == (0, pytest.approx(0.3))
    assert len({(trace.line.color, trace.line.dash) for trace in figure.data}) == 4
