"""The stages of pruned models: their masks, decided or chosen, what their repairs need, their folders."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gprune.pipeline.stages import baselines
from gprune.pipeline.stages.choosing import chosen, chosen_masks, fitted_as_chosen
from gprune.pipeline.stages.graph import Graph, Stage, StageId, once
from gprune.pipeline.stages.pruning import OF_A_TEXT, decided, fitting, meant, own_needs, repaired, repairs
from gprune.pipeline.stages.run_context import RunContext
from gprune.records import PrunedModel, PruningMasks, RepairedWeights
from gprune.records.repairs import AUTO, FITTED
from gprune.study.methods import METHODS, Method, of_masks


@once
def masks(graph: Graph, name: str = "gprune") -> Stage[PruningMasks]:
    """Which units some masks keep, by the name under which methods use them; see `pruning.decided`.

    Raises SettingsError where no method has masks of this name.
    """
    return (chosen_masks if of_masks(name).decision == "chosen" else decided)(graph, name)


def pruned(graph: Graph, method: str) -> dict[str, Any]:
    """What a method's model is made from: its masks, and what the repairs of its weights need."""
    known = METHODS[method]
    if known.decision == "none":
        return {}
    kept = masks(graph, known.masks)
    versions = repair_versions(graph, method)
    # a repair may need nothing that would tell its model from another one
    told = {"masks": graph.part(kept, versions, {"masks": kept}) if versions else kept}
    return told | _repaired_from(graph, method, lambda: _weights(graph, method))


def _weights(graph: Graph, method: str) -> Stage[RepairedWeights]:
    """The weights fitted to a method's masks, or those that are chosen."""
    known = METHODS[method]
    if repairs(graph, method) != (AUTO,):
        return repaired(graph, known.masks)
    return chosen(graph, known.masks)


def _repaired_from(graph: Graph, method: str, fitted: Callable[[], Stage[RepairedWeights]]) -> dict[str, Any]:
    """What the repairs of a method need, by parameter; `fitted` gives the weights fitted to its masks."""
    known, found = METHODS[method], repairs(graph, method)
    texts = repair_texts(graph, known)
    if found == (AUTO,):
        # its own may be chosen
        return {"weights": fitted()} | own_needs(graph, known)
    needs = [(name, kind) for repair in found for name, kind in repair.needs.items()]
    return {
        name: fitted() if kind == FITTED else [OF_A_TEXT[kind](graph, text) for text in texts]
        for name, kind in needs
    }


def repair_texts(graph: Graph, method: Method) -> tuple[str, ...]:
    """The roles of the texts that a repair is made from; where it is the method's own, of its scores."""
    chosen = graph.study.repair
    return baselines.scored_on(method) if chosen.kind == "own" else chosen.roles


def pruned_by_hand(
    graph: Graph, method: str, digest: str, edited: Callable[[], PruningMasks]
) -> dict[str, Any]:
    """What a method's model is made from beside masks that were edited by hand; see `pruned`.

    For `digest` and `edited` see `evaluation.edited_perplexity`.
    """
    identity = StageId("edited_repair", method=method, variant=(digest[:16],))
    label = f"{METHODS[method].label} edited by hand"

    def fitted() -> Stage[RepairedWeights]:
        if AUTO in repairs(graph, method):
            return fitted_as_chosen(graph, METHODS[method].masks, identity, label, digest, edited)
        return fitting(graph, identity, label, {}, {"masks": digest}, lambda _: edited())

    return _repaired_from(graph, method, fitted)


def repair_versions(graph: Graph, method: str) -> dict[str, Any]:
    """What keys must say of a method's repairs beside what these need; nothing where that says it all."""
    versions = {repair.name: repair.version for repair in repairs(graph, method) if repair.version}
    return {"repairs": versions} if versions else {}


def pruned_model(
    graph: Graph, method: str, masks: PruningMasks | None = None, **inputs: Any
) -> PrunedModel | None:
    """A method's model from the records of what `pruned` needs; None for the dense one."""
    if masks is None:
        return None
    found = repairs(graph, method)
    if AUTO in found:
        found = meant(graph, method, inputs["weights"].kind)
        inputs = {name: inputs[name] for one in found for name in one.needs}
    return PrunedModel(masks, found, inputs)


@once
def checkpoint(graph: Graph, method: str = "gprune") -> Stage[Any]:
    """The pruned model of a method as a folder, read back and compared before it is called done."""
    study = graph.study

    def make(work: RunContext, folder: Path, masks: PruningMasks, **inputs: Any) -> None:
        from gprune.models.export import checkpoint as folder_form

        work.progress(0, 1, "writing and reading back")
        model = pruned_model(graph, method, masks, **inputs)
        folder_form.save(
            work.cut(method, model),
            work.tokenizer,
            folder / "model",
            model or masks,
            source=study.model,
            fingerprint=work.inputs.model,
            study=study.to_dict(),
        )

    own = method == "gprune"
    return graph.stage(
        StageId("checkpoint", method="" if own else method),
        "writing the pruned model" + ("" if own else f" of {METHODS[method].label}"),
        make,
        needs=pruned(graph, method),
        reads=graph.model | {"tokenizer": graph.inputs.tokenizer},
    )
