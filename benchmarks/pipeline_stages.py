"""The stages of the pipeline on a random model, one after the other: for benchmarks/pipeline.py."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import sparsity
import torch
from pipeline_machine import Device, Taken, taken

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
from gprune.pruning.surgery import cut
from gprune.records import Partition, PruningMasks, RankDrift, Tokens, UnitScores
from gprune.study import (
    CalibrationSettings,
    ContextSettings,
    EvaluationSettings,
    ModularizationSettings,
    RecoverySettings,
    ReliabilitySettings,
    RepairSettings,
    SparsitySettings,
)
from gprune.study.methods import METHODS
from gprune.study.settings import BaselineSettings
from gprune.system.progress import silent

SHARDS = 8


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything is run."""

    samples: int
    length: int
    batch: int
    layers: int
    """layers of BCM and RASA"""
    context_tokens: int
    learning_batch: int
    learning_steps: int
    """of an epoch, of thresholds and of gates"""
    epochs: int
    recovery_steps: int
    windows: int


@dataclass(frozen=True, slots=True)
class Row:
    """What a stage took, beside the least that its work takes on this device."""

    name: str
    took: Taken
    floor: float
    """seconds"""


@dataclass
class Bench:
    """The stages, and what they hand to each other."""

    decoder: Decoder
    device: Device
    sizes: Sizes
    made: dict[str, Any] = field(default_factory=dict)

    def rows(self, wanted: list[str]) -> Iterator[Row]:
        """Runs the stages in order; those that are not wanted run too where a later one needs them."""
        needed = set(wanted)
        for name in reversed(STAGES):
            if name in needed:
                needed.update(NEEDS.get(name, ()))
        for name in (each for each in STAGES if each in needed):
            moved: list[float] = []
            dtype = torch.float32 if name in IN_FLOAT32 else self.decoder.dtype
            took = taken(lambda name=name, moved=moved: moved.append(STAGES[name](self)), self.device.place)  # type: ignore[misc]
            if name in wanted:
                yield Row(name, took, self.device.floor(took.operations, dtype, moved[0]))

    def tokens(self, name: str, samples: int) -> Tokens:
        """Random tokens under a name."""
        vocabulary = self.decoder.model.config.vocab_size
        drawn = np.random.default_rng(len(name)).integers(0, vocabulary, (samples, self.sizes.length))
        return Tokens(name, name, drawn.astype(np.int32), samples)

    @property
    def weights(self) -> float:
        """Bytes of the decoder layers' weights."""
        return float(sum(p.numel() * p.element_size() for layer in self.decoder.layers for p in layer.parameters()))

    @property
    def masks(self) -> PruningMasks:
        """Random masks of about half the units."""
        shape, drawn = self.decoder.shape, np.random.default_rng(0)
        ffn, heads = (drawn.random((shape.layers, units)) < 0.5 for units in (shape.neurons, shape.kv_heads))
        ffn[:, 0], heads[:, 0] = True, True
        return PruningMasks("random", ffn, heads, 0.5, 0.5)

    def first_layers(self, scores: UnitScores) -> UnitScores:
        """Scores of the layers that BCM and RASA run on."""
        chosen = slice(self.sizes.layers)
        return UnitScores(scores.metric, scores.text, scores.ffn[chosen], scores.heads[chosen], scores.channels[chosen])


def _statistics(bench: Bench) -> float:
    sizes = bench.sizes
    settings = CalibrationSettings(samples=sizes.samples, length=sizes.length, batch=sizes.batch, shards=SHARDS)
    for name in ("A", "the text B"):
        bench.made[name] = collect(bench.decoder, bench.tokens(name, sizes.samples), settings)
    return 2 * bench.weights * -(-sizes.samples // sizes.batch)


def _repair(bench: Bench) -> float:
    """Least squares for random masks of half the units, on two texts."""
    sizes = bench.sizes
    texts = [bench.tokens(name, sizes.samples) for name in ("A", "the text B")]
    fit(bench.decoder, bench.masks, texts, RepairSettings(kind="least_squares"), sizes.batch)
    return 3 * bench.weights * -(-2 * sizes.samples // sizes.batch)


def _removed(bench: Bench, method: str) -> float:
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
    """Steps of the default batch for random masks of half the units."""
    settings = RecoverySettings(kind="lora", steps=bench.sizes.recovery_steps)
    texts, model = [bench.tokens("A", bench.sizes.samples)], cut(bench.decoder, bench.masks)
    recover(bench.decoder, model, "random", texts, settings, 0)
    return 3 * bench.weights * settings.steps


def _inputs(bench: Bench) -> float:
    settings = ContextSettings(tokens=bench.sizes.context_tokens)
    tokens = bench.tokens("A", bench.sizes.samples)
    bench.made["inputs"] = project_inputs(bench.decoder, tokens, settings, bench.sizes.batch)
    return bench.weights


def _contexts(bench: Bench) -> float:
    bench.made["contexts"] = fit_contexts(bench.made["inputs"], ContextSettings(), 0)
    return float(bench.made["inputs"].points.nbytes)


def _context_statistics(bench: Bench) -> float:
    sizes, tokens = bench.sizes, bench.tokens("A", bench.sizes.samples)
    collect_contexts(bench.decoder, tokens, [bench.made["contexts"]], SHARDS, sizes.batch, gradient=True)
    return 2 * bench.weights * -(-sizes.samples // sizes.batch)


def _taylor(bench: Bench) -> float:
    usual = BaselineSettings()
    settings = replace(usual, taylor_length=min(usual.taylor_length, bench.sizes.length))
    taylor_scores(bench.decoder, bench.tokens("A", bench.sizes.samples), settings)
    return 3 * bench.weights


def _drift(bench: Bench) -> float:
    norms, shape, settings = bench.decoder.weight_norms(), bench.decoder.shape, CalibrationSettings()
    bench.made["norms"] = norms
    found: list[list[UnitScores]] = []
    for name in ("A", "the text B"):
        shards = (None, range(0, SHARDS, 2), range(1, SHARDS, 2))
        measured = bench.made[name]
        found.append([bench.first_layers(score("flap", measured, norms, shape, settings, one)) for one in shards])
    bench.made["scores"] = [each[0] for each in found]
    halves = [(each[1], each[2]) for each in found]
    bench.made["drift"] = rank_drift(*bench.made["scores"], *halves)
    return bench.weights


def _clusters(bench: Bench) -> float:
    layers, neurons = bench.sizes.layers, bench.decoder.shape.neurons
    rows = bench.decoder.neuron_parameters
    bench.made["clusters"] = cluster_layers(rows, layers, neurons, ModularizationSettings(), 0)
    return 4.0 * layers * neurons * 3 * bench.decoder.shape.hidden


def _refinement(bench: Bench) -> float:
    drift: RankDrift = bench.made["drift"]
    settings = replace(ModularizationSettings(), direction="magnitude")
    clusters: Partition = bench.made["clusters"]
    bench.made["partition"] = modularize(
        bench.decoder.neuron_parameters, drift, *bench.made["scores"], clusters, settings, 0
    )
    # forward and backward read the rows in every step
    return 8.0 * settings.steps * drift.magnitude.size * 3 * bench.decoder.shape.hidden


def _reliability(bench: Bench) -> float:
    layers, norms, splits = bench.sizes.layers, bench.made["norms"], balanced_splits(SHARDS)

    def halves(name: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        scorer = neuron_scorer("flap", bench.made[name], norms)
        for first, second in splits:
            yield scorer(first)[:layers], scorer(second)[:layers]

    both = halves("A"), halves("the text B")
    module_statistics(*bench.made["scores"], bench.made["partition"], *both, ReliabilitySettings())
    # every split reads mean and moment of all shards, of all layers, of both texts
    return 2.0 * len(splits) * 2 * bench.made["A"].ffn_mean.nbytes


def _learning(bench: Bench, learns: sparsity.Learns) -> float:
    """Thresholds or gates, from random scores."""
    sizes = bench.sizes
    each = sizes.learning_batch // 2 * sizes.learning_steps
    settings = SparsitySettings(epochs=sizes.epochs, batch=sizes.learning_batch)
    learns(bench.decoder, (bench.tokens("A", each), bench.tokens("the text B", each)), settings, silent)
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
    "OSSCAR": partial(_removed, method="osscar"),
    "SlimLLM": partial(_removed, method="slimllm"),
    "context inputs": _inputs,
    "context clusters": _contexts,
    "context statistics": _context_statistics,
    "LLM-Pruner": _taylor,
    "scores and drift": _drift,
    "module clusters": _clusters,
    "module refinement": _refinement,
    "RASA": _reliability,
    "learning": partial(_learning, learns=sparsity.learned_thresholds),
    "gates": partial(_learning, learns=sparsity.learned_gates),
    "recovery": _recovery,
    "perplexity": _perplexity,
}
"""each gives the bytes that it has to move at least"""
NEEDS = {
    "context clusters": ("context inputs",),
    "context statistics": ("context clusters",),
    "scores and drift": ("statistics",),
    "module refinement": ("scores and drift", "module clusters"),
    "RASA": ("module refinement",),
}
"""stages whose results others take"""
IN_FLOAT32 = ("context clusters", "scores and drift", "module clusters", "module refinement", "RASA")
