"""The frame around every page: which run is shown, what is being computed, and the run's settings."""

import gc
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from textwrap import shorten
from typing import Any

import streamlit as st

from gprune.analysis.formatting import counted, percent
from gprune.app.server.server_options import COMMAND, current_terms
from gprune.app.ui import (
    assets,
    buttons,
    help_drawer,
    job_runs,
    live,
    packed,
    page_names,
    places,
    present,
    rest_of_page,
    run_choice,
    selection,
    slides,
    titles,
    tour,
    url_state,
    work,
)
from gprune.app.ui.commands import command
from gprune.app.ui.memo import one_draw
from gprune.app.ui.page_names import PURPOSE, TOOL, where
from gprune.app.ui.slides import SlideFigures
from gprune.app.ui.text import plain, said
from gprune.pipeline import runs
from gprune.pipeline.runs.opened import Run, root
from gprune.plugins.registry import IN_APP
from gprune.study.demo import demo_study
from gprune.system.units import duration, seconds_since

SITUATION = "frame_situation"
_COMING = "when the run reaches this stage"
NEW_MODULES = 20
"""so many more modules are worth a new count"""
_ONE_AT_A_TIME = threading.Lock()
_counted: list[int] = [0]
"""modules that were loaded when memory was last counted as lasting"""


@one_draw()
def run(
    sections: Mapping[str, Sequence[Any]],
    help_page: Callable[[], None],
    figures: Callable[[], SlideFigures],
) -> None:
    """Draws the frame around the page that was asked for, and the page.

    Args:
        sections: Streamlit's pages under their headings, as `page_names.SECTIONS` lists them.
        help_page: draws what the help says, where it is open.
        figures: imports what the slides draw.
    """
    IN_APP.set()
    page = st.navigation(dict(sections), position="hidden")
    _require_door()
    place = url_state.open_place(page.url_path, list(page_names.page(page.url_path).places))
    url_state.begin(place)
    rest_of_page.begin(place)
    buttons.begin(place)
    tour.begin(place)
    present.show()
    assets.look("look")
    situation = _looked_at()
    _draw(situation, place, sections)
    complaints, run = st.container(), current_run()
    if slides.on():
        slides.show(run, figures())
    else:
        help_drawer.show(help_page)
        tour.banner(place, run)
        page.run()
    url_state.finish(complaints)
    settle_memory()


def _require_door() -> None:
    """Shows nothing to a visitor of a server that has no door: any page of any site could be one."""
    # whoever comes over the network sends headers; a test has none
    if current_terms() is None and len(st.context.headers):
        told = f"Start the app with `make app` or `{COMMAND}`: end this server first."
        st.error(told, icon=":material/lock:")
        st.stop()


def _looked_at() -> work.Situation:
    """The situation, noted for the page; a demo run is started where there is none."""
    situation = work.look(root())
    if work.autostart(situation):
        situation = work.look(situation.root)
    st.session_state[SITUATION] = situation
    return situation


def _draw(situation: work.Situation, place: str, sections: Mapping[str, Sequence[Any]]) -> None:
    """Draws what is around the page."""
    with st.sidebar:
        # the links stand first, and know the run that is chosen below them
        st.markdown(f"**{TOOL}**")
        links = st.container(gap="xxsmall", key="frame_pages")
        _sidebar(situation)
    with links:
        # read here for the links that are drawn before the help
        help_drawer.shown()
        for heading, pages in sections.items():
            st.caption(heading)
            for one in pages:
                last = url_state.last_place(page_names.page(one.url_path))
                held = url_state.link(last, places.SHARED)
                st.page_link(one, query_params=held or None, width="stretch")
        help_drawer.button()
    # a run that another program computes is followed as well, and redrawn when its process is gone
    going_on = situation.active or any(run.state == "running" for run in situation.runs)
    if going_on and place != "launch":
        shown = current_run()
        live.follow(situation, place, shown.name if shown else "")
    if situation.problem:
        st.error(said(situation.problem), icon=":material/error:")
    run_choice.explain_missing(situation.runs)
    if not situation.runs:
        _nothing_yet(situation, place)


def situation() -> work.Situation:
    """Runs and jobs as they were when the page began to draw."""
    found: work.Situation = st.session_state[SITUATION]
    return found


def current_run() -> Run | None:
    """The run that is chosen in the frame; None where there is none."""
    return situation().run_named(str(st.session_state.get(run_choice.SHOWN, "")))


def _sidebar(situation: work.Situation) -> None:
    if situation.runs:
        run_choice.pick(situation.runs)
    run = current_run() if situation.runs else None
    if run is not None:
        selection.search(run)
        with st.container(horizontal=True, gap="xsmall"):
            _badges(run)
        if run.about.note:
            st.caption(plain(shorten(run.about.note, 200, placeholder=" …")))
    _at_work(situation, run)
    if run is not None:
        selection.chip(run)
        _settings(run)
    present.button()
    assets.install("leaving_grids")
    assets.install("one_step_back")
    if situation.unreadable:
        _unreadable(situation)


def _at_work(situation: work.Situation, shown: Run | None) -> None:
    """Says how much is being computed and, where it is not the run that is shown, leads there."""
    count = len(situation.active)
    if not count:
        return
    made = (work.under_way(situation, job) for job in situation.active if not job.exports)
    others = [run for run in made if run is not None and (shown is None or run.name != shown.name)]
    if not others:
        st.badge(f"{count} at work", icon=":material/hourglass_top:", color="orange")
        return
    buttons.act(
        f"{count} running: watch", "frame_watch", "hourglass_top", run_choice.choose_run, others[0].name,
        help="Shows the run that is being computed; the one shown now stays in the list.", width="stretch",
    )  # fmt: skip


def _unreadable(situation: work.Situation) -> None:
    count = len(situation.unreadable)
    with st.expander(f"{counted(count, 'run')} cannot be read", icon=":material/warning:"):
        for broken in situation.unreadable:
            st.caption(f"**{plain(broken.name)}**: {said(broken.reason)}.")
        st.caption(
            f"Run the study again, or delete it on the {where('launch')}, list Runs. The other runs are not affected."
        )


def _badges(run: Run) -> None:
    colors: dict[str, Any] = {"done": "green", "failed": "red", "cancelled": "orange"}
    if run.is_demo:
        told = "The small bundled model: for looking around, not for conclusions."
        st.badge("demo", color="violet", help=told)
    if run.packed:
        st.badge("pack", icon=":material/inventory_2:", color="grey", help=packed.ABOUT)
    state = run.state
    if state != runs.INTERRUPTED:
        st.badge(plain(state or "unknown"), color=colors.get(state, "blue"))
    elif job_runs.is_live(run):
        st.badge("to be continued", color="blue", help="A job goes on with it as soon as it has its turn.")
    else:
        st.badge("interrupted", color="orange", help=_why_interrupted(run))


def _why_interrupted(run: Run) -> str:
    host = runs.elsewhere(run.record)
    if not host:
        return "No process is at work on it; continue it to finish it."
    silent = duration(seconds_since(run.record.get("updated")))
    return f"It ran on {plain(host)}, which has not been heard of for {silent}; continue it to finish it here."


def _settings(run: Run) -> None:
    study = run.study
    st.caption(
        f"{plain(study.model)} · {plain(study.metric)} · keep {percent(study.retention)}  \n"
        f"A: {plain(study.primary)}  \nB: {plain(study.auxiliary)}"
    )
    with st.popover("Settings", icon=":material/tune:", width="stretch"):
        st.caption("The whole study, to be copied")
        st.code(study.to_json(), language="json", height=320, wrap_lines=True)
        st.caption("The same as a command")
        st.code(command(study), language="bash", wrap_lines=True)


def _nothing_yet(situation: work.Situation, place: str) -> None:
    if situation.active or situation.problem:
        return
    if place != "home":
        # the first page says it below its title
        st.markdown(f"**{TOOL}**: {PURPOSE}.")
    failed = next((job for job in situation.jobs if job.state == "failed"), None)
    if failed is not None:
        st.error(
            f"{plain(failed.label)} failed: {said(failed.error)}. Its log is on the {where('launch')}.",
            icon=":material/error:",
        )
    else:
        there = "below" if place == "launch" else f"on the {where('launch')}"
        st.info(f"No run is here yet. Start one {there}, or the demo with one click.", icon=":material/info:")
    work.start_button("Start the bundled demo", "frame_demo", situation.root, demo_study(), type="primary")


def page_title(title: str, question: str) -> None:
    """Title of a page and the question that it answers."""
    # Streamlit alone can run the file of a page without the frame
    _require_door()
    st.title(title, anchor=False)
    st.caption(question)


def page(title: str, question: str) -> Callable[[Callable[[Run], None]], Callable[[], None]]:
    """Declares the page of a run: under its title, or what it will show, where there is no run."""

    def declared(draw: Callable[[Run], None]) -> Callable[[], None]:
        @wraps(draw)
        def show() -> None:
            page_title(title, question)
            run = require_run()
            if run is not None:
                draw(run)

        return show

    return declared


def require_run() -> Run | None:
    """The chosen run; where there is none, says what the page will show and returns None."""
    run = current_run()
    if run is None:
        if situation().runs:
            # the frame has said above that the run of the address is not there
            return None
        coming = situation().active
        st.caption(f"No results yet: they appear {_COMING if coming else 'here as soon as there is a run'}.")
        return None
    if run.outdated and not job_runs.is_live(run):
        told = (
            f"{run.outdated} of {len(run.stages)} results of this run were made by an earlier version of "
            "this program and are not shown. Run it again: what still holds is kept."
        )
        _offered(run, told, ":material/history:", "Run it again", "frame_again")
    elif not run.complete and not job_runs.is_live(run):
        _incomplete(run)
    elif run.state == "done" and run.stopped_early:
        told = f"This run was only asked for “{plain(str(run.record.get('until')))}”."
        _offered(run, told, ":material/info:", "Run the rest", "frame_rest", mild=True)
    return run


def _incomplete(run: Run) -> None:
    """Says that a run stopped before its end, and offers to go on with it."""
    reason = ""
    if run.state == "failed" and run.record.get("error"):
        reason = f" It failed: {said(run.record['error'])}."
    elif runs.elsewhere(run.record) and run.state == runs.INTERRUPTED:
        reason = f" {_why_interrupted(run)}"
    found = titles.outlook(run)
    where = f" after {found.done} of {found.steps} steps" if found.steps else " before its first step"
    told = f"This run stopped{where}.{reason} Finished stages are kept."
    row = _offered(run, told, ":material/pause_circle:", "Continue this run", "frame_continue")
    with row:
        # going on with the same settings may only fail again
        failed = run.state == "failed"
        if failed and buttons.pressed(places.EDIT, key="frame_edit", icon=":material/edit:"):
            places.to_launch(run.study, f"The settings of “{run.title or run.name}” are")


def _offered(run: Run, told: str, icon: str, words: str, key: str, mild: bool = False) -> Any:
    """Says something of a run beside a button that starts it; gives the row, for more buttons."""
    row = st.container(horizontal=True, vertical_alignment="center")
    (row.info if mild else row.warning)(told, icon=icon, width="stretch")
    work.start_button(words, key, run.root, run.study, place=row)
    return row


def settle_memory() -> bool:
    """Counts what is in memory as lasting, if much was loaded since the last time; says whether it did.

    What another session has in use at that moment goes as always when nothing refers to it any more; only a
    circle of such objects stays, once for each page at most.
    """
    with _ONE_AT_A_TIME:
        if len(sys.modules) < _counted[0] + NEW_MODULES:
            return False
        _counted[0] = len(sys.modules)
        gc.collect()
        gc.freeze()
        return True
