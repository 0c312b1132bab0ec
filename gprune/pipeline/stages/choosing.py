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
from gprune.records import CandidateFigures, Choice, PrunedModel, PruningMasks, RepairedWeights, Tokens
from gprune.records.repairs import REPAIRS
from gprune.study import EvaluationSettings
from gprune.study.methods import METHODS, of_masks, own_repairs
from gprune.study.settings import OWN, TRIED_SCALED, UNREPAIRED, with_word
from gprune.system.errors import MethodError, NumericsError
from gprune.system.units import join_words


def candidates(graph: Graph, name: str) -> list[tuple[str, str]]:
    """Return the candidates for some masks, or for the recommended recipe: masks and repair; the reference first."""
    choice, method = graph.study.choice, of_masks(name, graph.methods)
    if method.decision == "chosen":
        tried = [(mask_name, word) for mask_name in choice.masks for word in (UNREPAIRED, *choice.repairs)]
        return [
            (METHODS[mask_name].masks, word)
            for mask_name, word in tried
            if TRIED_SCALED not in word or mask_name == choice.masks[0]
        ]
    own_words = [OWN] if own_repairs(method, graph.study) else []
    return [(name, word) for word in (UNREPAIRED, *own_words, *choice.repairs)]


@once
def candidate(graph: Graph, name: str, word: str) -> Stage[CandidateFigures]:
    """Losses of some masks under a repair on held-out text."""
    study, method = graph.study, of_masks(name, graph.methods)
    kind = word.partition(":")[0]
    needs: dict[str, Any] = {"masks": pruning.decided_masks(graph, name)}
    if word == OWN:
        needs |= pruning.own_needs(graph, method)
    if pruning.is_fitted(method, word):
        needs |= {"weights": pruning.repaired_weights(graph, name, word)}
    measured = measured_on(study)

    def make(work: RunContext, texts: list[Tokens], masks: PruningMasks, **inputs: Any) -> CandidateFigures:
        from gprune.evaluation.perplexity import window_divergences, window_losses

        settings = EvaluationSettings(preset=str(study.calibration.length), batch=study.evaluation.batch)
        measures, nats = [], []
        try:
            live = work.cut(identity.name, PrunedModel(masks, pruning.chosen_repairs(graph, method.name, kind), inputs))
            for role, tokens in zip(measured, texts, strict=True):
                if role == FRESH:
                    measures.append(choosing.DIVERGENCE)
                    nats.append(window_divergences(work.decoder.model, live, tokens.ids, settings.batch, work.progress))
                else:
                    measures.append(LETTERS[role])
                    nats.append(window_losses(live, tokens.ids, tokens.text, settings, work.progress))
        except NumericsError as error:
            raise MethodError(str(error)) from error
        return CandidateFigures(tuple(measures), np.stack(nats))

    identity = StageId("candidate", method=name, variant=tuple(word.split(":")))
    return graph.stage(
        identity,
        f"measuring {METHODS[method.name].label} on held-out text, {describe_candidate(graph, word)}",
        make,
        needs=needs | {"texts": [held_out(graph, role) for role in measured]},
        reads=graph.model,
    )


@once
def choice(graph: Graph, name: str) -> Stage[Choice]:
    """The candidate that is best on held-out text, with the figures of all; its key holds those that were measured.

    `name` is of masks, or of the recommended recipe. A candidate that failed has no figures, and the next run tries
    it again. Making it raises MethodError if none could be made.
    """
    tried = candidates(graph, name)
    measured = {str(index): candidate(graph, *pair) for index, pair in enumerate(tried)}

    def make(_: RunContext, figures: dict[str, CandidateFigures]) -> Choice:
        return choosing.choose(tried, {int(index): losses for index, losses in figures.items()})

    return graph.stage(
        StageId("choice", method=name),
        f"choosing among {len(tried)} candidates for {METHODS[of_masks(name).name].label}",
        make,
        needs={"figures": graph.without_failed(measured)},
        settings={"candidates": [list(pair) for pair in tried], "weights": choosing.WEIGHTS},
    )


@once
def chosen(graph: Graph, name: str) -> Stage[RepairedWeights]:
    """The weights of the repair that was chosen; without numbers where that is none, or the method's own."""
    tried = [pair for pair in candidates(graph, name) if pruning.is_fitted(of_masks(pair[0]), pair[1])]
    fitted = {str(index): pruning.repaired_weights(graph, *pair) for index, pair in enumerate(tried)}

    def make(_: RunContext, weights: dict[str, RepairedWeights], choice: Choice) -> RepairedWeights:
        pair = (choice.masks[choice.chosen], choice.repair)
        if pair in tried:
            return weights[str(tried.index(pair))]
        none, biases, errors = np.zeros(0, np.int64), np.zeros((0, 0), np.float32), np.zeros((0, 2))
        return RepairedWeights(*pair, "float32", none, none, np.zeros(0, np.float32), biases, errors)

    return graph.stage(
        StageId("chosen", method=name),
        f"the weights that were chosen for {METHODS[of_masks(name).name].label}",
        make,
        needs={"choice": choice(graph, name), "weights": graph.without_failed(fitted)},
    )


def chosen_masks(graph: Graph, name: str) -> Stage[PruningMasks]:
    """The masks of the recommended recipe: those of the candidate that was chosen, under their own name."""
    names = [METHODS[mask_name].masks for mask_name in graph.study.choice.masks]
    masks = graph.without_failed({mask_name: pruning.decided_masks(graph, mask_name) for mask_name in names})

    def make(_: RunContext, masks: dict[str, PruningMasks], choice: Choice) -> PruningMasks:
        return masks[choice.masks[choice.chosen]]

    return graph.stage(
        StageId("masks", method=name),
        f"masks of {METHODS[of_masks(name).name].label}",
        make,
        needs={"choice": choice(graph, name), "masks": masks},
    )


def describe_candidate(graph: Graph, word: str) -> str:
    """Describe a candidate repair."""
    if word in (UNREPAIRED, OWN):
        return "no repair" if word == UNREPAIRED else "its own repair"
    settings = with_word(graph.study.repair, word)
    letters = [graph.letters[role] for role in settings.roles]
    return f"{REPAIRS[word.partition(':')[0]].label} on {join_words(letters)}"
