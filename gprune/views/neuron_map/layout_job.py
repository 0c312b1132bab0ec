"""What has to be laid out by a job: UMAP, and all that needs the model's weights."""

from __future__ import annotations

import streamlit as st

from gprune.analysis import neuron_map as analysis
from gprune.analysis.neuron_map import PARAMETERS
from gprune.models import identity
from gprune.views.frame import offered_job
from gprune.views.frame.loaders import Run
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
    why = (
        "UMAP takes about half a minute" if layout == pictures.UMAP else "The weights are read from the model"
    )
    st.info(
        f"{why}: a job lays out layer {layer} by {basis}, once, and keeps it in the cache.",
        icon=":material/scatter_plot:",
    )
    title = f"Neuron map of layer {layer} by {basis}"
    offered_job.draw(run, arguments_of(run, layer, basis), title, words="Lay it out", key="nm_start")


def arguments_of(run: Run, layer: int, basis: str) -> tuple[str, ...]:
    """The command that lays out a layer, after `python -m gprune`."""
    return ("map", run.name, "--layer", str(layer), "--of", basis, "--cache", run.root)
