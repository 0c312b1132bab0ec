"""The stages that prune: masks of every method, and the folder of the pruned model (sections 3.3 and 4)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
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
    Learning,
    Partition,
    PrunedModel,
    PruningMasks,
    RecoveredWeights,
    Repair,
    RepairedWeights,
    Tokens,
    UnitScores,
)
from gprune.records.repairs import COMPENSATION, FITTED
from gprune.study.methods import METHODS, Method, fit_of, of_masks, repairs_of

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

    with work.learner() as decoder:
        masks, history = learn(
            decoder,
            adapted.scores,
            heads.heads,
            partition,
            primary,
            auxiliary,
            work.study.sparsity,
            target=work.study.retention,
            seed=work.study.seed,
            on_progress=work.progress,
            attention=None if attention is None else attention.heads,
            kept=work.resumption,
            ranks=None if work.company is None else work.company.ranks,
        )
    return Learning.of(masks, history)


@once
def learning(graph: Graph, method: str = "gprune") -> Stage[Learning]:
    """Modular sparsity learning (MSL, section 3.3), of a method whose masks are learned."""
    study, chosen = graph.study, METHODS[method]
    # every alignment is a setting but the one that changes nothing; whose attention it is, is a need
    without = (COMPENSATION, "attention", *(("alignment",) if study.sparsity.alignment == 1 else ()))
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
        | {"retention": study.retention, "seed": study.seed},
    )


@once
def gates(graph: Graph, method: str = "gates") -> Stage[GateLearning]:
    """Gates of single units (gprune.pruning.sparsity.gates), of a method whose masks follow from them."""
    study, chosen = graph.study, METHODS[method]
    epochs = chosen.epochs * study.sparsity.epochs

    def make(work: RunContext, scores: list[UnitScores], primary: Tokens, auxiliary: Tokens) -> GateLearning:
        from gprune.pruning.sparsity.gates import learn_gates
        from gprune.pruning.sparsity.learner import Setting

        with work.learner() as decoder:
            ranks = None if work.company is None else work.company.ranks
            about = (work.study.sparsity, work.study.seed, work.progress, work.resumption, ranks)
            setting = Setting(decoder, (primary, auxiliary), *about)
            return learn_gates(setting, scores, work.study.gates, work.study.retention, epochs)

    started = PAIR if study.gates.start == "mean" else PAIR[:1]
    shared = {name: getattr(study.sparsity, name) for name in _SHARED}
    aligned = {} if study.sparsity.alignment == 1 else {"alignment": study.sparsity.alignment}
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
        | aligned
        | {"epochs": epochs, "retention": study.retention, "seed": study.seed},
    )


@once
def masks(graph: Graph, name: str = "gprune") -> Stage[PruningMasks]:
    """Which units some masks keep, by the name under which methods use them.

    Making them raises MethodError where the method cannot run on the model or at the retention. Raises
    SettingsError where no method has masks of this name.
    """
    method = of_masks(name)
    identity, title = StageId("masks", method=name), f"masks of {METHODS[method.name].label}"
    if not method.learns:
        return baselines.decided(graph, method, identity, title, fixed_attention(graph, method))

    def make(_: RunContext, learning: Learning | GateLearning) -> PruningMasks:
        return learning.masks

    learned = learning if method.decision == "learned" else gates
    return graph.stage(identity, title, make, needs={"learning": learned(graph, method.name)})


def fixed_attention(graph: Graph, method: Method) -> dict[str, Stage[PruningMasks]]:
    """The masks whose attention a method takes over: GPrune's for a control, where the study says so."""
    fixed = method.control and graph.study.sparsity.attention == "gprune"
    return {"attention": masks(graph)} if fixed else {}


def pruned(graph: Graph, method: str) -> dict[str, Any]:
    """What a method's model is made from: its masks, and what the repairs of its weights need."""
    known = METHODS[method]
    if known.decision == "none":
        return {}
    kept = masks(graph, known.masks)
    versions = repair_versions(graph, method)
    # a repair may need nothing that would tell its model from another one
    told = {"masks": graph.part(kept, versions, {"masks": kept}) if versions else kept}
    return told | _repaired_from(graph, method, lambda: repaired(graph, known.masks))


def _repaired_from(graph: Graph, method: str, fitted: Callable[[], Stage[RepairedWeights]]) -> dict[str, Any]:
    """What the repairs of a method need, by parameter; `fitted` gives the weights fitted to its masks."""
    texts = repair_texts(graph, METHODS[method])
    needs = [(name, kind) for repair in repairs(graph, method) for name, kind in repair.needs.items()]
    return {
        name: fitted() if kind == FITTED else [OF_A_TEXT[kind](graph, text) for text in texts]
        for name, kind in needs
    }


def repair_texts(graph: Graph, method: Method) -> tuple[str, ...]:
    """The roles of the texts that a repair is made from; where it is the method's own, of its scores."""
    chosen = graph.study.repair
    return baselines.scored_on(method) if chosen.kind == "own" else chosen.roles


@once
def repaired(graph: Graph, masks_name: str) -> Stage[RepairedWeights]:
    """The weights that stay, fitted to some masks by the repair of the study or of the method itself."""
    kept, method = masks(graph, masks_name), of_masks(masks_name)
    return _fitting(
        graph, StageId(FITTED, method=masks_name), method, {"masks": kept}, {}, lambda found: found
    )


def pruned_by_hand(
    graph: Graph, method: str, digest: str, edited: Callable[[], PruningMasks]
) -> dict[str, Any]:
    """What a method's model is made from beside masks that were edited by hand; see `pruned`.

    For `digest` and `edited` see `evaluation.edited_perplexity`.
    """
    identity = StageId("edited_repair", method=method, variant=(digest[:16],))

    def fitted() -> Stage[RepairedWeights]:
        return _fitting(graph, identity, METHODS[method], {}, {"masks": digest}, lambda _: edited())

    return _repaired_from(graph, method, fitted)


def _fitting(
    graph: Graph,
    identity: StageId,
    method: Method,
    kept: dict[str, Any],
    told: dict[str, Any],
    chosen: Callable[[Any], PruningMasks],
) -> Stage[RepairedWeights]:
    """A repair that is fitted to masks: `chosen` makes them of the record of `kept`, `told` names them."""
    study, settings = graph.study, fit_of(method, graph.study)
    by_hand = " edited by hand" if identity.kind != FITTED else ""

    def make(work: RunContext, texts: list[Tokens], masks: PruningMasks | None = None) -> RepairedWeights:
        from gprune.pruning.repair.fitting import fit

        kept, batch = chosen(masks), study.calibration.batch
        ranks = work.repairing(kept, texts, settings)
        return fit(work.decoder, kept, texts, settings, batch, work.progress, ranks)

    return graph.stage(
        identity,
        f"repairing the kept weights of {method.label}{by_hand}",
        make,
        needs=kept | {"texts": [tokens(graph, role) for role in settings.roles]},
        reads=graph.model,
        settings=settings_of(settings, without=("texts", "sampled")) | told,
    )


def repairs(graph: Graph, method: str) -> tuple[Repair, ...]:
    """What is done to the weights that a method keeps."""
    return repairs_of(METHODS[method], graph.study)


def repair_versions(graph: Graph, method: str) -> dict[str, Any]:
    """What keys must say of a method's repairs beside what these need; nothing where that says it all."""
    versions = {repair.name: repair.version for repair in repairs(graph, method) if repair.version}
    return {"repairs": versions} if versions else {}


def pruned_model(
    graph: Graph,
    method: str,
    masks: PruningMasks | None = None,
    recovered: RecoveredWeights | None = None,
    **inputs: Any,
) -> PrunedModel | None:
    """A method's model from the records of what `pruned` needs and of recovery; None for the dense one."""
    return None if masks is None else PrunedModel(masks, repairs(graph, method), inputs, recovered)


@once
def recovered(graph: Graph, method: str) -> Stage[RecoveredWeights]:
    """What low-rank training adds to the repaired weights of a method; see `recovered_from`."""
    study = graph.study

    def make(work: RunContext, texts: list[Tokens], masks: PruningMasks, **inputs: Any) -> RecoveredWeights:
        from gprune.pruning.recovery.training import recover

        work.let_go()
        model = work.pruned(pruned_model(graph, method, masks, **inputs))
        settings, seed, kept = study.recovery, study.seed, work.resumption
        return recover(work.decoder, model, method, texts, settings, seed, work.progress, kept)

    return graph.stage(
        StageId("recovered", method=method),
        f"recovering {METHODS[method].label}",
        make,
        needs=pruned(graph, method) | {"texts": [tokens(graph, role) for role in study.recovery.roles]},
        reads=graph.model,
        settings=settings_of(study.recovery, without=("texts",)) | {"seed": study.seed},
    )


def recovered_from(graph: Graph, method: str) -> dict[str, Any]:
    """What a method's recovered model is made from."""
    return pruned(graph, method) | {"recovered": recovered(graph, method)}


@once
def checkpoint(graph: Graph, *, recovery: bool = False) -> Stage[Any]:
    """The pruned model as a folder, read back and compared before it is called done; with its `recovery` too.

    Both are folders of their own: what was trained takes the place of nothing that was not.
    """
    study = graph.study
    variant = ("recovered",) if recovery else ()

    def make(work: RunContext, folder: Path, masks: PruningMasks, **inputs: Any) -> None:
        from gprune.models.export import checkpoint as folder_form

        work.progress(0, 1, "writing and reading back")
        model = pruned_model(graph, "gprune", masks, **inputs) or PrunedModel(masks)
        folder_form.save(
            work.cut("gprune", replace(model, recovered=None)),
            work.tokenizer,
            folder / "model",
            model,
            source=study.model,
            fingerprint=work.inputs.model,
            study=study.to_dict(),
        )

    return graph.stage(
        StageId("checkpoint", variant=variant),
        f"writing the {'recovered' if recovery else 'pruned'} model",
        make,
        needs=recovered_from(graph, "gprune") if recovery else pruned(graph, "gprune"),
        reads=graph.model | {"tokenizer": graph.inputs.tokenizer},
    )
