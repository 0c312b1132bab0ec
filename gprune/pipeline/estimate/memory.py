"""Estimate the peak memory of a stage in bytes: weights, activations and optimizer state.

Kinds of stage with the same computation share a formula: passes over calibration texts, fits of a layer's weights,
learning, measurements, and work on the weights alone. The tests (tests/pipeline/estimate) compare the formulas with
counted allocations, on the CPU and at published shapes on the meta device.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gprune.pipeline.estimate.dimensions import Dimensions
from gprune.pipeline.stages import StageId
from gprune.pipeline.stages.pruning import fit_settings
from gprune.records.experts import STRONGEST
from gprune.records.repairs import ROUTERS
from gprune.study import Study
from gprune.study.methods import EXPERT_METHODS, METHODS, of_masks
from gprune.system import machine

CHOICE_TOKENS = 256
"""assumed number of tokens of a task's longest question with its choice"""
SPEED_TOKENS = {"gpu": (8, 2048 + 512), "cpu": (1, 128 + 64), "none": (0, 0)}
"""number of sequences, and of prompt and new tokens of each, in the presets of gprune.evaluation.speed

That module is not imported here, because it needs torch.
"""
KRYLOV_BLOCKS = 12
"""blocks in gprune.pruning.calibration.principal: each has half as many directions as there are components"""
TRAINED_BYTES = 32
"""bytes of a trained number: value, gradient and two Adam moments in float32, and a copy of them from the last step"""
_STATISTIC_BYTES = 8
"""bytes of a float64 number, the type of stored statistics"""
_LOGITS = 2**24
"""number of logits that perplexity and gradients (contexts, LLM-Pruner) hold at a time"""
_LEARNING_LOGITS = {True: 2**25, False: 2**18}
"""number of logits that learning holds at a time, on a GPU and on a CPU, but at least those of 64 tokens"""
_WIDENED_ACTIVATIONS = {True: 2**25, False: 2**17}
"""number of activations that statistics convert to float32 at a time, on a GPU and on a CPU"""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Peak memory of a stage, in bytes."""

    weights: float = 0.0
    """weights of the models on the device; this number is exact"""
    fixed: float = 0.0
    """device memory that does not depend on the batch"""
    per_sequence: float = 0.0
    """device memory of each sequence of a batch"""
    after_batches: float = 0.0
    """device memory that is used after the last batch is freed"""
    host: float = 0.0
    """host memory, in addition to the device memory"""
    batch: int = 1
    """sequences of a batch, as set in the study"""
    setting: str = ""
    """the setting of `batch`; empty if the stage has no batches"""

    def on_device(self, sequences: int) -> float:
        """Return the device memory in bytes with batches of `sequences`."""
        return self.weights + self.fixed + max(sequences * self.per_sequence, self.after_batches)


@dataclass(frozen=True, slots=True)
class Case:
    """The model, study and device that a stage's memory depends on."""

    model: Dimensions
    study: Study
    width: int
    """bytes of one number of the model"""
    gpu: bool
    """True if the device is a GPU"""
    gpus: int = 1
    """number of GPUs that share the layers"""

    @property
    def weights(self) -> float:
        """Return the bytes of the dense model on each GPU.

        With offload, these are one module and the weights outside the layers.
        """
        if not self.study.offload:
            return float(self.model.parameters * self.width) / self.gpus
        shape = self.model.shape
        # a module's weights are read and converted before those of the previous module are freed
        return float((self.model.outer_weights + 2 * shape.neurons * shape.hidden) * self.width)

    def pruned(self, method: str) -> float:
        """Return the additional bytes of a method's model, which shares embeddings and norms with the dense model."""
        if method in EXPERT_METHODS:
            return self.study.retention * self.model.expert_weights * self.width / self.gpus
        if METHODS[method].decision == "none":
            return 0.0
        return self.study.retention * self.model.shape.decoder_weights * self.width / self.gpus

    def stream(self, sequences: int) -> float:
        """Return the bytes of the hidden states of calibration sequences."""
        return float(sequences * self.study.calibration.length * self.model.shape.hidden * self.width)

    def forward(self, length: int) -> float:
        """Return the bytes of one sequence's activations in one layer without a backward pass."""
        # the FFN has the largest: input, output, gate, up projection and their product
        return float(length * self.width * (2 * self.model.shape.hidden + 3 * self.model.shape.neurons))

    def backward(self, length: int, share: float = 1.0, recomputed: bool = False) -> float:
        """Return the bytes of one sequence that all layers store for the backward pass, with its gradients.

        Each layer stores the inputs of both norms in float32; queries, keys, values, the output and input of o_proj,
        and the sums of the softmax; and gate, its activation, the up projection and their product. With `recomputed`,
        it recomputes the float32 inputs, the activation and the product instead. `share` is the retention.
        """
        model, width, hidden, neurons = self.model, self.width, self.model.shape.hidden, self.model.shape.neurons
        norms = 2 * (width if recomputed else 4) * hidden
        attention = width * (3 * model.channels + 2 * model.keys) + 4 * model.shape.heads
        ffn = (2 if recomputed else 4) * width * neurons
        stored = model.shape.layers * (norms + share * (attention + ffn)) / self.gpus
        # gradients exist for one layer at a time: an FFN's, with one float32 copy, and the hidden states'
        return length * (stored + neurons * (3 * width + 4) + 2 * hidden * (width + 4))

    def logits(self, count: int, copies: int) -> float:
        """Return the bytes of `count` logits in the model's number type plus `copies` of them in float32."""
        return float(count * (self.width + 4 * copies))


def memory_need(stage: StageId, case: Case) -> MemoryNeed | None:
    """Return the estimated peak memory of a stage; None if the stage does not need the model."""
    formula = _FORMULAS.get(stage.kind)
    return None if formula is None else formula(stage, case)


def _estimate_passes(
    case: Case, *, per_sequence: float = 0.0, host: float = 0.0, fixed: float = 0.0, after: float = 0.0
) -> MemoryNeed:
    """Estimate passes over calibration texts: the activations of a layer, and the stage's own memory by argument.

    The arguments are the fields of MemoryNeed in bytes; `after` is `after_batches`.
    """
    calibration = case.study.calibration
    per_sequence += case.forward(calibration.length)
    return MemoryNeed(case.weights, fixed, per_sequence, after, host, calibration.batch, "calibration.batch")


def _estimate_statistics(_: StageId, case: Case) -> MemoryNeed:
    """Estimate the pass for moments and strongest positions; without moments this is an upper bound."""
    calibration, units, shape = case.study.calibration, case.model.units, case.model.shape
    # each strongest activation has a value, a position and a sequence of 4 bytes
    strongest = 12.0 * calibration.positions * shape.layers * shape.neurons
    activations = min(_WIDENED_ACTIVATIONS[case.gpu], calibration.batch * calibration.length * shape.neurons)
    # per sequence: sum and sum of squares of each unit, and each neuron's peak with its position, 4 bytes each
    # on the host: mean, centred moment and energy of each shard
    # fixed: stored and updated positions, mean and moment of each shard, arrays for the shards that a batch updates,
    # and two float32 copies of some activations
    return _estimate_passes(
        case,
        per_sequence=8.0 * (units + shape.layers * shape.neurons),
        host=strongest + 3 * calibration.shards * units * _STATISTIC_BYTES,
        fixed=2 * strongest + (2.0 * calibration.shards + 8) * units * _STATISTIC_BYTES + 8 * activations,
    )


def _estimate_expert_statistics(_: StageId, case: Case) -> MemoryNeed:
    """Estimate the pass for the sums of every expert and its strongest tokens, each with a strength and a position."""
    calibration, model = case.study.calibration, case.model
    by_expert = 4 * _STATISTIC_BYTES * calibration.shards + 12 * STRONGEST
    size = float(model.shape.layers * model.experts * by_expert)
    # on the device: those of the batch, and those of all batches before and after it
    return _estimate_passes(case, host=2 * size, fixed=3 * size)


def _estimate_contexts(_: StageId, case: Case) -> MemoryNeed:
    """Estimate context clusters: one pass for the inputs of every FFN, then principal components layer by layer."""
    calibration, contexts, shape = case.study.calibration, case.study.contexts, case.model.shape
    tokens = min(contexts.tokens + calibration.length, calibration.samples * calibration.length)
    # a layer's centred inputs and their products with the Krylov blocks in float32, each with a second copy
    after = 2.0 * 4 * tokens * (shape.hidden + KRYLOV_BLOCKS * contexts.dimensions / 2)
    return _estimate_passes(case, host=float(shape.layers * tokens * shape.hidden * case.width), after=after)


def _estimate_context_statistics(stage: StageId, case: Case) -> MemoryNeed:
    """Estimate statistics by context, whose backward pass the variant `forward` leaves out."""
    calibration, shape, count = case.study.calibration, case.model.shape, case.study.contexts.count
    # `by_context` are the bytes of an array (layers, contexts, neurons); mean and moment of each shard are such arrays
    moments, by_context = 2.0 * calibration.shards, shape.layers * count * shape.neurons * _STATISTIC_BYTES
    # two float32 numbers per token, context and layer; the stored arrays, and six for the current batch
    per_sequence, fixed = 4.0 * shape.layers * 2 * count * calibration.length, by_context * (moments + 6)
    if "forward" not in stage.variant:
        per_sequence += case.backward(calibration.length)
        fixed += case.logits(_LOGITS, 3)
    return _estimate_passes(case, per_sequence=per_sequence, host=by_context * (moments + 1), fixed=fixed)


def _estimate_scores(stage: StageId, case: Case) -> MemoryNeed | None:
    """Estimate scores; only LLM-Pruner's run the model, in one batch and with one matrix's gradient at a time."""
    if stage.metric != "llm_pruner":
        return None
    baselines, shape = case.study.baselines, case.model.shape
    inputs = shape.layers * 2 * shape.hidden * case.width * baselines.taylor_length
    activations = baselines.taylor_samples * (case.backward(baselines.taylor_length) + inputs)
    # the gradient of a matrix in the model's number type, and two float32 matrices of its size
    gradient = shape.neurons * shape.hidden * (case.width + 2.0 * 4)
    return MemoryNeed(case.weights, fixed=gradient + activations + case.logits(_LOGITS, 3))


def _estimate_masks(stage: StageId, case: Case) -> MemoryNeed | None:
    """Estimate masks; only layer-by-layer methods and plug-ins (`foreign`) run the model."""
    method, stream = of_masks(stage.method), case.stream(case.study.calibration.samples)
    if method.plugin_runs_model:
        return MemoryNeed(case.weights)
    if method.decision == "sequential":
        # the inputs and outputs of the current layer, and float32 copies of some activations
        return _estimate_passes(case, host=2 * stream, fixed=8.0 * _WIDENED_ACTIVATIONS[case.gpu])
    return _estimate_least_squares(case, stream, 1.0) if method.layered else None


def _estimate_repair_fit(stage: StageId, case: Case) -> MemoryNeed:
    """Estimate least squares on the kept inputs of every layer, next to the pruned model."""
    study, shape = case.study, case.model.shape
    settings = fit_settings(study, of_masks(stage.method), ":".join(stage.variant))
    # the hidden states of the dense and the pruned model, and the output of one layer's attention
    streams = 3 * case.stream(len(settings.roles) * study.calibration.samples)
    return _estimate_least_squares(case, streams, study.retention, study.retention * shape.decoder_weights * case.width)


def _estimate_least_squares(case: Case, streams: float, share: float, weights: float = 0.0) -> MemoryNeed:
    """Estimate least squares on a share of a layer's inputs.

    `streams` are the bytes of the stored hidden states, and `weights` those of the repaired weights, 0 for masks that
    are only decided by least squares.
    """
    hidden, inputs = case.model.shape.hidden, share * max(case.model.shape.neurons, case.model.channels)
    # moments of the inputs in float64 and the float32 product of a batch; after the batches, the product is freed and
    # a damped copy, its inverse and the weights are needed
    moments, product = _STATISTIC_BYTES * inputs * inputs, 4 * inputs * inputs
    # the inverse on CUDA needs a second array of the same size
    inverse = (3 if case.gpu else 2) * moments - product + 2 * _STATISTIC_BYTES * inputs * hidden
    # a repair has three cross moments with the dense hidden states
    crossed = 3 * _STATISTIC_BYTES * inputs * hidden if weights else 0.0
    return _estimate_passes(
        case,
        per_sequence=4.0 * case.study.calibration.length * (inputs + (2 * hidden if weights else 0)),
        host=(streams if case.gpu else 0.0) + 2 * weights,
        fixed=moments + product + crossed + weights + (0.0 if case.gpu else streams),
        after=inverse,
    )


def _estimate_learning(stage: StageId, case: Case) -> MemoryNeed:
    """Estimate learning: learned numbers, logits, stored activations and the dense model's states.

    Thresholds, gates and scales are learned in the dense model. Scales of given masks, LoRA factors and routers are
    learned in a pruned model, next to the dense one.
    """
    study, model, calibration = case.study, case.model, case.study.calibration
    samples, length = calibration.samples, calibration.length
    # an upper bound for thresholds or gates with masks of four subsets, and for scales of units with biases
    trained, adapters = 2.0 * (model.units + model.shape.layers * model.shape.hidden), 0.0
    name, batch, sequences = "sparsity", study.sparsity.batch, 2 * samples
    is_pruned, is_recovery = stage.kind in ("scales", "recovered", ROUTERS), stage.kind == "recovered"
    if is_recovery:
        name, batch, sequences = "recovery", study.recovery.batch, len(study.recovery.roles) * samples
        trained, adapters = _count_lora_factors(case)
    elif stage.kind == ROUTERS:
        name, batch, sequences = "recovery", study.recovery.batch, len(study.repair.roles) * samples
        trained = study.retention * model.router_weights
    elif is_pruned or (stage.method and METHODS[stage.method].scaled):
        name, batch = "scales", study.scales.batch
        sequences = len(study.scales.roles) * min(study.scales.samples, samples)
    batch, cached = min(batch, sequences), case.stream(sequences)
    logits = min(max(_LEARNING_LOGITS[case.gpu], 64 * model.vocabulary), batch * length * model.vocabulary)
    # with refitted routers, a token has as many experts as in the dense model
    share = study.retention if stage.kind in ("scales", "recovered") else 1.0
    activations = case.backward(length, share, recomputed=stage.kind not in ("recovered", ROUTERS))
    return MemoryNeed(
        weights=case.weights + (case.pruned(stage.method) if is_pruned else 0.0),
        # about 100 bytes a unit for the sorted order of all units, from which masks are built
        fixed=TRAINED_BYTES * trained + 100.0 * model.units + case.logits(logits, 5),
        per_sequence=activations + adapters * length,
        # the dense model's states, which are kept if memory allows
        host=TRAINED_BYTES * trained + (cached if cached <= machine.cache_budget() else 0.0),
        batch=batch,
        setting=f"{name}.batch",
    )


def _count_lora_factors(case: Case) -> tuple[float, float]:
    """Return the number of all LoRA factors, and the bytes per token that they add to the activations."""
    study, model, shape, settings = case.study, case.model, case.model.shape, case.study.recovery
    # sums over the seven linear maps of a layer; those that are trained are counted as an equal share
    share = len(settings.targets) / 7
    inputs = share * (5 * shape.hidden + study.retention * (model.channels + shape.neurons))
    outputs = share * (2 * shape.hidden + study.retention * (model.channels + 2 * model.keys + 2 * shape.neurons))
    # inputs of the maps in float32; a float32 model stores them already, except for the outputs of both norms
    copies = 4 * inputs if case.width < 4 else 4 * 2 * shape.hidden
    return shape.layers * settings.rank * (inputs + outputs), shape.layers * copies


def _estimate_evaluation(stage: StageId, case: Case) -> MemoryNeed:
    """Estimate an evaluation: a pruned model and the dense model, their activations and a block of logits."""
    model, evaluation, length = case.model, case.study.evaluation, case.study.evaluation.length
    answers = after = 0.0
    if stage.kind in ("accuracy", "answers", "generated_answers", "open_answers"):
        length = min(CHOICE_TOKENS, model.positions)
        # a generated answer needs the logits of one position, and the keys and values of all
        cache = float((length + evaluation.generated_tokens) * model.shape.layers * 2 * model.keys * case.width)
        answers = max(case.logits(length * model.vocabulary, 2), cache * (stage.kind not in ("accuracy", "answers")))
    else:
        # a candidate is compared with the dense model by both models' logits
        models, copies = 1, 1 + (case.width < 4)
        if stage.kind == "candidate":
            models, copies, length = 2, 3, case.study.calibration.length
        logits = case.logits(min(_LOGITS, evaluation.batch * length * model.vocabulary), copies)
        after = 2.0 * evaluation.batch * length * model.shape.hidden * case.width + models * logits
    weights, per_sequence = case.weights + case.pruned(stage.method), answers + case.forward(length)
    return MemoryNeed(weights, 0.0, per_sequence, after, batch=evaluation.batch, setting="evaluation.batch")


def _estimate_speed(_: StageId, case: Case) -> MemoryNeed:
    """Estimate a speed measurement: the dense and one pruned model, with the key/value cache of the running model."""
    preset, model = case.study.evaluation.speed, case.model
    batch, tokens = SPEED_TOKENS[("gpu" if case.gpu else "cpu") if preset == "auto" else preset]
    tokens = min(tokens, model.positions)
    cache = float(batch * tokens * model.shape.layers * 2 * model.keys * case.width)
    # captured graphs keep their output buffers, and decoding without a graph has separate buffers
    caches = 2 + case.study.retention if batch > 1 and case.gpu else 1
    weights = case.weights + max(map(case.pruned, case.study.methods))
    return MemoryNeed(weights, cache * caches + case.forward(tokens) * batch)


def _estimate_weight_stage(stage: StageId, case: Case) -> MemoryNeed:
    """Estimate a stage that reads weights alone: the clustering of one layer's neurons, or a pass over all matrices."""
    model, shape = case.model, case.model.shape
    if stage.kind in ("clusters", "partition"):
        # about six float64 matrices (neurons, modules) of distances, and two float32 copies of the neurons' parameters
        distances = 6.0 * _STATISTIC_BYTES * shape.neurons * max(case.study.modularization.candidates)
        return MemoryNeed(case.weights, fixed=8.0 * shape.neurons * shape.neuron_weights + distances)
    # three float32 copies of the largest matrix
    copies = 12.0 * max(model.vocabulary, shape.neurons) * shape.hidden
    return MemoryNeed(case.weights, host=copies + (case.weights if case.gpu else 0.0))


def _estimate_export(stage: StageId, case: Case) -> MemoryNeed:
    """Estimate an export: the pruned model and its copy, which is in host memory if the device is a GPU."""
    pruned, model = case.pruned(stage.method or "gprune"), case.model
    shared = model.parameters - model.expert_weights if model.expert_weights else model.outer_weights
    copy = pruned + shared * case.width
    # a recovered model also keeps its weights before recovery
    weights = case.weights + (2 if stage.variant else 1) * pruned
    return MemoryNeed(weights, host=copy) if case.gpu else MemoryNeed(weights + copy)


_LOADED = ("sampled", "norms", "size", "shape", "weighed")
"""kinds of stage that need little more memory than the loaded model"""
OFFLOADED = ("statistics", "positions", "contexts", "clusters", "partition", *_LOADED)
"""kinds of stage that can run with offload, when the model is larger than memory"""
_FORMULAS: dict[str, Callable[[StageId, Case], MemoryNeed | None]] = {
    **dict.fromkeys(("clusters", "partition", *_LOADED), _estimate_weight_stage),
    **dict.fromkeys(("statistics", "positions"), _estimate_statistics),
    "expert_shape": lambda _, case: MemoryNeed(case.weights),
    "expert_statistics": _estimate_expert_statistics,
    "contexts": _estimate_contexts,
    "context_statistics": _estimate_context_statistics,
    "scores": _estimate_scores,
    "masks": _estimate_masks,
    "repaired": _estimate_repair_fit,
    **dict.fromkeys(("learning", "gates", "scales", "recovered", ROUTERS), _estimate_learning),
    **dict.fromkeys(("candidate", "perplexity", "recovered_perplexity", "accuracy", "answers"), _estimate_evaluation),
    **dict.fromkeys(("generated_answers", "open_answers"), _estimate_evaluation),
    "speed": _estimate_speed,
    "checkpoint": _estimate_export,
}
"""formulas by kind of stage; other kinds do not need the model"""
