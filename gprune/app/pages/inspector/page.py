"""Inspector: what is this neuron, module or layer, on each text, and what activates it most?"""

import numpy as np
import pandas as pd
import streamlit as st

from gprune.analysis import calibration as analysis
from gprune.analysis import inspection, prediction
from gprune.analysis.calibration_report.measuring import texts_of
from gprune.app.pages.inspector import firing_card, panels, response_card, unit_card
from gprune.app.pages.inspector.panels import PIN
from gprune.app.ui import asking, buttons, frame, selection, url_state
from gprune.app.ui.card import Card, card
from gprune.app.ui.chart_style import called
from gprune.app.ui.text import plain, said
from gprune.app.ui.unit import Selection, there
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, record
from gprune.records import Array
from gprune.system.errors import GpruneError

LIVE = "ins_every_token"
"""whether the model may be asked, in the address"""
_SHOWN = 200
_NUMBER = st.column_config.NumberColumn
_COLUMNS = {
    "rank of the quantity": _NUMBER("rank", format="%.3f", help="Rank of the quantity within its layer"),
    "contradiction": _NUMBER(format="%.3f", help="1: decided exactly unlike the quantity says"),
}


@frame.page("Inspector", "What is this neuron, module or layer, and what activates it most?")
def show(run: Run) -> None:
    """Draws the page."""
    try:
        chosen, pinned = selection.current(run), panels.pinned(run, url_state.text(PIN))
        shown = chosen if chosen or pinned else panels.most_drifting(run)
        live = _steering(run, shown)
    except GpruneError as error:
        # without the sizes of the model, or with damaged modules, nothing can be found
        st.error(said(error), icon=":material/error:")
        return
    if lacking := there(run, selection.asked())[1]:
        st.warning(f"This run has no {lacking}.", icon=":material/search_off:")
    if not chosen and not pinned:
        _nothing_selected(shown)
    _inspected(run, [one for one in (pinned, shown) if one], pinned, live)
    with card("ins_predicts", "Which quantity predicts that a neuron is kept?", run) as drawn:
        _predicts(run, drawn, shown)


def _nothing_selected(shown: Selection) -> None:
    """How to select, and what the page shows until then."""
    until = ""
    if shown:
        until = f" Until then this is {shown.words}, whose rank differs most between A and B."
    st.info(
        "Nothing is selected: click a mark or a row on any page, choose one below, or type "
        f"{inspection.EXAMPLES}.{until}",
        icon=":material/ads_click:",
    )


def _inspected(run: Run, units: list[Selection], pinned: Selection, live: bool) -> None:
    """What is selected, beside what is pinned."""
    units = list(dict.fromkeys(units))
    if not units:
        return
    for place, (column, unit) in enumerate(zip(st.columns(len(units)), units, strict=True)):
        key = "ins_pinned" if len(units) > 1 and place == 0 else "ins_unit"
        with column, card(key, unit.words, run) as drawn:
            if key == "ins_pinned":
                st.caption(":material/keep: pinned")
            if unit.neuron is not None:
                unit_card.draw(run, drawn, unit)
            else:
                unit_card.draw_group(run, drawn, unit)
    for place, unit in enumerate(units):
        if unit.neuron is not None:
            _explained(run, unit, "_pinned" if len(units) > 1 and place == 0 else "", live)


def _explained(run: Run, unit: Selection, suffix: str, live: bool) -> None:
    """What one neuron does; `suffix` tells the cards of what is pinned from those of what is selected."""
    left, right = st.columns([3, 2])
    with left, card(f"ins_spread{suffix}", f"How strong is {unit.words} on each text?", run) as drawn:
        response_card.draw_spread(run, drawn, unit, live)
    with right, card(f"ins_promoted{suffix}", f"Which tokens does {unit.words} promote?", run) as drawn:
        response_card.draw_promoted(run, drawn, unit, live)
    with card(f"ins_ablation{suffix}", f"What does the model lose without {unit.words}?", run) as drawn:
        response_card.draw_ablation(run, drawn, unit)
    key = f"{firing_card.FIELD}{suffix}"
    with card(key, f"Top-activating examples of {unit.words}", run) as drawn:
        firing_card.draw(run, drawn, unit, key, live)
    with card(f"ins_near{suffix}", f"Neurons nearest to {unit.words}", run):
        unit_card.draw_near(run, unit, "ins_pinned" if suffix else "ins_unit")


def _steering(run: Run, shown: Selection) -> bool:
    """The field that finds a unit, the way to its neighbours, the pin, and whether the model is asked."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="ins_steering"):
        selection.search_field(run, "ins_search", placeholder="L5N688 or module 3 of layer 2", width=320)
        for word, step, icon, key in (
            ("Previous", -1, "chevron_left", "P"),
            ("Next", 1, "chevron_right", "N"),
        ):
            there = _beside(run, shown, step)
            buttons.act(
                word, f"ins_{word.lower()}", icon, selection.select, *_parts(there or Selection()),
                shortcut=key, disabled=there is None, help="The one before, or after, in its layer",
            )  # fmt: skip
        pinned = panels.pinned(run, url_state.text(PIN))
        buttons.act(
            "Unpin" if pinned else "Pin", "ins_pin_button", "keep_off" if pinned else "keep", url_state.put,
            PIN, "" if pinned else _written(shown), disabled=not (shown or pinned),
            help="Keeps it on the page, beside what is selected next",
        )  # fmt: skip
        wanted = url_state.toggle(
            "Ask the model",
            LIVE,
            help="A worker loads the model of the run: it colours every token, counts all activations and "
            "names the tokens that the neuron promotes. Nothing leaves this machine.",
        )
    return asking.allowed(run, wanted)


def _parts(one: Selection) -> tuple[int | None, int | None, int | None]:
    return one.layer, one.module, one.neuron


def _beside(run: Run, shown: Selection, step: int) -> Selection | None:
    """The unit of the same kind before or after one; None at the ends, and where nothing is selected."""
    if not shown or shown.layer is None or run.shape is None:
        return None
    if shown.neuron is not None:
        found = Selection(shown.layer, None, shown.neuron + step)
    elif shown.module is not None:
        found = Selection(shown.layer, shown.module + step)
    else:
        found = Selection(shown.layer + step)
    if min(value for value in _parts(found) if value is not None) < 0:
        return None
    known, lacking = there(run, found)
    return None if lacking else known


def _written(one: Selection) -> str:
    """A selection as the address has it: layer, module and neuron, a dash for none."""
    return "-".join("x" if value is None else str(value) for value in _parts(one))


def _predicts(run: Run, drawn: Card, shown: Selection) -> None:
    """Draws the card; MissingResultError where no method has decided yet."""
    masks = run.require({name: called(name) for name in run.masked}, stages.masks)
    known = _keys(run)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        method = url_state.selectbox("Method", masks, "ins_method", next(iter(masks)), width=260)
        keys = (run.root, run.key(stages.masks, method), tuple(known.items()))
        table = _predictors(*keys)
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
        drawn.table(
            table,
            alt="how well quantities predict",
            height="content",
            caption="0.5 is chance, 1 always right, 0 always wrong; within layers, mean and range over them.",
            how="How often a kept neuron has more of the quantity than a removed one of its layer; equal "
            "ones count by half. Layers that keep all or no neurons are left out.",
        )
    with right:
        unlike = _unlike(*keys, quantity, shown.layer if alone else None)
        selection.table(unlike, "ins_unlike", height=330, column_config=_COLUMNS, alt="neurons that contradict it most")
        st.caption(
            f"The {len(unlike)} neurons that {plain(masks[method])} decides most unlike {plain(quantity)} "
            "says; choose a row to inspect it."
        )


def _keys(run: Run) -> dict[str, tuple[str, str, str]]:
    """What is there of each neuron, by name: kind, key and field of a record."""
    found: dict[str, tuple[str, str, str]] = {}
    for role in texts_of(run.study):
        if run.has(stages.scores, role):
            name = f"score on {analysis.ROLES[role]}"
            found[name] = ("scores", run.key(stages.scores, role), "ffn")
    if run.has(stages.adapted):
        found["adapted score"] = ("adapted", run.key(stages.adapted), "scores")
    if run.has(stages.drift):
        key = run.key(stages.drift)
        found["drift A|B"] = ("drift", key, "magnitude")
        found["signed drift"] = ("drift", key, "signed")
        found["drift within A"] = ("drift", key, "resample_primary")
    return run.require(found, stages.scores, "primary")


def _values(root: str, kind: str, key: str, field: str) -> Array:
    known = stages.KINDS[kind].record
    found: Array = getattr(record(root, kind, key, known.__name__ if known else ""), field)
    return found


@st.cache_data(max_entries=64, show_spinner=False)
def _predictors(root: str, masks: str, quantities: tuple[tuple[str, tuple[str, str, str]], ...]) -> pd.DataFrame:
    kept = np.asarray(record(root, "masks", masks, "PruningMasks").ffn)
    return prediction.prediction_table({name: _values(root, *where) for name, where in quantities}, kept)


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
