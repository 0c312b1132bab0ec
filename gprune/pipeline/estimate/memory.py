"""Peak memory of a stage by formula: weights, activations and optimizer state, in bytes.

Kinds of stage that compute alike share a formula: passes over calibration texts, fits of a layer's weights, learning,
measurements, and work on the weights alone. The formulas are tested against counted allocations, on the CPU and at
published shapes on the meta device (tests/pipeline/estimate).
"""

from collections.abc import Callable
from dataclasses import dataclass

from gprune.pipeline.estimate.dimensions import Dimensions
from gprune.pipeline.stages import StageId
from gprune.pipeline.stages.pruning import fit_settings
from gprune.study import Study
from gprune.study.methods import METHODS, of_masks
from gprune.system import machine

CHOICE_TOKENS = 256
"""assumed tokens of a task's longest choice with its question"""
SPEED_TOKENS = {"gpu": (8, 2048 + 512), "cpu": (1, 128 + 64), "none": (0, 0)}
"""sequences, and tokens of prompt and answer, of the presets in gprune.evaluation.speed, which needs torch"""
KRYLOV = 12
"""blocks of half as many directions as there are components, in gprune.pruning.calibration.principal"""
OPTIMIZER = 32
"""bytes of a trained number: its value, gradient and Adam's state, in use and as they were after the last step"""
_STATISTIC_BYTES = 8
"""bytes of a float64 number, as the statistics are stored"""
_LOGITS = 2**24
"""logits that perplexity and the gradients of contexts hold at a time"""
_LEARNING_LOGITS = {True: 2**25, False: 2**18}
"""logits that learning holds at a time, on a GPU and on a CPU, but those of 64 tokens at least"""
_WIDENED_ACTIVATIONS = {True: 2**25, False: 2**17}
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
    """bytes in the machine's memory, in addition to the device"""
    batch: int = 1
    """sequences of a batch as set in the study"""
    setting: str = ""
    """the setting that `batch` comes from; empty if the stage has no batches"""

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
        """Return the bytes of the dense model on each GPU; with offload, of one module and the outer parts."""
        if not self.study.offload:
            return float(self.model.parameters * self.width) / self.gpus
        shape = self.model.shape
        # a module's weights are read and widened while the last one's are still there
        return float((self.model.outer_weights + 2 * shape.neurons * shape.hidden) * self.width)

    def pruned(self, method: str) -> float:
        """Return the additional bytes of a method's model, which shares embeddings and norms with the dense one."""
        if METHODS[method].decision == "none":
            return 0.0
        return self.study.retention * self.model.shape.decoder_weights * self.width / self.gpus

    def stream(self, sequences: int) -> float:
        """Return the bytes of the hidden states of calibration sequences."""
        return float(sequences * self.study.calibration.length * self.model.shape.hidden * self.width)

    def forward(self, length: int) -> float:
        """Return the bytes of a sequence in one layer, if nothing is stored for a backward pass."""
        # of the FFN, which is the largest part
        return float(length * self.width * (2 * self.model.shape.hidden + 3 * self.model.shape.neurons))

    def backward(self, length: int, share: float = 1.0, recomputed: bool = False) -> float:
        """Return the bytes that all layers store of a sequence for the backward pass, with its gradients.

        Each layer stores the wide inputs of two norms; queries, keys, values, output and input of o_proj, with
        the sums of the softmax; gate, its activation, the up projection and their product. If `recomputed`,
        the wide inputs, the activation and the product are computed again instead. `share` is the retention.
        """
        model, width, hidden, neurons = self.model, self.width, self.model.shape.hidden, self.model.shape.neurons
        norms = 2 * (width if recomputed else 4) * hidden
        attention = width * (3 * model.channels + 2 * model.keys) + 4 * model.shape.heads
        ffn = (2 if recomputed else 4) * width * neurons
        stored = model.shape.layers * (norms + share * (attention + ffn)) / self.gpus
        # gradients exist in one layer at a time
        return length * (stored + neurons * (3 * width + 4) + 2 * hidden * (width + 4))

    def logits(self, count: int, copies: int) -> float:
        """Return the bytes of logits in the model's number type, and of copies of them in float32."""
        return float(count * (self.width + 4 * copies))


def memory_need(stage: StageId, case: Case) -> MemoryNeed | None:
    """Return the peak memory of a stage; None for one that does not need the model."""
    formula = _FORMULAS.get(stage.kind)
    return None if formula is None else formula(stage, case)


def _calibration_passes(
    case: Case, *, per_sequence: float = 0.0, host: float = 0.0, fixed: float = 0.0, after: float = 0.0
) -> MemoryNeed:
    """Estimate passes over calibration texts: a layer's activations, and what a stage adds to them."""
    calibration = case.study.calibration
    per_sequence += case.forward(calibration.length)
    return MemoryNeed(case.weights, fixed, per_sequence, after, host, calibration.batch, "calibration.batch")


def _statistics(_: StageId, case: Case) -> MemoryNeed:
    """Estimate the pass for moments and strongest positions; an upper bound for positions alone."""
    calibration, units, shape = case.study.calibration, case.model.units, case.model.shape
    # value, position and sequence of the strongest activations; shards that a batch updates are held twice
    strongest = 12.0 * calibration.positions * shape.layers * shape.neurons
    activations = min(_WIDENED_ACTIVATIONS[case.gpu], calibration.batch * calibration.length * shape.neurons)
    return _calibration_passes(
        case,
        per_sequence=8.0 * (units + shape.layers * shape.neurons),
        host=strongest + 3 * calibration.shards * units * _STATISTIC_BYTES,
        fixed=2 * strongest + (2.0 * calibration.shards + 8) * units * _STATISTIC_BYTES + 8 * activations,
    )


def _contexts(_: StageId, case: Case) -> MemoryNeed:
    calibration, contexts, shape = case.study.calibration, case.study.contexts, case.model.shape
    tokens = min(contexts.tokens + calibration.length, calibration.samples * calibration.length)
    # a layer's inputs in float32, about their mean, and their images in the space of the components
    after = 2.0 * 4 * tokens * (shape.hidden + KRYLOV * contexts.dimensions / 2)
    return _calibration_passes(case, host=float(shape.layers * tokens * shape.hidden * case.width), after=after)


def _context_statistics(stage: StageId, case: Case) -> MemoryNeed:
    calibration, shape, count = case.study.calibration, case.model.shape, case.study.contexts.count
    moments, groups = 2.0 * calibration.shards, shape.layers * count * shape.neurons * _STATISTIC_BYTES
    per_sequence, fixed = 4.0 * shape.layers * 2 * count * calibration.length, groups * (moments + 6)
    if "forward" not in stage.variant:
        per_sequence += case.backward(calibration.length)
        fixed += case.logits(_LOGITS, 3)
    return _calibration_passes(case, per_sequence=per_sequence, host=groups * (moments + 1), fixed=fixed)


def _scores(stage: StageId, case: Case) -> MemoryNeed | None:
    """Estimate scores; only LLM-Pruner's run the model: one batch, and one matrix's gradient at a time."""
    if stage.metric != "llm_pruner":
        return None
    baselines, shape = case.study.baselines, case.model.shape
    inputs = shape.layers * 2 * shape.hidden * case.width * baselines.taylor_length
    activations = baselines.taylor_samples * (case.backward(baselines.taylor_length) + inputs)
    gradient = shape.neurons * shape.hidden * (case.width + 2.0 * 4)
    return MemoryNeed(case.weights, fixed=gradient + activations + case.logits(_LOGITS, 3))


def _masks(stage: StageId, case: Case) -> MemoryNeed | None:
    """Estimate masks; only layer-by-layer methods and plug-ins run the model."""
    method, stream = of_masks(stage.method), case.stream(case.study.calibration.samples)
    if method.foreign:
        return MemoryNeed(case.weights)
    if method.decision == "sequential":
        return _calibration_passes(case, host=2 * stream, fixed=8.0 * _WIDENED_ACTIVATIONS[case.gpu])
    return _least_squares(case, stream, 1.0) if method.layered else None


def _repair_fit(stage: StageId, case: Case) -> MemoryNeed:
    study, shape = case.study, case.model.shape
    settings = fit_settings(study, of_masks(stage.method), ":".join(stage.variant))
    # the dense stream, the pruned one, and the output of one layer's attention
    streams = 3 * case.stream(len(settings.roles) * study.calibration.samples)
    return _least_squares(case, streams, study.retention, study.retention * shape.decoder_weights * case.width)


def _least_squares(case: Case, streams: float, share: float, weights: float = 0.0) -> MemoryNeed:
    """Estimate least squares for a share of a layer's inputs, between `streams` of all sequences."""
    hidden, inputs = case.model.shape.hidden, share * max(case.model.shape.neurons, case.model.channels)
    # moments of the inputs in float64, then a damped copy, its inverse and the weights
    moments, product = _STATISTIC_BYTES * inputs * inputs, 4 * inputs * inputs
    # CUDA's inverse takes a second array of its size
    inverse = (3 if case.gpu else 2) * moments - product + 2 * _STATISTIC_BYTES * inputs * hidden
    # a repair has three cross moments with the dense stream
    crossed = 3 * _STATISTIC_BYTES * inputs * hidden if weights else 0.0
    return _calibration_passes(
        case,
        per_sequence=4.0 * case.study.calibration.length * (inputs + (2 * hidden if weights else 0)),
        host=(streams if case.gpu else 0.0) + 2 * weights,
        fixed=moments + product + crossed + weights + (0.0 if case.gpu else streams),
        after=inverse,
    )


def _learning(stage: StageId, case: Case) -> MemoryNeed:
    """Estimate learning: numbers, logits, stored activations and the dense model's states.

    Thresholds, gates and scales are learned in the dense model; scales of given masks and LoRA factors in a pruned
    one beside it.
    """
    study, model, calibration = case.study, case.model, case.study.calibration
    samples, length = calibration.samples, calibration.length
    # thresholds or gates and masks of four subsets; scales of units, biases
    trained, adapters = 2.0 * (model.units + model.shape.layers * model.shape.hidden), 0.0
    name, batch, sequences = "sparsity", study.sparsity.batch, 2 * samples
    is_pruned, is_recovery = stage.kind in ("scales", "recovered"), stage.kind == "recovered"
    if is_recovery:
        name, batch, sequences = "recovery", study.recovery.batch, len(study.recovery.roles) * samples
        trained, adapters = _low_rank(case)
    elif is_pruned or (stage.method and METHODS[stage.method].scaled):
        name, batch = "scales", study.scales.batch
        sequences = len(study.scales.roles) * min(study.scales.samples, samples)
    batch, cached = min(batch, sequences), case.stream(sequences)
    logits = min(max(_LEARNING_LOGITS[case.gpu], 64 * model.vocabulary), batch * length * model.vocabulary)
    activations = case.backward(length, study.retention if is_pruned else 1.0, recomputed=not is_recovery)
    return MemoryNeed(
        weights=case.weights + (case.pruned(stage.method) if is_pruned else 0.0),
        # the order of all units, for masks
        fixed=OPTIMIZER * trained + 100.0 * model.units + case.logits(logits, 5),
        per_sequence=activations + adapters * length,
        # the dense model's states, which are kept where the memory allows
        host=OPTIMIZER * trained + (cached if cached <= machine.cache_budget() else 0.0),
        batch=batch,
        setting=f"{name}.batch",
    )


def _low_rank(case: Case) -> tuple[float, float]:
    """Return the number of all LoRA factors, and the bytes that they add to each token's activations."""
    study, model, shape, settings = case.study, case.model, case.model.shape, case.study.recovery
    # inputs and outputs of the linear maps of a layer that are trained, of the seven that there are
    share = len(settings.targets) / 7
    inputs = share * (5 * shape.hidden + study.retention * (model.channels + shape.neurons))
    outputs = share * (2 * shape.hidden + study.retention * (model.channels + 2 * model.keys + 2 * shape.neurons))
    # a map's inputs are stored in float32
    copies = 4 * inputs if case.width < 4 else 4 * 2 * shape.hidden
    return shape.layers * settings.rank * (inputs + outputs), shape.layers * copies


def _evaluation(stage: StageId, case: Case) -> MemoryNeed:
    """Estimate an evaluation: a pruned and the dense model, their activations and a block of logits."""
    model, evaluation, length = case.model, case.study.evaluation, case.study.evaluation.length
    answers = after = 0.0
    if stage.kind in ("accuracy", "answers"):
        length = min(CHOICE_TOKENS, model.positions)
        answers = case.logits(length * model.vocabulary, 2)
    else:
        # a candidate is compared with the dense model by the logits of both
        models, copies = 1, 1 + (case.width < 4)
        if stage.kind == "candidate":
            models, copies, length = 2, 3, case.study.calibration.length
        logits = case.logits(min(_LOGITS, evaluation.batch * length * model.vocabulary), copies)
        after = 2.0 * evaluation.batch * length * model.shape.hidden * case.width + models * logits
    weights, per_sequence = case.weights + case.pruned(stage.method), answers + case.forward(length)
    return MemoryNeed(weights, 0.0, per_sequence, after, batch=evaluation.batch, setting="evaluation.batch")


def _speed(_: StageId, case: Case) -> MemoryNeed:
    """Estimate a speed measurement: two models at a time, each with its cache of keys and values."""
    preset, model = case.study.evaluation.speed, case.model
    batch, tokens = SPEED_TOKENS[("gpu" if case.gpu else "cpu") if preset == "auto" else preset]
    tokens = min(tokens, model.positions)
    cache = float(batch * tokens * model.shape.layers * 2 * model.keys * case.width)
    # captured graphs keep the buffers they write to, and a model that decodes without one has its own
    caches = 2 + case.study.retention if batch > 1 and case.gpu else 1
    weights = case.weights + max(map(case.pruned, case.study.methods))
    return MemoryNeed(weights, cache * caches + case.forward(tokens) * batch)


def _weights(stage: StageId, case: Case) -> MemoryNeed:
    """Estimate work on weights alone: the model in host memory, or one layer's neurons compared."""
    model, shape = case.model, case.model.shape
    if stage.kind in ("clusters", "partition"):
        distances = 6.0 * _STATISTIC_BYTES * shape.neurons * max(case.study.modularization.candidates)
        return MemoryNeed(case.weights, fixed=8.0 * shape.neurons * shape.neuron_weights + distances)
    # the largest matrix is checked in copies of float32
    copies = 12.0 * max(model.vocabulary, shape.neurons) * shape.hidden
    return MemoryNeed(case.weights, host=copies + (case.weights if case.gpu else 0.0))


def _checkpoint(stage: StageId, case: Case) -> MemoryNeed:
    """Estimate an export: the pruned model and its copy, on the host if the device is a GPU."""
    pruned = case.pruned("gprune")
    copy = pruned + case.model.outer_weights * case.width
    # a recovered model also holds its weights before recovery
    weights = case.weights + (2 if stage.variant else 1) * pruned
    return MemoryNeed(weights, host=copy) if case.gpu else MemoryNeed(weights + copy)


_LOADED = ("sampled", "norms", "size", "shape", "weighed")
OFFLOADED = ("statistics", "positions", "contexts", "clusters", "partition", *_LOADED)
"""the kinds of stage that a model larger than memory can go through, its layers left in their files"""
_FORMULAS: dict[str, Callable[[StageId, Case], MemoryNeed | None]] = {
    **dict.fromkeys(("clusters", "partition", *_LOADED), _weights),
    **dict.fromkeys(("statistics", "positions"), _statistics),
    "contexts": _contexts,
    "context_statistics": _context_statistics,
    "scores": _scores,
    "masks": _masks,
    "repaired": _repair_fit,
    **dict.fromkeys(("learning", "gates", "scales", "recovered"), _learning),
    **dict.fromkeys(("candidate", "perplexity", "recovered_perplexity", "accuracy", "answers"), _evaluation),
    "speed": _speed,
    "checkpoint": _checkpoint,
}
"""formulas by kind of stage"""
