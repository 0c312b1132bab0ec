"""A sweep from the page: the form's study with several values of some fields, and where each study stands."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from gprune.app.pages.jobs.launch import input_problem
from gprune.app.ui import buttons, frame, live, tables, url_state, work
from gprune.app.ui.card import card
from gprune.app.ui.text import plain, said
from gprune.experiments.scheduler import arguments
from gprune.experiments.sweep.plan import Sweep, Variation
from gprune.experiments.sweep.running import DONE, FAILED, STATES, StudyStatus, standings
from gprune.jobs.job import measures_speed
from gprune.jobs.queue import MOST_OPEN
from gprune.pipeline.stages import UNTIL
from gprune.store import Store
from gprune.study import Study
from gprune.system.errors import GpruneError, SettingsError, UnreadableError
from gprune.system.limits import LONGEST_NAME
from gprune.system.safe_parsing import json_value, quoted

_LONGEST = 1000
_AT_WORK = ("running", "queued", "cancelling")
_HELP = (
    "Fields by their dotted names, as in a study file, each with its values; a semicolon before the next "
    "field. Every value meets every other."
)


def show(root: str, study: Study) -> None:
    """Draws the card for the study that the form above it makes."""
    with card("launch_sweep", "A sweep: the study above with several values"):
        left, middle, right = st.columns([3, 1, 1])
        with left:
            typed = url_state.text_field(
                "Fields and their values", "sweep_space", _LONGEST, help=_HELP,
                placeholder="retention = 0.3, 0.5, 0.7; seed = 0, 1",
            )  # fmt: skip
        with middle:
            title = url_state.text_field("Its name", "sweep_title", LONGEST_NAME, placeholder="sweep")
        with right:
            until = url_state.selectbox("How far", UNTIL, "sweep_until", "perplexity")
        if not typed.strip():
            st.caption("Each study is a job and a run of its own; what they share is computed once.")
            return
        try:
            sweep = planned(study, typed, title, until)
            made = sweep.variations()
        except GpruneError as error:
            st.error(said(error), icon=":material/error:")
            return
        _command(sweep)
        _start(root, made, until)
        active = bool(frame.situation().active)
        poll = live.poll(live.followers()) if active else None
        st.fragment(_table, run_every=poll)(root, made, until, active)


def planned(study: Study, typed: str, title: str, until: str) -> Sweep:
    """The sweep that was typed; SettingsError where it is none, or too long for the queue."""
    space = dict[str, list[Any]]()
    for part in filter(str.strip, typed.split(";")):
        name, sign, values = (word.strip() for word in part.partition("="))
        if not (name and sign and values):
            raise SettingsError(f"{quoted(part.strip())} is no field with values: write it as seed = 0, 1")
        if name in space:
            raise SettingsError(f"{quoted(name)} is named twice: put all its values into one list")
        space[name] = _values(values)
    sweep = Sweep.parse({"title": title.strip() or "sweep", "study": study.to_dict(), "space": space, "until": until})
    if sweep.count > MOST_OPEN:
        raise SettingsError(
            f"the sweep makes {sweep.count:,} studies, and the queue takes at most {MOST_OPEN}: shorten a "
            "list, or start it by its command, which hands them over bit by bit"
        )
    return sweep


def _values(typed: str) -> list[Any]:
    """Values as JSON has them, separated by commas; what is none is a text, as it stands."""
    whole = _json(f"[{typed}]")
    if isinstance(whole, list):
        return whole
    parts = [part.strip() for part in typed.split(",") if part.strip()]
    return [part if (value := _json(part)) is None else value for part in parts]


def _json(text: str) -> Any:
    try:
        return json_value(text, "a value")
    except UnreadableError:
        return None


def _command(sweep: Sweep) -> None:
    """The same from a terminal, which needs the sweep as a file."""
    values = {"title": sweep.title, "study": asdict(sweep.study), "until": sweep.until}
    values["space"] = {name: list(listed) for name, listed in sweep.space.items()}
    st.code("python -m gprune sweep sweep.json", language="bash")
    file = (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()
    tables.download("Download sweep.json", file, "sweep.json", "application/json", "sweep_file")


def _start(root: str, made: Sequence[Variation], until: str) -> None:
    """The button, and what it does: every study that is neither done nor at work becomes a job."""
    again = st.toggle("Also those that have failed", key="sweep_again")
    words = f"Start {len(made)} {'study' if len(made) == 1 else 'studies'}"
    if not buttons.pressed(words, key="sweep_start", type="primary", icon=":material/play_arrow:"):
        return
    problem = next(filter(None, (input_problem(one.study) for one in made)), "")
    if problem:
        st.error(said(problem), icon=":material/error:")
        return
    stay = (DONE, *_AT_WORK, *(() if again else (FAILED,)))
    due = [one.variation.study for one in standings(made, Store(Path(root)), until) if one.state not in stay]
    for study in sorted(due, key=lambda one: measures_speed(one, until)):
        if work.start(root, study, arguments(until)) is None:
            return
    if due:
        # its table stands on this tab
        url_state.put("jobs_tab", "start")
        st.rerun()
    st.caption("Nothing is left to start.")


def _table(root: str, made: Sequence[Variation], until: str, active: bool) -> None:
    """Where every study stands; the page is drawn anew once nothing is at work any more."""
    found = standings(made, Store(Path(root)), until)
    if active and not live.shared_look(root).situation.active:
        st.rerun()
    counts = Counter(one.state for one in found)
    told = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    st.caption(f"{len(found)} studies: {plain(told)}.")
    alt = "where every study of the sweep stands"
    tables.show(pd.DataFrame([_row(one) for one in found]), alt=alt)


def _row(one: StudyStatus) -> dict[str, str]:
    words = one.words or (one.run if one.state == DONE else "")
    return {"study": one.variation.words, "state": one.state, "what there is to say": words, "job": one.job}
