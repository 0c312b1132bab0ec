"""Peak memory of a stage by formula: weights, activations and optimizer state, in bytes, for each kind of stage.

The formulas are tested against counted allocations, on the CPU and at published shapes on the meta device
(tests/pipeline/estimate).
"""

from collections.abc import Callable
from dataclasses import dataclass

from gprune.pipeline.estimate.dimensions import Dimensions
from gprune.pipeline.stages import StageId
from gprune.records.repairs import AUTO
from gprune.study import Study
from gprune.study.methods import METHODS, fit_of, of_masks, repairs_of
from gprune.study.settings import OWN, with_word
from gprune.system import machine

CHOICE_TOKENS = 256
"""assumed tokens of a task's longest choice with its question"""
SPEED_TOKENS = {"gpu": (8, 2048 + 512), "cpu": (1, 128 + 64), "none": (0, 0)}
"""sequences, and tokens of prompt and answer, of the presets in gprune.evaluation.speed, which needs torch"""
KRYLOV = 12
"""blocks of half as many directions as there are components, in gprune.pruning.calibration.principal"""
_WIDE = 8
"""bytes of a number of the statistics"""
_LOGITS = 2**24
"""logits that perplexity and the gradients of contexts hold at a time"""
_LEARNING_LOGITS = {True: 2**25, False: 2**18}
"""logits that learning holds at a time, on a GPU and on a CPU, where the vocabulary allows"""
_LEAST_ROWS = 64
"""tokens whose logits learning holds at least"""
_PIECE = {True: 2**25, False: 2**17}
"""activations that statistics widen to float32 at a time, on a GPU and on a CPU"""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Peak memory of a stage, in bytes."""

    weights: float = 0.0
    """models on the device, an exact number"""
    fixed: float = 0.0
    """on the device, independent of the batch"""
    per_sequence: float = 0.0
    """on the device, for each sequence of a batch"""
    after_batches: float = 0.0
    """on the device once the last batch is freed"""
    host: float = 0.0
    """in the machine's memory, beside the device"""
    batch: int = 1
    """sequences of a batch as set in the study"""
    setting: str = ""
    """the setting that `batch` comes from; empty if the stage has no batches"""
    learns: bool = False
    """True if the stage allocates blocks of many sizes again and again, of which malloc keeps a part"""

    def on_device(self, sequences: int) -> float:
        """Return the bytes on the device with batches of this many sequences."""
        return self.weights + self.fixed + max(sequences * self.per_sequence, self.after_batches)


@dataclass(frozen=True, slots=True)
class Case:
    """The model, study and device that a stage's memory depends on."""

    model: Dimensions
    study: Study
    width: int
    """bytes of a number of the model"""
    gpu: bool
    gpus: int = 1
    """GPUs that share the layers"""

    @property
    def weights(self) -> float:
        """Bytes of the dense model on each GPU; with offload, of what is outside its layers and of one module."""
        if not self.study.offload:
            return float(self.model.parameters * self.width) / self.gpus
        shape = self.model.shape
        # a module's weights are read and widened while the last one's are still there
        return float((self.model.outer_weights + 2 * shape.neurons * shape.hidden) * self.width)

    def pruned(self, method: str) -> float:
        """Bytes of a method's model beside the dense one, which shares its embeddings and norms."""
        if METHODS[method].decision == "none":
            return 0.0
        return self.study.retention * self.model.shape.decoder_weights * self.width / self.gpus

    def forward(self, length: int) -> float:
        """Bytes of a sequence in one layer, of which none is stored for a backward pass."""
        shape, width = self.model.shape, self.width
        ffn = width * (2 * shape.hidden + 3 * shape.neurons)
        norm = shape.hidden * (2 * width + 3 * 4)
        attention = width * (2 * shape.hidden + 3 * self.model.channels + 3 * self.model.keys)
        return float(length * max(ffn, norm, attention))

    def stored(self, length: int, recomputed: bool = False) -> float:
        """Bytes of a sequence that all layers store for the backward pass through frozen weights.

        Each layer stores the wide inputs of two norms; queries, keys, values, output and input of o_proj, with
        the sums of the softmax; gate, its activation, the up projection and their product. If `recomputed`,
        the wide inputs, the activation and the product are computed again instead.
        """
        model, width = self.model, self.width
        norms = 2 * (width if recomputed else 4) * model.shape.hidden
        attention = width * (3 * model.channels + 2 * model.keys) + 4 * model.shape.heads
        ffn = (2 if recomputed else 4) * width * model.shape.neurons
        return float(length * model.shape.layers * (norms + attention + ffn)) / self.gpus

    def backward(self, length: int) -> float:
        """Bytes of a sequence's backward pass through one layer, beside what is stored."""
        return float(length * self.model.shape.neurons * (3 * self.width + 4))

    def logits(self, count: int, copies: int) -> float:
        """Bytes of logits in the model's number type, and of copies of them in float32."""
        return float(count * (self.width + 4 * copies))


def memory_need(stage: StageId, case: Case) -> MemoryNeed | None:
    """Return the peak memory of a stage; None for one that does not need the model."""
    formula = _FORMULAS.get(stage.kind)
    return None if formula is None else formula(stage, case)


def _calibration(case: Case, per_sequence: float, host: float, fixed: float = 0.0, after: float = 0.0) -> MemoryNeed:
    batch = case.study.calibration.batch
    return MemoryNeed(case.weights, fixed, per_sequence, after, host, batch, "calibration.batch")


def _statistics(stage: StageId, case: Case) -> MemoryNeed:
    calibration, model, shape = case.study.calibration, case.model, case.model.shape
    per_sequence, fixed, host = case.forward(calibration.length), 0.0, 0.0
    if stage.kind == "statistics":
        # moments of every shard, those of two shards that a batch changes, with a second pair for released ones
        moments = 2 * calibration.shards + 4 + (4 if "released" in stage.variant else 0)
        piece = min(_PIECE[case.gpu], calibration.batch * calibration.length * shape.neurons)
        fixed, host = moments * model.units * _WIDE + 2 * 4 * piece, 3.0 * calibration.shards * model.units * _WIDE
        per_sequence += 2 * 4 * model.units
    if calibration.positions:
        # value, position and sequence of the strongest activations, and what a batch changes
        strongest = 2.0 * 3 * 4 * calibration.positions * shape.layers * shape.neurons
        fixed, host = fixed + strongest, host + strongest / 2
        per_sequence += 2 * 4 * shape.layers * shape.neurons
    return _calibration(case, per_sequence, host, fixed)


def _contexts(_: StageId, case: Case) -> MemoryNeed:
    calibration, contexts, shape = case.study.calibration, case.study.contexts, case.model.shape
    tokens = min(contexts.tokens + calibration.length, calibration.samples * calibration.length)
    return _calibration(
        case,
        case.forward(calibration.length),
        host=float(shape.layers * tokens * shape.hidden * case.width),
        # a layer's inputs in float32, about their mean, and their images in the space of the components
        after=2.0 * 4 * tokens * shape.hidden + 2.0 * 4 * tokens * KRYLOV * contexts.dimensions / 2,
    )


def _context_statistics(stage: StageId, case: Case) -> MemoryNeed:
    calibration, shape, count = case.study.calibration, case.model.shape, case.study.contexts.count
    groups, length = shape.layers * count * shape.neurons * _WIDE, calibration.length
    per_sequence, logits = case.forward(length) + 4.0 * shape.layers * 2 * count * length, 0.0
    if "forward" not in stage.variant:
        per_sequence += case.stored(length) + case.backward(length) + 2.0 * length * shape.hidden * (case.width + 4)
        logits = case.logits(_LOGITS, 3)
    moments = 2.0 * calibration.shards
    return _calibration(case, per_sequence, host=groups * (moments + 1), fixed=groups * (moments + 6) + logits)


def _clusters(_: StageId, case: Case) -> MemoryNeed:
    shape = case.model.shape
    rows = 4.0 * shape.neurons * shape.neuron_weights
    distances = _WIDE * 6.0 * shape.neurons * max(case.study.modularization.candidates)
    return MemoryNeed(case.weights, fixed=2 * rows + distances)


def _masks(stage: StageId, case: Case) -> MemoryNeed | None:
    """Only layer-by-layer methods run the model, with all sequences stored between layers; plug-ins may."""
    calibration, method, shape = case.study.calibration, of_masks(stage.method), case.model.shape
    if method.foreign:
        return MemoryNeed(case.weights)
    if not method.layered:
        return None
    stream = float(calibration.samples * calibration.length * shape.hidden * case.width)
    per_sequence = case.forward(calibration.length)
    if method.decision == "sequential":
        return _calibration(case, per_sequence, host=2 * stream, fixed=4.0 * 2 * _PIECE[case.gpu])
    # moments of the inputs of one map in float64, then a damped copy, its inverse and the weights
    width = max(shape.neurons, case.model.channels)
    moments, product = _WIDE * float(width * width), 4.0 * width * width
    # CUDA's inverse takes a second array of its size
    inverse = (3 if case.gpu else 2) * moments - product + 2.0 * _WIDE * width * shape.hidden
    return _calibration(
        case,
        per_sequence + 4.0 * calibration.length * width,
        host=stream if case.gpu else 0.0,
        fixed=moments + product + (0.0 if case.gpu else stream),
        after=inverse,
    )


def _count_fit_texts(stage: StageId, study: Study) -> int:
    method, word = of_masks(stage.method), ":".join(stage.variant)
    if word == OWN and method.fit is not None:
        return len(method.fit.roles)
    return len((with_word(study.repair, word) if word else fit_of(method, study)).roles)


def _repaired(stage: StageId, case: Case) -> MemoryNeed:
    study, shape, length = case.study, case.model.shape, case.study.calibration.length
    tokens = _count_fit_texts(stage, study) * study.calibration.samples * length
    # the dense stream, the pruned one, and the output of one layer's attention
    streams = tokens * case.width * 3.0 * shape.hidden
    inputs = study.retention * max(shape.neurons, case.model.channels)
    # products in float64, their sum in float32, a damped copy and its factor; cross moments three times
    solving = inputs * inputs * (3 * _WIDE + 4) + 3 * _WIDE * inputs * shape.hidden
    weights = study.retention * shape.decoder_weights * case.width
    return _calibration(
        case,
        case.forward(length) + 4.0 * length * (inputs + 2 * shape.hidden),
        host=(streams if case.gpu else 0.0) + 2 * weights,
        fixed=solving + (0.0 if case.gpu else streams) + weights,
    )


def _scores(stage: StageId, case: Case) -> MemoryNeed | None:
    """Only the scores of LLM-Pruner run the model: one batch, and the gradient of one matrix at a time."""
    if stage.metric != "llm_pruner":
        return None
    baselines, shape, length = case.study.baselines, case.model.shape, case.study.baselines.taylor_length
    inputs = shape.layers * 2 * shape.hidden * case.width * length
    activations = baselines.taylor_samples * (case.stored(length) + case.backward(length) + inputs)
    gradient = shape.neurons * shape.hidden * (case.width + 2.0 * 4)
    return MemoryNeed(case.weights, fixed=gradient + activations + case.logits(_LOGITS, 3))


def _evaluation(stage: StageId, case: Case) -> MemoryNeed:
    """A pruned model beside the dense one: batches through its layers, then a piece of the logits."""
    study, shape, evaluation = case.study, case.model.shape, case.study.evaluation
    per_sequence = after = 0.0
    if stage.kind in ("accuracy", "answers"):
        length = min(CHOICE_TOKENS, case.model.positions)
        per_sequence = case.logits(length * case.model.vocabulary, 2)
    else:
        # a candidate is compared with the dense model by the logits of both
        candidate = stage.kind == "candidate"
        length = study.calibration.length if candidate else evaluation.length
        count = min(_LOGITS, evaluation.batch * length * case.model.vocabulary)
        logits = 2 * case.logits(count, 3) if candidate else case.logits(count, 1 + (case.width < 4))
        after = 2.0 * evaluation.batch * length * shape.hidden * case.width + logits
    repairs = (AUTO,) if stage.kind == "candidate" else repairs_of(METHODS[stage.method], study)
    after = max([after, *(repair.bytes(shape, study.retention) for repair in repairs)])
    weights, per_sequence = case.weights + case.pruned(stage.method), per_sequence + case.forward(length)
    return MemoryNeed(weights, 0.0, per_sequence, after, 0.0, evaluation.batch, "evaluation.batch")


def _speed(_: StageId, case: Case) -> MemoryNeed:
    """Two models at a time, each with its cache of keys and values."""
    preset = case.study.evaluation.speed
    preset = ("gpu" if case.gpu else "cpu") if preset == "auto" else preset
    batch, tokens = SPEED_TOKENS[preset]
    tokens = min(tokens, case.model.positions)
    cache = float(batch * tokens * case.model.shape.layers * 2 * case.model.keys * case.width)
    # captured graphs keep the buffers they write to, and a model that decodes without one has its own
    caches = 2 + case.study.retention if preset == "gpu" and case.gpu else 1
    return MemoryNeed(
        weights=case.weights + max(case.pruned(name) for name in case.study.methods),
        fixed=cache * caches + case.forward(tokens) * batch,
    )


def _loading(_: StageId, case: Case) -> MemoryNeed:
    """Loading reads a model into the machine's memory, and checks its largest matrix in copies of float32."""
    copies = 3 * 4.0 * max(case.model.vocabulary, case.model.shape.neurons) * case.model.shape.hidden
    return MemoryNeed(case.weights, host=copies + (case.weights if case.gpu else 0.0))


def _checkpoint(stage: StageId, case: Case) -> MemoryNeed:
    """The pruned model, and a copy read back, on the host where the device is a GPU."""
    pruned = case.pruned("gprune")
    copy = pruned + case.model.outer_weights * case.width
    # a recovered model has its weights of before beside it
    weights = case.weights + (2 if stage.variant else 1) * pruned
    return MemoryNeed(weights, host=copy) if case.gpu else MemoryNeed(weights + copy)


def _learning(stage: StageId, case: Case) -> MemoryNeed:
    """Thresholds or gates, the masks of four subsets, and what a batch stores for the backward pass."""
    if stage.kind == "gates" and stage.method and METHODS[stage.method].scaled:
        return _scales(stage, case)
    study, model, shape = case.study, case.model, case.model.shape
    thresholds = shape.layers * (max(study.modularization.candidates) + 1.0)
    # masks of four subsets with their gradients, and the order of all units
    masks = 4.0 * 4 * 2 * model.units + 100.0 * shape.layers * shape.neurons
    return _training(
        case,
        weights=case.weights,
        # values and Adam's state, in use and as they were after the last step
        trained=4.0 * 2 * 4 * (thresholds if stage.kind == "learning" else model.units),
        fixed=masks,
        stored=case.stored(study.calibration.length, recomputed=True),
        cached=2 * study.calibration.samples if study.sparsity.epochs > 1 else 0,
        batch=study.sparsity.batch,
        setting="sparsity.batch",
    )


def _scales(stage: StageId, case: Case) -> MemoryNeed:
    """A student that learns scales: the dense model with gates, or a pruned one beside it."""
    study, model, shape, settings = case.study, case.model, case.model.shape, case.study.scales
    joint, length = stage.kind == "gates", study.calibration.length
    sequences = len(settings.roles) * min(settings.samples, study.calibration.samples)
    batch, steps = min(settings.batch, sequences), settings.joint_steps if joint else settings.steps
    norms = length * shape.layers * 2.0 * case.width * shape.hidden
    share = 1.0 if joint else study.retention
    return _training(
        case,
        weights=case.weights + (0.0 if joint else case.pruned(stage.method)),
        # values, pace, gradient and Adam's state, and all but the gradient as after the last step
        trained=4.0 * 8 * ((2 if joint else 1) * model.units + 2 * shape.layers * shape.hidden),
        fixed=100.0 * shape.layers * shape.neurons * joint,
        stored=share * (case.stored(length, recomputed=True) - norms) + norms,
        cached=sequences if steps * batch > sequences else 0,
        batch=batch,
        setting="scales.batch",
    )


def _recovered(stage: StageId, case: Case) -> MemoryNeed:
    """A pruned model with its LoRA factors in float32, beside the dense one."""
    study, model, shape, settings = case.study, case.model, case.model.shape, case.study.recovery
    length, sequences = study.calibration.length, len(settings.roles) * study.calibration.samples
    batch, retention = min(settings.batch, sequences), study.retention
    # inputs and outputs of the linear maps of a layer that are trained, of the seven that there are
    share = len(settings.targets) / 7
    inputs = share * (5 * shape.hidden + retention * (model.channels + shape.neurons))
    outputs = share * (2 * shape.hidden + retention * (model.channels + 2 * model.keys + 2 * shape.neurons))
    factors = shape.layers * settings.rank * (inputs + outputs)
    # the factors' inputs are stored in float32; norms are as wide as in the dense model
    copies = 4 * inputs if case.width < 4 else 4 * 2 * shape.hidden
    norms = length * shape.layers * 2.0 * 4 * shape.hidden
    stored = retention * (case.stored(length) - norms) + norms + shape.layers * length * copies
    return _training(
        case,
        weights=case.weights + case.pruned(stage.method),
        # values, gradient and Adam's state, and all but the gradient as after the last step
        trained=4.0 * 7 * factors,
        fixed=0.0,
        stored=stored,
        cached=sequences if settings.steps * batch > sequences else 0,
        batch=batch,
        setting="recovery.batch",
    )


def _training(
    case: Case, weights: float, trained: float, fixed: float, stored: float, cached: int, batch: int, setting: str
) -> MemoryNeed:
    """Add what all training holds: logits, a batch's activations, the dense model's states of `cached` sequences."""
    length, vocabulary = case.study.calibration.length, case.model.vocabulary
    states = float(length * case.model.shape.hidden * case.width)
    logits = min(max(_LEARNING_LOGITS[case.gpu], _LEAST_ROWS * vocabulary), batch * length * vocabulary)
    return MemoryNeed(
        weights,
        fixed + trained + case.logits(logits, 5),
        per_sequence=stored + case.backward(length) + 4 * states,
        host=trained + (cached * states if cached * states <= machine.spare() else 0.0),
        batch=batch,
        setting=setting,
        learns=True,
    )


_LOADED = ("sampled", "norms", "size", "shape", "weighed")
OFFLOADED = ("statistics", "positions", "contexts", "clusters", "partition", *_LOADED)
"""the kinds of stage that a model larger than memory can go through, its layers left in their files"""
_FORMULAS: dict[str, Callable[[StageId, Case], MemoryNeed | None]] = {
    "statistics": _statistics,
    "positions": _statistics,
    "contexts": _contexts,
    "context_statistics": _context_statistics,
    "clusters": _clusters,
    "partition": _clusters,
    "learning": _learning,
    "gates": _learning,
    "masks": _masks,
    "repaired": _repaired,
    "scales": _scales,
    "recovered": _recovered,
    "scores": _scores,
    "candidate": _evaluation,
    "perplexity": _evaluation,
    "recovered_perplexity": _evaluation,
    "accuracy": _evaluation,
    "answers": _evaluation,
    "speed": _speed,
    "checkpoint": _checkpoint,
    **dict.fromkeys(_LOADED, _loading),
}
"""formulas by kind of stage"""
