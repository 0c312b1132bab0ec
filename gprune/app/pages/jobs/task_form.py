"""The part of a form that asks what to measure besides perplexity: zero-shot tasks, own questions, speed."""

import hashlib
from pathlib import Path
from typing import Any

import streamlit as st

from gprune.app.pages.jobs import settings_form
from gprune.app.pages.jobs.comparison_form import ask as ask_for
from gprune.app.ui import user_files
from gprune.app.ui.text import plain, said, short
from gprune.app.ui.titles import SPEEDS
from gprune.evaluation.tasks import STANDARD_TASKS, TaskSource, documents, doubt, known, resolve
from gprune.study import EvaluationSettings
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, GpruneError

MOST_MEGABYTES = 5
SUFFIX = ".jsonl"
EXAMPLE = '{"question": "2 + 2 is", "choices": ["four", "five"], "answer": 0}'


def ask(root: str, key: str) -> dict[str, Any]:
    """Draws the fields, which `begin` has filled: tasks, limit, task_folder and speed."""
    fields = st.container()
    with st.expander("Your own questions", icon=":material/quiz:"):
        dropped = uploader(root, key)
    _preselect(key, dropped)
    with fields:
        return _fields(key)


def begin(start: EvaluationSettings, key: str, owner: str) -> None:
    """Gives the fields of a form their first values; they keep what was typed until the owner changes.

    A widget with a fixed key would keep the values of the run that was shown before.
    """
    state = st.session_state
    first = {
        "evaluate": list(start.texts),
        "preset": start.preset,
        "windows": start.windows,
        "tasks": list(start.tasks),
        "limit": start.limit,
        "task_folder": start.task_folder,
        "speed": start.speed,
    }
    changed = state.get(f"{key}_owner") != owner
    for name, value in first.items():
        if changed or f"{key}_{name}" not in state:
            state[f"{key}_{name}"] = value
    state[f"{key}_owner"] = owner


def _preselect(key: str, dropped: str) -> None:
    """Adds a file to the chosen tasks once, when it is dropped in."""
    state = st.session_state
    if dropped and state.get(f"{key}_dropped") != dropped and dropped not in state[f"{key}_tasks"]:
        state[f"{key}_tasks"] = [*state[f"{key}_tasks"], dropped]
    state[f"{key}_dropped"] = dropped


def _fields(key: str) -> dict[str, Any]:
    help_, names = settings_form.documentation(), known()
    chosen = st.session_state[f"{key}_tasks"]
    left, right = st.columns([3, 2])
    with left:
        every = [*names, *(task for task in chosen if task not in names)]
        look: dict[str, Any] = {"placeholder": "choose, or type the path of a .jsonl file", "form": key}
        look |= {"format_func": task_label, "accept_new_options": True}
        tasks = ask_for(st.multiselect, "evaluation.tasks", every, **look)
    with right:
        speed = st.selectbox(
            "Speed", list(SPEEDS), key=f"{key}_speed", format_func=lambda name: SPEEDS[name],
            help=help_["evaluation.speed"] + ". The dense model and one other are in memory meanwhile.",
        )  # fmt: skip
    left, right = st.columns([1, 4])
    with left:
        size: dict[str, Any] = {"value": None, "step": 10, "placeholder": "all"}
        limit = ask_for(st.number_input, "evaluation.limit", form=key, **size)
    with right:
        empty = "empty: from the hub"
        folder = ask_for(st.text_input, "evaluation.task_folder", form=key, placeholder=empty)
    wanted, place = tuple(task.strip() for task in tasks if task.strip()), folder.strip()
    _where_from(wanted, place)
    documents = None if limit is None else int(limit)
    return {"tasks": wanted, "limit": documents, "task_folder": place, "speed": speed}


def task_label(task: str) -> str:
    """A task with what it takes: nothing, a data set, or the file itself."""
    if task in STANDARD_TASKS:
        return f"{task} (needs data)"
    return f"{task} (built in)" if task in known() else short(task, 32)


def _where_from(tasks: tuple[str, ...], folder: str) -> None:
    """Says where the data of the seven tasks will come from; looks at this machine only."""
    fetched, settings = [], EvaluationSettings(task_folder=folder)
    for task in tasks:
        try:
            source = resolve(task, settings)
        except (GpruneError, OSError, RuntimeError) as error:
            # a path that is too long, or of a person that this machine does not know
            st.warning(said(error), icon=":material/warning:")
            continue
        if source.kind == "standard" and source.file is None:
            fetched.append(task)
        elif found := _complaint(source):
            st.warning(said(found), icon=":material/warning:")
    if fetched:
        st.caption(
            f"Not on this machine: {plain(', '.join(fetched))}. The run fetches them from the hub; what it "
            "cannot reach is left out, with the reason."
        )


def _complaint(source: TaskSource) -> str:
    """What is wrong with a file of the seven tasks, or speaks against it; own files are checked otherwise."""
    if source.kind != "standard":
        return ""
    try:
        return doubt(source)
    except CorpusError as error:
        return str(error)


def problem(settings: EvaluationSettings) -> str:
    """Why the chosen tasks cannot be measured, as far as can be told at once; empty if nothing is wrong.

    A data set that is missing stops nothing: a run leaves that task out and says why.
    """
    for task in settings.tasks:
        try:
            resolve(task, settings)
        except CorpusError as error:
            if task not in STANDARD_TASKS:
                return str(error)
        except (GpruneError, OSError, RuntimeError) as error:
            return str(error)
    try:
        if settings.task_folder and not safe_parsing.path(settings.task_folder, "the task folder").is_dir():
            return f"evaluation.task_folder must be a folder (got {settings.task_folder!r})"
    except GpruneError as error:
        return str(error)
    return ""


def uploader(root: str, key: str) -> str:
    """Draws the field, and says what a file holds; its path in the cache, empty where it cannot be used."""
    uploaded = st.file_uploader(
        f"Own questions ({SUFFIX}, UTF-8)",
        type=[SUFFIX.removeprefix(".")],
        key=f"{key}_questions",
        max_upload_size=MOST_MEGABYTES,
    )
    st.caption("One question a line; the answer is the index of the right choice from 0, or the choice itself:")
    st.code(EXAMPLE, language="json", wrap_lines=True)
    if uploaded is None:
        return ""
    raw = uploaded.getvalue()
    try:
        count = _counted(hashlib.sha256(raw).hexdigest(), Path(uploaded.name).name, raw)
        path = user_files.place(root, "tasks", uploaded.name, SUFFIX, raw)
        user_files.save(path, raw)
    except GpruneError as error:
        st.error(said(error), icon=":material/error:")
        return ""
    st.caption(f"{count:,} question{'s' if count > 1 else ''}, kept as {plain(path.relative_to(root))} in the cache.")
    return str(path)


@st.cache_data(max_entries=16, show_spinner="Checking questions …")
def _counted(digest: str, name: str, _raw: bytes) -> int:
    """Questions of a file, by the hash of its bytes."""
    return check(name, _raw)


def check(name: str, raw: bytes) -> int:
    """Checks every row as the measurement will; how many questions there are, at least 1.

    Raises:
        CorpusError: the file is too large or not UTF-8, or a row is not a question; names line and column.
    """
    if len(raw) > MOST_MEGABYTES * 2**20:
        raise CorpusError(f"{name!r} has {len(raw) / 2**20:.1f} MB: at most {MOST_MEGABYTES} MB are taken, cut it")
    with user_files.as_file(raw, SUFFIX, name) as file:
        return len(documents(TaskSource(name, "own", file)))
