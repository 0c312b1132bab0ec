"""The stages that prune: masks of every method, and the folder of the pruned model (sections 3.3 and 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gprune.methods import METHODS, Method, compensates, of_masks
from gprune.records import (
    ActivationStatistics,
    AdaptedScores,
    Learning,
    Partition,
    PruningMasks,
    Tokens,
    UnitScores,
)
from gprune.stages import baselines
from gprune.stages.adapting import adapted
from gprune.stages.graph import PAIR, Graph, Stage, StageId, once, settings_of
from gprune.stages.reading import statistics, tokens
from gprune.stages.spaces import scored_in, space
from gprune.stages.work import Work


@once
def learning(graph: Graph, method: str = "gprune") -> Stage[Learning]:
    """Modular sparsity learning (MSL, section 3.3).

    Args:
        graph: the study's graph.
        method: a method whose masks are learned.
    """
    study, chosen = graph.study, METHODS[method]

    def make(
        work: Work,
        adapted: AdaptedScores,
        heads: UnitScores,
        partition: Partition,
        primary: Tokens,
        auxiliary: Tokens,
        attention: PruningMasks | None = None,
    ) -> Learning:
        from gprune.sparsity.learning import learn

        known = adapted.scores, heads.heads, partition, primary, auxiliary
        settings = study.sparsity, study.retention, study.seed
        fixed = None if attention is None else attention.heads
        ranks = None if work.company is None else work.company.ranks
        with work.learner() as decoder:
            how = work.progress, fixed, work.resumption
            return Learning.of(*learn(decoder, *known, *settings, *how, ranks=ranks))

    # every alignment is a setting but the one that changes nothing; whose attention it is, is a need
    without = ("bias_compensation", "attention", *(("alignment",) if study.sparsity.alignment == 1 else ()))
    return graph.stage(
        StageId("learning") if method == "gprune" else StageId("learning", method=method),
        f"learning the sparsity ({chosen.label})",
        make,
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
def masks(graph: Graph, name: str = "gprune") -> Stage[PruningMasks]:
    """Which units some masks keep, by the name under which methods use them.

    Making them raises MethodError where the method cannot run on the model or at the retention.

    Raises:
        SettingsError: no method has masks of this name.
    """
    method = of_masks(name)
    identity, title = StageId("masks", method=name), f"masks of {METHODS[method.name].label}"
    if method.decision != "learned":
        return baselines.decided(graph, method, identity, title, fixed_attention(graph, method))

    def make(_: Work, learning: Learning) -> PruningMasks:
        return learning.masks

    return graph.stage(identity, title, make, needs={"learning": learning(graph, method.name)})


def fixed_attention(graph: Graph, method: Method) -> dict[str, Stage[PruningMasks]]:
    """The masks whose attention a method takes over: GPrune's for a control, where the study says so."""
    fixed = method.control and graph.study.sparsity.attention == "gprune"
    return {"attention": masks(graph)} if fixed else {}


def pruned(graph: Graph, method: str) -> dict[str, Any]:
    """What a method's model is made from: its masks and, with bias compensation, the statistics behind it.

    Args:
        graph: the study's graph.
        method: one of METHODS; nothing is needed for the dense model.
    """
    known = METHODS[method]
    if known.decision == "none":
        return {}
    needs: dict[str, Any] = {"masks": masks(graph, known.masks)}
    if compensates(known, graph.study.sparsity.bias_compensation):
        # a baseline that is scored on both texts takes its means from both
        needs["means"] = [statistics(graph, text) for text in baselines.scored_on(known)]
    return needs


@once
def checkpoint(graph: Graph) -> Stage[Any]:
    """The pruned model as a folder, read back and compared before it is called done."""
    study = graph.study

    def make(
        work: Work, folder: Path, masks: PruningMasks, means: list[ActivationStatistics] | None = None
    ) -> None:
        from gprune.export import checkpoint as folder_form

        work.progress(0, 1, "writing and reading back")
        folder_form.save(
            work.cut("gprune", masks, means),
            work.tokenizer,
            folder / "model",
            masks,
            source=study.model,
            fingerprint=work.inputs.model,
            bias_compensation=study.sparsity.bias_compensation,
            study=study.to_dict(),
        )

    return graph.stage(
        StageId("checkpoint"),
        "writing the pruned model",
        make,
        needs=pruned(graph, "gprune"),
        reads=graph.model | {"tokenizer": graph.inputs.tokenizer},
    )
