"""Stages of pruned models: their masks, decided or chosen, the inputs of their repairs, and their folders.

A choice is of a repair for the masks of a method, or of masks and repair together (the recommended recipe). It is made
by measurement. Each candidate is fitted and measured by its own stages, so that a stopped run can resume and studies
share candidates. The chosen weights are a separate result, whichever candidate is chosen. The sequences of the
measurement are not used for any fit or evaluation.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from gprune import records
from gprune.pipeline.stages import baselines, pruning
from gprune.pipeline.stages.calibration import held_out, tokens
from gprune.pipeline.stages.experts import expert_masks, router_weights
from gprune.pipeline.stages.graph import LETTERS, Graph, Stage, StageId, once, settings_of
from gprune.pipeline.stages.inputs import CHECK, FRESH, SAMPLED, choice_roles, content_of, roles
from gprune.pipeline.stages.run_context import RunContext
from gprune.pruning import choosing
from gprune.records import Choice, PrunedModel, PruningMasks, RepairedWeights, Tokens
from gprune.records.experts import ExpertMasks, PrunedExperts
from gprune.records.repairs import AUTO, FITTED, LEARNED, REPAIRS, ROUTERS
from gprune.study import EvaluationSettings
from gprune.study.methods import METHODS, Method, of_masks, own_repairs
from gprune.study.settings import OWN, SCALED, TRIED_SCALED, UNREPAIRED, with_word
from gprune.system import safe_parsing
from gprune.system.errors import MethodError, NumericsError, SettingsError
from gprune.system.units import join_words


def candidates(graph: Graph, name: str) -> list[tuple[str, str]]:
    """Return the names of the candidates' masks and repairs for the masks `name`; the reference comes first.

    All have these masks, except for the recommended recipe, which also chooses among masks.
    """
    choice, method = graph.study.choice, of_masks(name, graph.methods)
    if method.decision == "chosen":
        pairs = [(mask_name, repair) for mask_name in choice.masks for repair in (UNREPAIRED, *choice.repairs)]
        return [
            (METHODS[mask_name].masks, repair)
            for mask_name, repair in pairs
            # learning scales takes long, so it is only tried with the first masks
            if TRIED_SCALED not in repair or mask_name == choice.masks[0]
        ]
    own_specs = [OWN] if own_repairs(method, graph.study) else []
    return [(name, repair) for repair in (UNREPAIRED, *own_specs, *choice.repairs)]


@once
def candidate(graph: Graph, name: str, repair_spec: str) -> Stage[records.CandidateFigures]:
    """Declare the losses of masks under a repair on held-out text."""
    study, method = graph.study, of_masks(name, graph.methods)
    kind = repair_spec.partition(":")[0]
    needs: dict[str, Any] = {"masks": pruning.decided_masks(graph, name)}
    if repair_spec == OWN:
        needs |= pruning.own_needs(graph, method)
    if pruning.is_fitted(method, repair_spec):
        needs |= {"weights": pruning.repaired_weights(graph, name, repair_spec)}
    text_roles = choice_roles(study)

    def make(work: RunContext, texts: list[Tokens], masks: PruningMasks, **inputs: Any) -> records.CandidateFigures:
        from gprune.evaluation.perplexity import window_divergences, window_losses

        # windows have the length of calibration sequences
        settings = EvaluationSettings(preset=str(study.calibration.length), batch=study.evaluation.batch)
        measures, nats, repairs = [], [], pruning.chosen_repairs(graph, method.name, kind)
        with safe_parsing.reraise_as(MethodError, NumericsError):
            live = work.live_model(identity.name, PrunedModel(masks, repairs, inputs))
            for role, tokens in zip(text_roles, texts, strict=True):
                ids, counted = tokens.ids, tokens.counted
                if role == FRESH:
                    measures.append(choosing.DIVERGENCE)
                    dense = work.decoder.model
                    nats.append(window_divergences(dense, live, ids, settings.batch, work.progress, counted))
                else:
                    measures.append(LETTERS[role])
                    nats.append(window_losses(live, ids, tokens.text, settings, work.progress, counted=counted))
        return records.CandidateFigures(tuple(measures), np.stack(nats))

    identity = StageId("candidate", method=name, variant=tuple(repair_spec.split(":")))
    return graph.stage(
        identity,
        f"measuring {METHODS[method.name].label} on held-out text, {describe_candidate(graph, repair_spec)}",
        make,
        needs=needs | {"texts": [held_out(graph, role) for role in text_roles]},
        reads=graph.model_digests,
    )


@once
def choice(graph: Graph, name: str) -> Stage[Choice]:
    """Declare the choice of the best candidate on held-out text; its key depends on the measured candidates.

    `name` is that of masks, or of the recommended recipe. A failed candidate has no figures, and the next run tries it
    again. The stage raises MethodError if all candidates failed.
    """
    candidate_pairs = candidates(graph, name)
    candidate_stages = {str(index): candidate(graph, *pair) for index, pair in enumerate(candidate_pairs)}

    def make(_: RunContext, figures: dict[str, records.CandidateFigures]) -> Choice:
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
    """Declare the weights of the chosen repair; they are empty if no repair or the method's own was chosen."""
    fitted_pairs = [pair for pair in candidates(graph, name) if pruning.is_fitted(of_masks(pair[0]), pair[1])]
    fitted = {str(index): pruning.repaired_weights(graph, *pair) for index, pair in enumerate(fitted_pairs)}

    def make(_: RunContext, weights: dict[str, RepairedWeights], choice: Choice) -> RepairedWeights:
        pair = (choice.masks[choice.chosen], choice.repair)
        if pair in fitted_pairs:
            return weights[str(fitted_pairs.index(pair))]
        indices, biases, errors = np.zeros(0, np.int64), np.zeros((0, 0), np.float32), np.zeros((0, 2))
        return RepairedWeights(*pair, "float32", indices, indices, np.zeros(0, np.float32), biases, errors)

    return graph.stage(
        StageId("chosen", method=name),
        f"the chosen weights of {METHODS[of_masks(name).name].label}",
        make,
        needs={"choice": choice(graph, name), "weights": graph.without_failed(fitted)},
    )


def chosen_masks(graph: Graph, name: str) -> Stage[PruningMasks]:
    """Declare the masks of the recommended recipe, which are those of the chosen candidate."""
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
    """Return a candidate repair and its texts as a phrase."""
    if repair_spec in (UNREPAIRED, OWN):
        return "no repair" if repair_spec == UNREPAIRED else "its own repair"
    settings = with_word(graph.study.repair, repair_spec)
    letters = [graph.letters[role] for role in settings.roles]
    return f"{REPAIRS[repair_spec.partition(':')[0]].label} on {join_words(letters)}"


@once
def masks(graph: Graph, name: str = "gprune") -> Stage[PruningMasks]:
    """Declare masks by their name (`Method.masks`); see `pruning.decided_masks`.

    Masks of experts have another record. Raises SettingsError if no method has masks of this name.
    """
    decision = of_masks(name, graph.methods).decision
    if decision == "experts":
        return cast(Any, expert_masks(graph, name))
    return (chosen_masks if decision == "chosen" else pruning.decided_masks)(graph, name)


def model_inputs(graph: Graph, method: str) -> dict[str, Any]:
    """Return the needs of a method's model, by parameter: its masks and the inputs of its repairs; empty if dense."""
    entry = graph.methods[method]
    if entry.decision == "none":
        return {}
    mask_stage = masks(graph, entry.masks)
    versions = {repair.name: repair.version for repair in pruning.repairs(graph, method) if repair.version}
    # versions of the repairs are part of the key, because a repair without needs would otherwise not change the key
    needs = {"masks": graph.part(mask_stage, {"repairs": versions}, {"masks": mask_stage}) if versions else mask_stage}
    return needs | _collect_repair_inputs(graph, method, mask_stage)


def scales(graph: Graph, method: str) -> Stage[records.LearnedScales]:
    """Declare the learned scales of a method's model. Raises SettingsError if the study learns none for the method."""
    stage: Stage[records.LearnedScales] | None = model_inputs(graph, method).get(LEARNED)
    if stage is None:
        raise SettingsError(f"no scales are learned for {method!r}: set repair.kind, as least_squares{SCALED}")
    return stage


def _collect_repair_inputs(graph: Graph, method: str, masks: Stage[PruningMasks]) -> dict[str, Any]:
    """Return the needs of a method's repairs, by parameter; scales are learned after the other repairs."""
    entry, sequence = graph.methods[method], pruning.repairs(graph, method)
    if sequence == (AUTO,):
        # the method's own repair may be chosen, so its inputs are needed
        return {"weights": chosen(graph, entry.masks)} | pruning.own_needs(graph, entry)
    needs = [(name, kind) for repair in sequence for name, kind in repair.needs.items()]
    inputs: dict[str, Any] = {}
    for name, kind in needs:
        if kind == FITTED:
            inputs[name] = pruning.repaired_weights(graph, entry.masks)
        elif kind == ROUTERS:
            inputs[name] = router_weights(graph, method)
        elif kind != LEARNED:
            inputs[name] = [pruning.OF_A_TEXT[kind](graph, text) for text in repair_texts(graph, entry)]
    scale_names = [name for name, kind in needs if kind == LEARNED]
    identity, scaling_needs = StageId(LEARNED, method=method), {"masks": masks} | inputs
    return inputs | {name: pruning.scaling(graph, identity, method, scaling_needs) for name in scale_names}


def repair_texts(graph: Graph, method: Method) -> tuple[str, ...]:
    """Return the roles of the texts to which a method's repair is fitted; for its own repair, those of its scores."""
    settings = graph.study.repair
    return baselines.scored_on(method) if settings.base == "own" else settings.roles


def pruned_model(
    graph: Graph, method: str, masks: PruningMasks | ExpertMasks | None = None, recovered: Any = None, **inputs: Any
) -> PrunedModel | PrunedExperts | None:
    """Return the description of a method's model from the records of `model_inputs`; None for the dense model.

    `recovered` is the record of its recovery, or None before recovery.
    """
    if masks is None or isinstance(masks, ExpertMasks):
        return None if masks is None else PrunedExperts(masks, **inputs)
    sequence = pruning.repairs(graph, method)
    if AUTO in sequence:
        sequence = pruning.chosen_repairs(graph, method, inputs["weights"].kind)
        inputs = {name: inputs[name] for repair in sequence for name in repair.needs}
    return PrunedModel(masks, sequence, inputs, recovered)


@once
def recovered_weights(graph: Graph, method: str) -> Stage[records.RecoveredWeights]:
    """Declare the low-rank updates of recovery, which are added to a method's repaired weights."""
    study = graph.study

    def make(work: RunContext, texts: list[Tokens], masks: PruningMasks, **inputs: Any) -> records.RecoveredWeights:
        from gprune.pruning.recovery.training import recover

        work.release_model()
        model = work.prune(pruned_model(graph, method, masks, **inputs))
        run_arguments = study.recovery, study.seed, work.progress, work.resumption
        return recover(work.decoder, model, method, texts, *run_arguments)

    return graph.stage(
        StageId("recovered", method=method),
        f"recovering {METHODS[method].label}",
        make,
        needs=model_inputs(graph, method) | {"texts": [tokens(graph, role) for role in study.recovery.roles]},
        reads=graph.model_digests,
        settings=settings_of(study.recovery, without=("texts",)) | {"seed": study.seed},
    )


def recovered_from(graph: Graph, method: str) -> dict[str, Any]:
    """Return the needs of a method's recovered model, by parameter."""
    return model_inputs(graph, method) | {"recovered": recovered_weights(graph, method)}


@once
def checkpoint(graph: Graph, method: str = "gprune", *, recovery: bool = False) -> Stage[Any]:
    """Declare the folder with the pruned model of a method, which is read back and compared with the model in memory.

    With `recovery`, it is the recovered model.
    """

    def make(work: RunContext, folder: Path, masks: PruningMasks | ExpertMasks, **inputs: Any) -> None:
        from gprune.models.export import checkpoint as folder_form

        work.progress(0, 1, "writing the model and reading it back")
        model: Any = pruned_model(graph, method, masks, **inputs)
        if isinstance(model, PrunedExperts):
            from gprune.models.export.expert_folder import save_experts

            live, ids = work.live_model(method, model), work.passage()
            save_experts(live, work.tokenizer, folder / "model", model, **graph.origin, ids=ids)
            return
        # the recovery is merged when the model is saved
        model_to_save = work.live_model(method, replace(model, recovered=None))
        folder_form.save(model_to_save, work.tokenizer, folder / "model", model, **graph.origin, ids=work.passage())

    is_gprune, variant = method == "gprune", ("recovered",) if recovery else ()
    description = (
        f"{'recovered' if recovery else 'pruned'} model{'' if is_gprune else f' of {graph.methods[method].label}'}"
    )
    return graph.stage(
        StageId("checkpoint", method="" if is_gprune else method, variant=variant),
        f"writing the {description}",
        make,
        needs=recovered_from(graph, method) if recovery else model_inputs(graph, method),
        reads=graph.model_digests | {"tokenizer": graph.inputs.tokenizer},
    )


def with_repair(graph: Graph, settings: Mapping[str, Any]) -> Graph:
    """Return the graph of the same study with changed `repair` settings; only keys of repaired models change.

    The repair replaces the bias compensation of learned methods. Raises SettingsError for an invalid setting.
    """
    changes = {f"repair.{name}": value for name, value in settings.items()}
    study = graph.study.with_settings(changes | {"sparsity.bias_compensation": False})
    inputs, texts_by_role = graph.inputs, roles(study)
    digests = {
        role: content_of(study, inputs.model, inputs.precision, texts_by_role[role], role)
        for role in (SAMPLED, FRESH, CHECK)
        # a check text is read from a file, so its digest is kept; that of a sampled text follows from the settings
        if role in texts_by_role and not (role == CHECK and role in inputs.calibration)
    }
    inputs = replace(inputs, calibration=inputs.calibration | digests)
    return Graph(study, inputs, graph.letters, graph.failures)
