"""The figures of the page by name, each from a run and what can be set beside its card."""

from __future__ import annotations

import plotly.graph_objects as go

from gprune import stages
from gprune.analysis import speed as analysis
from gprune.records import ModelShape, PruningMasks
from gprune.settings import require_choice
from gprune.views.frame import marks
from gprune.views.frame.loaders import MissingResultError, Run
from gprune.views.frame.picture import picture
from gprune.views.frame.selection import NOTHING, Selection
from gprune.views.speed_export import charts


@picture("speed")
def speed(run: Run, *, phase: str = next(iter(analysis.PHASES))) -> go.Figure:
    """Tokens a second of every model, side by side."""
    require_choice("phase", phase, tuple(analysis.PHASES))
    return charts.dots(analysis.speed_table(list(run.load(stages.speed).rows), phase), phase)


@picture("widths")
def widths(run: Run, *, method: str = "", selected: Selection = NOTHING) -> go.Figure:
    """FFN neurons that each layer keeps under a method."""
    name, masks, shape = masks_of(run, method)
    figure = charts.widths(analysis.widths(masks).neurons, shape.neurons, name, "FFN neurons")
    marks.layer_line(figure, selected)
    return figure


@picture("group_widths")
def group_widths(run: Run, *, method: str = "") -> go.Figure:
    """Key/value groups that each layer keeps under a method."""
    name, masks, shape = masks_of(run, method)
    return charts.widths(analysis.widths(masks).groups, shape.kv_heads, name, "key/value groups")


def masks_of(run: Run, method: str) -> tuple[str, PruningMasks, ModelShape]:
    """The masks that are meant, where no method is named.

    Raises:
        SettingsError: the run has no such masks.
        MissingResultError: it has none at all.
    """
    masks, shape = run.masks(), run.shape
    if not masks or shape is None:
        raise MissingResultError("the masks of any method")
    name = method or next(iter(masks))
    require_choice("method", name, tuple(masks))
    return name, masks[name], shape
