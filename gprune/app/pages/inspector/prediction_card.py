"""Which quantity predicts that a method keeps a neuron, and who contradicts it most?"""

import numpy as np
import pandas as pd
import streamlit as st

from gprune.analysis import calibration as analysis
from gprune.analysis import prediction
from gprune.app.ui import selection, tables, url_state
from gprune.app.ui.card import Card
from gprune.app.ui.chart_style import called
from gprune.app.ui.text import plain
from gprune.app.ui.unit import Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run, record
from gprune.pipeline.stages.inputs import roles as roles_of
from gprune.records import Array

_SHOWN = 200
_NUMBER = st.column_config.NumberColumn
_COLUMNS = {
    "rank of the quantity": _NUMBER("rank", format="%.3f", help="Rank of the quantity within its layer"),
    "contradiction": _NUMBER(format="%.3f", help="1: decided exactly unlike the quantity says"),
}


def draw(run: Run, drawn: Card, shown: Selection) -> None:
    """Draws the card.

    Raises:
        MissingResultError: no method has decided yet.
    """
    masks = {name: called(name) for name in run.masked}
    if not masks:
        raise MissingResultError(stages.masks(run.graph).title)
    known = _keys(run)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        method = url_state.selectbox("Method", masks, "ins_method", next(iter(masks)), width=260)
        keys = (run.root, run.key(stages.masks, method), tuple(known.items()))
        table = _table(*keys)
        names = list(table["quantity"])
        quantity = url_state.selectbox("Quantity", names, "ins_quantity", names[0], width=260)
        alone = shown.layer is not None and url_state.toggle(f"Layer {shown.layer} alone", "ins_alone")
    best = table.iloc[0]
    word = "more" if best["mean AUC"] >= 0.5 else "less"
    what = str(best["quantity"])
    what = what[:1].upper() + what[1:]
    drawn.title(f"{plain(what)} says most: {word} of it is kept, AUC {best['mean AUC']:.3f}")
    left, right = st.columns([2, 3])
    with left:
        tables.show(table, alt="how well quantities predict", height="content")
        drawn.tools(
            lambda: table,
            switch=False,
            caption="0.5 is chance, 1 always right, 0 always wrong; within layers, mean and range over them.",
            how="How often a kept neuron has more of the quantity than a removed one of its layer; equal "
            "ones count by half. Layers that keep all or no neurons are left out.",
        )
    with right:
        unlike = _unlike(*keys, quantity, shown.layer if alone else None)
        selection.table(
            unlike, "ins_unlike", height=330, column_config=_COLUMNS, alt="neurons that contradict it most"
        )
        st.caption(
            f"The {len(unlike)} neurons that {plain(masks[method])} decides most unlike {plain(quantity)} "
            "says; choose a row to inspect it."
        )


def _keys(run: Run) -> dict[str, tuple[str, str, str]]:
    """What is there of each neuron, by name: kind, key and field of a record."""
    found: dict[str, tuple[str, str, str]] = {}
    for role in roles_of(run.study):
        if role in analysis.ROLES and run.has(stages.scores, role):
            name = f"score on {analysis.ROLES[role]}"
            found[name] = ("scores", run.key(stages.scores, role), "ffn")
    if run.has(stages.adapted):
        found["adapted score"] = ("adapted", run.key(stages.adapted), "scores")
    if run.has(stages.drift):
        key = run.key(stages.drift)
        found["drift A|B"] = ("drift", key, "magnitude")
        found["signed drift"] = ("drift", key, "signed")
        found["drift within A"] = ("drift", key, "resample_primary")
    if not found:
        raise MissingResultError(stages.scores(run.graph, "primary").title)
    return found


def _values(root: str, kind: str, key: str, field: str) -> Array:
    known = stages.KINDS[kind].record
    found: Array = getattr(record(root, kind, key, known.__name__ if known else ""), field)
    return found


@st.cache_data(max_entries=64, show_spinner=False)
def _table(root: str, masks: str, quantities: tuple[tuple[str, tuple[str, str, str]], ...]) -> pd.DataFrame:
    kept = np.asarray(record(root, "masks", masks, "PruningMasks").ffn)
    return prediction.table({name: _values(root, *where) for name, where in quantities}, kept)


@st.cache_data(max_entries=64, show_spinner=False)
def _unlike(
    root: str,
    masks: str,
    quantities: tuple[tuple[str, tuple[str, str, str]], ...],
    quantity: str,
    layer: int | None,
) -> pd.DataFrame:
    kept = np.asarray(record(root, "masks", masks, "PruningMasks").ffn)
    return prediction.contradicting(_values(root, *dict(quantities)[quantity]), kept, _SHOWN, layer)
