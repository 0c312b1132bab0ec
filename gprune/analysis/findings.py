"""Answers: what does each step from two texts to a pruned model find in the run at hand?

One sentence a step of the tour, in the order of the paper: rank drift (Eq. 1), agreement of the modules
(Fig. 1b), RASA (section 3.2), where the budget went (Fig. 3) and the comparison (section 4). The words follow
the numbers, whichever way they point.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from gprune.analysis import agreement as modules
from gprune.analysis import drift as ranks
from gprune.analysis.comparison import Line
from gprune.analysis.decisions import Bins, in_words, pooled
from gprune.analysis.formatting import percent, signed
from gprune.analysis.headline import against_control
from gprune.analysis.paired_test import Measurement
from gprune.analysis.thresholds import Counts
from gprune.analysis.verdict import FLAP, Expected, Opponents, method_label, opponents
from gprune.evaluation.holdout import HoldoutStatus
from gprune.pipeline.stages.comparisons import FANG
from gprune.records import Agreement
from gprune.study.methods import METHODS

ALIKE = 0.02
"""rank correlations and ARIs that differ by less are called alike"""


def drift(curves: list[ranks.Distribution]) -> str:
    """How far another text moves the ranks, against another sample, from `drift.distributions`."""
    cross, _, *floors = curves
    # the noisier of both texts is the fairer floor
    floor = max(floors, key=lambda curve: curve.median)
    start = (
        f"From text A to text B half of the neurons move by more than {percent(cross.median, 1)} of their "
        f"layer’s ranking; between two halves of one text by {percent(floor.median, 1)}"
    )
    if not np.isfinite(cross.correlation + floor.correlation):
        return f"{start}."
    gap = floor.correlation - cross.correlation
    verdict = (
        "no further than noise alone moves them"
        if gap < ALIKE and cross.median <= 1.5 * floor.median
        else "further than noise explains"
    )
    return (
        f"{start}. The ranks correlate at {cross.correlation:.2f} across the texts and at "
        f"{floor.correlation:.2f} within one: they move {verdict}."
    )


def agreement(record: Agreement) -> str:
    """Whether modules survive another text, against another seed and against FANG's groups."""
    found, (seed, _) = modules.mean_substitution(record), modules.controls(record)
    groups = modules.mean_of(record, FANG)
    if found is None:
        return _groups_alone(groups)
    sentence = f"With another calibration text the modules agree at an ARI of {found[0]:.2f} (1 = identical)"
    if seed is not None:
        sentence += f"; with the same texts and another seed at {seed:.2f}. " + _order(
            found[0],
            seed,
            "Changing the seed changes the modules more than changing the text does.",
            "Changing the text changes the modules more than changing the seed does.",
            "Changing the text changes the modules about as much as changing the seed does.",
        )
    else:
        sentence += "."
    if groups is not None:
        word = _order(groups[0], found[0], "more", "less", "about as much")
        sentence += f" FANG’s groups of two texts agree {word}, at {groups[0]:.2f}."
    return sentence


def _groups_alone(groups: tuple[float, float] | None) -> str:
    if groups is None:
        return "Only controls were compared: no text was replaced."
    return f"FANG’s groups of two texts agree at an ARI of {groups[0]:.2f} (1 = identical)."


def _order(first: float, second: float, more: str, less: str, alike: str) -> str:
    if abs(first - second) < ALIKE:
        return alike
    return more if first > second else less


def adapted(counts: Counts) -> str:
    """How many modules RASA adapts, and from which text it scores them."""
    if not counts.adapted:
        return f"None of the {counts.modules:,} modules is adapted: every neuron keeps its score from A."
    share = counts.neurons / counts.all_neurons
    many = counts.adapted != 1
    return (
        f"{counts.adapted:,} of {counts.modules:,} modules with {percent(share, 1)} of the neurons "
        f"{'are' if many else 'is'} adapted. B ranks the neurons of {counts.from_auxiliary:,} of them more "
        f"repeatably and scores those; {counts.from_primary:,} stay with A."
    )


def budget(result: Bins, base_name: str) -> str:
    """Where GPrune keeps more and where less than another method, and how many neurons both keep."""
    word, joint = in_words(float(result.ours[-1] - result.base[-1]))
    ours, base = pooled(result)
    both = float(np.average(result.shares[0], weights=result.neurons)) / 100
    shared = f" {percent(both / ours)} of the neurons that GPrune keeps are kept by {base_name} too." if ours else ""
    return (
        f"Of the modules that drift most GPrune keeps {word} neurons {joint} {base_name} "
        f"({percent(result.ours[-1], 1)} against {percent(result.base[-1], 1)}; of all neurons "
        f"{percent(ours, 1)} against {percent(base, 1)}).{shared}"
    )


def retention(cut: Measurement, dense: Measurement) -> str:
    """What a method costs at what it keeps, beside the dense model on the same text."""
    return (
        f"With {percent(cut.retention)} of the decoder weights kept, {METHODS[cut.method].label} takes the "
        f"perplexity on {cut.text} from {dense.perplexity:.1f} to {cut.perplexity:.1f}."
    )


def comparison(
    lines: Sequence[Line],
    names: Iterable[str],
    standings: Mapping[str, HoldoutStatus],
    expected: Expected = MappingProxyType({}),
) -> str:
    """GPrune against the best other method and FLAP on each of some texts, and the controls that do as well.

    `lines` are all methods of a run; `standings` say what its evaluation texts are to its calibration texts;
    `expected` as in `verdict.missing_methods`.
    """
    known = (opponents(lines, text, expected) for text in names)
    told = [_rival(one, f"On {one.text} ({standings[one.text].brief})") for one in known if one.ours is not None]
    return " ".join(filter(None, told)) or "No baseline is measured beside GPrune."


def _rival(known: Opponents, where: str) -> str:
    """GPrune against the best of all other methods on one text, and against the best control."""
    if known.missing:
        return f"{where} no winner is called: not measured: {', '.join(map(method_label, known.missing))}."
    control = against_control(known)
    ending = f" {control}." if control else ""
    if known.best is None:
        return ending.strip()
    found, name, flap = known.difference(known.best), method_label(known.best.method), ""
    if known.flap is not None and known.flap is not known.best:
        flap = f" (against {method_label(FLAP)} {signed(known.difference(known.flap).change, '.1%')})"
    if not np.isfinite(found.change):
        return f"{where} no difference can be given.{ending}"
    if found.close:
        size = signed(found.change, ".1%")
        return f"{where} GPrune and the best other method, {name}, are too close to call ({size}){flap}.{ending}"
    size = f"{percent(abs(found.change), 1)} {'lower' if found.nats < 0 else 'higher'}"
    return f"{where} GPrune’s perplexity is {size} than that of the best other method, {name}{flap}.{ending}"
