"""Choice of the run that the pages show: a field in the sidebar, kept in the address."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from difflib import get_close_matches
from textwrap import shorten

import streamlit as st

from gprune.analysis import thresholds
from gprune.analysis.comparison import distinguishing_settings
from gprune.analysis.formatting import format_count
from gprune.app.ui import address, components, work
from gprune.app.ui.address import RUN
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import escape, short, short_text
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages.results import repair_label
from gprune.study import ReliabilitySettings

SHOWN = work.SHOWN
"""session key of the name of the run that is shown"""
_PICKED, _STUDIES = "frame_run", "frame_studies"
"""session keys: the list of runs, and the switch for the runs of studies"""
_FIELD_CHARACTERS = 25
"""number of characters of a label that fit in the field"""
_SETTING_CHARACTERS = 40
"""maximum number of characters of a setting in a label"""
_LABEL, _DELETED = "frame_run_label", "frame_run_deleted"
"""session keys: the label of the shown run, and name and label of a run that was deleted while it was shown"""


def labels(runs: list[Run]) -> dict[str, str]:
    """Return readable labels of runs, by the name of their folder.

    A label has the name or model, the state if the run is not done, and settings that are not the default. Runs with
    equal labels get the settings in which they differ, or else a short hash, so that labels fit a narrow list.
    """
    labels_by_name = {run.name: _base_label(run) for run in runs}
    _append_differences(runs, labels_by_name)
    # labels are unique, because a browser identifies a run by its label
    for suffix in (lambda run: run.name.rsplit("-", 1)[-1][:6], lambda run: run.name):
        times = Counter(labels_by_name.values())
        for run in runs:
            if times[labels_by_name[run.name]] > 1:
                labels_by_name[run.name] += f" · {suffix(run)}"
    return labels_by_name


def _append_differences(runs: list[Run], labels_by_name: dict[str, str]) -> None:
    """Append the settings in which runs with equal labels differ to these labels."""
    groups = defaultdict(list)
    for run in runs:
        groups[labels_by_name[run.name]].append(run)
    for group in groups.values():
        for name, settings in distinguishing_settings({run.name: run.study for run in group}).items():
            run = next(run for run in group if run.name == name)
            labels_by_name[name] = " · ".join(
                [labels_by_name[name], *(_label_setting(run, *pair) for pair in settings.items())]
            )


def _label_setting(run: Run, field: str, value: str) -> str:
    """Return a setting as part of a label; `value` is the setting as text."""
    study = run.study
    if field == "metric":
        return label(study.metric)
    short_forms = {
        "retention": f"keep {100 * study.retention:.3g}%",
        "model": short(study.model),
        "primary": f"A {short_text(study, study.primary)}",
        "auxiliary": f"B {short_text(study, study.auxiliary)}",
        "substitute": f"C {short_text(study, study.substitute) if study.substitute else 'none'}",
        "methods": format_count(len(study.methods), "method"),
        "evaluation.texts": f"on {', '.join(short_text(study, text) for text in study.evaluation.texts) or 'no text'}",
        "evaluation.tasks": format_count(len(study.evaluation.tasks), "task"),
    }
    text = short_forms.get(field) or f"{field.rpartition('.')[2].replace('_', ' ')} {value}"
    return shorten(text, _SETTING_CHARACTERS, placeholder=" …")


def _base_label(run: Run) -> str:
    """Return the label of a run without regard to other runs."""
    study = run.study
    parts = [run.title or short(study.model)]
    if run.state != "done":
        parts.append(run.state or "state unknown")
    if run.about.name:
        # a name given by hand is distinctive enough
        return " · ".join(parts)
    rule = thresholds.describe_rule(study.reliability)
    if study.reliability != ReliabilitySettings() and rule not in parts[0]:
        parts.append(rule)
    if (repaired := repair_label(study)) and repaired not in parts[0]:
        parts.append(repaired)
    if study.seed and f"seed {study.seed}" not in parts[0]:
        parts.append(f"seed {study.seed}")
    return " · ".join(parts)


def choose_run(name: str) -> None:
    """Select the run that the frame and the pages show when they are drawn next."""
    address.set_value(RUN, name)


def forget_run(name: str, remaining: list[Run]) -> None:
    """Select the default of the remaining runs if the deleted run was shown."""
    if st.session_state.get(SHOWN) == name:
        address.set_value(RUN, _default_name(remaining))


def _default_name(runs: list[Run]) -> str:
    """Return the name of the default run; empty if there is none."""
    listed = [run for run in runs if not run.about.hidden] or runs
    independent, _ = _split_studies(listed)
    run = work.preferred_run(independent or listed)
    return run.name if run else ""


def draw_run_list(runs: list[Run]) -> None:
    """Draw the list of runs; the address has the name of the selected run."""
    default = _default_name(runs)
    # the address always has the run, so that a copied address shows the same run later
    name = address.read_text(RUN, default)
    is_known = any(run.name == name for run in runs)
    chosen = name if is_known else default
    if is_known:
        # set the value, so that the run stays selected when another run becomes the default
        address.set_value(RUN, chosen)
        st.session_state[_LABEL] = labels(runs)[chosen]
    elif st.session_state.get(SHOWN) == name:
        # the run existed when this session was last drawn
        st.session_state[_DELETED] = (name, st.session_state.get(_LABEL, name))
    # pages show no other run instead of the requested one
    st.session_state[SHOWN] = chosen if is_known else ""
    _draw_selector(runs, chosen if is_known else None)


def explain_missing(runs: list[Run]) -> None:
    """Show on the page that the run of the address is not in the cache, and offer the nearest one."""
    requested = address.read_text(RUN)
    if not requested or any(run.name == requested for run in runs):
        return
    name, deleted_label = st.session_state.get(_DELETED, ("", ""))
    if name == requested:
        st.warning(f"The run “{escape(deleted_label)}” was deleted.", icon=":material/delete:")
    else:
        st.warning(f"The run {escape(requested)} of the address is not in this cache.")
    if runs:
        nearest = next(iter(get_close_matches(requested, [run.name for run in runs], n=1)), _default_name(runs))
        label_text = f"Open “{escape(labels(runs)[nearest])}”"
        components.action_button(label_text, "frame_go_on", "", choose_run, nearest)


def _draw_selector(runs: list[Run], chosen: str | None) -> None:
    """Draw the list of runs and, below it, the switch for the runs of studies."""
    independent, of_studies = _split_studies([run for run in runs if not run.about.hidden])
    offered = {run.name: run for run in listed_runs(runs, (chosen,) if chosen else ())}
    names = labels(runs)
    st.session_state[_PICKED] = chosen
    st.selectbox(
        "Run",
        list(offered),
        key=_PICKED,
        format_func=lambda name: run_label(offered[name], names) if name in offered else name,
        help="Every page shows this run.",
        placeholder="Choose a run",
        on_change=_store_choice,
    )
    if chosen and len(label := run_label(offered[chosen], names)) > _FIELD_CHARACTERS:
        st.caption(escape(label))
    if independent and of_studies:
        many = len(of_studies) > 1
        st.toggle(
            f"Show the {len(of_studies)} runs of studies" if many else "Show the run of a study",
            key=_STUDIES,
            help="Runs of `python -m gprune reproduce` for the tables of the Compare page.",
        )


def _store_choice() -> None:
    picked = st.session_state[_PICKED]
    if picked is not None:
        address.defer_change(_PICKED, lambda: choose_run(str(picked)))


def listed_runs(runs: list[Run], always: Iterable[str] = ()) -> list[Run]:
    """Return the runs to offer; those of a series of studies are last, and only on request or if there are no others.

    `runs` are ordered from the newest. Runs in `always` are listed even if they are hidden or belong to a
    series.
    """
    always_listed = set(always)
    independent, of_studies = _split_studies([run for run in runs if not run.about.hidden or run.name in always_listed])
    if not independent or st.session_state.get(_STUDIES):
        return independent + of_studies
    return independent + [run for run in of_studies if run.name in always_listed]


def run_label(run: Run, names: dict[str, str]) -> str:
    """Return the label of a run in a list, with the series of studies that it belongs to."""
    label = names.get(run.name, run.name)
    lacks_group = run.study.group and not label.startswith(run.study.group)
    return f"{run.study.group} · {label}" if lacks_group else label


def _split_studies(runs: list[Run]) -> tuple[list[Run], list[Run]]:
    """Return single runs and the runs of series of studies."""
    return [run for run in runs if not run.study.group], [run for run in runs if run.study.group]
