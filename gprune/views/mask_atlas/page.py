"""Mask atlas: where does a method keep more than another one, and which units does the text decide?"""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from gprune import stages
from gprune.analysis import atlas as analysis
from gprune.analysis.atlas import Atlas
from gprune.analysis.signs import percent, signed
from gprune.errors import MethodError
from gprune.methods import of_masks
from gprune.ranking import module_means
from gprune.records import Array
from gprune.views.frame import address, frame, selection
from gprune.views.frame.card import Card, card
from gprune.views.frame.chart_style import label
from gprune.views.frame.loaders import MissingResultError, Run
from gprune.views.frame.text import plain, said
from gprune.views.mask_atlas import charts, pictures

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


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "Mask atlas",
        "Where does a method keep more than another one, and which units does the choice of text decide?",
    )
    run = frame.require_run()
    if run is None:
        return
    asked = _controls(run)
    left, right = st.columns(2)
    with left, card("atlas_methods", "What one method keeps more than another", run) as drawn:
        _methods(run, drawn, asked)
    with right, card("atlas_texts", "Which units does the choice of text decide?", run) as drawn:
        _texts(run, drawn, asked)
    with card("atlas_groups", "Which key/value groups stay?", run) as drawn:
        _groups(run, drawn, asked)


def _controls(run: Run) -> dict[str, str]:
    """What all cards of the page are drawn from: methods, colours and order."""
    try:
        there = pictures.methods(run)
        first, second = pictures.named(run, "", "")
    except MissingResultError:
        # each card says what is missing
        return {}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        method = address.selectbox("Method", there, "atlas_method", first, width=200)
        others = {name: words for name, words in there.items() if name != method}
        base = ""
        if others:
            usual = pictures.named(run, method, "")[1]
            base = address.selectbox("Held against", others, "atlas_base", usual, width=200)
        shown = address.segmented("Colour", charts.SHOWN, "atlas_shown", charts.CHANGE)
        order = address.segmented("Modules", analysis.ORDERS, "atlas_order", analysis.BY_DRIFT)
    return {"method": method, "base": base, "shown": shown, "order": order}


def _methods(run: Run, drawn: Card, asked: dict[str, str]) -> None:
    method, base = pictures.named(run, asked.get("method", ""), asked.get("base", ""))
    if method == base:
        st.info("Needs the masks of two methods, and this run has one.", icon=":material/hourglass_empty:")
        return
    found = pictures.between(run, method, base)
    names = label(method), label(base)
    drawn.title(_finding(found, *names))
    _other_budget(run, method, base)
    drawn.chart(
        pictures.atlas(run, **asked, selected=selection.current(run)),
        f"A row is a layer, a cell a module: purple where {plain(names[0])} keeps more of it, orange where "
        "it keeps less. Click one to select it.",
        alt=_finding(found, *names),
        table=lambda: analysis.table(found, *names, _mean_drift(run)),
        how="The change of retention is the share of a module's neurons that the one method keeps, less the "
        "share that the other keeps; 0 is neutral. Equal shares can be of other neurons: the colour "
        "“Share decided differently” counts every neuron that one keeps and the other does not.",
        on_point=selection.of_point,
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


def _other_budget(run: Run, method: str, base: str) -> None:
    """Warns where the two methods keep another share of the decoder."""
    kept = [run.load(stages.masks, name).retention for name in (method, base)]
    if abs(kept[0] - kept[1]) > 0.005:
        st.warning(
            f"The budgets differ: {plain(label(method))} keeps {percent(kept[0], 2)} of the decoder's "
            f"weights, {plain(label(base))} {percent(kept[1], 2)}. The changes are partly that.",
            icon=":material/warning:",
        )


def _texts(run: Run, drawn: Card, asked: dict[str, str]) -> None:
    method, _ = pictures.named(run, asked.get("method", ""), "")
    try:
        found = pictures.between_texts(run, method)
    except MethodError as reason:
        st.info(
            f"{said(reason)}. A run with the texts exchanged shows it; methods that score once, as FLAP, are "
            "decided here.",
            icon=":material/info:",
        )
        return
    learned = of_masks(method).decision == "learned"
    share = f"{percent(found.neurons, 1)} of the neurons"
    groups = "" if learned else f" and {percent(found.groups, 1)} of the key/value groups"
    drawn.title(f"The text decides {share}{groups} of {plain(label(method))}")
    own = {name: asked[name] for name in ("method", "shown", "order") if name in asked}
    if not np.abs(found.change).max() and own.get("shown") == charts.CHANGE:
        own["shown"] = charts.DIFFERS
        st.caption(
            "Either text keeps as many neurons of every module: the colour is the share decided differently."
        )
    drawn.chart(
        pictures.atlas_texts(run, **own, selected=selection.current(run)),
        _TEXT_CAPTIONS[own.get("shown", charts.CHANGE)],
        alt=f"the text decides {share}",
        table=lambda: analysis.table(found, *pictures.FROM, _mean_drift(run)),
        how=f"A is {plain(run.study.primary)}, B is {plain(run.study.auxiliary)}. "
        f"{_LEARNED if learned else _DECIDED} Another sample of one text decides some units otherwise as "
        "well: how many, the card of a text on the page Calibration data says.",
        on_point=selection.of_point,
    )


def _groups(run: Run, drawn: Card, asked: dict[str, str]) -> None:
    method, base = pictures.named(run, asked.get("method", ""), asked.get("base", ""))
    names = dict.fromkeys((method, base))
    masks = {label(name): run.load(stages.masks, name) for name in names}
    first, second = (run.load(stages.scores, text) for text in stages.PAIR)
    every = [mask.heads for mask in masks.values()]
    agreed = float(np.mean(np.all([heads == every[0] for heads in every], axis=0)))
    kept = " and ".join(f"{plain(name)} keeps {int(mask.heads.sum())}" for name, mask in masks.items())
    same = f"; they agree on {percent(agreed, 0)}" if len(every) > 1 else ""
    drawn.title(f"Of {every[0].size:,} key/value groups {kept}{same}")
    drawn.chart(
        pictures.atlas_groups(run, method=method, base=base, selected=selection.current(run)),
        "Coloured groups are kept, grey ones removed; beside them each group's score on A and on B, purple "
        "above its layer's mean. Click a row to select the layer.",
        alt=f"{kept}{same}",
        table=lambda: analysis.group_table(masks, first, second),
        how="A group is a key/value head with its query heads. The scores are by "
        f"{plain(label(first.metric))}, in standard deviations from the mean of their layer. In a small "
        "model the groups that stay move the result most: a layer has few.",
        on_point=selection.of_point,
    )


def _mean_drift(run: Run) -> Array | None:
    """(modules,) mean rank drift, where the run has come that far."""
    if not run.has(stages.drift):
        return None
    partition, moved = run.load(stages.partition), run.load(stages.drift).magnitude
    found: Any = module_means(moved.ravel(), partition.global_labels.ravel(), partition.modules)
    return found
