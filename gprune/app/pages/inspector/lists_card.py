"""Lists of neurons that a person makes: kept under names, read back, and taken along as JSON."""

import pandas as pd
import streamlit as st

from gprune.analysis.formatting import counted
from gprune.analysis.mask_edits import Edit
from gprune.app.pages.by_hand import listed
from gprune.app.pages.inspector.lists import LISTS, NeuronList
from gprune.app.ui import buttons, named_files, selection, url_state
from gprune.app.ui.card import Card
from gprune.app.ui.text import plain
from gprune.app.ui.unit import Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.store.named import LONGEST_NAME

_KEY, _NAME = "ins_lists", "ins_lists_name"


def draw(run: Run, drawn: Card, shown: Selection) -> None:
    """Draws the card; what is selected, `shown`, can be added."""
    kept, faults = LISTS.kept(run.root)
    named_files.warn("A list of neurons", faults)
    chosen = _chosen(kept)
    _adding(run, shown, chosen)
    named_files.complain(_KEY)
    if chosen is None:
        st.caption("A list keeps neurons under a name, in every run of this cache.")
    else:
        _listed(run, drawn, chosen)
    named_files.take_along(_KEY, LISTS, run.root, kept, 5)


def _chosen(kept: list[NeuronList]) -> NeuronList | None:
    """The list that is looked at; None where there is none yet."""
    if not kept:
        return None
    named = {one.name: one for one in kept}
    return named[url_state.selectbox("List", list(named), "ins_list", kept[0].name, width=320)]


def _adding(run: Run, shown: Selection, chosen: NeuronList | None) -> None:
    """Puts what is selected into a list, a new one or the one that is shown."""
    count = len(_selected(run, shown))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(
            "Name of a new list",
            key=_NAME,
            placeholder=plain(chosen.name) if chosen else "my neurons",
            max_chars=LONGEST_NAME,
            width=320,
        )
        buttons.act(
            f"Add {count:,} selected" if count != 1 else "Add the selected neuron", "ins_lists_add",
            "playlist_add", _add, run, shown, chosen, disabled=not count,
            help="Into the list of this name; without a name into the one that is shown",
        )  # fmt: skip


def _selected(run: Run, shown: Selection) -> list[tuple[int, int]]:
    """The neurons of what is selected: itself, or all of a module; a layer is too many to be meant."""
    if shown.layer is None:
        return []
    if shown.neuron is not None:
        return [(shown.layer, shown.neuron)]
    if shown.module is None:
        return []
    labels = run.load(stages.partition).labels[shown.layer]
    return [(shown.layer, int(place)) for place in (labels == shown.module).nonzero()[0]]


def _add(run: Run, shown: Selection, chosen: NeuronList | None) -> None:
    typed = str(st.session_state.get(_NAME) or "").strip()
    name = typed or (chosen.name if chosen else "my neurons")
    selected = _selected(run, shown)

    def keep() -> None:
        before = next((one.neurons for one in LISTS.kept(run.root)[0] if one.name == name), ())
        LISTS.save(run.root, NeuronList(name, tuple(dict.fromkeys((*before, *selected)))))

    if not named_files.attempt(_KEY, keep):
        return
    st.session_state[_NAME] = ""
    url_state.put("ins_list", name)


def _listed(run: Run, drawn: Card, chosen: NeuronList) -> None:
    """The neurons of a list, with what this run knows of them."""
    shape = run.shape
    there = [
        place for place in chosen.neurons if shape is None or (place[0] < shape.layers and place[1] < shape.neurons)
    ]
    away = len(chosen.neurons) - len(there)
    table = pd.DataFrame(there, columns=["layer", "neuron"])
    if run.has(stages.drift) and there:
        table["drift"] = run.load(stages.drift).magnitude[tuple(table.to_numpy().T)]
    for name in run.masked[:1] if there else ():
        table["kept"] = run.load(stages.masks, name).ffn[tuple(table[["layer", "neuron"]].to_numpy().T)]
    drawn.title(f"{plain(chosen.name)}: {counted(len(chosen.neurons), 'neuron')}")
    selection.table(table, "ins_list_rows", alt="the neurons of the list", height=260)
    missing = f" {away:,} are not shown, because this run has no such neurons." if away else ""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"Select a row to inspect it.{missing}", width="stretch")
        for keep, word, icon in (
            (True, "keep", "lock"),
            (False, "remove", "content_cut"),
        ):
            buttons.act(
                f"Force-{word} them", f"ins_lists_{word}", icon, _by_hand, run, there, keep,
                disabled=not there, help="Puts every neuron shown onto the list of the tab Mask editor",
            )  # fmt: skip
        named_files.delete_button(_KEY, LISTS, run.root, chosen)


def _by_hand(run: Run, there: list[tuple[int, int]], keep: bool) -> None:
    """Has the neurons of a list kept or removed by hand."""
    lines = [Edit(keep, "neuron", layer, neuron) for layer, neuron in there]
    if named_files.attempt(_KEY, listed.add, run, lines):
        st.toast(f"On the list of the tab Mask editor: {counted(len(there), 'neuron')}")
