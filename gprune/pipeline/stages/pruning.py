"""Stages that prune: the learning, the masks, and the weights fitted to them (sections 3.3 and 4)."""

from collections.abc import Callable
from typing import Any

from gprune import records
from gprune.pipeline.stages import baselines
from gprune.pipeline.stages.calibration import statistics, tokens
from gprune.pipeline.stages.graph import PAIR, Graph, Stage, StageId, once, settings_of
from gprune.pipeline.stages.rasa import adapted_scores, scored_in, space
from gprune.pipeline.stages.run_context import RunContext
from gprune.pipeline.stages.scoring import scores
from gprune.records import GateLearning, Learning, PrunedModel, PruningMasks, Repair, RepairedWeights, Tokens
from gprune.records.repairs import COMPENSATION, FITTED, LEARNED, REPAIRS, labels
from gprune.study import RepairSettings, Study
from gprune.study.methods import METHODS, Method, fit_of, of_masks, own_repairs, repairs_of
from gprune.study.settings import OWN, TRIED_SCALED, with_word
from gprune.system.errors import MethodError, NumericsError, SettingsError
from gprune.system.units import join_words

OF_A_TEXT: dict[str, Callable[[Graph, str], Stage[Any]]] = {"statistics": statistics, "tokens": tokens}
"""results of a calibration text that a repair can need, by kind"""


def _identify_learning(kind: str, method: str, default: str) -> StageId:
    """Return the identity of a learning stage, which omits the default method."""
    return StageId(kind, method="" if method == default else method)


@once
def learning(graph: Graph, method: str = "gprune") -> Stage[Learning]:
    """Declare modular sparsity learning (MSL, section 3.3) for a method whose masks are learned."""
    study, definition = graph.study, METHODS[method]

    def make(
        work: RunContext, adapted: Any, heads: Any, partition: Any, attention: Any = None, **texts: Tokens
    ) -> Learning:
        from gprune.pruning.sparsity.learning import learn

        kept_groups = None if attention is None else attention.heads
        return learn(
            work.learning_inputs(**texts), adapted.scores, heads.heads, partition, study.retention, kept_groups
        )

    # widths are in the key only if set; adopted attention is a need, not a setting
    excluded = (COMPENSATION, "attention", "alignment", "widths")
    settings = settings_of(study.sparsity, without=excluded) | study.sparsity.width_settings
    return graph.stage(
        _identify_learning("learning", method, "gprune"),
        f"learning the sparsity ({definition.label})",
        make,
        needs={
            "adapted": adapted_scores(graph, method),
            "heads": scored_in(graph, PAIR[0], definition.modules).stage(graph),
            "partition": space(graph, definition.modules),
            **{role: tokens(graph, role) for role in PAIR},
            **fixed_attention(graph, definition),
        },
        reads=graph.model_digests,
        settings=settings | {"retention": study.retention, "seed": study.seed},
    )


@once
def gates(graph: Graph, method: str = "gates") -> Stage[GateLearning]:
    """Declare the learning of unit gates for a method whose masks are decided by gates."""
    study, definition = graph.study, METHODS[method]
    # the gates start at these scores
    start_scores = [scores(graph, text) for text in (PAIR if study.gates.start == "mean" else PAIR[:1])]
    epochs = definition.epochs * study.sparsity.epochs

    def make(work: RunContext, scores: list[records.UnitScores], **texts: Tokens) -> GateLearning:
        from gprune.pruning.sparsity.gates import learn_gates

        return learn_gates(work.learning_inputs(**texts), scores, study.gates, study.retention, epochs)

    def make_scaled(work: RunContext, scores: list[records.UnitScores], texts: list[Tokens]) -> GateLearning:
        from gprune.pruning.sparsity.scales import learn_scaled_gates

        settings = study.scales, study.gates, study.sparsity
        run_arguments = study.retention, study.seed, work.progress, work.resumption
        return learn_scaled_gates(work.decoder, scores, texts, settings, *run_arguments)

    needs: dict[str, Any] = {"scores": start_scores}
    if definition.scaled:
        needs["texts"] = [tokens(graph, role) for role in study.scales.roles]
        settings = settings_of(study.scales, without=("texts", "steps", "learning_rate"))
        settings |= {"temperature": study.gates.temperature}
    else:
        needs |= {role: tokens(graph, role) for role in PAIR}
        # settings of MSL that gates also use, in addition to the epochs
        shared = ("batch", "distillation_weight", "distillation_temperature")
        settings = settings_of(study.gates) | {name: getattr(study.sparsity, name) for name in shared}
        settings |= {"epochs": epochs}
    return graph.stage(
        _identify_learning("gates", method, "gates"),
        f"learning the gates ({definition.label})",
        make_scaled if definition.scaled else make,
        needs=needs,
        reads=graph.model_digests,
        settings=settings | study.sparsity.width_settings | {"retention": study.retention, "seed": study.seed},
    )


@once
def decided_masks(graph: Graph, name: str = "gprune") -> Stage[PruningMasks]:
    """Declare masks, by their name, that one method decides; see `pruned_models.chosen_masks` for all others.

    The stage raises MethodError if the method cannot run on the model or at the retention. Raises SettingsError if no
    method has masks of this name.
    """
    method = of_masks(name, graph.methods)
    identity, title = StageId("masks", method=name), f"masks of {graph.methods[method.name].label}"
    if not method.learns:
        return baselines.baseline_masks(graph, method, identity, title, fixed_attention(graph, method))

    def make(_: RunContext, learning: Learning | GateLearning) -> PruningMasks:
        return learning.masks

    declare_learning = learning if method.decision == "learned" else gates
    return graph.stage(identity, title, make, needs={"learning": declare_learning(graph, method.name)})


def fixed_attention(graph: Graph, method: Method) -> dict[str, Stage[PruningMasks]]:
    """Return the need for the masks whose key/value groups a method adopts; empty if it decides them itself.

    These are GPrune's masks for a control, if the study sets `sparsity.attention` to gprune.
    """
    is_fixed = method.control and graph.study.sparsity.attention == "gprune"
    return {"attention": decided_masks(graph)} if is_fixed else {}


def own_needs(graph: Graph, method: Method) -> dict[str, Any]:
    """Return the inputs of a method's built-in repairs that come from its texts, by parameter."""
    return {
        name: [OF_A_TEXT[kind](graph, text) for text in baselines.scored_on(method)]
        for repair in own_repairs(method, graph.study)
        for name, kind in repair.needs.items()
        if kind != FITTED
    }


@once
def repaired_weights(graph: Graph, masks_name: str, repair_spec: str = "") -> Stage[RepairedWeights]:
    """Declare the weights fitted to masks by the repair of the study or of the method.

    If not empty, `repair_spec` names a candidate repair of a choice instead: OWN or an entry of choice.repairs. A
    candidate that cannot be fitted is left out of the choice.
    """
    study, method = graph.study, of_masks(masks_name, graph.methods)
    if TRIED_SCALED in repair_spec:
        return _declare_scaled_repair(graph, method, masks_name, repair_spec)
    settings, label = fit_settings(study, method, repair_spec), method.label
    if repair_spec:
        letters = join_words([graph.letters[role] for role in settings.roles])
        label += f", {labels([REPAIRS[settings.kind]])} on {letters}"

    def make(work: RunContext, texts: list[Tokens], masks: PruningMasks) -> RepairedWeights:
        from gprune.pruning.repair.fitting import fit

        try:
            return fit(work.decoder, masks, texts, settings, study.calibration.batch, work.progress)
        except (NumericsError, SettingsError) as error:
            if not repair_spec:
                raise
            # a MethodError, because the choice can do without this candidate
            raise MethodError(str(error)) from error

    return graph.stage(
        StageId(FITTED, method=masks_name, variant=tuple(filter(None, repair_spec.split(":")))),
        f"repairing the kept weights of {label}",
        make,
        needs={"masks": decided_masks(graph, masks_name), "texts": [tokens(graph, role) for role in settings.roles]},
        reads=graph.model_digests,
        settings=settings_of(settings, without=("texts", "sampled")),
    )


def _declare_scaled_repair(graph: Graph, method: Method, masks_name: str, repair_spec: str) -> Stage[RepairedWeights]:
    """Declare the weights of a candidate repair that fits weights and then learns scales, in one record."""
    variant, earlier_repairs = tuple(repair_spec.split(":")), (REPAIRS["least_squares"],)
    needs: dict[str, Any] = {
        "masks": decided_masks(graph, masks_name),
        "weights": repaired_weights(graph, masks_name, repair_spec.replace(TRIED_SCALED, "least_squares")),
    }
    scales = scaling(graph, StageId(LEARNED, method=masks_name, variant=variant), method.name, needs, earlier_repairs)

    def make(work: RunContext, masks: PruningMasks, weights: RepairedWeights, scales: Any) -> RepairedWeights:
        from gprune.pruning.repair.scales import fold

        return fold(work.decoder, masks, weights, scales)

    identity = StageId(FITTED, method=masks_name, variant=variant)
    title = f"folding the scales of {method.label}"
    return graph.stage(identity, title, make, needs=needs | {"scales": scales}, reads=graph.model_digests)


def fit_settings(study: Study, method: Method, repair_spec: str = "") -> RepairSettings:
    """Return the settings of a fit to a method's masks, by the study or by `repair_spec` (see `repaired_weights`)."""
    if not repair_spec:
        return fit_of(method, study)
    return method.fit if repair_spec == OWN and method.fit is not None else with_word(study.repair, repair_spec)


def is_fitted(method: Method, repair_spec: str) -> bool:
    """Return True if a candidate repair fits weights to the masks of a method."""
    return ":" in repair_spec or (repair_spec == OWN and method.fit is not None)


def scaling(
    graph: Graph, identity: StageId, method: str, needs: dict[str, Any], earlier_repairs: tuple[Repair, ...] = ()
) -> Stage[records.LearnedScales]:
    """Declare scales learned for a method; `needs` has its masks and the inputs of its other repairs.

    `earlier_repairs` are the other repairs, by default those of the study.
    """
    study = graph.study
    fits = (repair for repair in repairs(graph, method) if LEARNED not in repair.needs.values())
    earlier_repairs = earlier_repairs or tuple(fits)

    def make(work: RunContext, texts: list[Tokens], masks: PruningMasks, **inputs: Any) -> records.LearnedScales:
        from gprune.pruning.sparsity.scales import learn_scales

        work.release_model()
        model = work.prune(PrunedModel(masks, earlier_repairs, inputs))
        run_arguments = texts, study.scales, study.seed, work.progress, work.resumption
        return learn_scales(work.decoder, model, masks, method, *run_arguments)

    settings = settings_of(study.scales, without=("texts", "joint_steps", "joint_rate", "gate_rate"))
    return graph.stage(
        identity,
        f"learning the scales of {METHODS[method].label}",
        make,
        needs=needs | {"texts": [tokens(graph, role) for role in study.scales.roles]},
        reads=graph.model_digests,
        settings=settings | {"seed": study.seed},
    )


def chosen_repairs(graph: Graph, method: str, kind: str) -> tuple[Repair, ...]:
    """Return the chosen repairs of a method; `kind` is OWN, a name in REPAIRS, or another word for no repair."""
    if kind == OWN:
        return own_repairs(graph.methods[method], graph.study)
    return (REPAIRS[kind],) if kind in REPAIRS else ()


def repairs(graph: Graph, method: str) -> tuple[Repair, ...]:
    """Return the repairs of a method as set in the study (see `results.applied_repairs`)."""
    return repairs_of(graph.methods[method], graph.study)
