"""How many bytes a stage takes at its peak: the formulas, kind by kind.

Each is the sum of what is there whatever the batch is, and of what every sequence at a time adds. They are
held against allocations that were counted: on the CPU as they happen, and at the shapes of published models
on the meta device (tests/pipeline/estimate).
"""

from collections.abc import Callable

from gprune.pipeline.estimate import training
from gprune.pipeline.estimate.dimensions import Case, Need
from gprune.pipeline.stages import StageId
from gprune.records.repairs import AUTO
from gprune.study import Study
from gprune.study.choice import OWN, with_word
from gprune.study.methods import METHODS, fit_of, of_masks

CHOICE_TOKENS = 256
"""tokens of the longest choice with its question that a task is reckoned with; none is read before"""
SPEED_TOKENS = {"gpu": (8, 2048 + 512), "cpu": (1, 128 + 64), "none": (0, 0)}
"""sequences, and tokens of prompt and answer, of the presets in gprune.evaluation.speed, which needs torch"""
KRYLOV = 12
"""blocks of half as many directions as there are components, in gprune.pruning.calibration.principal"""
_WIDE = 8
"""bytes of a number of the statistics"""
_LOGITS = 2**24
"""logits in float32 that perplexity and the gradients of contexts hold at a time"""
_PIECE = {True: 2**25, False: 2**17}
"""activations that statistics widen to float32 at a time, on a GPU and on a CPU"""


def need(stage: StageId, case: Case) -> Need | None:
    """What a stage takes; None for one that needs no model, and next to nothing."""
    known = _KINDS.get(stage.kind)
    return None if known is None else known(stage, case)


def _calibrated(case: Case, each: float, host: float, fixed: float = 0.0, apart: float = 0.0) -> Need:
    """What a pass over a calibration set takes, in the batches of the study."""
    batch = case.study.calibration.batch
    return Need(case.weights, fixed, each, apart, host, batch, "calibration.batch")


def _statistics(stage: StageId, case: Case) -> Need:
    calibration, model = case.study.calibration, case.model
    moments = 2 * calibration.shards * model.units * _WIDE
    released = 2 * 2 * model.units * _WIDE if "released" in stage.variant else 0
    # a batch reaches into two shards, and what it changes stands beside what was there
    merging = 4 * model.units * _WIDE
    piece = 2 * 4 * min(_PIECE[case.gpu], calibration.batch * calibration.length * model.shape.neurons)
    strongest, peaks = _strongest(case)
    return _calibrated(
        case,
        fixed=moments + released + merging + piece + strongest,
        each=case.forward(calibration.length) + 2 * 4 * model.units + peaks,
        host=3.0 * calibration.shards * model.units * _WIDE + strongest / 2,
    )


def _strongest(case: Case) -> tuple[float, float]:
    """Bytes of the strongest positions of every neuron, and of what each sequence at a time adds."""
    shape = case.model.shape
    neurons, kept = shape.layers * shape.neurons, case.study.calibration.positions
    if not kept:
        return 0.0, 0.0
    # value, place and sequence, and what a batch changes; the order of one layer takes next to nothing
    return 2.0 * 3 * 4 * kept * neurons, 2.0 * 4 * neurons


def _positions(_: StageId, case: Case) -> Need:
    calibration = case.study.calibration
    fixed, each = _strongest(case)
    return _calibrated(
        case,
        fixed=fixed,
        each=case.forward(calibration.length) + each,
        host=fixed / 2,
    )


def _contexts(_: StageId, case: Case) -> Need:
    calibration, contexts, shape = case.study.calibration, case.study.contexts, case.model.shape
    tokens = min(contexts.tokens + calibration.length, calibration.samples * calibration.length)
    return _calibrated(
        case,
        # a layer's inputs, widened and about their mean, and their images in the space of the components
        apart=2.0 * 4 * tokens * shape.hidden + 2.0 * 4 * tokens * KRYLOV * contexts.dimensions / 2,
        each=case.forward(calibration.length),
        host=float(shape.layers * tokens * shape.hidden * case.width),
    )


def _context_statistics(stage: StageId, case: Case) -> Need:
    calibration, shape, count = case.study.calibration, case.model.shape, case.study.contexts.count
    count *= case.together
    gradient = "forward" not in stage.variant
    groups = shape.layers * count * shape.neurons * _WIDE
    length = calibration.length
    each = case.forward(length) + 4.0 * shape.layers * 2 * count * length
    if gradient:
        each += case.kept(length) + case.backward(length) + 2.0 * length * shape.hidden * (case.width + 4)
    # moments of every shard, the affinity, and what a batch in two shards changes
    return _calibrated(
        case,
        fixed=groups * (2.0 * calibration.shards + 6) + (case.logits(_LOGITS, 3) if gradient else 0.0),
        each=each,
        host=groups * (2.0 * calibration.shards + 1),
    )


def _clusters(_: StageId, case: Case) -> Need:
    shape = case.model.shape
    rows = 4.0 * shape.neurons * shape.neuron_weights
    most = max(case.study.modularization.candidates)
    return Need(weights=case.weights, fixed=2 * rows + _WIDE * 6.0 * shape.neurons * most)


def _masks(stage: StageId, case: Case) -> Need | None:
    """Layered methods run the model, all sequences waiting before a layer; and so may plug-ins."""
    calibration, method = case.study.calibration, of_masks(stage.method)
    if method.foreign:
        # what it does with the model only its author knows
        return Need(weights=case.weights)
    if not method.layered:
        return None
    waiting = 2.0 * calibration.samples * calibration.length * case.model.shape.hidden * case.width
    each = case.forward(calibration.length)
    if method.decision != "sequential":
        return _removed(case, each, waiting / 2)
    return _calibrated(case, fixed=4.0 * 2 * _PIECE[case.gpu], each=each, host=waiting)


def _removed(case: Case, each: float, stream: float) -> Need:
    """The moments of all inputs of one map in float64, then a damped copy, its inverse and the weights.

    CUDA's inverse takes a second array of its size (measured on an H200).
    """
    shape, length = case.model.shape, case.study.calibration.length
    width = max(shape.neurons, case.model.channels)
    moments, product = _WIDE * float(width * width), 4.0 * width * width
    return _calibrated(
        case,
        fixed=moments + product + (0.0 if case.gpu else stream),
        each=each + 4.0 * length * width,
        apart=(3 if case.gpu else 2) * moments - product + 2.0 * _WIDE * width * shape.hidden,
        host=stream if case.gpu else 0.0,
    )


def fitted_texts(stage: StageId, study: Study) -> int:
    """How many texts weights are fitted to: by the repair of the study or of the method, or by one tried."""
    method, word = of_masks(stage.method), ":".join(stage.variant)
    if word == OWN and method.fit is not None:
        return len(method.fit.roles)
    return len((with_word(study.repair, word) if word else fit_of(method, study)).roles)


def _repaired(stage: StageId, case: Case) -> Need:
    """Two streams of activations, and the moments of one map: its kept inputs with each other, in float64."""
    study, shape = case.study, case.model.shape
    calibration, width = study.calibration, max(shape.neurons, case.model.channels)
    tokens = fitted_texts(stage, study) * calibration.samples * calibration.length
    # the dense stream, the pruned one, and what the attention of one layer gives
    streams = tokens * case.width * 3.0 * shape.hidden
    kept = study.retention * width
    # the sum of products, its sum in float32, a copy with its damping and the factor; cross moments thrice
    solving = kept * kept * (3 * _WIDE + 4) + 3 * _WIDE * kept * shape.hidden
    length = calibration.length
    weights = study.retention * shape.decoder_weights * case.width
    return _calibrated(
        case,
        fixed=solving + (0.0 if case.gpu else streams) + weights,
        each=case.forward(length) + 4.0 * length * (kept + 2 * shape.hidden),
        host=(streams if case.gpu else 0.0) + 2 * weights,
    )


def _scores(stage: StageId, case: Case) -> Need | None:
    """Only LLM-Pruner's run the model: one batch, and the gradient of one matrix at a time."""
    if stage.metric != "llm_pruner":
        return None
    baselines, shape = case.study.baselines, case.model.shape
    inputs = shape.layers * 2 * shape.hidden * case.width * baselines.taylor_length
    each = case.kept(baselines.taylor_length) + case.backward(baselines.taylor_length) + inputs
    gradient = shape.neurons * shape.hidden * (case.width + 2.0 * 4)
    fixed = gradient + baselines.taylor_samples * each
    return Need(weights=case.weights, fixed=fixed + case.logits(_LOGITS, 3))


def _perplexity(stage: StageId, case: Case) -> Need:
    evaluation = case.study.evaluation
    tokens = evaluation.batch * evaluation.length
    states = 2.0 * tokens * case.model.shape.hidden * case.width
    # in the model's own numbers, widened where these are narrow, and their logarithms
    logits = case.logits(min(_LOGITS, tokens * case.model.vocabulary), 1 + (case.width < 4))
    return _measured(stage, case, evaluation.length, max(states + logits, case.repaired(stage.method)))


def _candidate(stage: StageId, case: Case) -> Need:
    """A cut model beside the dense one, and the logits of both with their logarithms."""
    study, length = case.study, case.study.calibration.length
    tokens = study.evaluation.batch * length
    states = 2.0 * tokens * case.model.shape.hidden * case.width
    logits = 2 * case.logits(min(_LOGITS, tokens * case.model.vocabulary), 3)
    return _measured(stage, case, length, max(states + logits, AUTO.bytes(case.model.shape, study.retention)))


def _accuracy(stage: StageId, case: Case) -> Need:
    length = min(CHOICE_TOKENS, case.model.positions)
    logits = case.logits(length * case.model.vocabulary, 2)
    return _measured(stage, case, length, case.repaired(stage.method), logits)


def _measured(stage: StageId, case: Case, length: int, apart: float, logits: float = 0.0) -> Need:
    """What measures a cut model on sequences of a length, with the logits of each as they are read."""
    weights, batch = case.weights + case.cut(stage.method), case.study.evaluation.batch
    return Need(weights, 0.0, case.forward(length) + logits, apart, 0.0, batch, "evaluation.batch")


def _speed(_: StageId, case: Case) -> Need:
    """The dense model, the first one and one other, each with its cache of keys and values."""
    preset = case.study.evaluation.speed
    preset = ("gpu" if case.gpu else "cpu") if preset == "auto" else preset
    batch, tokens = SPEED_TOKENS[preset]
    tokens = min(tokens, case.model.positions)
    cache = float(batch * tokens * case.model.shape.layers * 2 * case.model.keys * case.width)
    first, *others = case.study.methods
    shares = [
        max((1.0 if METHODS[name].decision == "none" else case.study.retention for name in names), default=0)
        for names in ([first], others)
    ]
    # buffers that a captured graph writes to stay; beside them whichever decodes without one has its own
    caches = max(shares) + (sum(shares) if preset == "gpu" and case.gpu else 0)
    return Need(
        weights=case.weights + case.cut(first) + max((case.cut(name) for name in others), default=0),
        fixed=cache * caches + case.forward(tokens) * batch,
    )


def _model(_: StageId, case: Case) -> Need:
    """Loading reads a model into the machine's own memory first."""
    return Need(weights=case.weights, host=case.weights if case.gpu else 0.0)


def _checkpoint(stage: StageId, case: Case) -> Need:
    """The pruned model, and the whole of it once more, read back on the host where a GPU has no room.

    A recovered one has its weights of before beside them.
    """
    cut, shape = case.cut("gprune"), case.model.shape
    back = cut + (case.model.parameters - shape.decoder_weights) * case.width
    before = cut if stage.variant else 0.0
    if case.gpu:
        return Need(weights=case.weights + cut + before, host=back)
    return Need(weights=case.weights + cut + before + back)


def _weighed(_: StageId, case: Case) -> Need:
    """A layer's weights beside the model, each widened in the machine's own memory."""
    shape = case.model.shape
    layer = 4.0 * shape.decoder_weights / shape.layers
    return Need(weights=case.weights, host=layer + (case.weights if case.gpu else 0.0))


OFFLOADED = (
    "statistics",
    "positions",
    "contexts",
    "clusters",
    "partition",
    "norms",
    "size",
    "shape",
    "sampled",
    "weighed",
)
"""the kinds that a model larger than memory can go through, its layers left in their files"""
_KINDS: dict[str, Callable[[StageId, Case], Need | None]] = {
    "statistics": _statistics,
    "positions": _positions,
    "contexts": _contexts,
    "context_statistics": _context_statistics,
    "clusters": _clusters,
    "partition": _clusters,
    "learning": training.learning,
    "gates": training.learning,
    "masks": _masks,
    "repaired": _repaired,
    "scales": training.learned_scales,
    "recovered": training.recovered,
    "scores": _scores,
    "candidate": _candidate,
    "perplexity": _perplexity,
    "recovered_perplexity": _perplexity,
    "accuracy": _accuracy,
    "answers": _accuracy,
    "speed": _speed,
    "checkpoint": _checkpoint,
    "sampled": _model,
    "norms": _model,
    "size": _model,
    "shape": _model,
    "weighed": _weighed,
}
"""the kinds of stage that run the model or hold it"""
