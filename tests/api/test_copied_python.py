"""What a card offers as Python runs, and gives the figure that the card shows."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest
from views.app_driver import charts, linked
from views.synthetic_run import a_study, write_run

from gprune.study import CalibrationSettings, EvaluationSettings

STUDY = a_study(
    methods=("dense", "gprune", "flap", "wanda_sp", "fang"),
    calibration=CalibrationSettings(samples=32, length=16, shards=4),
    evaluation=EvaluationSettings(
        texts=("python-reference", "science-docs"), windows=96, speed="cpu", tasks=("demo_cloze",)
    ),
)
VIEWS: tuple[tuple[str, dict[str, str]], ...] = (
    ("overview", {}),
    ("overview", {"layer": "1", "neuron": "7"}),
    ("rank_drift", {}),
    ("rank_drift", {"rd_form": "histogram", "rd_bins": "30", "rd_log": "1", "layer": "2"}),
    ("module_agreement", {}),
    ("module_agreement", {"ma_measure": "overlap", "layer": "0", "module": "1"}),
    ("reliability", {"rasa_figure": "1"}),
    ("reliability", {"rasa_qd": "0.5", "rasa_qs": "0.6", "rasa_figure": "1", "rasa_log": "0"}),
    ("reliability", {"rasa_view": "sets", "rasa_qd": "0.5", "rasa_range": "wide", "rasa_figure": "1"}),
    ("reliability", {"rasa_view": "cost", "rasa_figure": "1"}),
    ("reliability", {"rasa_view": "cost", "rasa_keep": "0.7", "rasa_method": "flap", "rasa_figure": "1"}),
    ("pruning_decisions", {}),
    ("pruning_decisions", {"pd_base": "wanda_sp", "pd_bins": "3", "layer": "1"}),
    ("calibration_data", {}),
    ("calibration_data", {"cd_measure": "drift"}),
    ("calibration_data", {"cd_view": "B", "cd_share": "0.5"}),
    ("comparison", {}),
    ("comparison", {"cp_methods": "gprune", "layer": "1"}),
    ("speed_export", {"sx_widths_method": "flap", "sx_phase": "prefill", "layer": "3"}),
    ("guide", {"layer": "1", "neuron": "7"}),
)
"""pages, as they are and with what can be set beside their cards"""


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("copied")
    write_run(root, study=STUDY)
    return root


@pytest.fixture
def here(one_run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPRUNE_CACHE", str(one_run))
    monkeypatch.setenv("GPRUNE_AUTOSTART", "0")
    return one_run


def said(figure: dict[str, Any]) -> str:
    """A figure as JSON, without its template, which is the page's own: light or dark."""
    layout = {name: value for name, value in figure["layout"].items() if name != "template"}
    return json.dumps(without_empty({"data": figure["data"], "layout": layout}), sort_keys=True)


def without_empty(value: Any) -> Any:
    """Without empty objects, which Streamlit leaves where it has looked for something."""
    if isinstance(value, dict):
        return {name: without_empty(one) for name, one in value.items() if one != {}}
    return [without_empty(one) for one in value] if isinstance(value, list) else value


def copied(app: AppTest) -> list[str]:
    """What cards of results offer; the model of a run of random numbers is nowhere."""
    offered = [code.value for code in app.code if code.language == "python"]
    return [code for code in offered if "gprune.open" in code and "run.model" not in code]


def given(code: str) -> list[Any]:
    """What each expression of a piece of code gives."""
    tree, known = ast.parse(code), dict[str, Any]()
    values = []
    for node in tree.body:
        if isinstance(node, ast.Expr):
            values.append(eval(compile(ast.Expression(node.value), "copied", "eval"), known))
        else:
            exec(compile(ast.Module([node], []), "copied", "exec"), known)
    return values


@pytest.mark.parametrize(("page", "asked"), VIEWS, ids=lambda part: part if isinstance(part, str) else "")
def test_every_chart_of_a_page_is_a_figure_that_can_be_copied(
    here: Path, page: str, asked: dict[str, str]
) -> None:
    app = linked(page, **asked)
    found = [value for code in copied(app) for value in given(code)]
    figures = [said(json.loads(value.to_json())) for value in found if isinstance(value, go.Figure)]
    shown = [said(one) for one in charts(app)]
    assert shown and sorted(shown) == sorted(figures)
