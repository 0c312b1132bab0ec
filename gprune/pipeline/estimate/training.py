"""How many bytes the stages take at their peak that learn: sparsity learning and recovery."""

from gprune.pipeline.estimate.dimensions import Case, Need
from gprune.pipeline.stages import StageId
from gprune.study.methods import METHODS
from gprune.system import machine

_LEARNING_LOGITS = {True: 2**25, False: 2**18}
"""logits in float32 that learning holds at a time, on a GPU and on a CPU"""
CHURN = 0.8
"""of learning: 0.7 at 260 thousand and 6 million weights, whose blocks malloc cuts from one heap"""
_LEAST_ROWS = 64
"""tokens whose logits it holds at least"""


def is_joint(stage: StageId) -> bool:
    """Return True if a stage learns gates together with scales."""
    return stage.kind == "gates" and bool(stage.method) and METHODS[stage.method].scaled


def learning(stage: StageId, case: Case) -> Need:
    """Thresholds or gates, the masks of four subsets, and what a batch keeps for the way back."""
    if is_joint(stage):
        return learned_scales(stage, case)
    study, model = case.study, case.model
    length, shape = study.calibration.length, model.shape
    logits = max(_LEARNING_LOGITS[case.gpu], _LEAST_ROWS * model.vocabulary)
    cached = 2.0 * study.calibration.samples * length * shape.hidden * case.width
    # thresholds (or gates) and what Adam knows of them, once in use and once as they were after the last step
    thresholds = shape.layers * (max(study.modularization.candidates) + 1.0)
    learned = 4.0 * 2 * 4 * (thresholds if stage.kind == "learning" else model.units)
    return Need(
        weights=case.weights,
        # masks of four subsets with their gradients, and the order of all units
        fixed=case.logits(logits, 5) + 4.0 * 4 * 2 * model.units + 100.0 * shape.layers * shape.neurons + learned,
        each=case.kept(length, recomputed=True) + case.backward(length) + 4.0 * length * shape.hidden * case.width,
        # a state is put together in memory before it is written
        host=(cached if cached <= machine.spare() and study.sparsity.epochs > 1 else 0.0) + 4 * learned,
        churn=CHURN,
        asked=study.sparsity.batch,
        setting="sparsity.batch",
    )


def learned_scales(stage: StageId, case: Case) -> Need:
    """The student with what it keeps for the way back: the dense model for gates, else a cut one beside it."""
    study, model, settings = case.study, case.model, case.study.scales
    length, shape, joint = study.calibration.length, model.shape, is_joint(stage)
    sequences = len(settings.roles) * min(settings.samples, study.calibration.samples)
    batch, steps = min(settings.batch, sequences), settings.joint_steps if joint else settings.steps
    logits = max(_LEARNING_LOGITS[case.gpu], _LEAST_ROWS * model.vocabulary)
    logits = min(logits, batch * length * model.vocabulary)
    cached = float(sequences * length * shape.hidden * case.width)
    if steps * batch <= sequences or cached > machine.spare():
        cached = 0.0
    # numbers, pace, gradient and what Adam knows of them, and all but the gradient after the last step
    learned = 4.0 * 8 * ((2 if joint else 1) * model.units + 2 * shape.layers * shape.hidden)
    norms = length * shape.layers * 2.0 * case.width * shape.hidden
    share = 1.0 if joint else study.retention
    kept = share * (case.kept(length, recomputed=True) - norms) + norms
    return Need(
        weights=case.weights + (0.0 if joint else case.cut(stage.method)),
        fixed=case.logits(logits, 5) + learned + 100.0 * shape.layers * shape.neurons * joint,
        each=kept + case.backward(length) + 4.0 * length * shape.hidden * case.width,
        host=cached + 4 * learned,
        churn=CHURN,
        asked=batch,
        setting="scales.batch",
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
