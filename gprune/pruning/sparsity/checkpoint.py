"""The checkpoint of unfinished learning, of sparsity or of recovery: everything that the next step reads.

What is learned (thresholds, gates or low-rank factors), the moments of Adam, the multiplier, the queues and
generator of the sampler, how many sequences go through the model at a time, which sequences shared a batch
when the dense model's states were computed, the random numbers of torch, and the rows and notices so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gprune.models import devices
from gprune.models.oom_backoff import AdaptiveBatches
from gprune.pruning.sparsity.batches import Sampler, Teacher
from gprune.pruning.sparsity.objective import RetentionConstraint
from gprune.records import Array
from gprune.store.states import State
from gprune.system.progress import Notice, Progress

CHANGED_ROUNDING = (
    "the states of the dense model no longer fit in memory beside it, as they did when this learning began: "
    "they are made anew at every step, which takes longer and rounds differently"
)
_MOMENTS, _RANDOM = "optimizer.", "random."
_LEARNED = "thresholds"
"""what states call that which is learned: those of sparsity came first"""


class Batches(Protocol):
    """Runner of the batches of a learning."""

    sequences: AdaptiveBatches
    """that go through the model at a time"""


@dataclass(slots=True)
class Running:
    """The parts of a learning that change from step to step."""

    learned: Tensor
    """(numbers,) thresholds, gates or low-rank factors, changed in place"""
    optimizer: torch.optim.Optimizer
    constraint: RetentionConstraint | None
    """of retention, or None if the units are decided"""
    sampler: Sampler
    teacher: Teacher
    passes: Batches
    rows: list[list[float]] = field(default_factory=list)
    """history of every step so far"""
    notices: list[str] = field(default_factory=list)
    """what is to be kept of what was said so far"""

    def slow(self, rate: float, step: int, steps: int) -> float:
        """Set the step size, which falls from `rate` as half a cosine, and return it."""
        slower = rate * (1 + math.cos(math.pi * step / steps)) / 2
        self.optimizer.param_groups[0]["lr"] = slower
        return slower

    def state(self, steps: int, cost: list[float]) -> State:
        """Return the checkpoint of this learning between two steps.

        Args:
            steps: steps in all.
            cost: what it has cost so far.
        """
        # an optimizer has no state for its parameter before the first step
        moments = self.optimizer.state.get(self.learned, {})
        tensors = {f"{_MOMENTS}{name}": value for name, value in moments.items() if isinstance(value, Tensor)}
        queues, generator = self.sampler.checkpoint_state()
        members, caches = self.teacher.checkpoint_state()
        random = {f"{_RANDOM}{name}": value for name, value in devices.random_states(self.learned.device).items()}
        values = {
            "sampler": generator,
            "size": self.passes.sequences.size,
            "notices": list(self.notices),
            "spent": cost,
            "teacher": caches,
        }
        if self.constraint is not None:
            values["multiplier"] = self.constraint.multiplier
        arrays = {
            name: tensor.detach().cpu().numpy()
            for name, tensor in {_LEARNED: self.learned, **tensors, **random}.items()
        }
        arrays |= {**queues, **members, "rows": np.array(self.rows, dtype=np.float64)}
        return State(len(self.rows), steps, arrays, values)

    def take_up(self, state: State, steps: int, columns: Sequence[str], texts: Array) -> bool:
        """Continue from a state.

        Args:
            state: what `state` has given in another process.
            steps: steps in all.
            columns: names of what a row tells.
            texts: (sequences, tokens) int64 ids of both texts.

        Returns:
            Whether what follows has the same bits as without the stop, on the same device.

        Raises:
            ValueError: it is the state of another learning; what is taken up then is of no use.
            KeyError: the same.
            TypeError: the same.
            RuntimeError: the same.
        """
        arrays, values = state.arrays, state.values
        rows, learned = arrays["rows"], arrays[_LEARNED]
        if not 0 < state.step < steps or state.steps != steps:
            raise ValueError(f"it stands at step {state.step} of {state.steps}, and there are {steps}")
        if rows.shape != (state.step, len(columns)) or learned.shape != tuple(self.learned.shape):
            raise ValueError("its rows or what it has learned are those of another learning")
        moments = {n.removeprefix(_MOMENTS): _tensor(a) for n, a in arrays.items() if n.startswith(_MOMENTS)}
        random = {n.removeprefix(_RANDOM): _tensor(a) for n, a in arrays.items() if n.startswith(_RANDOM)}
        multiplier = float(values["multiplier"]) if self.constraint is not None else 0.0
        size, notices = int(values["size"]), list(values["notices"])
        self.sampler.take_up(arrays, values["sampler"])
        is_exact = self.teacher.take_up(arrays, values["teacher"], texts)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": {0: moments}, "param_groups": groups})
        self.learned.copy_(_tensor(learned))
        self.passes.sequences.size = size
        if self.constraint is not None:
            self.constraint.multiplier = multiplier
        self.rows[:] = rows.tolist()
        self.notices[:] = [str(notice) for notice in notices]
        devices.set_random_states(self.learned.device, random)
        return is_exact


def noting(notices: list[str], listener: Progress) -> Progress:
    """Return a listener that records the notices that it forwards."""

    def listen(done: int, total: int, message: str) -> None:
        if isinstance(message, Notice):
            notices.append(str(message))
        listener(done, total, message)

    return listen


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.array(array))
