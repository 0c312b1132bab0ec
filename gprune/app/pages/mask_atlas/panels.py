"""The figures of the page by name, each from a run and what can be set beside its card."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gprune.analysis import mask_map as analysis
from gprune.analysis import whatif
from gprune.analysis.formatting import percent, signed
from gprune.analysis.mask_map import Atlas
from gprune.analysis.verdict import own_method
from gprune.app.pages.mask_atlas import charts
from gprune.app.ui import derived_cache
from gprune.app.ui.chart_style import label
from gprune.app.ui.panel import Panel, panel
from gprune.app.ui.text import plain
from gprune.app.ui.unit import NOTHING, Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.pruning.ranking import module_means
from gprune.records import Array
from gprune.study.methods import of_masks
from gprune.study.settings import require_choice
from gprune.system.errors import MethodError

FROM = "from B", "from A"
"""what the masks of one method are called, by the text whose scores decide"""
_READS = {"method": "atlas_method", "base": "atlas_base", "shown": "atlas_shown", "order": "atlas_order"}
_LEARNED = (
    "The thresholds that the run has learned on both texts are kept and shifted together to the same budget, "
    "so that a module keeps as many neurons; what learning from one text would give needs a run. Key/value "
    "groups are scored from A either way."
)
_TEXT_CAPTIONS = {
    charts.CHANGE: "The same method from each text's scores at the same budget: purple where scores on B "
    "keep more of a module than scores on A. Click one to select it.",
    charts.DIFFERS: "The same method from each text's scores at the same budget: how many of a module's "
    "neurons the one keeps and the other does not. Click one to select it.",
}
_DECIDED = "Every unit is decided anew from each text's scores by the method's own rule, at the same budget."


@panel("atlas", "atlas_methods", "What one method keeps more than another", reads=_READS)
def atlas(
    run: Run,
    *,
    method: str = "",
    base: str = "",
    shown: str = charts.CHANGE,
    order: str = analysis.BY_DRIFT,
    selected: Selection = NOTHING,
) -> Panel:
    """Change of retention of every module from one method to another."""
    both = named(run, method, base)
    found, names = between(run, *both), (label(both[0]), label(both[1]))
    require_choice("shown", shown, tuple(charts.SHOWN))
    return Panel(
        charts.modules(found, places(run, order), names, shown, order, selected),
        f"A row is a layer, a cell a module: purple where {plain(names[0])} keeps more of it, orange where "
        "it keeps less. Click one to select it.",
        title=_finding(found, *names),
        alt=_finding(found, *names),
        table=lambda: analysis.atlas_table(found, *names, _mean_drift(run)),
        how="The change of retention is the share of a module's neurons that the one method keeps, less the "
        "share that the other keeps; 0 is neutral. Equal shares can be of other neurons: the colour "
        "“Share decided differently” counts every neuron that one keeps and the other does not.",
    )


def _finding(found: Atlas, first: str, second: str) -> str:
    """Where the change is largest, in words."""
    more, where = int((found.change > 0).sum()), found.largest
    if not np.abs(found.change).max():
        return f"{plain(first)} and {plain(second)} keep as much of every module"
    return (
        f"{plain(first)} keeps more than {plain(second)} in {more} of {len(found.change)} modules; most "
        f"different: layer {found.layer[where]}, module {found.module[where]} "
        f"({signed(found.change[where], '.2f')})"
    )


def _texts_asked(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    own = {option: values[key] for option, key in _READS.items() if option != "base" and values.get(key)}
    try:
        yield coloured(run, own)
    except MethodError:
        # the figure itself says so
        yield own


def coloured(run: Run, asked: dict[str, Any]) -> dict[str, Any]:
    """Options of `atlas_texts`: where either text keeps as many of every module, the colour that differs.

    Raises MethodError as `between_texts`.
    """
    found = between_texts(run, named(run, asked.get("method", ""), "")[0])
    change = asked.get("shown", charts.CHANGE) == charts.CHANGE
    return asked | ({"shown": charts.DIFFERS} if change and not np.abs(found.change).max() else {})


@panel("atlas_texts", "atlas_texts", "Which units does the choice of text decide?", reads=_texts_asked)
def atlas_texts(
    run: Run,
    *,
    method: str = "",
    shown: str = charts.CHANGE,
    order: str = analysis.BY_DRIFT,
    selected: Selection = NOTHING,
) -> Panel:
    """Change of retention of every module of one method, were B's scores to decide instead of A's."""
    name = named(run, method, "")[0]
    found, learned = between_texts(run, name), of_masks(name).decision == "learned"
    require_choice("shown", shown, tuple(charts.SHOWN))
    share = f"{percent(found.neurons, 1)} of the neurons"
    groups = "" if learned else f" and {percent(found.groups, 1)} of the key/value groups"
    return Panel(
        charts.modules(found, places(run, order), FROM, shown, order, selected),
        _TEXT_CAPTIONS[shown],
        title=f"A or B as the text decides {share}{groups} of {plain(label(name))}",
        alt=f"the text decides {share}",
        table=lambda: analysis.atlas_table(found, *FROM, _mean_drift(run)),
        how=f"A is {plain(run.study.primary)}, B is {plain(run.study.auxiliary)}. "
        f"{_LEARNED if learned else _DECIDED} Another sample of one text decides some units otherwise as "
        "well: how many, the card of a text on the page Texts says.",
    )


@panel(
    "atlas_groups",
    "atlas_groups",
    "Which key/value groups stay?",
    reads={"method": "atlas_method", "base": "atlas_base"},
)
def atlas_groups(run: Run, *, method: str = "", base: str = "", selected: Selection = NOTHING) -> Panel:
    """Which key/value groups two methods keep, and their scores on A and B."""
    names = named(run, method, base)
    first, second = (run.load(stages.scores, text) for text in stages.PAIR)
    masks = {name: run.load(stages.masks, name) for name in names}
    every = [mask.heads for mask in masks.values()]
    agreed = float(np.mean(np.all([heads == every[0] for heads in every], axis=0)))
    kept = " and ".join(f"{plain(label(name))} keeps {int(masks[name].heads.sum())}" for name in masks)
    same = f"; they agree on {percent(agreed, 0)}" if len(every) > 1 else ""
    return Panel(
        charts.groups(masks, first, second, selected),
        "Coloured groups are kept, grey ones removed; beside them each group's score on A and on B, purple "
        "above its layer's mean. Click a row to select the layer.",
        title=f"Of {every[0].size:,} key/value groups {kept}{same}",
        alt=f"{kept}{same}",
        table=lambda: analysis.group_table({label(name): masks[name] for name in masks}, first, second),
        how="A group is a key/value head with its query heads. The scores are by "
        f"{plain(label(first.metric))}, in standard deviations from the mean of their layer. In a small "
        "model the groups that stay move the result most: a layer has few.",
    )


def methods(run: Run) -> dict[str, str]:
    """The masks that are there, by name; MissingResultError where there are none."""
    return run.require({name: label(name) for name in run.masked}, stages.masks)


def named(run: Run, method: str, base: str) -> tuple[str, str]:
    """The masks that are meant, where they are not named: GPrune's against those of the run's own metric.

    Raises SettingsError where the run has no such masks, MissingResultError where it has none, or those of
    one method.
    """
    there = methods(run)
    first = method or next(iter(there))
    require_choice("method", first, tuple(there))
    others = [name for name in there if name != first]
    if not others:
        return first, first
    own = own_method(run.study.metric)
    second = base if base and base != first else own if own in others else others[0]
    require_choice("base", second, tuple(others))
    return first, second


def between(run: Run, method: str, base: str) -> Atlas:
    """Two methods of a run, module by module; MissingResultError where the run has not come that far."""
    masks = [run.load(stages.masks, name) for name in (method, base)]
    return analysis.compare(run.load(stages.partition), masks[0], masks[1])


def between_texts(run: Run, method: str) -> Atlas:
    """One method with B's scores alone against itself with A's alone, module by module.

    Raises MissingResultError where the run has not come that far, MethodError where a run is needed to
    decide.
    """
    name = of_masks(method).name
    masks = [derived_cache.masks_of_text(run, name, text) for text in (whatif.AUXILIARY, whatif.PRIMARY)]
    return analysis.compare(run.load(stages.partition), masks[0], masks[1])


def places(run: Run, order: str) -> Array:
    """(modules,) place of each module among those of its layer; see `analysis.columns`.

    Raises SettingsError where there is no such order, MissingResultError where the run has not come that far.
    """
    require_choice("order", order, tuple(analysis.ORDERS))
    drift = run.load(stages.drift).magnitude if order == analysis.BY_DRIFT else None
    return analysis.columns(run.load(stages.partition), drift)


def _mean_drift(run: Run) -> Array | None:
    """(modules,) mean rank drift, where the run has come that far."""
    if not run.has(stages.drift):
        return None
    partition, moved = run.load(stages.partition), run.load(stages.drift).magnitude
    found: Any = module_means(moved.ravel(), partition.global_labels.ravel(), partition.modules)
    return found
