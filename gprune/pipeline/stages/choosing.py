"""The stages that choose by measurement: a repair for some masks, or masks and repair at once.

Each candidate is fitted and measured by stages of its own, so that a run that was stopped goes on and studies
share them. The choice is made of their figures, and what was chosen is a result under one key, whichever it
is. The sequences that are measured on took part in nothing.
"""

from typing import Any

import numpy as np

from gprune.pipeline.stages import pruning
from gprune.pipeline.stages.calibration import held_out
from gprune.pipeline.stages.graph import LETTERS, Graph, Stage, StageId, once
from gprune.pipeline.stages.inputs import FRESH, measured_on
from gprune.pipeline.stages.run_context import RunContext
from gprune.pruning import choosing
from gprune.records import (
    CandidateFigures,
    Choice,
    PrunedModel,
    PruningMasks,
    RepairedWeights,
    Tokens,
)
from gprune.records.repairs import REPAIRS
from gprune.study import EvaluationSettings
from gprune.study.choice import OWN, TRIED_SCALED, UNREPAIRED, with_word
from gprune.study.methods import METHODS, of_masks, own_repairs
from gprune.system.errors import MethodError, NumericsError
from gprune.system.units import listed


def candidates(graph: Graph, name: str) -> list[tuple[str, str]]:
    """What is tried for some masks, or for the recommended recipe: masks and repair; the reference first."""
    choice, method = graph.study.choice, of_masks(name, graph.methods)
    if method.decision == "chosen":
        tried = [(one, word) for one in choice.masks for word in (UNREPAIRED, *choice.repairs)]
        return [(METHODS[one].masks, word) for one, word in tried if TRIED_SCALED not in word or one == choice.masks[0]]
    own = [OWN] if own_repairs(method, graph.study) else []
    return [(name, word) for word in (UNREPAIRED, *own, *choice.repairs)]


@once
def candidate(graph: Graph, name: str, word: str) -> Stage[CandidateFigures]:
    """What some masks under a repair are worth on held-out text."""
    study, method = graph.study, of_masks(name, graph.methods)
    kind = word.partition(":")[0]
    needs: dict[str, Any] = {"masks": pruning.decided(graph, name)}
    if word == OWN:
        needs |= pruning.own_needs(graph, method)
    if pruning.is_fitted(method, word):
        needs |= {"weights": pruning.repaired(graph, name, word)}
    measured = measured_on(study)

    def make(work: RunContext, texts: list[Tokens], masks: PruningMasks, **inputs: Any) -> CandidateFigures:
        model = PrunedModel(masks, pruning.meant(graph, method.name, kind), inputs)
        try:
            return _measured(work, identity.name, model, dict(zip(measured, texts, strict=True)))
        except NumericsError as error:
            raise MethodError(str(error)) from error

    identity = StageId("candidate", method=name, variant=tuple(word.split(":")))
    return graph.stage(
        identity,
        f"measuring {METHODS[method.name].label} on held-out text, {described(graph, word)}",
        make,
        needs=needs | {"texts": [held_out(graph, role) for role in measured]},
        reads=graph.model,
    )


def _measured(work: RunContext, name: str, model: PrunedModel, texts: dict[str, Tokens]) -> CandidateFigures:
    """Losses of a model on each text, and its divergence from the dense one on what that has written."""
    from gprune.evaluation.divergence import window_divergences
    from gprune.evaluation.perplexity import window_losses

    live, study = work.cut(name, model), work.study
    settings = EvaluationSettings(preset=str(study.calibration.length), batch=study.evaluation.batch)
    measures, nats = [], []
    for role, drawn in texts.items():
        if role == FRESH:
            measures.append(choosing.DIVERGENCE)
            dense = work.decoder.model
            nats.append(window_divergences(dense, live, drawn.ids, settings.batch, work.progress))
        else:
            measures.append(LETTERS[role])
            nats.append(window_losses(live, drawn.ids, drawn.text, settings, work.progress))
    return CandidateFigures(tuple(measures), np.stack(nats))


@once
def choice(graph: Graph, name: str) -> Stage[Choice]:
    """Which candidate is best on held-out text, with the figures of all; a repair that fails is left out.

    `name` is of masks, or of the recommended recipe. Making it raises MethodError where none could be made.
    """
    tried = candidates(graph, name)

    def make(_: RunContext, figures: dict[str, CandidateFigures]) -> Choice:
        return choosing.choose(tried, {int(place): one for place, one in figures.items()})

    return graph.stage(
        StageId("choice", method=name),
        f"choosing among {len(tried)} candidates for {METHODS[of_masks(name).name].label}",
        make,
        needs={"figures": {str(place): candidate(graph, *one) for place, one in enumerate(tried)}},
        settings={"candidates": [list(one) for one in tried], "weights": choosing.WEIGHTS},
        optional=True,
    )


@once
def chosen(graph: Graph, name: str) -> Stage[RepairedWeights]:
    """The weights of the repair that was chosen; without numbers where that is none, or the method's own."""
    tried = [one for one in candidates(graph, name) if pruning.is_fitted(of_masks(one[0]), one[1])]

    def make(_: RunContext, weights: dict[str, RepairedWeights], choice: Choice | None = None) -> RepairedWeights:
        found = _require_made(choice)
        place = (found.masks[found.chosen], found.repair)
        return weights[str(tried.index(place))] if place in tried else _nothing(*place)

    return graph.stage(
        StageId("chosen", method=name),
        f"the weights that were chosen for {METHODS[of_masks(name).name].label}",
        make,
        needs={
            "choice": choice(graph, name),
            "weights": {str(place): pruning.repaired(graph, *one) for place, one in enumerate(tried)},
        },
        optional=True,
    )


def chosen_masks(graph: Graph, name: str) -> Stage[PruningMasks]:
    """The masks of the recommended recipe: those of the candidate that was chosen, under their own name."""
    names = [METHODS[one].masks for one in graph.study.choice.masks]

    def make(_: RunContext, masks: dict[str, PruningMasks], choice: Choice | None = None) -> PruningMasks:
        found = _require_made(choice)
        return masks[found.masks[found.chosen]]

    return graph.stage(
        StageId("masks", method=name),
        f"masks of {METHODS[of_masks(name).name].label}",
        make,
        needs={
            "choice": choice(graph, name),
            "masks": {one: pruning.decided(graph, one) for one in names},
        },
        optional=True,
    )


def _require_made(found: Choice | None) -> Choice:
    if found is None:
        raise MethodError("nothing was chosen: no candidate could be made")
    return found


def _nothing(name: str, word: str) -> RepairedWeights:
    """That no weights are fitted."""
    none = np.zeros(0, np.int64)
    biases, errors = np.zeros((0, 0), np.float32), np.zeros((0, 2))
    return RepairedWeights(name, word, "float32", none, none, np.zeros(0, np.float32), biases, errors)


def described(graph: Graph, word: str) -> str:
    """A repair that was tried, in words."""
    if word in (UNREPAIRED, OWN):
        return "no repair" if word == UNREPAIRED else "its own repair"
    settings = with_word(graph.study.repair, word)
    letters = [graph.letters[role] for role in settings.roles]
    return f"{REPAIRS[word.partition(':')[0]].label} on {listed(letters)}"
