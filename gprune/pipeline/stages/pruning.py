"""The stages that prune: what is learned, masks, and the weights fitted to them (sections 3.3 and 4)."""

from collections.abc import Callable
from typing import Any

from gprune.pipeline.stages import baselines
from gprune.pipeline.stages.calibration import statistics, tokens
from gprune.pipeline.stages.graph import PAIR, Graph, Stage, StageId, once, settings_of
from gprune.pipeline.stages.rasa import adapted, scored_in, space
from gprune.pipeline.stages.run_context import RunContext
from gprune.pipeline.stages.scoring import scores
from gprune.records import (
    AdaptedScores,
    GateLearning,
    LearnedScales,
    Learning,
    Partition,
    PrunedModel,
    PruningMasks,
    Repair,
    RepairedWeights,
    Tokens,
    UnitScores,
)
from gprune.records.repairs import COMPENSATION, FITTED, LEARNED, REPAIRS, labels
from gprune.study import Study
from gprune.study.choice import OWN, TRIED_SCALED, with_word
from gprune.study.methods import METHODS, fit_of, of_masks, own_repairs, repairs_of
from gprune.study.pruning_method import Method
from gprune.study.settings import RepairSettings
from gprune.system.errors import MethodError, NumericsError, SettingsError
from gprune.system.units import listed

OF_A_TEXT: dict[str, Callable[[Graph, str], Stage[Any]]] = {"statistics": statistics, "tokens": tokens}
"""what a repair can need of a calibration text, by kind"""
_SHARED = ("batch", "distillation_weight", "distillation_temperature")
"""settings of MSL that gates learn by too, besides its epochs"""


def _learn(
    work: RunContext,
    adapted: AdaptedScores,
    heads: UnitScores,
    partition: Partition,
    primary: Tokens,
    auxiliary: Tokens,
    attention: PruningMasks | None = None,
) -> Learning:
    from gprune.pruning.sparsity.learning import learn

    kept = None if attention is None else attention.heads
    return learn(work.learning(primary, auxiliary), adapted.scores, heads.heads, partition, work.study.retention, kept)


@once
def learning(graph: Graph, method: str = "gprune") -> Stage[Learning]:
    """Modular sparsity learning (MSL, section 3.3), of a method whose masks are learned."""
    study, chosen = graph.study, METHODS[method]
    # widths are settings where they ask for something; whose attention it is, is a need
    without = (COMPENSATION, "attention", "alignment", "widths")
    return graph.stage(
        StageId("learning") if method == "gprune" else StageId("learning", method=method),
        f"learning the sparsity ({chosen.label})",
        _learn,
        needs={
            "adapted": adapted(graph, method),
            "heads": scored_in(graph, PAIR[0], chosen.modules).stage(graph),
            "partition": space(graph, chosen.modules),
            **{role: tokens(graph, role) for role in PAIR},
            **fixed_attention(graph, chosen),
        },
        reads=graph.model,
        settings=settings_of(study.sparsity, without=without)
        | study.sparsity.shaped
        | {"retention": study.retention, "seed": study.seed},
    )


@once
def gates(graph: Graph, method: str = "gates") -> Stage[GateLearning]:
    """Gates of single units (gprune.pruning.sparsity.gates), of a method whose masks follow from them."""
    study, chosen = graph.study, METHODS[method]
    started = PAIR if study.gates.start == "mean" else PAIR[:1]
    if chosen.scaled:
        return _scaled_gates(graph, chosen, [scores(graph, text) for text in started])
    epochs = chosen.epochs * study.sparsity.epochs

    def make(work: RunContext, scores: list[UnitScores], primary: Tokens, auxiliary: Tokens) -> GateLearning:
        from gprune.pruning.sparsity.gates import learn_gates

        setting = work.learning(primary, auxiliary)
        return learn_gates(setting, scores, work.study.gates, work.study.retention, epochs)

    shared = {name: getattr(study.sparsity, name) for name in _SHARED}
    return graph.stage(
        StageId("gates") if method == "gates" else StageId("gates", method=method),
        f"learning the gates ({chosen.label})",
        make,
        needs={
            "scores": [scores(graph, text) for text in started],
            **{role: tokens(graph, role) for role in PAIR},
        },
        reads=graph.model,
        settings=settings_of(study.gates)
        | shared
        | study.sparsity.shaped
        | {"epochs": epochs, "retention": study.retention, "seed": study.seed},
    )


def _scaled_gates(graph: Graph, method: Method, started: list[Stage[UnitScores]]) -> Stage[GateLearning]:
    """Gates that are learned together with scales and biases (gprune.pruning.sparsity.scales)."""
    study = graph.study

    def make(work: RunContext, scores: list[UnitScores], texts: list[Tokens]) -> GateLearning:
        from gprune.pruning.sparsity.scales import learn_scaled_gates

        settings = study.scales, study.gates, study.sparsity
        about = study.retention, study.seed, work.progress, work.resumption
        return learn_scaled_gates(work.decoder, scores, texts, settings, *about)

    return graph.stage(
        StageId("gates", method=method.name),
        f"learning the gates ({method.label})",
        make,
        needs={"scores": started, "texts": [tokens(graph, role) for role in study.scales.roles]},
        reads=graph.model,
        settings=settings_of(study.scales, without=("texts", "steps", "learning_rate"))
        | study.sparsity.shaped
        | {"temperature": study.gates.temperature, "retention": study.retention, "seed": study.seed},
    )


@once
def decided(graph: Graph, name: str = "gprune") -> Stage[PruningMasks]:
    """Which units some masks keep that are not chosen among others, by the name under which methods use them.

    Making them raises MethodError where the method cannot run on the model or at the retention. Raises
    SettingsError where no method has masks of this name.
    """
    method = of_masks(name, graph.methods)
    identity, title = StageId("masks", method=name), f"masks of {graph.methods[method.name].label}"
    if not method.learns:
        return baselines.decided(graph, method, identity, title, fixed_attention(graph, method))

    def make(_: RunContext, learning: Learning | GateLearning) -> PruningMasks:
        return learning.masks

    learned = learning if method.decision == "learned" else gates
    return graph.stage(identity, title, make, needs={"learning": learned(graph, method.name)})


def fixed_attention(graph: Graph, method: Method) -> dict[str, Stage[PruningMasks]]:
    """The masks whose attention a method takes over: GPrune's for a control, where the study says so."""
    fixed = method.control and graph.study.sparsity.attention == "gprune"
    return {"attention": decided(graph)} if fixed else {}


def own_needs(graph: Graph, method: Method) -> dict[str, Any]:
    """What the repairs that a method has by itself need of its texts, by parameter."""
    return {
        name: [OF_A_TEXT[kind](graph, text) for text in baselines.scored_on(method)]
        for repair in own_repairs(method, graph.study)
        for name, kind in repair.needs.items()
        if kind != FITTED
    }


@once
def repaired(graph: Graph, masks_name: str, word: str = "") -> Stage[RepairedWeights]:
    """The weights that stay, fitted to some masks by the repair of the study or of the method itself.

    `word` is of a repair that a choice tries, OWN or one of choice.repairs: where it cannot be fitted, the
    choice does without it.
    """
    study, method = graph.study, of_masks(masks_name, graph.methods)
    found = {"masks": decided(graph, masks_name)}
    if not word:
        identity, settings = StageId(FITTED, method=masks_name), fit_of(method, study)
        return fitting(graph, identity, method.label, found, settings)
    if TRIED_SCALED in word:
        return _fitted_and_scaled(graph, masks_name, word)
    settings = tried_fit(method, study, word)
    letters = listed([graph.letters[role] for role in settings.roles])
    identity = StageId(FITTED, method=masks_name, variant=tuple(word.split(":")))
    label = f"{method.label}, {labels([REPAIRS[settings.kind]])} on {letters}"
    return fitting(graph, identity, label, found, settings, tried=True)


def _fitted_and_scaled(graph: Graph, masks_name: str, word: str) -> Stage[RepairedWeights]:
    """The weights that a choice tries after a fit and learned scales, as one record."""
    method, variant = of_masks(masks_name, graph.methods), tuple(word.split(":"))
    needs: dict[str, Any] = {
        "masks": decided(graph, masks_name),
        "weights": repaired(graph, masks_name, word.replace(TRIED_SCALED, "least_squares")),
    }
    before, identity = (REPAIRS["least_squares"],), StageId(LEARNED, method=masks_name, variant=variant)
    scales = scaling(graph, identity, method.name, needs, before)

    def make(work: RunContext, masks: PruningMasks, weights: RepairedWeights, scales: LearnedScales) -> RepairedWeights:
        from gprune.pruning.repair.scales import fold

        return fold(work.decoder, masks, weights, scales)

    title = f"folding the scales of {method.label}"
    identity = StageId(FITTED, method=masks_name, variant=variant)
    return graph.stage(identity, title, make, needs=needs | {"scales": scales}, reads=graph.model)


def is_fitted(method: Method, word: str) -> bool:
    """Whether a repair that a choice tries is fitted to the masks of a method."""
    return ":" in word or (word == OWN and method.fit is not None)


def tried_fit(method: Method, study: Study, word: str) -> RepairSettings:
    """How weights are fitted by a repair that a choice tries: the method's own, or kind:texts."""
    return method.fit if word == OWN and method.fit is not None else with_word(study.repair, word)


def fitting(
    graph: Graph,
    identity: StageId,
    label: str,
    needs: dict[str, Any],
    settings: RepairSettings,
    *,
    tried: bool = False,
) -> Stage[RepairedWeights]:
    """A repair that is fitted to the masks in `needs`; one that is `tried` is one that a choice can do without."""

    def make(work: RunContext, texts: list[Tokens], masks: PruningMasks) -> RepairedWeights:
        from gprune.pruning.repair.fitting import fit

        batch = graph.study.calibration.batch
        try:
            return fit(work.decoder, masks, texts, settings, batch, work.progress)
        except (NumericsError, SettingsError) as error:
            if not tried:
                raise
            raise MethodError(str(error)) from error

    return graph.stage(
        identity,
        f"repairing the kept weights of {label}",
        make,
        needs=needs | {"texts": [tokens(graph, role) for role in settings.roles]},
        reads=graph.model,
        settings=settings_of(settings, without=("texts", "sampled")),
    )


def scaling(
    graph: Graph,
    identity: StageId,
    method: str,
    needs: dict[str, Any],
    before: tuple[Repair, ...] = (),
) -> Stage[LearnedScales]:
    """Scales learned for the masks of a method and what its other repairs need, both in `needs`.

    `before` are the other repairs, those of the study where left out.
    """
    study = graph.study
    own = (repair for repair in repairs(graph, method) if LEARNED not in repair.needs.values())
    before = before or tuple(own)

    def make(work: RunContext, texts: list[Tokens], masks: PruningMasks, **inputs: Any) -> LearnedScales:
        from gprune.pruning.sparsity.scales import learn_scales

        work.let_go()
        model = work.pruned(PrunedModel(masks, before, inputs))
        about = texts, study.scales, study.seed, work.progress, work.resumption
        return learn_scales(work.decoder, model, masks, method, *about)

    return graph.stage(
        identity,
        f"learning the scales of {METHODS[method].label}",
        make,
        needs=needs | {"texts": [tokens(graph, role) for role in study.scales.roles]},
        reads=graph.model,
        settings=settings_of(study.scales, without=("texts", "joint_steps", "joint_rate", "gate_rate"))
        | {"seed": study.seed},
    )


def meant(graph: Graph, method: str, kind: str) -> tuple[Repair, ...]:
    """The repairs that were chosen for a method, by the kind that the chosen weights name."""
    if kind == OWN:
        return own_repairs(graph.methods[method], graph.study)
    return (REPAIRS[kind],) if kind in REPAIRS else ()


def repairs(graph: Graph, method: str) -> tuple[Repair, ...]:
    """What is done to the weights that a method keeps, as far as the study says (`choosing.carried_out`)."""
    return repairs_of(graph.methods[method], graph.study)
