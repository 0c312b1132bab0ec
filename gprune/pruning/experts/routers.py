"""Refit the routers of a model without some of its experts, by distillation from the dense model.

Only the weight of every router is trained, and its bias where the family has one; correction biases stay. Losses,
batches, the dense model's states and checkpoints are shared with learned scales and recovery.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gprune.models.expert_decoder import ExpertDecoder, mixtures_of
from gprune.models.language_model import LanguageModel
from gprune.pruning.sparsity.batches import common_ids
from gprune.pruning.sparsity.tuning import COLUMNS, Tuner
from gprune.records import Tokens
from gprune.records.experts import RouterWeights
from gprune.store.resumption import Resumption
from gprune.study import RecoverySettings
from gprune.system.progress import Progress, silent

_RATE = 5.0
"""step size as a multiple of `recovery.learning_rate` and of the root mean square of the routers' weights

In trials on the bundled mixture, larger steps improved calibration texts, but not other texts.
"""


class Routers:
    """Weights and biases of the routers of a model as one flat tensor of trainable numbers, router by router."""

    def __init__(self, routers: Sequence[Any], device: torch.device) -> None:
        """Start at the parameters of `routers`; `device` is that of the numbers."""
        # correction biases are buffers, or parameters of a submodule
        self.parameters = [(router, *pair) for router in routers for pair in router.named_parameters(recurse=False)]
        self._start = torch.cat([tensor.flatten().float().to(device) for *_, tensor in self.parameters])
        self.numbers, self.gradient = self._start.clone(), torch.zeros_like(self._start)
        # the size of a router's weights depends on the width of the model
        self.rate_factors = _RATE * self._start.square().mean().sqrt().expand_as(self._start)

    def begin(self, _: int) -> Tensor:
        """Set the numbers to the weights of the model and return them."""
        return self.numbers.copy_(self._start)

    def split(self, numbers: Tensor) -> list[Tensor]:
        """Return views of `numbers` in the shapes of the parameters."""
        parts = numbers.split([tensor.numel() for *_, tensor in self.parameters])
        return [part.view_as(tensor) for part, (*_, tensor) in zip(parts, self.parameters, strict=True)]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the routers use the numbers while the context is open, with gradients."""
        # backward passes add to the gradient of this leaf, which is `self.gradient`
        leaf = self.numbers.detach().requires_grad_()
        leaf.grad = self.gradient
        for (router, name, tensor), values in zip(self.parameters, self.split(leaf), strict=True):
            # a tensor with a history cannot replace a registered parameter
            delattr(router, name)
            setattr(router, name, values.to(tensor.device, tensor.dtype))
        try:
            yield
        finally:
            for router, name, tensor in self.parameters:
                delattr(router, name)
                setattr(router, name, tensor)


def refit_routers(
    decoder: ExpertDecoder,
    model: nn.Module,
    method: str,
    texts: Sequence[Tokens],
    settings: RecoverySettings,
    seed: int,
    on_progress: Progress = silent,
    resumption: Resumption | None = None,
) -> RouterWeights:
    """Train the routers of a pruned model until its next-token distributions are closest to the dense model's.

    Args:
        decoder: the dense model, which is the teacher; it is not changed.
        model: the model from ``gprune.pruning.experts.surgery.cut_experts``; it is not changed.
        method: name of the method of its masks.
        texts: calibration sets with sequences of the same length; all sequences are sampled with equal probability.
        settings: steps, batch, learning rate and losses; if memory runs out, a batch is split into portions.
        seed: seed of the order of the sequences.
        on_progress: called after every step; may raise to stop.
        resumption: reads and writes checkpoints.

    Raises:
        MethodError: not even one sequence fits in memory.
        NumericsError: a loss or a gradient is not finite.
    """
    ids, student = common_ids(texts), LanguageModel(model, None)
    modules = [mixture.router for mixture in mixtures_of(model, decoder.layout).values()]
    routers = Routers(modules, student.device)
    steps = Tuner(decoder, student, routers, ids, [np.arange(len(ids))], settings, seed, on_progress).run(resumption)
    parts = routers.split(routers.numbers.cpu())
    weights, biases = ([part.numpy() for part in parts if part.ndim == axes] for axes in (2, 1))
    empty = np.zeros((len(modules), 0), np.float32)
    return RouterWeights(method, np.stack(weights), np.stack(biases) if biases else empty, steps, COLUMNS)
