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
from gprune.evaluation.tasks import STANDARD_TASKS, TaskSource, known, needs_index, read_documents, resolve
from gprune.study import EvaluationSettings
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, GpruneError
from gprune.system.installation import ask_command

MOST_MEGABYTES = 5
SUFFIX = ".jsonl"
EXAMPLE = '{"question": "2 + 2 is", "choices": ["four", "five"], "answer": 0}'


def ask(root: str, key: str) -> dict[str, Any]:
    """Draw the fields, which `begin` has filled: tasks, few_shot, limit, task_folder and speed."""
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
        "few_shot": start.few_shot,
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
    left, middle, right = st.columns([1, 1, 3])
    with left:
        size: dict[str, Any] = {"value": None, "step": 10, "placeholder": "all"}
        limit = ask_for(st.number_input, "evaluation.limit", form=key, **size)
    with middle:
        size = {"value": None, "step": 1, "placeholder": "by task"}
        few_shot = ask_for(st.number_input, "evaluation.few_shot", form=key, **size)
    with right:
        empty = "empty: from the hub"
        folder = ask_for(st.text_input, "evaluation.task_folder", form=key, placeholder=empty)
    wanted, place = tuple(task.strip() for task in tasks if task.strip()), folder.strip()
    _where_from(wanted, place)
    counts = {"limit": limit, "few_shot": few_shot}
    numbers = {name: None if count is None else int(count) for name, count in counts.items()}
    return {"tasks": wanted, "task_folder": place, "speed": speed} | numbers


def task_label(task: str) -> str:
    """Return a task with what it takes: nothing, a data set, or the file itself."""
    if "/" in task or task.endswith(SUFFIX):
        return short(task, 32)
    return f"{task} (built in)" if task in known() and task not in STANDARD_TASKS else f"{task} (needs data)"


def _where_from(tasks: tuple[str, ...], folder: str) -> None:
    """Name the tasks whose data comes from the hub, and say what is wrong with the others; nothing is fetched."""
    settings = EvaluationSettings(task_folder=folder)
    from_hub, unchecked = [], [task for task in tasks if needs_index(task)]
    for task in (task for task in tasks if task not in unchecked):
        try:
            source = resolve(task, settings)
            if source.on_hub:
                from_hub.append(task)
            elif source.kind == "registered" and source.file is not None:
                _count_rows(source, source.file.stat().st_mtime_ns)
        except (GpruneError, OSError, RuntimeError) as error:
            # a path that is too long, or of a person that this machine does not know
            st.warning(said(error), icon=":material/warning:")
    if from_hub:
        st.caption(
            f"From the hub: {plain(', '.join(from_hub))}. A run whose data can neither be fetched nor is on this "
            "machine does not start, and says why."
        )
    if unchecked:
        st.caption(f"Looked up in lm-eval at the start: {plain(', '.join(unchecked))}.")


@st.cache_data(max_entries=64, show_spinner=False)
def _count_rows(source: TaskSource, _modified: int) -> int:
    """Check the local rows of a task; CorpusError names what is wrong."""
    return len(read_documents(source))


def problem(settings: EvaluationSettings) -> str:
    """Return why the chosen tasks cannot be measured, as far as can be told at once; an empty text if they can."""
    try:
        for task in settings.tasks:
            if not needs_index(task):
                resolve(task, settings)
        if settings.task_folder and not safe_parsing.path(settings.task_folder, "the task folder").is_dir():
            return f"evaluation.task_folder must be a folder (got {settings.task_folder!r})"
    except (GpruneError, OSError, RuntimeError) as error:
        return str(error)
    return ""


def lookup_problem(settings: EvaluationSettings) -> str:
    """Return why tasks of lm-eval beside the seven cannot be measured; its index is read in another process."""
    tasks = [task for task in settings.tasks if needs_index(task)]
    if not tasks:
        return ""
    folder = ("--task-folder", settings.task_folder) if settings.task_folder else ()
    with st.spinner(f"Looking up {plain(', '.join(tasks))} in lm-eval …"):
        try:
            reasons = ask_command("tasks", "--json", *folder, "--", *tasks)
        except GpruneError as error:
            return str(error)
    return "; ".join(filter(None, reasons.values()))


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
        return len(read_documents(TaskSource(name, "own", file)))
