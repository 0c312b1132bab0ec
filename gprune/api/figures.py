"""Figures and reports of the app without the app; this module is loaded when the first figure is requested."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from gprune.app.ui import panel
from gprune.pipeline.runs.opened import Run
from gprune.study.settings import require_choice
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError
from gprune.system.safe_parsing import quote

TEMPLATE = "plotly_white"
"""template of figures outside the app, unless another default template of Plotly is set"""
_ACCEPTED: dict[type, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (int, float),
    str: (str,),
    tuple: (tuple, list),
}
"""types accepted for an option, by the type of its default"""


def names(run: Run) -> tuple[str, ...]:
    """Return the names of the figures of a run; see `gprune.Run.figures`."""
    from gprune.app.figures import load_figures

    return tuple(sorted(name for name, panel in load_figures().items() if run.study.unit in panel.units))


def figure(run: Run, name: str, options: dict[str, Any]) -> go.Figure:
    """Return a figure of a run; see `gprune.Run.figure`."""
    from gprune.app.figures import load_figures

    require_choice("figure", name, names(run))
    defaults = load_figures()[name].options
    for option, value in options.items():
        if option not in defaults:
            option_names = ", ".join(defaults) or "none"
            raise SettingsError(f"the figure {name} has no option {quote(option)}; it has: {option_names}")
        accepted = _ACCEPTED.get(type(defaults[option]), ())
        if accepted and (not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted)):
            raise SettingsError(f"{option} must have the type of {quote(defaults[option])} (got {quote(value)})")
    if "selected" in options:
        options = options | {"selected": panel.parse_selection(run, options["selected"])}
    copy = go.Figure(load_figures()[name](run, **options).figure)
    # Plotly has its own default template, or that of Streamlit if this is imported
    if pio.templates.default in ("plotly", "streamlit"):
        copy.layout.template = TEMPLATE
    return copy


def report(run: Run, file: str | os.PathLike[str], cards: Sequence[str]) -> Path:
    """Write the report of a run and return its path; see `gprune.Run.report`."""
    # loads plotly
    from gprune.app.report import make_report, require_html_name, save_report

    if isinstance(cards, str) or not all(isinstance(name, str) for name in cards):
        raise SettingsError(f"cards must be names of figures (got {quote(cards)})")
    path = safe_parsing.path(os.fspath(file), "the file")
    require_html_name(path)
    save_report(make_report(run, tuple(cards)), path)
    return path
