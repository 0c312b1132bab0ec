"""What has to be laid out by a job: UMAP, and all that needs the model's weights."""

import streamlit as st

from gprune.app.pages.neuron_map import panels
from gprune.app.ui import offered_job
from gprune.models import identity
from gprune.pipeline.runs.opened import Run
from gprune.pruning import neuron_embedding as analysis
from gprune.pruning.neuron_embedding import PARAMETERS


def offer(run: Run, layer: int, basis: str, layout: str) -> None:
    """Says what is missing, and starts the job that makes it or says how far that is.

    Raises:
        SettingsError: the layer has too few neurons.
        ModelError: the weights are needed, and the model is not here.
        NumericsError: all neurons of the layer do the same.
    """
    analysis.require_enough(panels.neurons_of(run))
    if basis == PARAMETERS:
        identity.locate(run.study.model)
    else:
        # what cannot be laid out is said before a job fails of it
        panels.plane(run, layer, basis, panels.PCA)
    why = "UMAP takes about half a minute" if layout == panels.UMAP else "The weights are read from the model"
    st.info(
        f"{why}: a job lays out layer {layer} by {basis}, once, and keeps it in the cache.",
        icon=":material/scatter_plot:",
    )
    title = f"Neuron map of layer {layer} by {basis}"
    offered_job.draw(run, arguments_of(run, layer, basis), title, words="Lay it out", key="nm_start")


def arguments_of(run: Run, layer: int, basis: str) -> tuple[str, ...]:
    """The command that lays out a layer, after `python -m gprune`."""
    return ("map", run.name, "--layer", str(layer), "--of", basis, "--cache", run.root)
