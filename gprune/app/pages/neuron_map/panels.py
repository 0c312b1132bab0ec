"""The figure of the page by name, from a run and what can be set beside its card."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune import records
from gprune.analysis.formatting import percent
from gprune.analysis.verdict import own_method
from gprune.app.pages.neuron_map import charts, colouring
from gprune.app.ui.chart_style import label
from gprune.app.ui.memo import memoized
from gprune.app.ui.panel import Panel, in_range, panel
from gprune.app.ui.text import plain
from gprune.app.ui.unit import NOTHING, Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, record
from gprune.pruning import neuron_embedding as analysis
from gprune.pruning.neuron_embedding import BEHAVIOUR, PARAMETERS
from gprune.records import Array
from gprune.study.settings import require_choice
from gprune.system.units import listed

PCA, UMAP = "pca", "umap"
BASES = {BEHAVIOUR: "behaviour", PARAMETERS: "parameters"}
LAYOUTS = {PCA: "PCA", UMAP: "UMAP"}
_LETTERS = dict(zip(("primary", "auxiliary", "substitute"), "ABC", strict=True))
_CAPTIONS = {
    PCA: "A point is a neuron; near each other: alike in the two directions in which the layer's "
    "neurons differ most. Click one to select it; the toolbar's lasso and box list those inside.",
    UMAP: "A point is a neuron; neighbours are alike, while axes and wide distances say nothing. "
    "Click one to select it; the toolbar's lasso and box list those inside.",
}


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """A layer's neurons in a plane."""

    places: Array
    """(neurons, 2)"""
    axes: tuple[str, str]
    """what the axes are"""
    told: str
    """what the plane keeps of the neurons' neighbourhood or variance, as a sentence"""


@panel(
    "neuron_map",
    "nm_map",
    "The neurons of a layer",
    clicked=True,
    reads={
        "layer": "layer",
        "basis": "nm_basis",
        "layout": "nm_layout",
        "colour": "nm_colour",
        "method": "nm_method",
    },
)
def neuron_map(
    run: Run,
    *,
    layer: int | None = None,
    basis: str = BEHAVIOUR,
    layout: str = "",
    colour: str = "",
    method: str = "",
    selected: Selection = NOTHING,
) -> Panel:
    """The neurons of one layer, those that are alike beside each other.

    By itself UMAP where a job has made it and else PCA, by who keeps a neuron where methods have decided.
    """
    number = in_range("layer", layer, run.load(stages.shape).layers)
    require_choice("basis", basis, tuple(BASES))
    layout, colour = layout or opening(run, number, basis), colour or colouring.opening(run)
    require_choice("layout", layout, tuple(LAYOUTS))
    require_choice("colour", colour, tuple(colouring.COLOURS))
    found = plane(run, number, basis, layout)
    colours = colouring.of(run, number, colour, method or preferred(run, colour))
    here = selected if selected.layer == number else NOTHING
    neurons = len(found.places)
    shown = analysis.shown(neurons, charts.MOST_POINTS, here.neuron)
    labels = run.load(stages.partition).labels[number] if run.has(stages.partition) else None
    title, caption = f"Layer {number} by {basis}: {plain(found.told)}", _CAPTIONS[layout]
    if colour in colouring.OF_MASKS:
        title = _decided(number, colour, method, colours)
        caption = f"{caption} {found.told[:1].upper()}{found.told[1:]}."
    return Panel(
        charts.scatter(found.places, found.axes, colours, shown, labels, here),
        caption,
        title=title,
        alt=found.told,
        table=lambda: neuron_table(run, number, np.arange(neurons), found.places),
        how=_how(run, basis, layout),
    )


def _decided(layer: int, colour: str, method: str, colours: colouring.Colouring) -> str:
    """How many neurons of a layer two masks decide differently, in words."""
    share = percent(colouring.decided_differently(colours), 1)
    of = plain(label(method)) if method else "the run's masks"
    if colour == colouring.TEXTS:
        return f"In layer {layer} the text decides {share} of the neurons of {of}"
    return f"In layer {layer} GPrune and {of} decide {share} of the neurons differently"


def _how(run: Run, basis: str, layout: str) -> str:
    """How the neurons became points."""
    if basis == PARAMETERS:
        points = "A neuron is the direction of its weights: its rows of gate and up and its column of down."
    else:
        texts = listed([_LETTERS[text] for text in texts_of(run)])
        points = (
            f"A neuron is what it does on {texts}: for every shard of each text the mean of its activation "
            "and its standard deviation over tokens, each standardised over the layer."
        )
    laid = (
        "PCA shows the two components of largest variance."
        if layout == PCA
        else f"UMAP is given at most {analysis.MOST_COMPONENTS} principal components, takes "
        f"{analysis.NEIGHBOURS} neighbours, least distance {analysis.APART} and seed {run.study.seed}; "
        "another seed gives another picture."
    )
    scores = "Colours of scores are ranks within the layer, 0 least and 1 most important."
    kept = "“Only A's scores”: kept by the method from the scores on A and not from those on B, at one budget."
    return f"{points} {laid} {scores} {kept}"


def neuron_table(run: Run, layer: int, neurons: Array, places: Array | None = None) -> pd.DataFrame:
    """One row a neuron, with what the run has found of it; with its place in the map where one is given."""
    known = {letter: run.find(stages.scores, text) for letter, text in zip("AB", stages.PAIR, strict=True)}
    scores = {letter: one for letter, one in known.items() if one is not None}
    masks = {label(name): mask for name, mask in run.masks().items()}
    parts = run.find(stages.partition), run.find(stages.drift)
    found = analysis.table(layer, neurons, *parts, scores, masks)
    return found if places is None else found.assign(x=places[neurons, 0], y=places[neurons, 1])


def texts_of(run: Run) -> tuple[str, ...]:
    """Roles of the texts that tell what the neurons do; MissingResultError where none was measured yet."""
    return run.require(stages.mapped_texts(run.graph, run.there), stages.statistics)


def wanted(run: Run, layer: int, basis: str, layout: str) -> stages.Stage | None:
    """The stage whose result a plane needs; None where the app lays it out itself.

    Raises MissingResultError where no text was measured yet.
    """
    if layout == UMAP:
        texts = texts_of(run) if basis == BEHAVIOUR else ()
        return stages.neuron_map(run.graph, layer, basis, texts)
    return stages.components(run.graph, layer) if basis == PARAMETERS else None


def opening(run: Run, layer: int, basis: str) -> str:
    """The layout that is drawn where nobody has chosen: UMAP where it is there, and else PCA."""
    found = wanted(run, layer, basis, UMAP)
    return UMAP if found is not None and run.there(found) else PCA


def plane(run: Run, layer: int, basis: str, layout: str) -> Plane:
    """The neurons of a layer in a plane.

    Raises MissingResultError where a job has not laid them out or the run has not come that far,
    NumericsError where all neurons are equal, SettingsError where there are too few for UMAP.
    """
    if layout == UMAP:
        analysis.require_enough(run.load(stages.shape).neurons)
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
    first = [f"component {number + 1} ({percent(share)} of the variance)" for number, share in enumerate(shares[:2])]
    if places.shape[1] < 2:
        places, first = analysis.padded(places), [*first, "no second component"]
    told = f"the two components hold {percent(float(shares[:2].sum()))} of the variance"
    return Plane(places[:, :2], (first[0], first[1]), told)


@memoized(64)
def _behaviour(root: str, keys: tuple[str, ...], layer: int) -> analysis.Reduced:
    kind = records.ActivationStatistics.__name__
    return analysis.behaviour([record(root, "statistics", key, kind) for key in keys], layer)


def others(run: Run) -> dict[str, str]:
    """The masks that can be decided from either text, or held against GPrune's; by name."""
    return {name: label(name) for name in run.masked}


def preferred(run: Run, colour: str) -> str:
    """The masks that are meant where none are named: those of the run's own metric.

    Raises MissingResultError where the run has no masks, and the colour needs them.
    """
    if colour not in colouring.OF_MASKS:
        return ""
    there = [name for name in run.masked if colour == colouring.TEXTS or name != "gprune"]
    own = own_method(run.study.metric)
    run.require(there, stages.masks, own)
    return own if own in there else there[0]
