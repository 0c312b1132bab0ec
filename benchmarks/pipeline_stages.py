"""Run the stages of the pipeline one by one on random data, for benchmarks/pipeline.py and growth.py."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from pipeline_machine import Device, Usage, measure_usage

from gprune.evaluation.perplexity import perplexity
from gprune.models.decoder import Decoder
from gprune.pruning.calibration import collect
from gprune.pruning.calibration.context_statistics import collect_contexts
from gprune.pruning.calibration.contexts import fit_contexts, project_inputs
from gprune.pruning.calibration.gradients import taylor_scores
from gprune.pruning.drift import rank_drift
from gprune.pruning.modules.partition import cluster_layers, modularize
from gprune.pruning.rasa import balanced_splits, module_statistics
from gprune.pruning.recovery.training import recover
from gprune.pruning.removal import osscar, slimllm
from gprune.pruning.removal.walk import remove_layerwise
from gprune.pruning.repair.fitting import fit
from gprune.pruning.scoring import neuron_scorer, score
from gprune.pruning.sparsity.gates import learn_gates
from gprune.pruning.sparsity.learner import LearningInputs
from gprune.pruning.sparsity.learning import learn
from gprune.pruning.surgery import cut
from gprune.records import Partition, PruningMasks, RankDrift, Tokens, UnitScores
from gprune.study import (
    CalibrationSettings,
    ContextSettings,
    EvaluationSettings,
    GateSettings,
    ModularizationSettings,
    RecoverySettings,
    ReliabilitySettings,
    RepairSettings,
    SparsitySettings,
)
from gprune.study.methods import METHODS
from gprune.study.settings import BaselineSettings
from gprune.system.progress import silent

SHARDS, MODULE_SIZE = 8, 40
"""shards of the statistics, and neurons of a random module"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amounts of data and the numbers of steps."""

    samples: int
    length: int
    batch: int
    layers: int
    """layers that BCM and RASA run on"""
    context_tokens: int
    learning_batch: int
    learning_steps: int
    """steps per epoch, for thresholds and for gates"""
    epochs: int
    recovery_steps: int
    windows: int


@dataclass(frozen=True, slots=True)
class Row:
    """Time and memory of a stage."""

    name: str
    usage: Usage
    floor: float
    """lower bound of the seconds that its operations and memory traffic take on this device"""


@dataclass
class Bench:
    """A model, a device, and the results that stages pass to each other."""

    decoder: Decoder
    device: Device
    sizes: Sizes
    results: dict[str, Any] = field(default_factory=dict)

    def rows(self, names: list[str]) -> Iterator[Row]:
        """Run the named stages, and those that they need, in the order of STAGES; return rows of the named ones."""
        needed = set(names)
        for name in reversed(STAGES):
            if name in needed:
                needed.update(NEEDS.get(name, ()))
        for name in filter(needed.__contains__, STAGES):
            moved_bytes: list[float] = []

            def run_stage(name: str = name, moved_bytes: list[float] = moved_bytes) -> None:
                moved_bytes.append(STAGES[name](self))

            dtype = torch.float32 if name in IN_FLOAT32 else self.decoder.dtype
            usage = measure_usage(run_stage, self.device.torch_device)
            if name in names:
                yield Row(name, usage, self.device.floor(usage.operations, dtype, moved_bytes[0]))

    def tokens(self, name: str, samples: int) -> Tokens:
        """Return random tokens; the length of the name is the seed, so names of equal length have equal tokens."""
        vocabulary = self.decoder.model.config.vocab_size
        ids = np.random.default_rng(len(name)).integers(0, vocabulary, (samples, self.sizes.length))
        return Tokens(name, name, ids.astype(np.int32), samples)

    @property
    def weights(self) -> float:
        """Bytes of the weights of all decoder layers."""
        return float(sum(p.numel() * p.element_size() for layer in self.decoder.layers for p in layer.parameters()))

    @property
    def masks(self) -> PruningMasks:
        """Random masks of about half the units."""
        shape, generator = self.decoder.shape, np.random.default_rng(0)
        ffn, heads = (generator.random((shape.layers, units)) < 0.5 for units in (shape.neurons, shape.kv_heads))
        ffn[:, 0], heads[:, 0] = True, True
        return PruningMasks("random", ffn, heads, 0.5, 0.5)

    def first_layers(self, scores: UnitScores) -> UnitScores:
        """Return the part of some scores in the layers that BCM and RASA run on."""
        layers = slice(self.sizes.layers)
        return UnitScores(scores.metric, scores.text, scores.ffn[layers], scores.heads[layers], scores.channels[layers])


def _statistics(bench: Bench) -> float:
    """Collect the calibration statistics of texts A and B."""
    sizes = bench.sizes
    settings = CalibrationSettings(samples=sizes.samples, length=sizes.length, batch=sizes.batch, shards=SHARDS)
    for name in ("A", "the text B"):
        bench.results[name] = collect(bench.decoder, bench.tokens(name, sizes.samples), settings)
    # each batch of both texts reads all weights once; -(-a // b) rounds up
    return 2 * bench.weights * -(-sizes.samples // sizes.batch)


def _repair(bench: Bench) -> float:
    sizes = bench.sizes
    texts = [bench.tokens(name, sizes.samples) for name in ("A", "the text B")]
    fit(bench.decoder, bench.masks, texts, RepairSettings(kind="least_squares"), sizes.batch)
    # the weights are read three times for each batch of both texts
    return 3 * bench.weights * -(-2 * sizes.samples // sizes.batch)


def _remove_layerwise(bench: Bench, method: str) -> float:
    """Remove half of the weights layer by layer (OSSCAR or SlimLLM) on one text."""
    decoder, sizes, tokens = bench.decoder, bench.sizes, bench.tokens("A", bench.sizes.samples)
    if method == "osscar":
        decide = osscar.osscar_decision(decoder.shape, 0.5)
    else:
        decide = slimllm.slimllm_decision(decoder, 0.5, slimllm.layer_cosines(decoder, tokens, sizes.batch))
    own_repair = METHODS[method].fit
    assert own_repair is not None
    remove_layerwise(decoder, tokens, sizes.batch, decide, own_repair)
    return 3 * bench.weights * -(-sizes.samples // sizes.batch)


def _recovery(bench: Bench) -> float:
    settings = RecoverySettings(kind="lora", steps=bench.sizes.recovery_steps)
    texts, model = [bench.tokens("A", bench.sizes.samples)], cut(bench.decoder, bench.masks)
    recover(bench.decoder, model, "random", texts, settings, 0)
    return 3 * bench.weights * settings.steps


def _inputs(bench: Bench) -> float:
    settings = ContextSettings(tokens=bench.sizes.context_tokens)
    tokens = bench.tokens("A", bench.sizes.samples)
    bench.results["inputs"] = project_inputs(bench.decoder, tokens, settings, bench.sizes.batch)
    return bench.weights


def _contexts(bench: Bench) -> float:
    bench.results["contexts"] = fit_contexts(bench.results["inputs"], ContextSettings(), 0)
    return float(bench.results["inputs"].points.nbytes)


def _context_statistics(bench: Bench) -> float:
    sizes, tokens = bench.sizes, bench.tokens("A", bench.sizes.samples)
    collect_contexts(bench.decoder, tokens, [bench.results["contexts"]], SHARDS, sizes.batch, gradient=True)
    return 2 * bench.weights * -(-sizes.samples // sizes.batch)


def _taylor(bench: Bench) -> float:
    defaults = BaselineSettings()
    settings = replace(defaults, taylor_length=min(defaults.taylor_length, bench.sizes.length))
    taylor_scores(bench.decoder, bench.tokens("A", bench.sizes.samples), settings)
    return 3 * bench.weights


def _drift(bench: Bench) -> float:
    """Compute the FLAP scores on both texts and their halves, and the rank drift between them."""
    norms, shape, settings = bench.decoder.weight_norms(), bench.decoder.shape, CalibrationSettings()
    bench.results["norms"] = norms
    scores: list[list[UnitScores]] = []
    for name in ("A", "the text B"):
        shards = (None, range(0, SHARDS, 2), range(1, SHARDS, 2))
        statistics = bench.results[name]
        scores.append([bench.first_layers(score("flap", statistics, norms, shape, settings, part)) for part in shards])
    bench.results["scores"] = [parts[0] for parts in scores]
    halves = [(parts[1], parts[2]) for parts in scores]
    bench.results["drift"] = rank_drift(*bench.results["scores"], *halves)
    return bench.weights


def _clusters(bench: Bench) -> float:
    layers, neurons = bench.sizes.layers, bench.decoder.shape.neurons
    rows = bench.decoder.neuron_parameters
    bench.results["clusters"] = cluster_layers(rows, layers, neurons, ModularizationSettings(), 0)
    # gate, up and down vectors of every neuron in float32, read once
    return 4.0 * layers * neurons * 3 * bench.decoder.shape.hidden


def _refinement(bench: Bench) -> float:
    drift: RankDrift = bench.results["drift"]
    settings = replace(ModularizationSettings(), direction="magnitude")
    clusters: Partition = bench.results["clusters"]
    bench.results["partition"] = modularize(
        bench.decoder.neuron_parameters, drift, *bench.results["scores"], clusters, settings, 0
    )
    # forward and backward pass each read the float32 vectors of every neuron in every step
    return 8.0 * settings.steps * drift.magnitude.size * 3 * bench.decoder.shape.hidden


def _reliability(bench: Bench) -> float:
    """Compute RASA's module statistics on all balanced splits of the shards."""
    layers, norms, splits = bench.sizes.layers, bench.results["norms"], balanced_splits(SHARDS)

    def halves(name: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        scorer = neuron_scorer("flap", bench.results[name], norms)
        for first, second in splits:
            yield scorer(first)[:layers], scorer(second)[:layers]

    texts = halves("A"), halves("the text B")
    module_statistics(*bench.results["scores"], bench.results["partition"], *texts, ReliabilitySettings())
    # every split reads mean and moment of all shards, of all layers, of both texts
    return 2.0 * len(splits) * 2 * bench.results["A"].ffn_mean.nbytes


def _random_scores_and_partition(decoder: Decoder) -> tuple[np.ndarray, np.ndarray, Partition]:
    """Scores of neurons (layers, neurons) and of key/value groups (layers, groups), and modules of equal size."""
    shape, generator = decoder.shape, np.random.default_rng(0)
    modules = max(1, shape.neurons // MODULE_SIZE)
    labels = np.tile(np.arange(shape.neurons) % modules, (shape.layers, 1)).astype(np.int32)
    counts = np.full(shape.layers, modules, dtype=np.int32)
    unknown = np.full((shape.layers, 1), np.nan)
    partition = Partition(
        kind="random", profile="magnitude", labels=labels, counts=counts, initial_counts=counts, silhouette=unknown,
        mixing=unknown[:2, 0], variation=unknown[:2, 0], history=np.zeros((shape.layers, 0, 5)),
    )  # fmt: skip
    return (
        generator.random((shape.layers, shape.neurons)),
        generator.random((shape.layers, shape.kv_heads)),
        partition,
    )


def _learning(bench: Bench, learns_gates: bool) -> float:
    """Learn the thresholds of modules, or the gates of single units, at 50% retention."""
    sizes, decoder = bench.sizes, bench.decoder
    samples = sizes.learning_batch // 2 * sizes.learning_steps
    settings = SparsitySettings(epochs=sizes.epochs, batch=sizes.learning_batch)
    texts = bench.tokens("A", samples), bench.tokens("the text B", samples)
    setting = LearningInputs(decoder, texts, settings, 0, silent)
    neurons, groups, partition = _random_scores_and_partition(decoder)
    if learns_gates:
        channels = np.zeros((decoder.shape.layers, decoder.shape.heads * decoder.shape.head_width))
        scores = UnitScores("flap", "random", neurons, groups, channels)
        learn_gates(setting, [scores], GateSettings(), 0.5, settings.epochs)
    else:
        learn(setting, neurons, groups, partition, 0.5)
    return 3 * bench.weights * sizes.learning_steps * sizes.epochs


def _perplexity(bench: Bench) -> float:
    sizes = bench.sizes
    stream = bench.tokens("evaluation", sizes.windows).ids.ravel()
    settings = EvaluationSettings(preset=str(sizes.length), batch=sizes.batch)
    perplexity(bench.decoder.model, stream, "random", settings)
    return bench.weights * -(-sizes.windows // sizes.batch)


STAGES: dict[str, Callable[[Bench], float]] = {
    "statistics": _statistics,
    "least-squares repair": _repair,
    "OSSCAR": partial(_remove_layerwise, method="osscar"),
    "SlimLLM": partial(_remove_layerwise, method="slimllm"),
    "context inputs": _inputs,
    "context clusters": _contexts,
    "context statistics": _context_statistics,
    "LLM-Pruner": _taylor,
    "scores and drift": _drift,
    "module clusters": _clusters,
    "module refinement": _refinement,
    "RASA": _reliability,
    "learning": partial(_learning, learns_gates=False),
    "gates": partial(_learning, learns_gates=True),
    "recovery": _recovery,
    "perplexity": _perplexity,
}
"""stages in order; each function returns the smallest number of bytes that the stage has to read or write"""
NEEDS = {
    "context clusters": ("context inputs",),
    "context statistics": ("context clusters",),
    "scores and drift": ("statistics",),
    "module refinement": ("scores and drift", "module clusters"),
    "RASA": ("module refinement",),
}
"""stages whose results a stage uses"""
IN_FLOAT32 = ("context clusters", "scores and drift", "module clusters", "module refinement", "RASA")
