"""The frame around every page: which run is shown, what is being computed, and the run's settings."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import streamlit as st

from gprune.views.frame import address, live, selection, titles, tour, work
from gprune.views.frame.commands import command
from gprune.views.frame.loaders import Run, labels, root
from gprune.views.frame.text import plain

_SITUATION, _RUN = "frame_situation", "run"
_PICKED, _SHOWN, _STUDIES = "frame_run", "frame_shown_run", "frame_studies"
_LOOK = (
    "<style>.stMainBlockContainer {padding: 3.6rem 1.6rem 2rem 1.6rem; max-width: 1720px;} "
    ".stMainBlockContainer h1 {padding: 0;}</style>"
)
"""pages use the width that they have; on very wide screens lines stay readable"""
_visited: list[bool] = []
"""not empty once this server has drawn a page"""


def run(page: Any) -> None:
    """Draws the frame around a page, and the page.

    Args:
        page: the chosen page; the jobs page watches jobs by itself.
    """
    address.begin(page.url_path)
    _draw(page)
    complaints = st.container()
    tour.banner(page.url_path, current_run())
    page.run()
    address.finish(complaints)


def _draw(page: Any) -> None:
    """Draws what is around the page and notes the situation for it."""
    _heal_first_address()
    st.html(_LOOK)
    situation = work.look(root())
    if work.autostart(situation):
        situation = work.look(situation.root)
    st.session_state[_SITUATION] = situation
    with st.sidebar:
        _sidebar(situation)
    if situation.active and page.url_path != "launch":
        live.watch(situation.root, situation.states, situation.signature, time.monotonic())
    if situation.problem:
        st.error(plain(situation.problem), icon=":material/error:")
    if not situation.runs:
        _nothing_yet(situation)


def _heal_first_address() -> None:
    """Loads the page once more where a server's very first visitor comes by the address of a page.

    In its first run a server looks for that address among the file names of `pages/` and reports it missing;
    from the second on it knows the addresses given in `app.py`.
    """
    if _visited:
        return
    _visited.append(True)
    if urlsplit(st.context.url or "").path.strip("/"):
        st.html("<script>window.location.reload()</script>", unsafe_allow_javascript=True)


def situation() -> work.Situation:
    """Runs and jobs as they were when the page began to draw."""
    found: work.Situation = st.session_state[_SITUATION]
    return found


def current_run() -> Run | None:
    """The run that is chosen in the frame; None where there is none."""
    return situation().run_named(str(st.session_state.get(_SHOWN, "")))


def choose_run(name: str) -> None:
    """Lets the next drawing of the frame show another run."""
    address.put(_RUN, name)


def _sidebar(situation: work.Situation) -> None:
    if situation.runs:
        _pick_run(situation.runs)
    elif asked := address.text(_RUN):
        _warn_of_run(asked)
    run = current_run() if situation.runs else None
    if run is not None:
        with st.container(horizontal=True, gap="xsmall"):
            _badges(run)
    _at_work(situation, run)
    if run is not None:
        selection.chip(run)
        _settings(run)
    if situation.unreadable:
        _unreadable(situation)


def _at_work(situation: work.Situation, shown: Run | None) -> None:
    """Says how much is being computed and, where it is not the run that is shown, leads there."""
    count = len(situation.active)
    if not count:
        return
    made = (work.under_way(situation, job) for job in situation.active if not work.exports(job))
    others = [run for run in made if run is not None and (shown is None or run.name != shown.name)]
    if not others:
        st.badge(f"{count} at work", icon=":material/hourglass_top:", color="orange")
        return
    st.button(
        f"{count} running: watch",
        key="frame_watch",
        icon=":material/hourglass_top:",
        on_click=choose_run,
        args=(others[0].name,),
        help="Shows the run that is being computed; the one shown now stays in the list.",
        width="stretch",
    )


def listed(runs: list[Run], always: Iterable[str] = ()) -> list[Run]:
    """The runs to choose from: those of a series of studies last, and only where they are asked for.

    Args:
        runs: all runs, the newest first.
        always: names that are listed in any case.
    """
    own, of_studies = _apart(runs)
    if not own or st.session_state.get(_STUDIES):
        return own + of_studies
    wanted = set(always)
    return own + [run for run in of_studies if run.name in wanted]


def run_label(run: Run, shown: dict[str, str]) -> str:
    """What to call a run in a list, with the series of studies that it belongs to."""
    known = shown.get(run.name, run.name)
    return f"{run.study.group} · {known}" if run.study.group else known


def _apart(runs: list[Run]) -> tuple[list[Run], list[Run]]:
    """Runs that someone started by themselves, and those of a series of studies."""
    return [run for run in runs if not run.study.group], [run for run in runs if run.study.group]


def _pick_run(runs: list[Run]) -> None:
    """The choice of the run, kept in the address by its folder's name."""
    own, _ = _apart(runs)
    preferred = work.preferred(own or runs)
    default = preferred.name if preferred else runs[0].name
    # always there, so that a copied address shows the same run to whoever opens it later
    asked = address.text(_RUN, default)
    known = any(run.name == asked for run in runs)
    chosen = asked if known else default
    if known:
        # what is shown stays when another run becomes the preferred one
        address.put(_RUN, chosen)
    else:
        _warn_of_run(asked)
    st.session_state[_SHOWN] = chosen
    _selector(runs, chosen)


def _selector(runs: list[Run], chosen: str) -> None:
    """The widget itself, and below it the switch for the runs of studies."""
    own, of_studies = _apart(runs)
    offered = {run.name: run for run in listed(runs, (chosen,))}
    shown = labels(runs)
    st.session_state[_PICKED] = chosen
    st.selectbox(
        "Run",
        list(offered),
        key=_PICKED,
        format_func=lambda name: run_label(offered[name], shown) if name in offered else name,
        help="Every page shows this run.",
        on_change=_pick,
    )
    if own and of_studies:
        many = len(of_studies) > 1
        st.toggle(
            f"Show the {len(of_studies)} runs of studies" if many else "Show the run of a study",
            key=_STUDIES,
            help="Runs that `python -m gprune reproduce` made for the tables of the page Compare.",
        )


def _pick() -> None:
    choose_run(str(st.session_state[_PICKED]))


def _warn_of_run(asked: str) -> None:
    st.warning(f"The address asks for the run {plain(asked)}, which is not in this cache.")


def _unreadable(situation: work.Situation) -> None:
    count = len(situation.unreadable)
    with st.expander(f"{count} run{'s' if count > 1 else ''} cannot be read", icon=":material/warning:"):
        for broken in situation.unreadable:
            st.caption(f"**{plain(broken.name)}**: {plain(broken.reason)}.")
        st.caption("Delete the folder, or run the study again. The other runs are not affected.")


def _badges(run: Run) -> None:
    colors: dict[str, Any] = {"done": "green", "failed": "red", "cancelled": "orange"}
    if run.is_demo:
        st.badge(
            "demo", color="violet", help="The small bundled model: for looking around, not for conclusions."
        )
    state = run.state
    if state == "running" and not work.is_live(run):
        st.badge("interrupted", color="orange", help="No process is at work on it; continue it to finish it.")
    else:
        st.badge(plain(state or "unknown"), color=colors.get(state, "blue"))


def _settings(run: Run) -> None:
    study = run.study
    st.caption(
        f"{plain(study.model)} · {plain(study.metric)} · keep {study.retention:.0%}  \n"
        f"A: {plain(study.primary)}  \nB: {plain(study.auxiliary)}"
    )
    with st.popover("Settings", icon=":material/tune:", width="stretch"):
        st.caption("The whole study, to be copied")
        st.code(study.to_json(), language="json", height=320)
        st.caption("The same as a command")
        st.code(command(study), language="bash", wrap_lines=True)


def _nothing_yet(situation: work.Situation) -> None:
    if situation.active:
        return
    failed = next((job for job in situation.jobs if job.state == "failed"), None)
    if failed is not None:
        st.error(
            f"{plain(failed.label)} failed: {plain(failed.error)}. Its log is on the page Launch & jobs.",
            icon=":material/error:",
        )
    else:
        st.info("No run is here yet. Start one on the page Launch & jobs.", icon=":material/info:")
    if st.button("Start the bundled demo", key="frame_demo", icon=":material/play_arrow:", type="primary"):
        from gprune.study_demo import demo_study

        work.start(situation.root, demo_study())
        st.rerun()


def page_title(title: str, question: str) -> None:
    """Title of a page and the question that it answers."""
    st.title(title, anchor=False)
    st.caption(question)


def require_run() -> Run | None:
    """The chosen run; where there is none, says what the page will show and returns None."""
    run = current_run()
    if run is None:
        st.caption("This page fills itself as soon as a run has come far enough.")
        return None
    if run.outdated and not work.is_live(run):
        _outdated(run)
    elif not run.complete and not work.is_live(run):
        _incomplete(run)
    elif run.state == "done" and run.stopped_early:
        _short(run)
    return run


def _outdated(run: Run) -> None:
    """Says that results of a run are those of an earlier version, and offers to make them anew."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.warning(
            f"{run.outdated} of {len(run.stages)} results of this run were made by an earlier version of "
            "this program and are not shown. Run it again: what still holds is kept.",
            icon=":material/history:",
            width="stretch",
        )
        if st.button("Run it again", key="frame_again", icon=":material/play_arrow:"):
            work.start(run.root, run.study)
            st.rerun()


def _short(run: Run) -> None:
    """Says that a run went only as far as it was asked to, and offers the rest."""
    with st.container(horizontal=True, vertical_alignment="center"):
        wanted = plain(str(run.record.get("until")))
        st.info(f"This run was only asked for “{wanted}”.", icon=":material/info:", width="stretch")
        if st.button("Run the rest", key="frame_rest", icon=":material/play_arrow:"):
            work.start(run.root, run.study)
            st.rerun()


def _incomplete(run: Run) -> None:
    """Says that a run stopped before its end, and offers to go on with it."""
    reason = (
        f" It failed: {plain(run.record['error'])}."
        if run.state == "failed" and run.record.get("error")
        else ""
    )
    found = titles.outlook(run)
    where = f" after {found.done} of {found.steps} steps" if found.steps else " before its first step"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.warning(
            f"This run stopped{where}.{reason} Finished stages are kept.",
            icon=":material/pause_circle:",
            width="stretch",
        )
        if st.button("Continue this run", key="frame_continue", icon=":material/play_arrow:"):
            work.start(run.root, run.study)
            st.rerun()
