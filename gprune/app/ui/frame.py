"""The frame around every page: which run is shown, what is running, what has ended, and the run's settings."""

import gc
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import streamlit as st

from gprune.analysis import paired_test
from gprune.analysis.formatting import format_count, percent
from gprune.analysis.verdict import leading_pair, method_label
from gprune.app.server import COMMAND, current_options
from gprune.app.ui import (
    address,
    components,
    derived_cache,
    page_names,
    run_choice,
    run_status,
    selection,
    slides,
    story,
    work,
)
from gprune.app.ui.commands import command
from gprune.app.ui.page_names import PURPOSE, TAB, TOOL, describe_place
from gprune.app.ui.slides import SlideFigures
from gprune.app.ui.text import escape, escape_error, short_text
from gprune.data.demo import MODEL_FOLDERS
from gprune.jobs import Job
from gprune.pipeline import runs
from gprune.pipeline.runs.opened import Run, root
from gprune.plugins.registry import IN_APP
from gprune.study.demo import demo_study
from gprune.system.errors import GpruneError

_WHOLE, _REST = "rest_of_page_whole", "rest_of_page"
"""session keys: the place that is drawn to its end, and the component that requests this when the reader scrolls"""
_REST_COMPONENT = st.components.v2.component(
    "gprune_rest_of_page",
    html='<div class="rest-of-page" role="status">More below …</div>',
    css=components.read_asset("rest_of_page.css"),
    js=components.read_asset("rest_of_page.js"),
)
NEW_MODULES = 20
"""number of newly imported modules after which the objects in memory are frozen again"""
_FREEZE_LOCK = threading.Lock()
_modules_at_freeze: list[int] = [0]
"""number of loaded modules when the objects in memory were last frozen"""


def run(sections: Mapping[str, Sequence[Any]], figures: Callable[[], SlideFigures]) -> None:
    """Draw the requested page and the frame around it.

    Args:
        sections: Streamlit's pages under their headings, as `page_names.SECTIONS` lists them.
        figures: imports and returns the figures of the slides.
    """
    IN_APP.set()
    page = st.navigation(dict(sections), position="hidden")
    _require_access()
    address.apply_changes()
    place = address.open_place(page.url_path, list(page_names.page_at(page.url_path).places))
    with address.drawing_page(place):
        if st.session_state.get(_WHOLE) != place:
            # of another place, the first cards are drawn first
            st.session_state.pop(_WHOLE, None)
        components.forget_clicks(place)
        components.add_style("look")
        situation = _read_situation()
        _draw_frame(situation, place, sections)
        _report_ended_jobs(situation)
        warnings, run = st.container(), current_run()
        if slides.open_slide_number():
            slides.draw_slide(run, figures())
        else:
            page.run()
        address.write_address(warnings)
        if run is not None and not run.study.prunes_experts:
            selection.warn_of_missing(run, warnings)
    freeze_loaded_objects()


def _require_access() -> None:
    """Stop drawing if the server has no access control: any website in the reader's browser could send it requests."""
    # every request over the network has headers; a test has none
    if current_options() is None and len(st.context.headers):
        remedy = f"Stop this server and start the app with `make app` or `{COMMAND}`."
        st.error(remedy, icon=":material/lock:")
        st.stop()


def _read_situation() -> work.Situation:
    """Return runs and jobs, stored for the page; start the demo if there is no run."""
    situation = work.read_situation(root())
    if work.autostart(situation):
        situation = work.read_situation(situation.root)
    st.session_state[work.SITUATION] = situation
    return situation


def _draw_frame(situation: work.Situation, place: str, sections: Mapping[str, Sequence[Any]]) -> None:
    """Draw the sidebar, and messages above the page."""
    with st.sidebar:
        # the links are above the choice of the run, but depend on it
        st.markdown(f"**{TOOL}**")
        links = st.container(gap="xxsmall", key="frame_pages")
        _draw_sidebar(situation, place)
    with links:
        for heading, pages in sections.items():
            st.caption(heading)
            for page in pages:
                place_of_page = address.last_place(page_names.page_at(page.url_path))
                query = address.link_query(place_of_page)
                is_renamed = shows_experts() and page.url_path == page_names.PAGE_OF[selection.PLACE].url
                label = page_names.EXPERTS if is_renamed else None
                st.page_link(page, label=label, query_params=query or None, width="stretch")
    if situation.problem:
        st.error(escape_error(situation.problem), icon=":material/error:")
    run_choice.explain_missing(situation.runs)
    if not situation.runs:
        _draw_first_start(situation, place)


def situation() -> work.Situation:
    """Return the runs and jobs as they were when the page began to draw."""
    state: work.Situation = st.session_state[work.SITUATION]
    return state


def current_run() -> Run | None:
    """Return the run that is chosen in the frame, or None if there is none."""
    return situation().run_named(str(st.session_state.get(run_choice.SHOWN, "")))


def shows_experts() -> bool:
    """Return True if the chosen run prunes experts."""
    run = current_run()
    return run is not None and run.study.prunes_experts


def _draw_sidebar(situation: work.Situation, place: str) -> None:
    if situation.runs:
        run_choice.draw_run_list(situation.runs)
    run = current_run() if situation.runs else None
    prunes_neurons = run is not None and not run.study.prunes_experts
    if run is not None:
        if prunes_neurons:
            selection.draw_search(run)
        with st.container(horizontal=True, gap="xsmall"):
            _draw_badges(run)
    _draw_jobs(situation, run, place)
    if run is not None:
        if prunes_neurons:
            selection.draw_chip(run)
        _draw_settings(run)
    slides.draw_button("frame_slides", type="tertiary", shortcut="P")
    components.install("one_step_back")
    if situation.unreadable:
        _draw_unreadable(situation)


def _draw_jobs(situation: work.Situation, current: Run | None, place: str) -> None:
    """Draw the progress of the active jobs, and a button that shows their run if the pages show another."""
    # a run that another program computes is followed as well, and redrawn when its process is gone
    if situation.active or any(run.state == "running" for run in situation.runs):
        # imported while a job is active
        from gprune.app.ui import live

        live.follow(situation, place, current.name if current else "")
    active_runs = (work.run_of_active_job(situation, job) for job in situation.active if not job.creates_no_run)
    elsewhere = [run for run in active_runs if run is not None and (current is None or run.name != current.name)]
    if elsewhere:
        components.action_button(
            "Show the running run", "frame_watch", "visibility", run_choice.choose_run, elsewhere[0].name,
            type="tertiary", help="The run shown now stays in the list.",
        )  # fmt: skip


def _draw_unreadable(situation: work.Situation) -> None:
    count = len(situation.unreadable)
    with st.expander(f"{format_count(count, 'run')} cannot be read", icon=":material/warning:"):
        for broken in situation.unreadable:
            st.caption(f"**{escape(broken.name)}**: {escape_error(broken.reason)}.")
        st.caption(
            f"Run the study again, or delete it in the list of runs on the {describe_place('launch')}. Other runs are "
            "not affected."
        )


def _draw_badges(run: Run) -> None:
    colors: dict[str, Any] = {"done": "green", "failed": "red", "cancelled": "orange"}
    if run.study.model in MODEL_FOLDERS:
        about = "Small bundled model for exploring the app, not for conclusions."
        st.badge("demo", color="violet", help=about)
    if run.packed:
        st.badge("pack", icon=":material/inventory_2:", color="grey", help=run_status.PACK_HELP)
    state = run.state
    if state != runs.INTERRUPTED:
        st.badge(escape(state or "unknown"), color=colors.get(state, "blue"))
    elif run_status.is_live(run):
        st.badge("resume queued", color="blue", help="A queued job will resume it.")
    else:
        st.badge("interrupted", color="orange", help=_describe_interruption(run))


def _describe_interruption(run: Run) -> str:
    host = runs.other_host(run.record)
    if not host:
        return "No process is working on it. Resume it to finish it."
    return f"It ran on {escape(host)}, where its process has ended. Resume it to finish it here."


def _draw_settings(run: Run) -> None:
    study = run.study
    unit = "experts" if study.prunes_experts else escape(method_label(study.metric))
    st.caption(
        f"{escape(study.model)} · {unit} · {percent(study.retention)} retention  \n"
        f"A: {escape(study.text_name(study.primary))}  \nB: {escape(study.text_name(study.auxiliary))}"
    )
    with st.popover("Settings", icon=":material/tune:", width="stretch"):
        st.caption("The study as JSON")
        st.code(study.to_json(), language="json", height=320, wrap_lines=True)
        st.caption("As a command")
        st.code(command(study), language="bash", wrap_lines=True)


def _draw_first_start(situation: work.Situation, place: str) -> None:
    if situation.active or situation.problem:
        return
    if place != "home":
        # the first page shows this below its title
        st.markdown(f"**{TOOL}**: {PURPOSE}.")
    failed = next((job for job in situation.jobs if job.state == "failed"), None)
    if failed is not None:
        st.error(
            f"{escape(failed.label)} failed: {escape_error(failed.error)}. See its log on the "
            f"{describe_place('launch')}.",
            icon=":material/error:",
        )
    else:
        location = "below" if place == "launch" else f"on the {describe_place('launch')}"
        st.info(f"There is no run yet. Start one {location}, or start the demo with one click.", icon=":material/info:")
    work.start_button("Start the bundled demo", "frame_demo", situation.root, demo_study(), type="primary")


def page_title(title: str, question: str) -> None:
    """Draw the title of a page and the question that the page answers."""
    # Streamlit alone can run the file of a page without the frame
    _require_access()
    st.title(title, anchor=False)
    st.caption(question)


def declare_page(
    title: str, question: str, neurons_only: str = ""
) -> Callable[[Callable[[Run], None]], Callable[[], None]]:
    """Return a decorator that makes a page of a function that draws a run; without a run, the page shows a hint.

    `neurons_only` is a sentence on why the page has nothing to show for a run that prunes experts; the page then shows
    it with a link to the page of experts.
    """

    def decorate(draw: Callable[[Run], None]) -> Callable[[], None]:
        @wraps(draw)
        def show() -> None:
            page_title(title, question)
            run = require_run()
            if run is not None and run.study.prunes_experts and neurons_only:
                st.info(f"This run prunes experts. {neurons_only}", icon=":material/info:")
                address.link(selection.PLACE, page_names.EXPERTS, ":material/hub:")
            elif run is not None:
                draw(run)

        return show

    return decorate


def require_run() -> Run | None:
    """Return the chosen run; without one, explain what the page will show and return None."""
    run = current_run()
    if run is None:
        if situation().runs:
            # the frame has already shown that the run of the address is missing
            return None
        condition = "when the run reaches this stage" if situation().active else "here as soon as there is a run"
        st.caption(f"No results yet: they appear {condition}.")
        return None
    if run.outdated and not run_status.is_live(run):
        message = (
            f"{run.outdated} of {len(run.stages)} results of this run were made by an earlier version of this program "
            "and are not shown. Run it again; results that are still valid are reused."
        )
        _offer_restart(run, message, ":material/history:", "Run it again", "frame_again")
    elif not run.complete and not run_status.is_live(run):
        _explain_incomplete(run)
    elif run.state == "done" and run.stopped_early:
        message = f"This run was limited to “{escape(str(run.record.get('until')))}”."
        _offer_restart(run, message, ":material/info:", "Run the rest", "frame_rest", mild=True)
    return run


def _explain_incomplete(run: Run) -> None:
    """Show that a run stopped before its end, and offer to continue it."""
    reason = ""
    if run.state == "failed" and run.record.get("error"):
        reason = f" It failed: {escape_error(run.record['error'])}."
    elif runs.other_host(run.record) and run.state == runs.INTERRUPTED:
        reason = f" {_describe_interruption(run)}"
    outlook = run_status.run_outlook(run)
    where = f" after {outlook.done} of {outlook.steps} steps" if outlook.steps else " before its first step"
    message = f"This run stopped{where}.{reason} Finished stages are kept."
    row = _offer_restart(run, message, ":material/pause_circle:", "Resume this run", "frame_continue")
    with row:
        # the same settings may fail again
        if run.state == "failed" and components.button(address.EDIT, key="frame_edit", icon=":material/edit:"):
            address.to_launch(run.study, f"The settings of “{run.title or run.name}” are")


def _offer_restart(run: Run, message: str, icon: str, button: str, key: str, mild: bool = False) -> Any:
    """Draw a message about a run next to a button that starts it; return the row, for more buttons.

    The message is a warning, or information if `mild`.
    """
    row = st.container(horizontal=True, vertical_alignment="center")
    (row.info if mild else row.warning)(message, icon=icon, width="stretch")
    work.start_button(button, key, run.root, run.study, container=row)
    return row


def is_rest_deferred() -> bool:
    """Return True if the cards below the first ones of a page are not drawn yet, and draw a marker in their place.

    The cards are drawn when the reader scrolls, or if the window is high enough to show the marker. If the address has
    values of the page, or there is no browser, the whole page is drawn at once.
    """
    keys_of_page = set(st.query_params) - {*address.SHARED, *address.ALWAYS, TAB}
    if _WHOLE in st.session_state or keys_of_page or not len(st.context.headers):
        _request_rest()
        return False
    _REST_COMPONENT(key=_REST, on_reached_change=_request_rest_on_scroll)
    return True


def _request_rest_on_scroll() -> None:
    # the event carries the address from before the latest change of a widget
    address.ignore_sent_address()
    _request_rest()


def _request_rest() -> None:
    st.session_state[_WHOLE] = address.current_place()


def freeze_loaded_objects() -> bool:
    """Exempt existing objects from garbage collection, so that collections stay short; return True if it was done.

    It is done again after NEW_MODULES further modules were imported, about once per page. An object that is frozen by
    chance, as of another session, is still freed by reference counting, unless it is part of a reference cycle.
    """
    with _FREEZE_LOCK:
        if len(sys.modules) < _modules_at_freeze[0] + NEW_MODULES:
            return False
        _modules_at_freeze[0] = len(sys.modules)
        gc.collect()
        gc.freeze()
        return True


_ENDED = "jobs_ended"
_MOST_BANNERS = 3
"""session key of the jobs whose banners are shown, and maximum number of these"""
_RESULT_PLACES = {"export": "export", "gguf": "export", "speed": "speed", "map": "map"}
"""the place that shows the result of a command, by the command's name; a run opens on the first page"""
_ENDED_LOOKS = {
    "done": (":green[:material/check_circle:]", "is done"),
    "failed": (":red[:material/error:]", "failed"),
    "cancelled": (":orange[:material/cancel:]", "was cancelled; finished stages are kept"),
    "interrupted": (":orange[:material/pause_circle:]", "was interrupted; resume it to finish it"),
}
"""icon and predicate of a job, by its state"""


def _report_ended_jobs(situation: work.Situation) -> None:
    """Show a toast for each job that has ended since the page was last drawn, and its banner until it is closed."""
    state, active = st.session_state, {job.id for job in situation.active}
    ended = [job for job in situation.jobs if job.id in state.get(work.FOLLOWED, set()) - active]
    state[work.FOLLOWED] = active
    for job in ended:
        icon, predicate = _ENDED_LOOKS.get(job.state, _ENDED_LOOKS["interrupted"])
        st.toast(f"{icon} {escape(job.label)} {predicate}")
    state[_ENDED] = [*(job.id for job in ended), *state.get(_ENDED, [])][:_MOST_BANNERS]
    by_id = {job.id: job for job in situation.jobs}
    banners = [by_id[job_id] for job_id in state[_ENDED] if job_id in by_id]
    if banners:
        # the bar at the top of the window would cover the frame
        st.space("xsmall")
    for job in banners:
        _draw_banner(situation, job)


def _draw_banner(situation: work.Situation, job: Job) -> None:
    run = situation.run_named(run_status.run_of_job(situation.root, job.id))
    origin = situation.run_named(st.session_state.get(work.ORIGINS, {}).get(job.id, ""))
    icon, predicate = _ENDED_LOOKS.get(job.state, _ENDED_LOOKS["interrupted"])
    reason = f": {escape_error(job.error)}" if job.state == "failed" else ""
    is_result = job.state == "done" and run is not None and not job.creates_no_run
    with st.container(horizontal=True, vertical_alignment="center", border=True, key=f"ended_{job.id}"):
        result = describe_result(run, origin) if is_result and run is not None else ""
        st.markdown(f"{icon} **{escape(job.label)}** {predicate}{reason}. {result}", width="stretch")
        if components.button("Open", f"ended_open_{job.id}", icon=":material/visibility:"):
            _close_banner(job.id)
            if run is not None and job.state == "done":
                run_choice.choose_run(run.name)
            target = _RESULT_PLACES.get(job.arguments[0] if job.arguments else "", "home")
            address.open_page(target if job.state == "done" else "launch")
        if is_result and run is not None:
            if components.button("Compare", f"ended_compare_{job.id}", icon=":material/leaderboard:"):
                _close_banner(job.id)
                # a job that another program has started is compared with the run that is shown
                other = origin.name if origin is not None else st.session_state.get(work.SHOWN, "")
                run_choice.choose_run(run.name)
                address.compare_runs(filter(None, [run.name, other]))
        components.action_button(
            "", f"ended_close_{job.id}", "close", _close_banner, job.id, type="tertiary", help="Close this message"
        )


def _close_banner(job_id: str) -> None:
    st.session_state[_ENDED] = [name for name in st.session_state[_ENDED] if name != job_id]


def describe_result(run: Run, origin: Run | None) -> str:
    """Return the result of a run as a Markdown sentence: its paired change against the run that it was started from.

    If `origin` is None, or the two runs have no text measured on the same windows, return the headline of the run.
    """
    try:
        method, changes = _paired_changes(run, origin) if origin is not None and origin.name != run.name else ("", [])
        if origin is None or not changes:
            return f"{escape(story.headline(run).sentence)}."
    except GpruneError as error:
        return escape_error(error)
    name = run_choice.labels([run, origin])[origin.name]
    return f"Perplexity of {method} against “{escape(name)}”: {', '.join(changes)}."


def _paired_changes(run: Run, origin: Run) -> tuple[str, list[str]]:
    """Return the label of the first method that both runs measured on a text, and a phrase on its change on each text.

    Texts that are not measured on the same windows are left out.
    """
    before = {(item.method, item.text): item for item in derived_cache.measurements(origin)}
    after = {(item.method, item.text): item for item in derived_cache.measurements(run)}
    pruned = [method for method in (leading_pair(run.study)[0], *run.study.methods) if method != "dense"]
    method = next((name for name in pruned if any(pair[0] == name and pair in before for pair in after)), "")
    changes = []
    for text in run.study.evaluation.texts:
        new, old = after.get((method, text)), before.get((method, text))
        if new is not None and old is not None and paired_test.same_windows(new, old):
            change = paired_test.in_percent(paired_test.difference(new, old))
            changes.append(f"{escape(short_text(run.study, text))} {new.perplexity:.4g} ({escape(change)})")
    return method and method_label(method), changes
