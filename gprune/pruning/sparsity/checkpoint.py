"""Save and restore checkpoints of an unfinished training (sparsity learning, scales or recovery).

A checkpoint has the trained numbers (thresholds, gates, scales or low-rank factors), the moments of Adam, the
multiplier, the queues and generator of the sampler, the batch size, the batches in which the dense model's states
were computed, the random states of torch, and the history rows and notices.
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
from gprune.models.devices import AdaptiveBatches
from gprune.pruning.sparsity.batches import Sampler, Teacher
from gprune.pruning.sparsity.objective import RetentionConstraint
from gprune.records import Array
from gprune.store.resumption import State
from gprune.system.progress import Notice, Progress

CHANGED_ROUNDING = (
    "the cached states of the dense model no longer fit in memory, as they did when this training began: "
    "they are recomputed at every step, which is slower and rounds differently"
)
_MOMENTS, _RANDOM = "optimizer.", "random."
"""prefixes of the names of Adam's moments and of random states in a checkpoint"""
_LEARNED = "thresholds"
"""name of the trained numbers in a checkpoint"""


class Batches(Protocol):
    """Object that runs the batches of a training."""

    sequences: AdaptiveBatches
    """the number of sequences that are run at a time"""


@dataclass(slots=True)
class TrainingState:
    """Mutable state of a training."""

    learned: Tensor
    """(numbers,) thresholds, gates, scales or low-rank factors, changed in place"""
    optimizer: torch.optim.Optimizer
    constraint: RetentionConstraint | None
    """constraint on the retention, or None if the masks are fixed"""
    sampler: Sampler
    teacher: Teacher
    passes: Batches
    rows: list[list[float]] = field(default_factory=list)
    """history, one row per step"""
    notices: list[str] = field(default_factory=list)
    """notices so far, which a resumed process reports again"""

    def decay_rate(self, rate: float, step: int, steps: int) -> float:
        """Set and return the learning rate of a step, which decays from `rate` along half a cosine."""
        decayed = rate * (1 + math.cos(math.pi * step / steps)) / 2
        self.optimizer.param_groups[0]["lr"] = decayed
        return decayed

    def state(self, steps: int, cost: list[float]) -> State:
        """Return a checkpoint of this training between two steps.

        Args:
            steps: total steps.
            cost: numbers of a `Spent`, the time and passes so far, stored with the checkpoint.
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

    def restore(self, state: State, steps: int, columns: Sequence[str], texts: Array) -> bool:
        """Continue from a checkpoint.

        Args:
            state: result of `state` in another process.
            steps: total steps.
            columns: names of the columns of the history.
            texts: (sequences, tokens) int64 ids of all texts.

        Returns:
            True if the following steps have the same bits as without the interruption, on the same device.

        Raises:
            ValueError, KeyError, TypeError, RuntimeError: the checkpoint belongs to another training; this object
                may be partly changed and must be discarded.
        """
        arrays, values = state.arrays, state.values
        rows, learned = arrays["rows"], arrays[_LEARNED]
        if not 0 < state.step < steps or state.steps != steps:
            raise ValueError(f"it is at step {state.step} of {state.steps}, but this training has {steps} steps")
        if rows.shape != (state.step, len(columns)) or learned.shape != tuple(self.learned.shape):
            raise ValueError("its history or its trained numbers have the shape of another training")
        moments = {n.removeprefix(_MOMENTS): _tensor(a) for n, a in arrays.items() if n.startswith(_MOMENTS)}
        random = {n.removeprefix(_RANDOM): _tensor(a) for n, a in arrays.items() if n.startswith(_RANDOM)}
        multiplier = float(values["multiplier"]) if self.constraint is not None else 0.0
        size, notices = int(values["size"]), list(values["notices"])
        self.sampler.restore(arrays, values["sampler"])
        is_exact = self.teacher.restore(arrays, values["teacher"], texts)
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


def record_notices(notices: list[str], listener: Progress) -> Progress:
    """Return a progress callback that appends notices to a list and forwards everything to `listener`."""

    def listen(done: int, total: int, message: str) -> None:
        if isinstance(message, Notice):
            notices.append(str(message))
        listener(done, total, message)

    return listen


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.array(array))
