"""The stages of pruned models: their masks, decided or chosen, what their repairs need, their folders."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from gprune.pipeline.stages import baselines
from gprune.pipeline.stages.calibration import tokens
from gprune.pipeline.stages.choosing import chosen, chosen_masks
from gprune.pipeline.stages.graph import Graph, Stage, StageId, once, settings_of
from gprune.pipeline.stages.pruning import OF_A_TEXT, decided, meant, own_needs, repaired, repairs, scaling
from gprune.pipeline.stages.run_context import RunContext
from gprune.records import LearnedScales, PrunedModel, PruningMasks, RecoveredWeights, RepairedWeights, Tokens
from gprune.records.repairs import AUTO, FITTED, LEARNED
from gprune.study.methods import METHODS, of_masks
from gprune.study.pruning_method import Method
from gprune.study.settings import SCALED
from gprune.system.errors import SettingsError


@once
def masks(graph: Graph, name: str = "gprune") -> Stage[PruningMasks]:
    """Which units some masks keep, by the name under which methods use them; see `pruning.decided`.

    Raises SettingsError where no method has masks of this name.
    """
    return (chosen_masks if of_masks(name, graph.methods).decision == "chosen" else decided)(graph, name)


def pruned(graph: Graph, method: str) -> dict[str, Any]:
    """Return the inputs of a method's model: its masks and what its repairs need."""
    known = graph.methods[method]
    if known.decision == "none":
        return {}
    kept = masks(graph, known.masks)
    versions = repair_versions(graph, method)
    # a repair may need nothing that would tell its model from another one
    told = {"masks": graph.part(kept, versions, {"masks": kept}) if versions else kept}
    return told | _repair_inputs(graph, method, kept)


def scales(graph: Graph, method: str) -> Stage[LearnedScales]:
    """Return the scales of a method's model; SettingsError where the study learns none for it."""
    stage: Stage[LearnedScales] | None = pruned(graph, method).get(LEARNED)
    if stage is None:
        raise SettingsError(f"no scales are learned for {method!r}: set repair.kind, as least_squares{SCALED}")
    return stage


def _weights(graph: Graph, method: str) -> Stage[RepairedWeights]:
    """The weights fitted to a method's masks, or those that are chosen."""
    known = graph.methods[method]
    if repairs(graph, method) != (AUTO,):
        return repaired(graph, known.masks)
    return chosen(graph, known.masks)


def _repair_inputs(graph: Graph, method: str, masks: Stage[PruningMasks]) -> dict[str, Any]:
    """Return the inputs of a method's repairs by parameter; scales are learned after the other repairs."""
    methods_own, sequence = graph.methods[method], repairs(graph, method)
    texts = repair_texts(graph, methods_own)
    if sequence == (AUTO,):
        # its own may be chosen
        return {"weights": _weights(graph, method)} | own_needs(graph, methods_own)
    needs = [(name, kind) for repair in sequence for name, kind in repair.needs.items()]
    inputs = {
        name: _weights(graph, method) if kind == FITTED else [OF_A_TEXT[kind](graph, text) for text in texts]
        for name, kind in needs
        if kind != LEARNED
    }
    scaled = {"masks": masks} | inputs
    return inputs | {
        name: scaling(graph, StageId(LEARNED, method=method), method, scaled) for name, kind in needs if kind == LEARNED
    }


def repair_texts(graph: Graph, method: Method) -> tuple[str, ...]:
    """The roles of the texts that a repair is made from; where it is the method's own, of its scores."""
    chosen = graph.study.repair
    return baselines.scored_on(method) if chosen.base == "own" else chosen.roles


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
    if masks is None:
        return None
    found = repairs(graph, method)
    if AUTO in found:
        found = meant(graph, method, inputs["weights"].kind)
        inputs = {name: inputs[name] for one in found for name in one.needs}
    return PrunedModel(masks, found, inputs, recovered)


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
    """Return the inputs of a method's recovered model."""
    return pruned(graph, method) | {"recovered": recovered(graph, method)}


@once
def checkpoint(graph: Graph, method: str = "gprune", *, recovery: bool = False) -> Stage[Any]:
    """The pruned model of a method as a folder, read back and compared before it is called done.

    That with its `recovery` is a folder of its own: what was trained takes the place of nothing that was not.
    """

    def make(work: RunContext, folder: Path, masks: PruningMasks, **inputs: Any) -> None:
        from gprune.models.export import checkpoint as folder_form

        work.progress(0, 1, "writing and reading back")
        model = pruned_model(graph, method, masks, **inputs) or PrunedModel(masks)
        cut = work.cut(method, replace(model, recovered=None))
        folder_form.save(cut, work.tokenizer, folder / "model", model, **graph.origin, ids=work.passage())

    own = method == "gprune"
    which = "recovered" if recovery else "pruned"
    return graph.stage(
        StageId("checkpoint", method="" if own else method, variant=("recovered",) if recovery else ()),
        f"writing the {which} model" + ("" if own else f" of {METHODS[method].label}"),
        make,
        needs=recovered_from(graph, method) if recovery else pruned(graph, method),
        reads=graph.model | {"tokenizer": graph.inputs.tokenizer},
    )
