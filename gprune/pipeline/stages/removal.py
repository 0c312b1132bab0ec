"""The masks of methods that decide on each layer above pruned and repaired ones: OSSCAR and SlimLLM."""

from typing import TYPE_CHECKING, Any

import numpy as np

from gprune.pipeline.stages.calibration import tokens
from gprune.pipeline.stages.graph import Graph
from gprune.pipeline.stages.run_context import RunContext
from gprune.pruning.allocation import uniform
from gprune.pruning.allocation.alignment import margin
from gprune.records import Array, ModelShape, PruningMasks, Tokens, budget
from gprune.study import Study
from gprune.study.pruning_method import Method

if TYPE_CHECKING:
    from gprune.pruning.removal.walk import Decide


def equal_counts(study: Study, shape: ModelShape) -> uniform.Counts | None:
    """Neurons and key/value groups of every layer, where the study wants equal widths."""
    if not study.sparsity.equal:
        return None
    return budget.equal_counts(shape, study.retention, study.sparsity.alignment)


def removed(graph: Graph, method: Method) -> tuple[dict[str, Any], Any]:
    """What the decision needs, and how it is made: masks, and the (layers, neurons) margins of neurons."""

    def decide(work: RunContext, shape: ModelShape, tokens: Tokens) -> tuple[PruningMasks, Array]:
        from gprune.pruning.removal.walk import walk

        assert method.fit is not None
        batch, retention = work.study.calibration.batch, work.study.retention
        choose = _rule(method, work, tokens)
        found = walk(work.decoder, tokens, batch, choose, method.fit, work.progress)
        # layers that a method leaves whole stay so where widths are rounded
        margins = np.where(found.ffn.all(axis=1, keepdims=True), np.inf, margin(found.order, found.ffn))
        return uniform.masks(shape, found.ffn, found.heads, retention), margins

    return {"tokens": tokens(graph)}, decide


def _rule(method: Method, work: RunContext, tokens: Tokens) -> "Decide":
    from gprune.pruning.removal import osscar, slimllm

    study = work.study
    if method.decision == "osscar":
        shape = work.decoder.shape
        return osscar.decision(shape, study.retention, equal_counts(study, shape))
    change = slimllm.cosines(work.decoder, tokens, study.calibration.batch, work.progress)
    return slimllm.decision(work.decoder, study.retention, change)
