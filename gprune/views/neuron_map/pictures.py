"""The figure of the page by name, from a run and what can be set beside its card."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go
import streamlit as st

from gprune import records, stages
from gprune.analysis import neuron_map as analysis
from gprune.analysis.neuron_map import BEHAVIOUR, PARAMETERS
from gprune.analysis.signs import percent
from gprune.records import Array
from gprune.settings import require_choice
from gprune.views.frame.chart_style import label
from gprune.views.frame.loaders import MissingResultError, Run, record
from gprune.views.frame.picture import in_range, picture
from gprune.views.frame.selection import NOTHING, Selection
from gprune.views.neuron_map import charts, colouring

PCA, UMAP = "pca", "umap"
BASES = {BEHAVIOUR: "behaviour", PARAMETERS: "parameters"}
LAYOUTS = {PCA: "PCA", UMAP: "UMAP"}
_LETTERS = dict(zip(("primary", "auxiliary", "substitute"), "ABC", strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """A layer's neurons in a plane."""

    places: Array
    """(neurons, 2)"""
    axes: tuple[str, str]
    """what the axes are"""
    told: str
    """what the plane keeps of the neurons' neighbourhood or variance, as a sentence"""


@picture("neuron_map", clicked=True)
def neuron_map(
    run: Run,
    *,
    layer: int | None = None,
    basis: str = BEHAVIOUR,
    layout: str = PCA,
    colour: str = colouring.MODULE,
    method: str = "",
    selected: Selection = NOTHING,
) -> go.Figure:
    """The neurons of one layer, those that are alike beside each other."""
    layers = layers_of(run)
    number = in_range("layer", layer, layers)
    require_choice("basis", basis, tuple(BASES))
    require_choice("layout", layout, tuple(LAYOUTS))
    require_choice("colour", colour, tuple(colouring.COLOURS))
    found = plane(run, number, basis, layout)
    colours = colouring.of(run, number, colour, method or preferred(run, colour))
    here = selected if selected.layer == number else NOTHING
    shown = analysis.shown(len(found.places), charts.MOST_POINTS, here.neuron)
    labels = run.load(stages.partition).labels[number] if run.has(stages.partition) else None
    return charts.scatter(found.places, found.axes, colours, shown, labels, here)


def layers_of(run: Run) -> int:
    """Layers of the model.

    Raises:
        MissingResultError: the run does not know its model's sizes yet.
    """
    return run.load(stages.shape).layers


def neurons_of(run: Run) -> int:
    """Neurons of every layer.

    Raises:
        MissingResultError: the run does not know its model's sizes yet.
    """
    return run.load(stages.shape).neurons


def texts_of(run: Run) -> tuple[str, ...]:
    """Roles of the texts that tell what the neurons do.

    Raises:
        MissingResultError: none was measured yet.
    """
    found = stages.mapped_texts(run.graph, run.there)
    if not found:
        raise MissingResultError(stages.statistics(run.graph).title)
    return found


def letters(texts: tuple[str, ...]) -> str:
    """The letters of some texts, as `A, B and C`."""
    *first, last = (_LETTERS[text] for text in texts)
    return f"{', '.join(first)} and {last}" if first else last


def wanted(run: Run, layer: int, basis: str, layout: str) -> stages.Stage | None:
    """The stage whose result a plane needs; None where the app lays it out itself.

    Raises:
        MissingResultError: no text was measured yet.
    """
    if layout == UMAP:
        texts = texts_of(run) if basis == BEHAVIOUR else ()
        return stages.neuron_map(run.graph, layer, basis, texts)
    return stages.components(run.graph, layer) if basis == PARAMETERS else None


def plane(run: Run, layer: int, basis: str, layout: str) -> Plane:
    """The neurons of a layer in a plane.

    Raises:
        MissingResultError: a job has not laid them out yet, or the run has not come that far.
        NumericsError: all neurons are equal.
        SettingsError: there are too few for UMAP.
    """
    if layout == UMAP:
        analysis.require_enough(neurons_of(run))
        texts = texts_of(run) if basis == BEHAVIOUR else ()
        found = run.load(stages.neuron_map, layer, basis, texts)
        told = (
            f"{percent(float(found.kept.mean()))} of a neuron's {analysis.NEIGHBOURS} nearest in the "
            f"principal components, at most {analysis.MOST_COMPONENTS}, are its nearest here as well"
        )
        return Plane(found.places, ("UMAP 1 (no unit)", "UMAP 2 (no unit)"), told)
    if basis == PARAMETERS:
        kept = run.load(stages.components, layer)
        return _principal(kept.places, kept.shares)
    keys = tuple(run.key(stages.statistics, text) for text in texts_of(run))
    reduced = _behaviour(run.root, keys, layer)
    return _principal(reduced.places, reduced.shares)


def _principal(places: Array, shares: Array) -> Plane:
    """The first two components; the second is 0 where the neurons differ in one only."""
    first = [
        f"component {number + 1} ({percent(share)} of the variance)"
        for number, share in enumerate(shares[:2])
    ]
    if places.shape[1] < 2:
        places, first = analysis.padded(places), [*first, "no second component"]
    told = f"the two components hold {percent(float(shares[:2].sum()))} of the variance"
    return Plane(places[:, :2], (first[0], first[1]), told)


@st.cache_data(max_entries=64, show_spinner=False)
def _behaviour(root: str, keys: tuple[str, ...], layer: int) -> analysis.Reduced:
    kind = records.ActivationStatistics.__name__
    return analysis.behaviour([record(root, "statistics", key, kind) for key in keys], layer)


def others(run: Run) -> dict[str, str]:
    """The masks that can be decided from either text, or held against GPrune's; by name."""
    return {name: label(name) for name in run.masked}


def preferred(run: Run, colour: str) -> str:
    """The masks that are meant where none are named: those of the run's own metric.

    Raises:
        MissingResultError: the run has no masks, and the colour needs them.
    """
    if colour not in colouring.OF_MASKS:
        return ""
    there = [name for name in run.masked if colour == colouring.TEXTS or name != "gprune"]
    own = {"twflap": "fang"}.get(run.study.metric, run.study.metric)
    if not there:
        raise MissingResultError(stages.masks(run.graph, own).title)
    return own if own in there else there[0]
