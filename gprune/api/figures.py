"""The app's figures, made without the app: by the functions that its cards are made by.

A panel stands in the app, in the folder of the page that shows it, as it changes with it; it knows no
Streamlit. This is the one file of the API that takes them from there, loaded when a figure is asked for.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from gprune.app.ui import unit
from gprune.pipeline.runs.opened import Run
from gprune.study.settings import require_choice
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError
from gprune.system.safe_parsing import quoted

LOOK = "plotly_white"
"""the template of figures where a person has chosen none; in the app it is that of the page, light or dark"""
_ALIKE: dict[type, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (int, float),
    str: (str,),
    tuple: (tuple, list),
}
"""what may be given for an option whose default is of a type"""


def names() -> tuple[str, ...]:
    """The figures that `figure` can make, by name; see `gprune.Run.figures`."""
    from gprune.app.figures import load_figures

    return tuple(sorted(load_figures()))


def figure(run: Run, name: str, options: dict[str, Any]) -> go.Figure:
    """A figure of a run; see `gprune.Run.figure`."""
    from gprune.app.figures import load_figures

    require_choice("figure", name, names())
    known = load_figures()[name].options
    for option, value in options.items():
        if option not in known:
            listed = ", ".join(known) or "none"
            raise SettingsError(f"the figure {name} has no option {quoted(option)}; it has: {listed}")
        wanted = _ALIKE.get(type(known[option]), ())
        if wanted and (not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted)):
            raise SettingsError(f"{option} must be like {quoted(known[option])} (got {quoted(value)})")
    if "selected" in options:
        options = options | {"selected": unit.given(run, options["selected"])}
    found = go.Figure(load_figures()[name](run, **options).figure)
    if pio.templates.default in ("plotly", "streamlit"):
        found.layout.template = LOOK
    return found


def report(run: Run, file: str | os.PathLike[str], cards: Sequence[str]) -> Path:
    """Writes the report of a run; see `gprune.Run.report`."""
    # loads plotly
    from gprune.app.report import making

    if isinstance(cards, str) or not all(isinstance(name, str) for name in cards):
        raise SettingsError(f"cards must be names of figures (got {quoted(cards)})")
    path = safe_parsing.path(os.fspath(file), "the file")
    making.require_place(path)
    making.save(making.make(run, tuple(cards)), path)
    return path
