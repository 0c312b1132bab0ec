"""Recovery of a pruned model by distillation from the dense one: steps of Adam on low-rank factors.

The weights of both models stay as they are; only the factors beside the pruned one's linear maps learn
(`adapters`). Losses, batches, the dense model's states and what is saved on the way are those of sparsity
learning. What is learned is merged into the weights by `gprune.models.low_rank`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gprune.models.decoder import Decoder
from gprune.models.families import Layout
from gprune.models.low_rank import linear_maps, pairs
from gprune.models.oom_backoff import Sequences
from gprune.pruning.sparsity.batches import Sampler, Teacher
from gprune.pruning.sparsity.checkpoint import Running, noting
from gprune.pruning.sparsity.course import Course
from gprune.pruning.sparsity.objective import head_losses
from gprune.records import Array, RecoveredWeights, Tokens
from gprune.store.resumption import Resumption
from gprune.study import RecoverySettings
from gprune.system.errors import MethodError, NumericsError, SettingsError
from gprune.system.progress import Progress, silent

COLUMNS = ("step", "distillation", "cross_entropy", "learning_rate")
_SHORTER = (
    "set a smaller calibration.length, recovery.distillation_weight 0, dtype bfloat16, or a device with more memory"
)


def recover(
    decoder: Decoder,
    model: nn.Module,
    method: str,
    texts: Sequence[Tokens],
    settings: RecoverySettings,
    seed: int,
    on_progress: Progress = silent,
    kept: Resumption | None = None,
) -> RecoveredWeights:
    """What training adds to the linear maps of a pruned model.

    Args:
        decoder: the dense decoder, from which the model learns; it is not changed.
        model: what ``gprune.pruning.surgery.cut`` has made of it; adapters stay in it, so that it is of no
            further use.
        method: whose model it is.
        texts: calibration sets, with sequences of the same length; every sequence is as likely.
        settings: of this stage; where memory runs out, a batch goes through the model in portions.
        seed: seed of the factors and of the order of the sequences.
        on_progress: called after every step; may raise to stop.
        kept: where it leaves what it can go on from, and finds what an earlier process has left.

    Raises:
        SettingsError: the texts differ in length, or the layers are offloaded.
        MethodError: not even one sequence fits in memory.
        NumericsError: a loss or a gradient is not finite.
    """
    decoder.require_whole("recovery")
    lengths = {tokens.ids.shape[1] for tokens in texts}
    if len(lengths) > 1:
        raise SettingsError(
            f"the calibration sets have sequences of {sorted(lengths)} tokens: draw all with one calibration.length"
        )
    ids = np.concatenate([tokens.ids for tokens in texts]).astype(np.int64)
    adapters = put_beside(model, decoder.layout, settings)
    student = Decoder(model, None, decoder.shape, decoder.layout)
    trainer = _Trainer(decoder, student, adapters, ids, settings, seed, on_progress)
    course = Course(COLUMNS, settings.steps, ids, trainer.begun, trainer.step, _message, on_progress)
    rows = course.run(trainer.begun(), kept)
    return RecoveredWeights(
        method=method,
        kind=settings.kind,
        scale=settings.alpha / settings.rank,
        rank=settings.rank,
        maps=adapters.maps,
        sizes=np.array(adapters.sizes),
        numbers=adapters.numbers.cpu().numpy(),
        steps=np.array(rows, dtype=np.float64).reshape(-1, len(COLUMNS)),
        columns=COLUMNS,
    )


class _Batches:
    """Runs batches through both models and back; where memory runs out, in smaller portions from then on."""

    processes = 1

    def __init__(
        self,
        student: Decoder,
        teacher: Teacher,
        gradient: Tensor,
        ids: Array,
        settings: RecoverySettings,
        told: Progress,
    ) -> None:
        self._student, self._teacher, self._gradient = student, teacher, gradient
        self._ids, self._settings = ids, settings
        self.sequences = Sequences(
            settings.batch, ids.shape[1], "recovery.batch", _SHORTER, student.device, told, MethodError
        )

    def run(self, numbers: Array, step: int, steps: int) -> Tensor:
        """Leaves the gradient of the mean loss, and returns both mean losses, (2,) nats per token.

        Args:
            numbers: (sequences,) which sequences.
            step: finished steps, for the listener.
            steps: steps in all.
        """
        ids = torch.from_numpy(self._ids[numbers]).to(self._student.device)
        distils = self._settings.distillation_weight > 0
        target = self._teacher.states(self.sequences, numbers, ids, (step, steps)) if distils else None
        sums = self.sequences.fitting(lambda size: self._summed(ids, target, size), len(ids), step, steps)
        # sums of order one went back, which float16 can hold
        self._gradient.div_(ids.numel())
        return sums / sums.new_tensor([ids.numel(), len(ids) * (ids.shape[1] - 1)])

    def _summed(self, ids: Tensor, target: Tensor | None, size: int) -> Tensor:
        """(2,) the losses of (sequences, tokens), summed, so many sequences at a time; so is the gradient."""
        self._gradient.zero_()
        sums = torch.zeros(2, device=ids.device)
        for part in (slice(start, start + size) for start in range(0, len(ids), size)):
            sums += self._back(ids[part], None if target is None else target[part])
        return sums

    def _back(self, ids: Tensor, target: Tensor | None) -> Tensor:
        settings, length = self._settings, ids.shape[1]
        states = self._student.hidden_states(ids)
        temperature = settings.distillation_temperature
        losses = head_losses(self._student.logits, states, target, ids, temperature)
        # the last token of a sequence has no prediction
        slope = losses.cross_entropy_gradient * (settings.cross_entropy_weight * length / (length - 1))
        if losses.distillation_gradient is not None:
            slope += settings.distillation_weight * losses.distillation_gradient
        torch.autograd.backward(states, slope)
        return torch.stack([losses.distillation.sum(), losses.cross_entropy.sum()])


@dataclass(slots=True)
class _Running(Running):
    """The parts of a recovery that change from step to step."""

    passes: _Batches


class _Trainer:
    """What a step of recovery does."""

    def __init__(
        self,
        decoder: Decoder,
        student: Decoder,
        adapters: Adapters,
        ids: Array,
        settings: RecoverySettings,
        seed: int,
        on_progress: Progress,
    ) -> None:
        self._decoder, self._student, self._adapters, self._ids = decoder, student, adapters, ids
        self._settings, self._seed, self._on_progress = settings, seed, on_progress

    def begun(self) -> _Running:
        """A recovery before its first step."""
        settings, notices, ids = self._settings, list[str](), self._ids
        each = min(settings.batch, len(ids))
        sampler = Sampler(np.random.default_rng(self._seed), [np.arange(len(ids))], each)
        epochs = math.ceil(settings.steps * each / len(ids))
        teacher = Teacher.build(self._decoder, len(ids), ids.shape[1], epochs)
        told = noting(notices, self._on_progress)
        passes = _Batches(self._student, teacher, self._adapters.gradient, ids, settings, told)
        numbers = self._adapters.begin(self._seed)
        optimizer = torch.optim.Adam([numbers], lr=settings.learning_rate)
        numbers.grad = self._adapters.gradient
        return _Running(numbers, optimizer, None, sampler, teacher, passes, notices=notices)

    def step(self, step: int, steps: int, running: _Running) -> list[float]:
        """Takes a step: finished ones, steps in all, and the recovery; gives the row that tells of it."""
        rate = running.slow(self._settings.learning_rate, step, steps)
        losses = running.passes.run(running.sampler.draw(), step, steps)
        # one transfer from the device a step
        finite = torch.isfinite(self._adapters.gradient).all()
        *told, sound = [*losses.tolist(), bool(finite)]
        if not (sound and all(map(math.isfinite, told))):
            raise NumericsError(
                f"step {step + 1} of recovery gave a loss or gradient that is not finite (distillation, "
                f"cross-entropy: {told}): use float32 or bfloat16 for the model, or a smaller "
                "recovery.learning_rate"
            )
        running.optimizer.step()
        return [step, *told, rate]


def _message(row: list[float]) -> str:
    return f"distillation {row[1]:.3f}, cross-entropy {row[2]:.3f}"


_NAME = "recovery"


@dataclass(frozen=True, slots=True)
class Adapters:
    """What learns beside the frozen weights of a model."""

    maps: tuple[str, ...]
    """linear maps that have one, as 3.o_proj"""
    sizes: tuple[tuple[int, int], ...]
    """outputs and inputs of each"""
    rank: int
    numbers: Tensor
    """float32: of each map A, (rank, inputs), and then B, (outputs, rank)"""
    gradient: Tensor
    """where backward passes add up the gradients of `numbers`"""

    def begin(self, seed: int) -> Tensor:
        """The numbers before the first step: A uniform as LoRA's code draws it, B zero."""
        generator = torch.Generator().manual_seed(seed)
        for (_, inputs), (right, left) in zip(self.sizes, self._pairs(self.numbers), strict=True):
            drawn = torch.rand(right.shape, generator=generator).mul_(2).sub_(1)
            right.copy_(drawn.div_(math.sqrt(inputs)))
            left.zero_()
        return self.numbers

    def _pairs(self, numbers: Tensor) -> list[tuple[Tensor, Tensor]]:
        return list(pairs(numbers, self.sizes, self.rank))

    def enter(self, layers: Sequence[Any]) -> None:
        """Lets peft's layers, one a map, compute with these numbers and add to this gradient."""
        factors = zip(self._pairs(self.numbers), self._pairs(self.gradient), strict=True)
        for layer, (values, slopes) in zip(layers, factors, strict=True):
            for part, value, slope in zip((layer.lora_A, layer.lora_B), values, slopes, strict=True):
                part[_NAME].weight = nn.Parameter(value)
                part[_NAME].weight.grad = slope


def put_beside(model: nn.Module, layout: Layout, settings: RecoverySettings) -> Adapters:
    """Puts factors of zero beside the linear maps of a model, which is changed for good; its weights are not.

    Needs the package peft.
    """
    from peft import LoraConfig, inject_adapter_in_model

    maps = linear_maps(model, layout, settings.targets)
    device = next(iter(maps.values())).weight.device
    sizes = tuple((one.out_features, one.in_features) for one in maps.values())
    count = settings.rank * sum(map(sum, sizes))
    rows = (torch.zeros(count, device=device) for _ in range(2))
    found = Adapters(tuple(maps), sizes, settings.rank, *rows)
    known = {id(module): name for name, module in model.named_modules()}
    names = [known[id(one)] for one in maps.values()]
    # peft divides alpha by the rank, whole or not
    alpha: Any = settings.alpha
    config = LoraConfig(
        r=settings.rank, lora_alpha=alpha, lora_dropout=0.0, bias="none", target_modules=names
    )  # fmt: skip
    # what peft draws is overwritten, and must not move the random numbers of this process
    with torch.random.fork_rng(devices=[]):
        inject_adapter_in_model(config, model, _NAME)
    found.enter([model.get_submodule(name) for name in names])
    return found
