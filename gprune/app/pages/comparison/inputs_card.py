"""What every method was given before it was measured, and where that is not the same."""

import pandas as pd
import streamlit as st

from gprune.analysis import comparison as analysis
from gprune.analysis.table import guarded
from gprune.analysis.verdict import against_control, opponents
from gprune.app.pages.comparison.lines import Shown
from gprune.app.ui import tables
from gprune.app.ui.card import Card
from gprune.app.ui.text import plain
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages import MethodInputs, Results
from gprune.pipeline.stages.method_inputs import repaired_alike
from gprune.study.methods import METHODS
from gprune.system.units import listed

FIXED = (
    "The key/value groups of every control are GPrune’s own (`sparsity.attention=gprune`): controls and "
    "GPrune differ in neurons only."
)
_WIDTHS = {"texts": 80, "forward passes": 110, "backward passes": 120, "steps of learning": 130}


def facts(shown: Shown) -> dict[tuple[str, str], MethodInputs]:
    """What the methods of a comparison were given, by line; of several seeds the first.

    Raises StoreError where a record of what was learned is damaged.
    """
    runs = {run.name: run for run in shown.runs}
    found = {line.name: _given(runs[line.rows[0].run], line.method) for line in shown.lines}
    return {name: one for name, one in found.items() if one is not None}


def _given(run: Run, method: str) -> MethodInputs | None:
    known = METHODS[method]
    if known.decision == "none" or not run.has(stages.masks, known.masks):
        return None
    # equal masks may be repaired otherwise
    keys = tuple(need.key for need in stages.every_need(stages.pruned(run.graph, method)))
    return _known(run.root, keys, method, run.results)


@st.cache_data(max_entries=512, show_spinner=False)
def _known(root: str, keys: tuple[str, ...], method: str, _results: Results) -> MethodInputs | None:
    return stages.given(_results, method)


def notices(shown: Shown) -> None:
    """One line each: methods that were not given the same, fixed attention, controls that do as well."""
    told = [standing.sentence for text in shown.texts if (standing := shown.standing(text)) is not None]
    st.caption(f":material/menu_book: {plain('. '.join(told))}.")
    known = facts(shown)
    unequal = stages.unequal(known.values())
    if unequal:
        st.caption(f":orange[:material/balance:] {plain(unequal)}.")
    if repaired := repaired_alike(
        {shown.names[name]: one.repaired_with for name, one in known.items() if one.method != analysis.DENSE}
    ):
        st.caption(f":material/healing: {plain(repaired)}.")
    if any(one.attention for one in known.values()):
        st.caption(f":material/lock: {FIXED}")
    told = [] if shown.missing else [sentence for text in shown.texts if (sentence := _control(shown, text))]
    if told:
        st.caption(f":orange[:material/science:] {plain('; '.join(told))}.")


def _control(shown: Shown, text: str) -> str:
    """That a control does as well as GPrune on a text, in any of the runs; empty where none does."""
    for run in dict.fromkeys(line.name[0] for line in shown.lines):
        known = opponents([line for line in shown.lines if line.name[0] == run], text)
        if found := against_control(known):
            return f"On {text}: {found[0].lower()}{found[1:]}"
    return ""


def show(drawn: Card, shown: Shown) -> None:
    """Draws the card."""
    known = facts(shown)
    if not known:
        st.info("No method has been pruned yet.", icon=":material/hourglass_empty:")
        return
    table = as_table(shown, known)
    config = {name: st.column_config.NumberColumn(width=width, format="%.3g") for name, width in _WIDTHS.items()} | {
        "texts": st.column_config.TextColumn(width=_WIDTHS["texts"])
    }
    # names are not cut
    config |= {name: st.column_config.TextColumn(width=160) for name in ("method", "repair")}
    tables.show(table, column_config=config, alt="texts, passes and learning of every method")
    st.caption(
        "One pass runs the dense model over one calibration set; passes are those behind a method’s "
        "decisions, whichever methods share them. Controls lack a part of GPrune and are nobody’s rival."
    )
    drawn.tools(
        lambda: table,
        switch=False,
        how="Texts are those that the masks rest on; repair says what was done to the weights that stay, "
        "and on which texts. Methods with more texts, passes or learning had more to go by: what they gain "
        "may come from that.",
    )


def as_table(shown: Shown, known: dict[tuple[str, str], MethodInputs]) -> pd.DataFrame:
    """One line a method."""
    lines = []
    for line in shown.lines:
        one = known.get(line.name)
        if one is None or line.method == analysis.DENSE:
            continue
        lines.append(
            {
                "method": guarded(shown.names[line.name]),
                "texts": listed(one.texts) or "none",
                "forward passes": one.forward,
                "backward passes": one.backward,
                "steps of learning": one.steps,
                "attention": "GPrune’s" if one.attention else "its own",
                "repair": one.repaired_with or "none",
            }
        )
    return pd.DataFrame(lines)
