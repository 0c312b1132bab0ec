"""Naive loops for modular sparsity learning (section 3.3): the oracle of the tests in this folder."""

from typing import Any

import numpy as np
import pytest
import torch
from made_records import a_partition

from gprune.models.decoder import Decoder
from gprune.models.tiny import tiny_decoder
from gprune.pruning.sparsity.masks import MaskFamily
from gprune.pruning.sparsity.rounding import RankedUnits
from gprune.records import Array, ModelShape, Partition, Tokens


def random_partition(shape: ModelShape, modules: int, generator: np.random.Generator) -> Partition:
    """A partition with at least one neuron in every module."""
    labels = np.stack([generator.permutation(np.arange(shape.neurons) % modules) for _ in range(shape.layers)])
    return a_partition(labels, np.full(shape.layers, modules), kind="random")


def random_units(
    shape: ModelShape, modules: int, generator: np.random.Generator, digits: int = 17
) -> tuple[Array, Array, Partition]:
    """Scores of neurons, rounded so that few digits make ties, scores of groups, and a partition."""
    scores = generator.random((shape.layers, shape.neurons)).round(digits)
    return scores, generator.random((shape.layers, shape.kv_heads)), random_partition(shape, modules, generator)


def random_family(shape: ModelShape, modules: int, seed: int = 0, digits: int = 17) -> tuple[Any, ...]:
    """Random units, the family of their masks, and random thresholds."""
    generator = np.random.default_rng(seed)
    units = random_units(shape, modules, generator, digits)
    family = MaskFamily.of(RankedUnits.build(shape, *units), torch.device("cpu"))
    return units, family, torch.tensor(generator.random(family.count), dtype=torch.float32)


def random_case(kv_heads: int = 4, neurons: int = 60, family: str = "llama", **options: Any) -> tuple[Any, ...]:
    """A small decoder, its random units, and two texts of eight sequences."""
    decoder = tiny_decoder(family, neurons=neurons, kv_heads=kv_heads, head_width=4, **options)
    generator = np.random.default_rng(0)
    units = random_units(decoder.shape, 5, generator)
    return decoder, units, tuple(random_tokens(8, 8, 64, generator) for _ in range(2))


def random_tokens(samples: int, length: int, vocabulary: int, generator: np.random.Generator) -> Tokens:
    """A calibration set of random tokens."""
    ids = generator.integers(0, vocabulary, (samples, length)).astype(np.int32)
    return Tokens(text="random", fingerprint="", ids=ids, available=samples)


def record_gradients(monkeypatch: pytest.MonkeyPatch) -> list[Array]:
    """The gradient of every step of a learning, which then takes plain steps in place of Adam's."""
    gradients = []

    class Recorder(torch.optim.SGD):
        def step(self):
            gradients.append(self.param_groups[0]["params"][0].grad.double().numpy().copy())
            return super().step()

    monkeypatch.setattr(torch.optim, "Adam", Recorder)
    return gradients


def quantile(score: float, scores: Array) -> float:
    """(rank + 1/2) / size of one score among all scores of its module; ties share their mean rank."""
    below = sum(1 for other in scores if other < score)
    equal = sum(1 for other in scores if other == score)
    return (below + (equal - 1) / 2 + 0.5) / len(scores)


def long_tailed(distance: float) -> float:
    """The surrogate derivative of Liu et al. (2020)."""
    if abs(distance) <= 0.4:
        return 2 - 4 * abs(distance)
    return 0.4 if abs(distance) <= 1 else 0.0


def masks(
    scores: Array, head_scores: Array, labels: Array, module_thresholds: list[Array], head_thresholds: Array
) -> tuple[Array, Array]:
    """Eq. 10, unit by unit: (layers, neurons) and (layers, groups) bool."""
    ffn, heads = np.zeros(scores.shape, dtype=bool), np.zeros(head_scores.shape, dtype=bool)
    for layer in range(len(scores)):
        for neuron in range(scores.shape[1]):
            module = labels[layer, neuron]
            s = quantile(scores[layer, neuron], scores[layer][labels[layer] == module])
            ffn[layer, neuron] = s >= module_thresholds[layer][module]
        for group in range(head_scores.shape[1]):
            s = quantile(head_scores[layer, group], head_scores[layer])
            heads[layer, group] = s >= head_thresholds[layer]
    return ffn, heads


class NaiveMasks:
    """One mask for a whole batch, multiplied in by hooks of its own; gradients by plain autograd."""

    def __init__(self, decoder: Decoder, ffn: Array, heads: Array) -> None:
        shape = decoder.shape
        self.ffn = torch.tensor(np.asarray(ffn), dtype=torch.float32, requires_grad=True)
        self.heads = torch.tensor(np.asarray(heads), dtype=torch.float32, requires_grad=True)
        self._handles = []
        for layer in range(shape.layers):
            self._hook(decoder.down_proj(layer), lambda layer=layer: self.ffn[layer])
            self._hook(
                decoder.o_proj(layer),
                lambda layer=layer: torch.cat([m.expand(shape.group_channels) for m in self.heads[layer]]),
            )

    def _hook(self, linear, mask):
        hook = linear.register_forward_pre_hook(lambda _, inputs: (inputs[0] * mask().to(inputs[0].dtype),))
        self._handles.append(hook)

    def gradients(self, loss: torch.Tensor) -> Array:
        """(units,) neurons of all layers, then groups of all layers."""
        slopes = torch.autograd.grad(loss, [self.ffn, self.heads])
        return torch.cat([g.flatten() for g in slopes]).double().numpy()

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def cross_entropy(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Mean next-token cross-entropy."""
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def distillation(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Mean over tokens of KL(teacher || student) at the temperature, times its square."""
    mine = torch.log_softmax(student / temperature, dim=-1).flatten(0, -2)
    expected = torch.log_softmax(teacher / temperature, dim=-1).flatten(0, -2)
    divergence = torch.nn.functional.kl_div(mine, expected, log_target=True, reduction="batchmean")
    return divergence * temperature**2


def admitted(g: Array) -> bool:
    """The admission rule (Eqs. 19 and 20) for FFN threshold gradients on A', A'', B', B''."""
    columns = [[float(x) for x in column] for column in np.transpose(g)]
    first = sum(((a1 + b1) / 2 - a1) * a2 for a1, a2, b1, b2 in columns)
    second = sum(((a2 + b2) / 2 - a2) * a1 for a1, a2, b1, b2 in columns)
    return first > 0 and second > 0
