"""Mask sets: what was saved under names, each measured beside the method that it started from."""

import functools
from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from gprune.analysis.formatting import counted
from gprune.analysis.mask_edits import Edited, MaskSet, mask_sets
from gprune.app import preview
from gprune.app.pages.by_hand import cost, listed
from gprune.app.preview import Answer, Question, Source, repair_of
from gprune.app.ui import asking, buttons, named_files, packed, tables, url_state
from gprune.app.ui.card import Card, card
from gprune.app.ui.chart_style import called
from gprune.app.ui.text import plain, said
from gprune.pipeline.runs.opened import Run
from gprune.system.errors import GpruneError, SettingsError

_SET, _KEY = "hand_set", "hand_sets"
_REPAIRED = (
    " Repaired: against the method itself, its weights repaired alike; by the repair: the set repaired "
    "against the set as it is."
)
_MEASURED = ["perplexity", "nats/token", "± nats/token", "windows", "verdict"]


def show(run: Run) -> None:
    """Draws the card."""
    with card("hand_sets", "Mask sets", run) as drawn:
        named_files.complain(_KEY)
        kept, faults = mask_sets.kept(run.results)
        named_files.warn("A mask set", faults)
        there = _there(run, kept)
        if there:
            drawn.title(counted(len(there), "mask set"))
            _measured(run, drawn, there)
        elif not kept:
            st.caption("No mask set of this run is saved yet. One that is saved here can be exported as a model.")
        if kept:
            _use(run, kept)
        _file(run)


def _there(run: Run, kept: list[MaskSet]) -> list[tuple[MaskSet, Edited]]:
    """The sets that can be carried out; the others say why not."""
    found = []
    for one in kept:
        try:
            edited = listed.outcome(run, one.method, one.edits)
            mask_sets.require_digest(one, edited)
            found.append((one, edited))
        except GpruneError as error:
            st.warning(f"{plain(one.name)}: {said(error)}", icon=":material/warning:")
    return found


def _measured(run: Run, drawn: Card, there: list[tuple[MaskSet, Edited]]) -> None:
    """The table; with the worker every set is measured beside its method."""
    text = cost.text_of(run)
    if not cost.live(run):
        _table(drawn, text, [_row(one, found, None) for one, found in there])
        if not packed.lacking(run):
            buttons.act("Measure them", "hand_sets_measure", "speed", url_state.put, cost.LIVE, True)
        return
    repaired = url_state.flag(cost.REPAIR)
    asked = [_asked(run, text, one, found, repaired) for one, found in there]

    def draw(answers: dict[str, Answer | None]) -> None:
        rows = []
        for (one, found), identities in zip(there, asked, strict=True):
            row = _row(one, found, answers[identities[0]])
            rows.append(row | _repaired(*(answers[name] for name in identities[1:])) if repaired else row)
        _table(drawn, text, rows, measured=any(answers.values()))

    cost.look(run, [identity for identities in asked for identity in identities], draw)


def _asked(run: Run, text: str, one: MaskSet, found: Edited, repaired: bool) -> list[str]:
    """Has a set measured beside its method; where wanted, both repaired, and the set beside itself."""
    source, own, repair = Source(run.root, run.graph), asking.owner(f"set {one.name}"), repair_of(run.study)
    question = Question(text, one.method, found.masks, fitted=False)
    base = Question(text, one.method, fitted=not repaired)
    asked = preview.pool().ask_many(source, [question], own, base)
    if repaired:
        after = replace(question, repair=repair)
        asked += preview.pool().ask_many(source, [after], f"{own}:repaired", replace(base, repair=repair))
        asked += preview.pool().ask_many(source, [after], f"{own}:gain", question)
    return asked


def _table(drawn: Card, text: str, rows: list[dict[str, Any]], measured: bool = False) -> None:
    table = pd.DataFrame(rows)
    if not measured:
        table = table.drop(columns=_MEASURED)
    forms = {name: "%.4f" for name in table.columns if "nats" in name}
    forms |= {name: "%.2f" for name in table.columns if "perplexity" in name}
    drawn.table(
        table,
        forms=forms,
        shares={"kept": 2},
        alt="mask sets with what they cost",
        caption=f"Edited, measured on the windows of {plain(text)} that the row counts; nats/token: "
        "difference in log perplexity to the method itself, paired over windows, with its 95 % interval."
        + (_REPAIRED if "repaired: nats/token" in table else "")
        if measured
        else "What the lists change; none is measured while nobody asks.",
        how="Each row is a list under its name, carried out on the masks that it starts from at the same "
        "budget. Below zero the set loses less than its method; where the 95 % interval holds 0 nothing "
        "is decided.",
    )


def _row(one: MaskSet, found: Edited, answer: Answer | None) -> dict[str, Any]:
    difference = answer.difference if answer is not None else None
    return {
        "set": one.name,
        "starts from": called(one.method),
        "perplexity": answer.perplexity if answer is not None and answer.done else None,
        "nats/token": difference.nats if difference else None,
        "± nats/token": difference.nats_margin if difference else None,
        "windows": f"{answer.done} of {answer.windows}" if answer is not None and answer.done else "",
        "verdict": answer.problem or answer.verdict if answer is not None else "",
        "kept": found.masks.retention,
        "lines": len(one.edits),
        "neurons edited": found.by_hand,
        "groups edited": found.groups,
        "moved to meet the budget": found.added + found.removed,
    }


def _repaired(after: Answer | None, gain: Answer | None) -> dict[str, Any]:
    """A set's further columns where its weights and those of its method are repaired alike."""
    against = after.difference if after is not None else None
    won = gain.difference if gain is not None else None
    return {
        "repaired: perplexity": after.perplexity if after is not None and after.done else None,
        "repaired: nats/token": against.nats if against else None,
        "repaired: ± nats/token": against.nats_margin if against else None,
        "nats/token by the repair": won.nats if won else None,
        "± nats/token by the repair": won.nats_margin if won else None,
    }


def _use(run: Run, kept: list[MaskSet]) -> None:
    """Takes a set up, takes it along, or forgets it."""
    named = {one.name: one for one in kept}
    left, right = st.columns([2, 3], vertical_alignment="bottom")
    with left:
        chosen = named[url_state.selectbox("Set", list(named), _SET, kept[0].name)]
    with right, st.container(horizontal=True):
        buttons.act("Edit it", "hand_sets_use", "edit", _take, run, chosen)
        made, file = functools.partial(mask_sets.SETS.export, [chosen]), "gprune-mask-set.json"
        tables.download("Export the list", made, file, "application/json", "hand_sets_export")
        named_files.delete_button(_KEY, mask_sets.SETS, run.root, chosen)
    st.caption(
        "On every text: the page Compare has a set measured as the methods are, and so does the command "
        "measure. As a model: the page Runs & export makes one of a set, and so does the command cut."
    )


def _take(run: Run, chosen: MaskSet) -> None:
    listed.put(run, chosen.edits)
    url_state.put(listed.METHOD, chosen.method)


def _file(run: Run) -> None:
    """Reads a set back from a file."""

    def keep(raw: bytes) -> str:
        (found,) = mask_sets.SETS.read(raw)
        if not mask_sets.fits(run.results, found):
            raise SettingsError("The set was made on other masks than this run’s: choose the run it was made on.")
        mask_sets.save(run.results, found)
        return f"Saved: {plain(found.name)}"

    with st.popover("Read a file", icon=":material/upload:", type="tertiary"):
        named_files.read_back(_KEY, "A mask set", "Save its set", 2, keep)
