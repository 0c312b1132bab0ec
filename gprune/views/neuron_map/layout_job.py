"""What has to be laid out by a job: UMAP, and all that needs the model's weights."""

from __future__ import annotations

import shlex
from pathlib import Path

import streamlit as st

from gprune.analysis import neuron_map as analysis
from gprune.analysis.neuron_map import PARAMETERS
from gprune.errors import GpruneError
from gprune.jobs import Job, queue
from gprune.models import identity
from gprune.views.frame import frame, press, work
from gprune.views.frame.loaders import Run
from gprune.views.frame.text import plain, said
from gprune.views.neuron_map import pictures


def offer(run: Run, layer: int, basis: str, layout: str) -> None:
    """Says what is missing, and starts the job that makes it or says how far that is.

    Raises:
        SettingsError: the layer has too few neurons.
        ModelError: the weights are needed, and the model is not here.
        NumericsError: all neurons of the layer do the same.
    """
    analysis.require_enough(pictures.neurons_of(run))
    if basis == PARAMETERS:
        identity.locate(run.study.model)
    else:
        # what cannot be laid out is said before a job fails of it
        pictures.plane(run, layer, basis, pictures.PCA)
    arguments = arguments_of(run, layer, basis)
    job = next((job for job in frame.situation().jobs if job.arguments == arguments), None)
    why = (
        "UMAP takes about half a minute" if layout == pictures.UMAP else "The weights are read from the model"
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.info(
            f"{why}: a job lays out layer {layer} by {basis}, once, and keeps it in the cache.",
            icon=":material/scatter_plot:",
            width="stretch",
        )
        if job is None or not job.active:
            clicked = press.pressed("Lay it out", key="nm_start", icon=":material/play_arrow:")
            if clicked and _submit(run, layer, basis, arguments) is not None:
                st.rerun()
    if job is not None and job.active:
        st.caption(f":material/hourglass_top: {_state(run, job)}")
    elif job is not None and job.state == "failed":
        st.error(said(job.error), icon=":material/error:")
    st.code(shlex.join(["python", "-m", "gprune", *arguments]), language="bash", wrap_lines=True)


def arguments_of(run: Run, layer: int, basis: str) -> tuple[str, ...]:
    """The command that lays out a layer, after `python -m gprune`."""
    return ("map", run.name, "--layer", str(layer), "--of", basis, "--cache", run.root)


def _submit(run: Run, layer: int, basis: str, arguments: tuple[str, ...]) -> Job | None:
    """Starts the job; None after the reason has been shown."""
    title = f"Neuron map of layer {layer} by {basis}: {work.job_label(run.study)}"
    return work.begin(run.root, run.study, title, arguments)


def _state(run: Run, job: Job) -> str:
    if job.state == "queued":
        return f"Waits in the queue, place {job.position or 1}."
    try:
        progress = queue.progress(Path(run.root), job.id)
    except GpruneError as error:
        return said(error)
    return f"At work: {plain(progress.message or 'starting')}."
