"""How many bytes the stages take at their peak that learn: sparsity learning and recovery."""

from math import ceil

from gprune.pipeline.estimate.dimensions import Case, Need
from gprune.pipeline.stages import StageId
from gprune.system import machine

_LEARNING_LOGITS = {True: 2**25, False: 2**18}
"""logits in float32 that learning holds at a time, on a GPU and on a CPU"""
CHURN = 0.8
"""of learning: 0.7 at 260 thousand and 6 million weights, whose blocks malloc cuts from one heap"""
_LEAST_ROWS = 64
"""tokens whose logits it holds at least"""


def learning(stage: StageId, case: Case) -> Need:
    """Thresholds or gates, the masks of four subsets, and what a batch keeps for the way back."""
    study, model = case.study, case.model
    length, shape = study.calibration.length, model.shape
    logits = max(_LEARNING_LOGITS[case.gpu], _LEAST_ROWS * model.vocabulary)
    # several processes keep no states of the dense model
    cached = 2.0 * study.calibration.samples * length * shape.hidden * case.width * (case.processes == 1)
    # thresholds (or gates) and what Adam knows of them, once in use and once as they were after the last step
    thresholds = shape.layers * (max(study.modularization.candidates) + 1.0)
    learned = 4.0 * 2 * 4 * (thresholds if stage.kind == "learning" else model.units)
    return Need(
        weights=case.learned,
        # masks of four subsets with their gradients, and the order of all units
        fixed=case.logits(logits, 5) + 4.0 * 4 * 2 * model.units + 100.0 * shape.layers * shape.neurons + learned,
        each=case.kept(length, recomputed=True) + case.backward(length) + 4.0 * length * shape.hidden * case.width,
        # a state is put together in memory before it is written
        host=(cached if cached <= machine.spare() and study.sparsity.epochs > 1 else 0.0) + 4 * learned,
        churn=CHURN,
        asked=ceil(study.sparsity.batch / case.processes),
        setting="sparsity.batch",
    )


def recovered(stage: StageId, case: Case) -> Need:
    """The pruned model with what it keeps for the way back, beside the dense one.

    Of its linear maps the inputs are kept for the factors, which are in float32: copies of narrower ones.
    """
    study, model, settings = case.study, case.model, case.study.recovery
    length, shape, sequences = study.calibration.length, model.shape, study.calibration.samples
    sequences *= len(settings.roles)
    batch = min(settings.batch, sequences)
    logits = max(_LEARNING_LOGITS[case.gpu], _LEAST_ROWS * model.vocabulary)
    logits = min(logits, batch * length * model.vocabulary)
    cached = float(sequences * length * shape.hidden * case.width)
    if settings.steps * batch <= sequences or cached > machine.spare():
        cached = 0.0
    # numbers, gradient and what Adam knows of them, and all but the gradient after the last step
    learned = 4.0 * 7 * case.factors
    narrow = sum(case.inputs[name][0] for name in settings.targets) * 4 if case.width < 4 else 0.0
    wide = 2 * shape.hidden * 4 if case.width == 4 else 0.0
    norms = shape.layers * 2.0 * 4 * shape.hidden
    # norms are as wide as ever, the rest as narrow as what is kept
    kept = study.retention * (case.kept(length) - norms * length) + norms * length
    inputs = shape.layers * length * (narrow + wide)
    return Need(
        weights=case.weights + case.cut(stage.method),
        fixed=case.logits(logits, 5) + learned,
        each=kept + inputs + case.backward(length) + 4.0 * length * shape.hidden * case.width,
        host=cached + 4.0 * 4 * case.factors,
        asked=batch,
        setting="recovery.batch",
    )
