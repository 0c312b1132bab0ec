"""The Python code of a card runs and returns the figure of the card, as does a report."""

import ast
import json
import re
from collections import Counter
from contextlib import suppress
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest
from app_driver import charts, open_page
from synthetic_run import a_study, write_run

import gprune
from gprune.app import report
from gprune.app.ui import commands
from gprune.pipeline.runs.opened import all_runs
from gprune.study import CalibrationSettings, EvaluationSettings, Study, run_name
from gprune.system.errors import MethodError, ModelError

STUDY = a_study(
    methods=("dense", "gprune", "flap", "wanda_sp", "fang"),
    calibration=CalibrationSettings(samples=32, length=16, shards=4),
    evaluation=EvaluationSettings(
        texts=("python-reference", "science-docs"), windows=96, speed="cpu", tasks=("demo_cloze",)
    ),
)
VIEWS: tuple[tuple[str, dict[str, str]], ...] = (
    ("home", {}),
    ("home", {"layer": "1", "neuron": "7"}),
    ("drift", {}),
    ("drift", {"rd_form": "histogram", "rd_bins": "30", "rd_log": "1", "layer": "2"}),
    ("agreement", {}),
    ("agreement", {"ma_pairs": "ab_ac", "layer": "0", "module": "1"}),
    ("rasa", {"rasa_figure": "1"}),
    ("rasa", {"rasa_qd": "0.5", "rasa_qs": "0.6", "rasa_figure": "1", "rasa_log": "0"}),
    ("decisions", {}),
    ("decisions", {"pd_base": "wanda_sp", "pd_bins": "3", "layer": "1"}),
    ("calibration", {}),
    ("calibration", {"cd_measure": "drift"}),
    ("card", {"cd_view": "B", "cd_share": "0.5"}),
    ("compare", {}),
    ("compare", {"cp_methods": "gprune", "layer": "1"}),
    ("speed", {"sx_phase": "prefill"}),
)
"""pages, as they are and with what can be set beside their cards"""


@pytest.fixture(scope="module")
def one_run(tmp_path_factory):
    root = tmp_path_factory.mktemp("copied")
    write_run(root, study=STUDY)
    return root


@pytest.fixture
def with_run(one_run, monkeypatch, tmp_path):
    # the report that the page offers as code is written where it is run
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPRUNE_CACHE", str(one_run))
    monkeypatch.setenv("GPRUNE_AUTOSTART", "0")
    return one_run


def figure_json(figure):
    """Return a figure as JSON, without its template, which is the page's own: light or dark."""
    layout = {name: value for name, value in figure["layout"].items() if name != "template"}
    return json.dumps(without_empty({"data": figure["data"], "layout": layout}), sort_keys=True)


def without_empty(value):
    """Remove empty objects, which Streamlit adds."""
    if isinstance(value, dict):
        return {name: without_empty(item) for name, item in value.items() if item != {}}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


def offered_code(app):
    """Return the Python code of the cards of results; a run of random numbers has no model."""
    offered = [code.value for code in app.code if code.language == "python"]
    return [code for code in offered if "gprune.open" in code and "run.model" not in code]


def values_of(code):
    """Return the value of each expression in a piece of code."""
    tree, reference = ast.parse(code), dict[str, Any]()
    values = []
    for node in tree.body:
        if isinstance(node, ast.Expr):
            values.append(eval(compile(ast.Expression(node.value), "copied", "eval"), reference))
        else:
            exec(compile(ast.Module([node], []), "copied", "exec"), reference)
    return values


ONE_A_PAGE = {page: index for index, (page, _) in reversed([*enumerate(VIEWS)])}
MARKED = [
    pytest.param(*view, marks=[] if ONE_A_PAGE[view[0]] == index else pytest.mark.long)
    for index, view in enumerate(VIEWS)
]


@pytest.mark.parametrize(("page", "query"), MARKED, ids=lambda part: part if isinstance(part, str) else "")
def test_every_chart_of_a_page_is_a_figure_that_can_be_copied(with_run, page, query):
    app = open_page(page, **query)
    result = list[Any]()
    for code in offered_code(app):
        # a card without its result offers its code too, which then says what is missing
        with suppress(MethodError):
            result += values_of(code)
    figures = [figure_json(json.loads(value.to_json())) for value in result if isinstance(value, go.Figure)]
    charts_of_page = [figure_json(chart) for chart in charts(app)]
    assert charts_of_page and not Counter(charts_of_page) - Counter(figures)
    # a card to which the address leaves nothing to draw offers what it would draw without it
    assert len(figures) - len(charts_of_page) <= 2
    names = re.findall(r'run\.figure\("(\w+)"', "".join(offered_code(app)))
    entries = report.gather_entries(all_runs(str(with_run))[0][0], names, app.session_state["address_state"].values)
    reported = [figure_json(json.loads(chart.figure.to_json())) for chart in entries if chart.figure is not None]
    assert not Counter(charts_of_page) - Counter(reported), "a report shows what the page shows"
    assert len(reported) - len(charts_of_page) <= 1


def test_the_launch_form_gives_its_study_as_python(with_run, monkeypatch):
    ran: list[Study] = []
    monkeypatch.setattr(gprune, "run", lambda study, **_: ran.append(study))
    app = open_page("launch")
    code = next(code.value for code in app.code if code.language == "python" and "gprune.Study" in code.value)
    exec(code, {})
    app.text_input(key="launch_seeds").set_value("3").run()
    code = next(code.value for code in app.code if code.language == "python" and "gprune.Study" in code.value)
    exec(code, {})
    first, *seeded = ran
    assert [item.seed for item in ran] == [0, 0, 3]
    assert commands.python_of(first) in commands.python_of(seeded[0]) and first.model == "demo"
    assert run_name(first).split("-")[-1] == first.digest[:10] == seeded[0].digest[:10]


def test_a_study_comes_back_from_its_code():
    reference: dict[str, Any] = {}
    exec(commands.python_of(STUDY).rpartition("\n")[0], reference)
    assert reference["study"] == STUDY


@pytest.mark.parametrize("card", commands.TABLES)
def test_what_a_table_offers_runs(with_run, card):
    run = all_runs(str(with_run))[0][0]
    code = commands.python_code(run, card, ())
    if card == "sx_export":
        with pytest.raises(ModelError, match="has changed since the run"):
            values_of(code)
        return
    (value,) = values_of(code)
    assert isinstance(value, Study) or (isinstance(value, pd.DataFrame) and len(value) > 0)
