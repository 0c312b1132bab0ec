"""What the Methods view compares: runs, their methods, and the pinned line; all of it is in the address."""

import streamlit as st

from gprune.analysis import run_settings
from gprune.analysis.comparison import Row
from gprune.app.pages.comparison.lines import Shown, composed, measured_lines, measured_rows
from gprune.app.ui import derived_cache, frame, run_choice, url_state
from gprune.app.ui.chart_style import label
from gprune.app.ui.run_labels import labels
from gprune.app.ui.text import plain
from gprune.pipeline.runs.opened import Run
from gprune.study.methods import METHODS

RUNS = "cp_runs"
_LAST = "cp_last_run"


def runs(run: Run) -> list[Run]:
    """Asks for the runs; as long as only one is shown, it is that of the frame."""
    situation = frame.situation()
    shown = url_state.several(RUNS, [other.name for other in situation.runs], [run.name])
    last = st.session_state.get(_LAST, run.name)
    if last != run.name and shown == [last]:
        shown = [run.name]
        url_state.put(RUNS, shown)
    st.session_state[_LAST] = run.name
    known = labels(situation.runs)
    listed = run_choice.listed(situation.runs, (run.name, *shown))
    names = {other.name: run_choice.run_label(other, known) for other in listed}
    asked = url_state.multiselect("Runs side by side", names, RUNS, [run.name])
    found = [other for name in asked if (other := situation.run_named(name)) is not None]
    for other in found:
        if not derived_cache.measured(other):
            st.caption(f"{plain(known[other.name])} has no perplexities yet.")
    return found or [run]


def shown(chosen: list[Run]) -> Shown:
    """Asks for methods, the pinned line and how seeds are shown.

    Raises:
        MissingResultError: none of the runs has a perplexity.
    """
    rows = measured_rows(chosen)
    groups = run_settings.seed_groups({run.name: run.study for run in chosen})
    with st.container(horizontal=True, vertical_alignment="bottom"):
        methods = _picked(rows)
        several = run_settings.has_several_seeds(groups)
        together = not several or url_state.toggle("Seeds together", "cp_seeds", True)
        found = composed(chosen, rows, methods, together=together)
        pinned = _pinned(found)
        differences = url_state.toggle("Show differences", "cp_deltas", True)
    return composed(chosen, rows, methods, together=together, pinned=pinned, differences=differences)


def _picked(rows: list[Row]) -> list[str]:
    """Asks for methods; none means all."""
    there = {row.method for row in rows}
    options = [name for name in METHODS if name in there]
    picked = url_state.several("cp_methods", options, ())
    count = len(picked) or len(options)
    with st.popover(f"Methods: {count} of {len(options)}", icon=":material/filter_list:", key="cp_filter"):
        names = {name: label(name) for name in options}
        return url_state.multiselect("Methods", names, "cp_methods", (), placeholder="all methods")


def _pinned(found: Shown) -> str:
    """Asks for the line that the others are compared with, as an address names it."""
    measured, default = measured_lines(found.lines, found.runs[0].study.metric)
    options = {key: found.names[line.name] for key, line in measured.items()}
    return url_state.selectbox("Pinned baseline", options, "cp_pinned", default, width=260)
