"""Where a run of the launch form runs, what it takes, and what starts the same elsewhere."""

from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from gprune.app.ui import tables
from gprune.app.ui.commands import command, in_slurm, python_of
from gprune.app.ui.text import plain, said
from gprune.jobs import device_slots
from gprune.jobs.slurm import client, settings
from gprune.jobs.slurm.settings import SlurmSettings
from gprune.pipeline.estimate import ANYWAY, Forecast, judge
from gprune.pipeline.preflight import estimate_study, further_seconds
from gprune.study import Study
from gprune.study.model_gpus import require_possible
from gprune.system import machine
from gprune.system.errors import GpruneError, JobError
from gprune.system.units import duration

KEY = "launch_engine"
_HERE, _SLURM = "this machine", "Slurm"
_HELP = (
    "This machine's queue runs one job at a time. Slurm finds a node for each, as the settings file in the "
    "cache folder says; the seeds of one start are one array."
)
_NO_CLIENT = "no Slurm client (sbatch) is on PATH: start the app on a cluster’s login node"
_GPUS_HELP = (
    "One model over several of this machine's GPUs, by a process for each: for models that one of them "
    "cannot hold, or to learn faster. The job waits until so many are free."
)
_GIB = 2**30


def choose(root: str) -> SlurmSettings | None:
    """Asks where to run: settings for Slurm, None for this machine.

    Why Slurm cannot be had is a sentence where its client is here or Slurm was chosen, and else behind “?”.
    """
    there = client.available()
    try:
        found, refused = settings.read(Path(root)) if there else None, _NO_CLIENT
    except JobError as error:
        found, refused = None, str(error)
    help_ = _HELP if there else f"Not in Slurm: {_NO_CLIENT}."
    chosen = st.radio("Where it runs", (_HERE, _SLURM), key=KEY, horizontal=True, disabled=found is None, help=help_)
    if found is None:
        if there or chosen == _SLURM:
            st.caption(f"Not in Slurm: {said(refused)}.")
        return None
    if chosen == _HERE:
        return None
    st.caption(plain(_words(found)))
    return found


def _words(found: SlurmSettings) -> str:
    """What Slurm is asked for a job, in words."""
    asked = {
        "partition": found.partition,
        "account": found.account,
        "time": found.time,
        "memory": found.memory,
        "GPUs": found.gpus or "",
        "cores": found.cpus,
    }
    parts = [f"{name} {value}" for name, value in asked.items() if value]
    return f"Of each job Slurm is asked for {', '.join(parts)}; what is not named is left to the cluster."


def several_gpus(studies: list[Study]) -> tuple[str, ...] | None:
    """Asks over how many GPUs one model is to lie, where this machine has several and may use them.

    Gives what the job is told; None where that cannot be, after the page has been told why.
    """
    there = len(machine.cards()) if machine.has_gpu() else 0
    if there < 2 or studies[0].device == device_slots.CPU:
        return ()
    count = int(st.number_input("GPUs for one model", 1, there, 1, key="launch_model_gpus", help=_GPUS_HELP, width=240))
    if count == 1:
        return ()
    told = (device_slots.MODEL_GPUS, str(count))
    try:
        require_possible(count, studies[0], [one.seed for one in studies[1:]])
        device_slots.require_enough(studies[0].device, told)
    except GpruneError as error:
        st.error(said(error), icon=":material/error:")
        return None
    return told


def show_command(studies: list[Study], arguments: tuple[str, ...], slurm: bool) -> None:
    """Shows the exact command, and the same as Python."""
    st.caption("The exact command")
    words = in_slurm(*studies) if slurm else command(*studies, told=arguments)
    st.code(words, language="bash", wrap_lines=True)
    with st.popover("As Python", icon=":material/content_copy:", type="tertiary", key="launch_python"):
        same = python_of(*studies, anyway="--anyway" in arguments)
        st.code(same, language="python", wrap_lines=True)


def show_estimate(
    studies: list[Study],
    records: list[dict[str, Any]],
    key: str,
    elsewhere: bool = False,
) -> tuple[str, ...] | None:
    """Show memory and time of whole runs of a study and its further seeds, as if they had no results.

    Return the arguments of the job beside the study; None if it cannot fit and is not wanted nevertheless.
    `records` of the cache's runs, the latest first, have the time; `elsewhere` is True for Slurm, where the
    node checks its memory itself.
    """
    forecast = estimate_study(studies[0], records)
    if forecast is None:
        st.caption("Memory and time are not known before the model is on this machine.")
        return ()
    verdict = judge(forecast)
    st.caption(f"Estimate, if nothing of it is there yet: {said(verdict.summary)}.")
    further = further_seconds(studies, records)
    if len(studies) > 1 and forecast.seconds is not None and further is not None:
        st.caption(_describe_seeds(forecast.seconds, len(studies), further))
    for words in verdict.warnings:
        st.warning(said(words), icon=":material/warning:")
    with st.expander("Memory and time of each stage", icon=":material/memory:"):
        tables.show(_table(forecast), alt="memory and time of each stage")
        st.caption(
            "Memory by formula, within a factor of 1.3; time as in earlier runs of the model. Where memory runs "
            "out, fewer sequences go through the model at a time, which changes no result."
        )
    if elsewhere:
        st.caption("This estimate is for this machine. The node makes its own before the run begins.")
        return ()
    if not verdict.refusal:
        return ()
    st.error(said(verdict.refusal), icon=":material/error:")
    nevertheless = st.checkbox("Start it nevertheless", key=f"{key}_anyway")
    return (ANYWAY,) if nevertheless else None


def _describe_seeds(seconds: float, seeds: int, further: float) -> str:
    return (
        f"That is one seed. All {seeds} together: about {duration(seconds + further, 1)}, each further "
        f"one {duration(further / (seeds - 1), 1)}; what no seed changes is made once."
    )


def _table(forecast: Forecast) -> pd.DataFrame:
    device = "GPU GiB" if forecast.capacity.gpu else "memory GiB"
    rows = []
    for stage in forecast.stages:
        need = stage.need
        row = {"stage": stage.title, device: round(forecast.on_device(need, need.batch) / _GIB, 1)}
        if forecast.capacity.gpu:
            row["memory GiB"] = round(forecast.on_host(need, need.batch) / _GIB, 1)
        row["at a time"] = str(need.batch) if need.setting else ""
        rows.append(row | {"time": "" if stage.seconds is None else duration(stage.seconds, 1)})
    return pd.DataFrame(rows)
