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
from gprune.pipeline.stages.inputs import FRESH, choice_roles
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
        pairs = [(mask_name, repair) for mask_name in choice.masks for repair in (UNREPAIRED, *choice.repairs)]
        return [
            (METHODS[mask_name].masks, repair)
            for mask_name, repair in pairs
            if TRIED_SCALED not in repair or mask_name == choice.masks[0]
        ]
    own_specs = [OWN] if own_repairs(method, graph.study) else []
    return [(name, repair) for repair in (UNREPAIRED, *own_specs, *choice.repairs)]


@once
def candidate(graph: Graph, name: str, repair_spec: str) -> Stage[CandidateFigures]:
    """Declare the losses of some masks under a repair on held-out text."""
    study, method = graph.study, of_masks(name, graph.methods)
    kind = repair_spec.partition(":")[0]
    needs: dict[str, Any] = {"masks": pruning.decided_masks(graph, name)}
    if repair_spec == OWN:
        needs |= pruning.own_needs(graph, method)
    if pruning.is_fitted(method, repair_spec):
        needs |= {"weights": pruning.repaired_weights(graph, name, repair_spec)}
    text_roles = choice_roles(study)

    def make(work: RunContext, texts: list[Tokens], masks: PruningMasks, **inputs: Any) -> CandidateFigures:
        from gprune.evaluation.perplexity import window_divergences, window_losses

        settings = EvaluationSettings(preset=str(study.calibration.length), batch=study.evaluation.batch)
        measures, nats = [], []
        try:
            live = work.cut(identity.name, PrunedModel(masks, pruning.chosen_repairs(graph, method.name, kind), inputs))
            for role, tokens in zip(text_roles, texts, strict=True):
                if role == FRESH:
                    measures.append(choosing.DIVERGENCE)
                    nats.append(window_divergences(work.decoder.model, live, tokens.ids, settings.batch, work.progress))
                else:
                    measures.append(LETTERS[role])
                    nats.append(window_losses(live, tokens.ids, tokens.text, settings, work.progress))
        except NumericsError as error:
            raise MethodError(str(error)) from error
        return CandidateFigures(tuple(measures), np.stack(nats))

    identity = StageId("candidate", method=name, variant=tuple(repair_spec.split(":")))
    return graph.stage(
        identity,
        f"measuring {METHODS[method.name].label} on held-out text, {describe_candidate(graph, repair_spec)}",
        make,
        needs=needs | {"texts": [held_out(graph, role) for role in text_roles]},
        reads=graph.model,
    )


@once
def choice(graph: Graph, name: str) -> Stage[Choice]:
    """Declare the choice of the best candidate on held-out text; its key holds the measured candidates.

    `name` is of masks, or of the recommended recipe. A candidate that failed has no figures, and the next run tries
    it again. Making it raises MethodError if none could be made.
    """
    candidate_pairs = candidates(graph, name)
    candidate_stages = {str(index): candidate(graph, *pair) for index, pair in enumerate(candidate_pairs)}

    def make(_: RunContext, figures: dict[str, CandidateFigures]) -> Choice:
        return choosing.choose(candidate_pairs, {int(index): losses for index, losses in figures.items()})

    return graph.stage(
        StageId("choice", method=name),
        f"choosing among {len(candidate_pairs)} candidates for {METHODS[of_masks(name).name].label}",
        make,
        needs={"figures": graph.without_failed(candidate_stages)},
        settings={"candidates": [list(pair) for pair in candidate_pairs], "weights": choosing.WEIGHTS},
    )


@once
def chosen(graph: Graph, name: str) -> Stage[RepairedWeights]:
    """Declare the weights of the chosen repair; they are empty if it is none or the method's own."""
    fitted_pairs = [pair for pair in candidates(graph, name) if pruning.is_fitted(of_masks(pair[0]), pair[1])]
    fitted = {str(index): pruning.repaired_weights(graph, *pair) for index, pair in enumerate(fitted_pairs)}

    def make(_: RunContext, weights: dict[str, RepairedWeights], choice: Choice) -> RepairedWeights:
        pair = (choice.masks[choice.chosen], choice.repair)
        if pair in fitted_pairs:
            return weights[str(fitted_pairs.index(pair))]
        none, biases, errors = np.zeros(0, np.int64), np.zeros((0, 0), np.float32), np.zeros((0, 2))
        return RepairedWeights(*pair, "float32", none, none, np.zeros(0, np.float32), biases, errors)

    return graph.stage(
        StageId("chosen", method=name),
        f"the weights that were chosen for {METHODS[of_masks(name).name].label}",
        make,
        needs={"choice": choice(graph, name), "weights": graph.without_failed(fitted)},
    )


def chosen_masks(graph: Graph, name: str) -> Stage[PruningMasks]:
    """Declare the masks of the recommended recipe: those of the chosen candidate."""
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


def describe_candidate(graph: Graph, repair_spec: str) -> str:
    """Describe a candidate repair."""
    if repair_spec in (UNREPAIRED, OWN):
        return "no repair" if repair_spec == UNREPAIRED else "its own repair"
    settings = with_word(graph.study.repair, repair_spec)
    letters = [graph.letters[role] for role in settings.roles]
    return f"{REPAIRS[repair_spec.partition(':')[0]].label} on {join_words(letters)}"
