"""Where a run of the launch form runs: on this machine, or in Slurm where it is set up."""

from pathlib import Path

import streamlit as st

from gprune.app.ui.text import plain, said
from gprune.jobs.slurm import client, settings
from gprune.jobs.slurm.settings import SlurmSettings
from gprune.system.errors import JobError

KEY = "launch_engine"
_HERE, _SLURM = "this machine", "Slurm"
_HELP = (
    "This machine's queue runs one job at a time. Slurm finds a node for each, as the settings file in the "
    "cache folder says; the seeds of one start are one array."
)


def offered(root: str) -> tuple[SlurmSettings | None, str]:
    """The settings for Slurm; or None, and why no run can be put into Slurm from here."""
    if not client.available():
        return None, (
            "this machine has no Slurm client (no sbatch on PATH): start the app on a cluster's login node"
        )
    try:
        return settings.read(Path(root)), ""
    except JobError as error:
        return None, str(error)


def choose(root: str) -> SlurmSettings | None:
    """Asks where to run; without Slurm the choice is closed, and says why.

    Gives the settings for Slurm, None for this machine.
    """
    found, refused = offered(root)
    chosen = st.radio(
        "Where it runs", (_HERE, _SLURM), key=KEY, horizontal=True, disabled=found is None, help=_HELP
    )
    if found is None:
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
