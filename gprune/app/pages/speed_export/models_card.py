"""The card that measures any models side by side, by a job that nothing runs beside."""

from pathlib import Path

import pandas as pd
import streamlit as st

from gprune.analysis import speed as analysis
from gprune.app.pages.speed_export import export_card
from gprune.app.ui import frame, offered_job, tables, url_state
from gprune.app.ui.text import plain, said
from gprune.app.ui.titles import SPEEDS
from gprune.jobs import Job
from gprune.jobs.folder import SPEEDS as FILE
from gprune.jobs.folder import read_json
from gprune.jobs.local import SPEED, times
from gprune.models import identity, shapes
from gprune.pipeline.runs.opened import Run
from gprune.study import short
from gprune.system.errors import GpruneError, SettingsError
from gprune.system.safe_parsing import quoted
from gprune.system.units import amount

MOST_MODELS = 12
_HELP = (
    f"Folders, dense or pruned, names of the hub, demo, or random:SHAPE[#layers=N][@RETENTION] with random "
    f"weights, where SHAPE is one of {', '.join(shapes.SHAPES)}. The others are compared to the first."
)


def draw(run: Run) -> None:
    """Draws the card."""
    st.caption(
        "The queue starts it once nothing else is at work on its device, and nothing beside it. The first "
        "model and one other are in memory at a time, and take turns."
    )
    left, right = st.columns([3, 2])
    with left:
        typed = st.text_area("Models, one a line", _offered(run), key="sx_models", help=_HELP, max_chars=4096)
    with right:
        presets = {name: words for name, words in SPEEDS.items() if name != "none"}
        preset = url_state.selectbox("How it is measured", presets, "sx_models_preset", "auto")
    try:
        arguments = (SPEED, *named(typed), "--preset", preset)
    except GpruneError as error:
        # what nobody typed is no fault: the run may have come without its model
        if typed == _offered(run):
            st.info(said(error), icon=":material/info:")
        else:
            st.error(said(error), icon=":material/error:")
    else:
        offered_job.draw(run, arguments, "Speed", words="Measure these models", key="sx_models_start")
        _measured(arguments)


def _offered(run: Run) -> str:
    """The run's dense model, and its pruned one where it was written."""
    folder = export_card.checkpoint(run)
    there = folder is not None and (folder / export_card.PLAN).is_file()
    return "\n".join([run.study.model, *([str(folder)] if there else [])])


def named(typed: str) -> list[str]:
    """The models that were typed, as the command takes them: GpruneError where one is none.

    SettingsError where there is none or too many, or a line could be read as an option of the command.
    """
    names = [line.strip() for line in typed.splitlines() if line.strip()]
    if not 1 <= len(names) <= MOST_MODELS:
        raise SettingsError(f"name 1 to {MOST_MODELS} models, one a line (got {len(names)})")
    return [_whole(name) for name in names]


def _whole(name: str) -> str:
    if name.startswith("-"):
        raise SettingsError(f"{quoted(name)} names no model: it begins with a hyphen, give its whole path")
    if name == "demo":
        return name
    if not shapes.is_random(name):
        place = identity.locate(name)
        return str(place.resolve()) if Path(name).is_dir() else name
    shape, _, retention = name.partition("@")
    shapes.folder(shape)
    if retention and not _is_share(retention):
        raise SettingsError(f"after @ comes a retention between 0 and 1, as in @0.5 (got {quoted(retention)})")
    return name


def _is_share(text: str) -> bool:
    try:
        return 0 < float(text) < 1
    except ValueError:
        return False


def _measured(arguments: tuple[str, ...]) -> None:
    """The table of the last measurement, of these models where there is one."""
    done = [job for job in frame.situation().jobs if times(job.arguments) and job.state == "done"]
    job = next((job for job in done if job.arguments == arguments), next(iter(done), None))
    if job is None:
        return
    phase = url_state.segmented("Phase", analysis.PHASES, "sx_models_phase", "decode")
    found = table(job, phase)
    if found is None:
        st.warning(f"What the job {plain(job.id)} has measured cannot be read: measure again.")
        return
    tables.show(found[0], alt="tokens a second, ratio and memory of the models that were named")
    st.caption(
        "Medians over the repetitions, ratios with their interquartile range (IQR); higher is faster, and "
        f"ratios are to the first model in the same repetition. {plain(job.label)}, job {plain(job.id)}. "
        f"{plain(found[1])}."
    )


def table(job: Job, phase: str) -> tuple[pd.DataFrame, str] | None:
    """What a job has measured in one phase, and on what machine; None where its file cannot be read."""
    values = read_json(job.folder / FILE) or {}
    try:
        found = analysis.speed_table(values["rows"], phase)
        machine = ", ".join(f"{name} {value}" for name, value in values["machine"].items())
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    shown = {
        "model": [short(name) for name in found["model"]],
        "mode": found["mode"],
        "parameters": found["parameters"].map("{:,}".format),
        "tokens/s": found["tokens/s"].map("{:,.4g}".format),
        "ratio (IQR)": list(map(analysis.ratio_words, found["ratio"], found["ratio spread"])),
        "memory": [amount(value * 2**20) for value in found["MiB"]],
    }
    return pd.DataFrame(shown), machine
