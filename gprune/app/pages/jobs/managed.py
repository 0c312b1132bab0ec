"""The runs of the cache: what each is called, what it takes, what tags it has, and what to do with it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import streamlit as st

from gprune.analysis.formatting import counted
from gprune.app.pages.jobs import run_table
from gprune.app.ui import buttons, frame, places, run_choice, tables, url_state, work
from gprune.app.ui.card import card
from gprune.app.ui.run_choice import labels
from gprune.app.ui.text import plain, said
from gprune.pipeline import cache
from gprune.pipeline.cache import RunUsage
from gprune.pipeline.runs import notes
from gprune.pipeline.runs.opened import Run
from gprune.store import Store
from gprune.system.errors import GpruneError, StoreError
from gprune.system.units import amount

CHOSEN, TOLD = "runs_chosen", "runs_told"


def show(situation: work.Situation) -> None:
    """Draws the table of the runs, and what can be done with the chosen one."""
    told = st.session_state.pop(TOLD, None)
    if told:
        (st.error if told[0] else st.success)(told[1], icon=":material/error:" if told[0] else None)
    if not situation.runs and not situation.unreadable:
        if not situation.problem:
            st.info("No run is here yet. Start one on the tab Start.", icon=":material/info:")
        return
    try:
        room = cache.overview(Store(Path(situation.root))).runs
    except StoreError as error:
        st.error(said(error), icon=":material/error:")
        room = {}
    known = _known(situation)
    with card("runs_table", "Runs of this cache"):
        _table(situation, known, room)
    name = _choose(known)
    run = situation.run_named(name)
    with card("runs_chosen_card", plain(known[name])):
        if run is None:
            broken = next(one for one in situation.unreadable if one.name == name)
            st.error(f"{said(broken.reason)}.", icon=":material/error:")
        else:
            _words(run)
        _actions(situation, name, run, known[name], room.get(name))


def _known(situation: work.Situation) -> dict[str, str]:
    """What every run is called, those that cannot be read included, by name."""
    broken = {one.name: f"{one.name} · cannot be read" for one in situation.unreadable}
    return labels(situation.runs) | broken


def _table(situation: work.Situation, known: dict[str, str], room: dict[str, RunUsage]) -> None:
    runs, broken = run_table.asked(situation, known)
    chosen = run_table.columns(situation.runs)
    found = run_table.table(runs, broken, known, room, chosen)
    names = [*(run.name for run in runs), *(one.name for one in broken)]
    tables.show(
        found,
        column_config=run_table.config(),
        key="runs_rows",
        on_row=lambda place: url_state.put(CHOSEN, names[place]),
        alt="the runs of this cache with tags, state, chosen settings and results, and the room they take",
    )
    every = len(situation.runs) + len(situation.unreadable)
    st.caption(
        f"{len(names)} of {counted(every, 'run')}. A run takes what it needs; its own is what no other run "
        "needs, and what deleting it frees. “With its run” was measured later: it stands on the pages "
        "of that run, and lists pass it over."
    )


def _choose(known: dict[str, str]) -> str:
    """Asks for the run; the one that the pages show to begin with."""
    shown = frame.current_run()
    default = shown.name if shown is not None else next(iter(known))
    return url_state.selectbox(
        "Run to change", known, CHOSEN, default, help="Selecting a row of the table chooses its run here."
    )


def _words(run: Run) -> None:
    """Name, note and tags, saved together."""
    if run.complaint:
        st.warning(f"{said(run.complaint)}.", icon=":material/warning:")
    with st.form(f"runs_form_{run.name}", border=False):
        name = st.text_input(
            "Name", run.about.name, max_chars=notes.MOST_NAME, key=f"runs_name_{run.name}",
            placeholder=run.study.name or "none of its own", help="What lists call it; changes no result.",
        )  # fmt: skip
        note = st.text_area("Note", run.about.note, max_chars=notes.MOST_NOTE, key=f"runs_note_{run.name}", height=110)
        tags = st.multiselect(
            "Tags", run_table.tags(frame.situation().runs), list(run.about.tags), accept_new_options=True,
            key=f"runs_tags_{run.name}", max_selections=notes.MOST_TAGS, placeholder="choose, or type new",
            help="Words to find it by; the table above is filtered by them.",
        )  # fmt: skip
        if st.form_submit_button("Save", icon=":material/save:"):
            kept = tuple(dict.fromkeys(" ".join(tag.split()) for tag in tags if tag.strip()))
            _save(run, name=" ".join(name.split()), note=note.strip(), tags=kept)


def _save(run: Run, **changes: Any) -> None:
    try:
        notes.save(Store(Path(run.root)), run.name, replace(run.about, **changes))
    except GpruneError as error:
        st.session_state[TOLD] = (True, said(error))
    st.rerun()


def _actions(situation: work.Situation, name: str, run: Run | None, called: str, usage: RunUsage | None) -> None:
    """Show, hide and delete."""
    with st.container(horizontal=True):
        shown = frame.current_run()
        if run is not None and (shown is None or shown.name != name):
            buttons.act("Show it on every page", f"runs_show_{name}", "visibility", run_choice.choose_run, name)
        if run is not None and buttons.pressed(
            "Clone into the form", key=f"runs_clone_{name}", icon=":material/file_copy:",
            help="Fills the form of the tab Start with this run’s settings, to change some and start.",
        ):  # fmt: skip
            places.to_launch(run.study, f"The settings of “{called}” are")
        if run is not None:
            words = "Show it in lists again" if run.about.hidden else "Hide it from lists"
            if buttons.pressed(words, key=f"runs_hide_{name}", help="Its results and its pages stay as they are."):
                _save(run, hidden=not run.about.hidden)
        if buttons.pressed("Delete …", key=f"runs_delete_{name}", icon=":material/delete:"):
            _confirm(situation.root, name, called, usage)
    st.caption(f"Folder of its record: {plain(Path(situation.root) / 'runs' / name)}")


@st.dialog("Delete this run?")
def _confirm(root: str, name: str, called: str, usage: RunUsage | None) -> None:
    """Says what goes and what stays, and asks once more."""
    st.markdown(f"**{plain(called)}**")
    reason = cache.reason_to_keep(Store(Path(root)), name)
    if reason:
        st.warning(f"{said(reason)}.", icon=":material/warning:")
        return
    if usage is not None:
        stays = usage.total - usage.own
        shared = f" {amount(stays)} that other runs need as well stay." if stays else ""
        st.markdown(f"This frees **{amount(usage.own)}**.{shared} It cannot be undone.")
    else:
        st.markdown("What no other run needs goes with it. It cannot be undone.")
    with st.container(horizontal=True):
        if buttons.act("Delete it", "runs_delete_yes", "delete", _delete, root, name, called, type="primary"):
            st.rerun()
        if buttons.pressed("Keep it", key="runs_delete_no"):
            st.rerun()


def _delete(root: str, name: str, called: str) -> None:
    """Removes a run; where it was the one shown, the pages go on with another."""
    try:
        freed = cache.remove_run(Store(Path(root)), name)
    except GpruneError as error:
        st.session_state[TOLD] = (True, said(error))
        return
    st.session_state[TOLD] = (False, f"“{plain(called)}” was deleted: {amount(freed)} are free.")
    url_state.put(CHOSEN, "")
    run_choice.forget(name, work.look(root).runs)
