"""What the colour of a neuron says: its module, its drift, its score, or who keeps it."""

from dataclasses import dataclass

import numpy as np

from gprune.analysis import whatif
from gprune.analysis.formatting import MODULES
from gprune.app.ui import derived_cache
from gprune.app.ui.chart_style import METHOD_COLORS, PALE, TEXT_A, TEXT_B, label
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.pruning.neuron_embedding import positions
from gprune.records import Array
from gprune.study.methods import METHODS, of_masks

MODULE, DRIFT, SCORE_A, SCORE_B = "module", "drift", "score_a", "score_b"
TEXTS, METHODS_KEPT = OF_MASKS = ("texts", "methods")
"""colours that say which of two masks keep a neuron"""
PAIR = whatif.PRIMARY, whatif.AUXILIARY
COLOURS = {
    MODULE: "module",
    DRIFT: "rank drift",
    SCORE_A: "score on A",
    SCORE_B: "score on B",
    TEXTS: "kept by A's or B's scores",
    METHODS_KEPT: "kept by GPrune or another",
}
"""what a colour can say"""
SYMBOLS = (
    *("circle", "diamond-open", "cross", "square-open", "triangle-up"),
    *("hexagon-open", "star", "circle-open", "x", "triangle-down-open"),
)
"""for modules beyond the hues that stay apart, in turn"""
BOTH = "#5B7F95"
"""hue of what is kept either way"""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Neurons that look the same."""

    name: str
    color: str
    symbol: str
    members: Array
    """(neurons,) bool"""


@dataclass(frozen=True, slots=True, eq=False)
class Colouring:
    """How the neurons of a layer are coloured: in groups, or by a number each."""

    groups: tuple[Group, ...] = ()
    values: Array | None = None
    """(neurons,) numbers, where there are no groups"""
    title: str = ""
    """what the numbers are"""


def of(run: Run, layer: int, colour: str, method: str) -> Colouring:
    """The colouring of a layer.

    `colour` is one of COLOURS; TEXTS decides the masks of `method` anew, METHODS_KEPT holds GPrune's against
    them. Raises MissingResultError where the run has not come that far, MethodError where the method cannot
    be decided anew without a run.
    """
    if colour == MODULE:
        return Colouring(by_module(run.load(stages.partition).labels[layer]))
    if colour == DRIFT:
        return Colouring(values=run.load(stages.drift).magnitude[layer], title="rank drift d")
    if colour in (SCORE_A, SCORE_B):
        text = stages.PAIR[colour == SCORE_B]
        ranked = positions(run.load(stages.scores, text).ffn[layer])
        return Colouring(values=ranked, title=f"rank on {'AB'[colour == SCORE_B]}")
    if colour == TEXTS:
        name = of_masks(method).name
        first, second = (derived_cache.masks_of_text(run, name, text).ffn[layer] for text in PAIR)
        return Colouring(_divided(first, second, ("only A's scores", TEXT_A), ("only B's scores", TEXT_B)))
    ours, other = (run.load(stages.masks, masks).ffn[layer] for masks in ("gprune", method))
    # masks have the hue of their method
    named = method if method in METHODS else of_masks(method).name
    one, another = ((f"only {label(each)}", METHOD_COLORS[each]) for each in ("gprune", named))
    return Colouring(_divided(ours, other, one, another))


def opening(run: Run) -> str:
    """What the colour says where nobody has chosen: who keeps a neuron, as far as the run has come."""
    if run.masked and "gprune" in run.masked and len(run.masked) > 1:
        return METHODS_KEPT
    return MODULE if run.has(stages.partition) else DRIFT


def by_module(labels: Array) -> tuple[Group, ...]:
    """A group for every module of (neurons,) labels: hues in turn, then a further symbol."""
    found = []
    for module in range(int(labels.max()) + 1):
        turn, hue = divmod(module, len(MODULES))
        symbol = SYMBOLS[turn % len(SYMBOLS)]
        found.append(Group(f"module {module}", MODULES[hue], symbol, labels == module))
    return tuple(found)


def _divided(first: Array, second: Array, one: tuple[str, str], other: tuple[str, str]) -> tuple[Group, ...]:
    """Neurons by which of two masks keeps them; what neither keeps lies below."""
    return (
        Group("kept by neither", PALE, "circle", ~first & ~second),
        Group("kept by both", BOTH, "circle", first & second),
        Group(one[0], one[1], "diamond", first & ~second),
        Group(other[0], other[1], "square", ~first & second),
    )


def decided_differently(colouring: Colouring) -> float:
    """Share of the neurons of the layer that the two masks of a colouring do not agree on."""
    return float(np.mean(colouring.groups[2].members | colouring.groups[3].members))
