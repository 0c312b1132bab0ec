"""Where a run of the launch form runs, what it takes, and what starts the same elsewhere."""

from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from gprune.app.ui import tables
from gprune.app.ui.commands import command, in_slurm, python_of
from gprune.app.ui.text import plain, said
from gprune.jobs.slurm import client, settings
from gprune.jobs.slurm.settings import SlurmSettings
from gprune.pipeline.estimate import ANYWAY, Forecast, judged
from gprune.pipeline.preflight import anew, further_seconds
from gprune.study import Study
from gprune.system.errors import JobError
from gprune.system.units import duration

KEY = "launch_engine"
_HERE, _SLURM = "this machine", "Slurm"
_HELP = (
    "This machine's queue runs one job at a time. Slurm finds a node for each, as the settings file in the "
    "cache folder says; the seeds of one start are one array."
)
_NO_CLIENT = "no Slurm client (sbatch) is on PATH: start the app on a cluster’s login node"
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
    """Shows what whole runs of a study and its further seeds take, if nothing of it is there yet.

    Gives what the job is told beside the study; None where it cannot fit and nobody wants it nevertheless.
    The `records` of the cache, the latest first, tell how fast this machine is; where it runs `elsewhere`,
    that machine says itself what fits there.
    """
    found = anew(studies[0], records)
    if found is None:
        st.caption("Memory and time are not known before the model is on this machine.")
        return ()
    verdict = judged(found)
    st.caption(f"Estimate, if nothing of it is there yet: {said(verdict.summary)}.")
    if len(studies) > 1:
        st.caption(_of_seeds(found, len(studies), further_seconds(studies, records)))
    for words in verdict.warnings:
        st.warning(said(words), icon=":material/warning:")
    with st.expander("Memory and time of each stage", icon=":material/memory:"):
        tables.show(_table(found), alt="memory and time of each stage")
        st.caption(
            "By arithmetic: memory within a factor of 1.3, time from operations over the rate above. Where "
            "memory runs out, fewer sequences go through the model at a time, which changes no result."
        )
    if elsewhere:
        st.caption("That is reckoned for this machine: the node reckons for itself before it begins.")
        return ()
    if not verdict.refusal:
        return ()
    st.error(said(verdict.refusal), icon=":material/error:")
    nevertheless = st.checkbox("Start it nevertheless", key=f"{key}_anyway")
    return (ANYWAY,) if nevertheless else None


def _of_seeds(found: Forecast, seeds: int, further: float) -> str:
    """How long several seeds take, which share what no seed changes."""
    return (
        f"That is one seed. All {seeds} together: about {duration(found.seconds + further, 1)}, each further "
        f"one {duration(further / (seeds - 1), 1)}; what no seed changes is made once."
    )


def _table(found: Forecast) -> pd.DataFrame:
    device = "GPU GiB" if found.capacity.gpu else "memory GiB"
    rows = []
    for one in found.stages:
        takes = one.need
        row = {"stage": one.title, device: round(found.on_device(takes, takes.asked) / _GIB, 1)}
        if found.capacity.gpu:
            row["memory GiB"] = round(found.on_host(takes, takes.asked) / _GIB, 1)
        row["at a time"] = str(takes.asked) if takes.setting else ""
        rows.append(row | {"time": "" if one.seconds is None else duration(one.seconds, 1)})
    return pd.DataFrame(rows)
