"""Panels: every figure has a function, a card and a page, and what is computed for it is computed once."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest

from gprune.app.figures import KNOWN
from gprune.app.report import gathering
from gprune.app.ui.memo import memoized
from gprune.app.ui.panel import Panel, panel


def test_every_figure_is_declared_by_the_panels_of_its_page() -> None:
    assert len(KNOWN) == 47 and set(gathering.names()) == set(KNOWN)
    for name, one in KNOWN.items():
        assert one.make.__module__.startswith("gprune.app.pages.") and one.make.__module__.endswith(".panels")
        assert one.name == name and one.heading and one.about and gathering.page_of(name)


def test_a_panel_knows_what_makes_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(KNOWN, "a_name", raising=False)

    @panel("a_name", "card", "heading", clicked=True, reads={"bins": "key"}, group={"text": ""})
    def made(run: Any, *, bins: int = 5, log: bool = False, _hand: int = 0, **group: Any) -> Panel:
        """What it shows."""
        return Panel(go.Figure(go.Scatter(x=[bins], y=[_hand], marker={"opacity": 0.5})), "caption")

    assert KNOWN.pop("a_name") is made and made.options == {"bins": 5, "log": False, "text": ""}
    found = made("run", bins=7, log=False, _hand=3, text="A")
    assert found.code is not None and found.code.options == {"bins": 7, "text": "A"}
    assert (found.title, made.about) == ("heading", "What it shows")
    assert found.figure.data[0].unselected.marker.opacity == 0.5, "a click fades no other mark"
    assert [list(made.asked("run", values)) for values in ({"key": 3}, {"key": ""}, {})] == [
        [{"bins": 3}],
        [{}],
        [{}],
    ]


def test_a_result_is_computed_once_for_its_key() -> None:
    asked = list[int]()

    @memoized(2)
    def table(number: int, _run: object = None) -> pd.DataFrame:
        asked.append(number)
        if number < 0:
            raise ValueError(number)
        return pd.DataFrame({"n": [number]})

    first = table(1, "one run")
    first["mine"] = 0
    assert list(table(1, _run="another")) == ["n"] and asked == [1]
    for _ in range(2):
        with pytest.raises(ValueError, match="-1"):
            table(-1)
    table(2), table(3), table(1)
    assert asked == [1, -1, -1, 2, 3, 1]
