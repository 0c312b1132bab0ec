"""The card of the mask editor: units to keep or remove, the budget met again, the cost, and a name for it."""

import pandas as pd
import streamlit as st

from gprune.analysis.formatting import counted, percent
from gprune.analysis.mask_edits import KINDS, RULE, Edit, Edited, mask_sets, obstacle
from gprune.app.pages.by_hand import cost, listed
from gprune.app.ui import buttons, named_files, selection, tables, url_state
from gprune.app.ui.card import Card
from gprune.app.ui.card import card as frame_card
from gprune.app.ui.chart_style import called
from gprune.app.ui.text import said
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Partition
from gprune.study.methods import METHODS
from gprune.system.errors import SettingsError

_KIND, _LAYER, _NUMBER, _NAME, _KEY = "hand_kind", "hand_layer", "hand_number", "hand_name", "hand"
_HOW = (
    f"The rule is called “{RULE}”. Key/value groups are as the method and the list have them. Where the list "
    "has removed weights, the removed neurons nearest to the method’s cut come back, the highest first; "
    "where it has added some, the kept ones nearest to it go, the lowest first. The nearness is the method’s "
    "own: of learned masks the rank in the module above its threshold, of gates the gate above the lowest "
    "one that is kept, of others the rank in the layer above the share removed there. No line of the list is "
    "touched for it; a later line counts more."
)


def card(run: Run) -> None:
    """Draws the card; not within a fragment, because it looks at its answers by itself."""
    with frame_card("hand_edits", "Force units to be kept or removed", run) as drawn:
        known, usual = listed.methods(run), listed.usual(run)
        name = url_state.selectbox("Start from the masks of", known, listed.METHOD, usual, width=320)
        run.key(stages.partition)
        # where the buttons would add to a list that nothing can be made of
        reason = obstacle(run.results, name)
        if reason:
            st.info(said(reason), icon=":material/info:")
        _adding(run, reason)
        named_files.complain(_KEY)
        lines = _lines(run)
        if not lines:
            st.caption("The list is empty: select a neuron or a module on any page, or name a unit above.")
            return
        _list(run, name, lines)
        if reason:
            return
        found = listed.outcome(run, name, lines)
        drawn.title(_headline(found))
        _told(drawn, name, found)
        cost.show(run, name, found)
        _saving(run, name, lines)


def _lines(run: Run) -> tuple[Edit, ...]:
    """The list; of an address that has none that can be used, says so."""
    try:
        lines = listed.edits(run)
    except SettingsError as error:
        st.warning(f"The list in the address is not used: {said(error)}.", icon=":material/link_off:")
        lines = ()
    if listed.is_long(lines):
        st.caption("The list is too long for the address of the page: save it, or a reload loses it.")
    return lines


def _adding(run: Run, reason: str) -> None:
    """What is selected, or any unit by its number, to the list; not where there is a reason against it."""
    chosen = selection.current(run)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if chosen:
            for kind in ("neuron", "module"):
                number = getattr(chosen, kind)
                if number is not None and chosen.layer is not None:
                    _buttons(run, reason, kind, chosen.layer, number)
        with st.popover("Another unit", icon=":material/add:"):
            kind = st.segmented_control("Kind", list(KINDS), format_func=KINDS.__getitem__, key=_KIND,
                                        default="module", required=True)  # fmt: skip
            layer = st.number_input("Layer", 0, key=_LAYER, value=chosen.layer or 0)
            number = st.number_input("Number", 0, key=_NUMBER)
            _buttons(run, reason, str(kind), int(layer), int(number), "other")


def _buttons(run: Run, reason: str, kind: str, layer: int, number: int, place: str = "") -> None:
    words = KINDS[kind] if place else f"{KINDS[kind]} {number} of layer {layer}"
    with st.container(horizontal=True, gap="xsmall", width="content"):
        for keep, word, icon in ((True, "keep", "lock"), (False, "remove", "delete")):
            buttons.act(
                f"Force-{word} {words}", f"hand_{word}_{place or kind}", icon, named_files.attempt, _KEY,
                listed.add, run, [Edit(keep, kind, layer, number)], disabled=bool(reason),
                help=said(reason) or None,
            )  # fmt: skip


def _list(run: Run, name: str, lines: tuple[Edit, ...]) -> None:
    """The list, whose lines can be taken off."""
    base, partition = run.load(stages.masks, METHODS[name].masks), run.load(stages.partition)
    table = pd.DataFrame([_row(line, base, partition) for line in lines])
    chosen = tables.show(
        table,
        key="hand_list",
        on_select="rerun",
        selection_mode="multi-row",
        height=min(tables.height(len(table)), 260),
        alt="the list of units to keep or remove",
    )
    rows = set(chosen["selection"]["rows"])
    with st.container(horizontal=True):
        rest = [line for place, line in enumerate(lines) if place not in rows]
        buttons.act(
            f"Take {len(rows) or 'selected'} line{'' if len(rows) == 1 else 's'} off", "hand_take_off",
            "playlist_remove", listed.put, run, rest, disabled=not rows,
        )  # fmt: skip
        buttons.act("Empty the list", "hand_empty", "", listed.put, run, (), type="tertiary")


def _row(line: Edit, base: object, partition: Partition) -> dict[str, object]:
    masks = base.heads if line.kind == "group" else base.ffn  # type: ignore[attr-defined]
    if line.kind == "module":
        units = masks[line.layer][partition.labels[line.layer] == line.number]
    else:
        units = masks[line.layer, line.number : line.number + 1]
    return {
        "decision": "force-keep" if line.keep else "force-remove",
        "unit": KINDS[line.kind],
        "layer": line.layer,
        "number": line.number,
        "units": len(units),
        "kept by the method": int(units.sum()),
    }


def _headline(found: Edited) -> str:
    groups = f" and {counted(found.groups, 'key/value group')}" if found.groups else ""
    back = f"{found.added} came back" if found.added else f"{found.removed} went"
    if not found.added and not found.removed:
        back = "no other had to move"
    return f"{counted(found.by_hand, 'neuron')}{groups} edited, {back} to meet the same budget"


def _told(drawn: Card, name: str, found: Edited) -> None:
    drawn.tools(
        caption=f"{percent(found.masks.retention, 2)} of the decoder’s weights are kept, as by {called(name)} itself.",
        how=_HOW,
    )


def _saving(run: Run, name: str, lines: tuple[Edit, ...]) -> None:
    """Saves the list under a name."""

    def save(typed: str) -> None:
        mask_sets.save(run.results, mask_sets.made(run.results, typed, name, lines))

    proposal = f"{called(name)}, {counted(len(lines), 'edit')}"
    named_files.saving(_KEY, "Save as a mask set called", proposal, save, _NAME, "hand_save")
