"""Each stage by itself on the pretend device, at a size of one's own, and how often the host waits for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pretend_device import waits
from sparsity.reference_sparsity import random_units

from gprune.data.texts import Recipe
from gprune.evaluation.decoding import EagerDecoding
from gprune.evaluation.perplexity import perplexity
from gprune.models.decoder import Decoder
from gprune.models.tiny import tiny_decoder
from gprune.pruning.calibration import collect, collect_strongest, track_strongest
from gprune.pruning.calibration.context_statistics import collect_contexts
from gprune.pruning.calibration.contexts import fit_contexts, project_inputs
from gprune.pruning.calibration.gradients import taylor_scores
from gprune.pruning.calibration.sampling import sample
from gprune.pruning.calibration.sequential import prune_layerwise
from gprune.pruning.modules.initialization import cluster
from gprune.pruning.modules.refinement import refine
from gprune.pruning.sparsity.learner import LearningInputs
from gprune.pruning.sparsity.learning import learn
from gprune.pruning.surgery import cut
from gprune.records import PruningMasks, Tokens
from gprune.study import CalibrationSettings, EvaluationSettings, ModularizationSettings, SparsitySettings
from gprune.study.settings import BaselineSettings, ContextSettings
from gprune.system.progress import silent

LENGTH, NEURONS, VOCABULARY = 6, 40, 64


@dataclass(frozen=True)
class Size:
    """Amount of work of a stage."""

    batches: int = 2
    layers: int = 2
    """of the decoder"""
    steps: int = 2
    """of what repeats itself otherwise: epochs, refinement steps, tokens written"""

    @property
    def samples(self) -> int:
        return 4 * self.batches


def tokens(samples: int, seed: int = 0) -> Tokens:
    ids = np.random.default_rng(seed).integers(0, VOCABULARY, (samples, LENGTH)).astype(np.int32)
    return Tokens("a text", "fingerprint", ids, samples)


def decoder(size: Size, device: torch.device) -> Decoder:
    created = tiny_decoder(layers=size.layers, neurons=NEURONS, kv_heads=2, vocabulary=VOCABULARY)
    return Decoder.from_model(created.model.to(device))


def masks(size: Size) -> PruningMasks:
    ffn, heads = np.ones((size.layers, NEURONS), dtype=bool), np.ones((size.layers, 2), dtype=bool)
    ffn[:, ::3] = False
    heads[0, 0] = False
    return PruningMasks("flap", ffn, heads, 0.6, 0.6)


def statistics(model: Decoder, size: Size) -> None:
    collect(model, tokens(size.samples), CalibrationSettings(size.samples, LENGTH, 2, 4))


def statistics_with_positions(model: Decoder, size: Size) -> None:
    rendered = tokens(size.samples)
    strongest = track_strongest(model, rendered, 3)
    collect(model, rendered, CalibrationSettings(size.samples, LENGTH, 2, 4), strongest=strongest)
    strongest.result(rendered)


def strongest_positions(model: Decoder, size: Size) -> Any:
    return collect_strongest(model, tokens(size.samples), CalibrationSettings(size.samples, LENGTH, 2, 4), 3)


def context_clusters(model: Decoder, size: Size) -> Any:
    settings = ContextSettings(count=3, dimensions=4, tokens=size.samples * LENGTH)
    return fit_contexts(project_inputs(model, tokens(size.samples), settings, 4), settings, 0)


def context_gradients(model: Decoder, size: Size) -> None:
    result = context_clusters(model, Size(1, size.layers))
    waits.forget()
    collect_contexts(model, tokens(size.samples), [result], 2, 4, True)


def one_layer_after_the_other(model: Decoder, size: Size) -> None:
    ffn, heads = masks(size).ffn, masks(size).heads
    prune_layerwise(model, tokens(size.samples), 4, lambda layer, *_: (ffn[layer], heads[layer]))


def gradients_of_weights(model: Decoder, size: Size) -> None:
    settings = BaselineSettings(taylor_samples=size.samples, taylor_length=LENGTH)
    taylor_scores(model, tokens(size.samples), settings)


def refinement(model: Decoder, size: Size) -> None:
    rows, drift = model.neuron_parameters(0), np.random.default_rng(0).random((1, NEURONS))
    refine(rows, np.arange(NEURONS) % 4, drift, ModularizationSettings(steps=size.steps))


def clustering(model: Decoder, size: Size) -> None:
    for layer in range(size.layers):
        cluster(model.neuron_parameters(layer), (3, 4), 2, np.random.default_rng(layer))


def sparsity_learning(model: Decoder, size: Size, **settings: Any) -> None:
    units = random_units(model.shape, 4, np.random.default_rng(0))
    texts = tokens(size.samples // 2), tokens(size.samples // 2, seed=1)
    reference = SparsitySettings(epochs=size.steps, batch=4, **settings)
    learn(LearningInputs(model, texts, reference, 0, silent), *units, 0.5)


def measured_perplexity(model: Decoder, size: Size) -> None:
    stream = tokens(size.samples).ids.ravel()
    perplexity(model.model, stream, "a text", EvaluationSettings(preset=str(LENGTH), batch=4))


def surgery(model: Decoder, size: Size) -> None:
    cut(model, masks(size))


def decoding(model: Decoder, size: Size) -> None:
    prompt = torch.from_numpy(tokens(4).ids.astype(np.int64)).to(model.device)
    with torch.inference_mode():
        saved = EagerDecoding(model.model, prompt, 1 + size.steps)
        saved.prefill()
        saved.decode()


class _Signs:
    """A stub of a tokenizer that sampling needs."""

    bos_token_id = eos_token_id = 1
    all_special_ids = (0, 1, 2)

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [5]}

    def __len__(self) -> int:
        return VOCABULARY


def sampling(model: Decoder, size: Size) -> None:
    model.tokenizer = _Signs()
    recipe = Recipe(0, 1.0, 8 * size.steps, 0.5, 4, "calibration")
    sample(model, recipe, "self:")


def waits_of(stage: Callable[[Decoder, Size], Any], device: torch.device, size: Size) -> waits.Waits:
    """Count how often the host waits while a stage runs."""
    model = decoder(size, device)
    with waits.count_waits() as result:
        stage(model, size)
    return result
