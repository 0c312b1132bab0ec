"""The figures of the page by name, each from a run and what can be set beside its card."""

from __future__ import annotations

import plotly.graph_objects as go

from gprune import stages, whatif
from gprune.analysis import atlas as analysis
from gprune.analysis.atlas import Atlas
from gprune.methods import of_masks
from gprune.records import Array
from gprune.settings import require_choice
from gprune.views.frame import decided
from gprune.views.frame.chart_style import label
from gprune.views.frame.loaders import MissingResultError, Run
from gprune.views.frame.picture import picture
from gprune.views.frame.selection import NOTHING, Selection
from gprune.views.mask_atlas import charts

FROM = "from B", "from A"
"""what the masks of one method are called, by the text whose scores decide"""


@picture("atlas")
def atlas(
    run: Run,
    *,
    method: str = "",
    base: str = "",
    shown: str = charts.CHANGE,
    order: str = analysis.BY_DRIFT,
    selected: Selection = NOTHING,
) -> go.Figure:
    """Change of retention of every module from one method to another."""
    names = named(run, method, base)
    found = between(run, *names)
    require_choice("shown", shown, tuple(charts.SHOWN))
    labels = label(names[0]), label(names[1])
    return charts.modules(found, places(run, order), labels, shown, order, selected)


@picture("atlas_texts")
def atlas_texts(
    run: Run,
    *,
    method: str = "",
    shown: str = charts.CHANGE,
    order: str = analysis.BY_DRIFT,
    selected: Selection = NOTHING,
) -> go.Figure:
    """Change of retention of every module of one method, were B's scores to decide instead of A's."""
    found = between_texts(run, named(run, method, "")[0])
    require_choice("shown", shown, tuple(charts.SHOWN))
    return charts.modules(found, places(run, order), FROM, shown, order, selected)


@picture("atlas_groups")
def atlas_groups(run: Run, *, method: str = "", base: str = "", selected: Selection = NOTHING) -> go.Figure:
    """Which key/value groups two methods keep, and their scores on A and B."""
    names = named(run, method, base)
    first, second = (run.load(stages.scores, text) for text in stages.PAIR)
    masks = {name: run.load(stages.masks, name) for name in names}
    return charts.groups(masks, first, second, selected)


def methods(run: Run) -> dict[str, str]:
    """The masks that are there, by name.

    Raises:
        MissingResultError: there are none.
    """
    found = {name: label(name) for name in run.masked}
    if not found:
        raise MissingResultError(stages.masks(run.graph).title)
    return found


def named(run: Run, method: str, base: str) -> tuple[str, str]:
    """The masks that are meant, where they are not named: GPrune's against those of the run's own metric.

    Raises:
        SettingsError: the run has no such masks.
        MissingResultError: it has none, or only those of one method.
    """
    there = methods(run)
    first = method or next(iter(there))
    require_choice("method", first, tuple(there))
    others = [name for name in there if name != first]
    if not others:
        return first, first
    own = {"twflap": "fang"}.get(run.study.metric, run.study.metric)
    second = base if base and base != first else own if own in others else others[0]
    require_choice("base", second, tuple(others))
    return first, second


def between(run: Run, method: str, base: str) -> Atlas:
    """Two methods of a run, module by module.

    Raises:
        MissingResultError: the run has not come that far.
    """
    masks = [run.load(stages.masks, name) for name in (method, base)]
    return analysis.compare(run.load(stages.partition), masks[0], masks[1])


def between_texts(run: Run, method: str) -> Atlas:
    """One method with B's scores alone against itself with A's alone, module by module.

    Args:
        run: the run.
        method: name of its masks.

    Raises:
        MissingResultError: the run has not come that far.
        MethodError: the method cannot be decided anew without a run.
    """
    name = of_masks(method).name
    masks = [decided.of_text(run, name, text) for text in (whatif.AUXILIARY, whatif.PRIMARY)]
    return analysis.compare(run.load(stages.partition), masks[0], masks[1])


def places(run: Run, order: str) -> Array:
    """(modules,) place of each module among those of its layer; see `analysis.columns`.

    Raises:
        SettingsError: there is no such order.
        MissingResultError: the run has not come that far.
    """
    require_choice("order", order, tuple(analysis.ORDERS))
    drift = run.load(stages.drift).magnitude if order == analysis.BY_DRIFT else None
    return analysis.columns(run.load(stages.partition), drift)
