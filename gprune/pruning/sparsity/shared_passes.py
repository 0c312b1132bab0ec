"""One batch through teacher and student on several processes, each with some sequences (section 3.3).

Rank 0 learns as a single process does: it draws the batch, decides, steps and saves. For the gradients alone
it tells the others thresholds (or gates) and sequences; each runs some portions of the batch
(gprune.pruning.sparsity.passes), and the sums are added up before anything is decided from them. Layers that
lie in shards are brought together by all processes at the same time, so that everybody runs equally many
portions; what one has too many of is left out of the sums.
"""

from __future__ import annotations

from dataclasses import asdict
from math import ceil
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gprune.models import oom_backoff
from gprune.pruning.sparsity.activation_checkpointing import SUBSETS
from gprune.pruning.sparsity.batches import Teacher
from gprune.pruning.sparsity.equal_masks import EqualGates, EqualMasks
from gprune.pruning.sparsity.gate_masks import GateMasks
from gprune.pruning.sparsity.mask_hooks import gated
from gprune.pruning.sparsity.masks import MaskFamily, UnitMasks
from gprune.pruning.sparsity.passes import BatchSums, Passes, portions
from gprune.records import Array
from gprune.study import SparsitySettings
from gprune.system.errors import SettingsError
from gprune.system.progress import silent

if TYPE_CHECKING:
    from gprune.models.decoder import Decoder
    from gprune.models.distributed.process_group import Ranks
    from gprune.models.distributed.rpc import Order

ORDER = "learning"
"""what the others are told to take part in"""
FAMILIES: dict[str, type[UnitMasks]] = {kind.NAME: kind for kind in (MaskFamily, GateMasks, EqualMasks, EqualGates)}
"""the kinds of masks that can be learned together, by name"""
Place = tuple[slice, slice]
"""subsets, and sequences of each"""


def dealt(quarter: int, size: int, count: int, rank: int) -> list[tuple[Place, bool]]:
    """The portions that a process runs, and whether each counts; all processes have equally many.

    Args:
        quarter: sequences of each subset.
        size: sequences that may go through the model at a time.
        count: processes.
        rank: which of them.
    """
    even = SUBSETS * ceil(quarter / count) if quarter >= count else ceil(SUBSETS * quarter / count)
    places = list(portions(quarter, min(size, even)))
    numbers = range(rank, ceil(len(places) / count) * count, count)
    return [(places[number % len(places)], number < len(places)) for number in numbers]


class SharedPasses(Passes):
    """Runs batches on all processes together, as `Passes` does on one."""

    def __init__(self, ranks: Ranks, *known: Any) -> None:
        """Binds what every batch needs.

        Args:
            ranks: the processes.
            known: see `Passes`.
        """
        super().__init__(*known)
        self._ranks, self.processes = ranks, ranks.count

    def run(self, learned: Tensor, numbers: Array, step: int, steps: int) -> BatchSums:
        """Runs the sequences of a step forward and back, on rank 0; see `Passes.run`.

        Raises:
            SettingsError: memory ran out.
            RanksError: another process has ended.
        """
        with self._ranks.working():
            self._ranks.broadcast(_message(self.sequences.size, learned, numbers))
            return self._share(learned, numbers)

    def announce(self, family: UnitMasks, quarter: int) -> None:
        """Has the others serve until they are dismissed.

        Args:
            family: the masks that follow from values which learn.
            quarter: sequences of each subset in a step.

        Raises:
            RanksError: another process has ended.
        """
        own, arrays = family.told()
        values = {"family": family.NAME, "settings": asdict(self._settings), "quarter": quarter}
        self._ranks.order(ORDER, own | values, arrays | {"ids": self._ids})

    def dismiss(self, count: int, quarter: int) -> None:
        """Says that there are no more batches, unless the others cannot be told any more.

        Args:
            count: how many values learn.
            quarter: sequences of each subset in a step.
        """
        if not self._ranks.within:
            self._ranks.broadcast(_blank(count, quarter))

    def serve(self, count: int, quarter: int) -> None:
        """Runs a share of every batch of rank 0, until there are no more.

        Args:
            count: how many values learn.
            quarter: sequences of each subset.
        """
        while True:
            told = self._ranks.broadcast(_blank(count, quarter))
            if not told[0]:
                return
            self.sequences.size = int(told[1])
            values, numbers = told[2 : 2 + count], told[2 + count :]
            known = values.to(self._decoder.device, torch.float32)
            with self._ranks.working():
                self._share(known, numbers.long().view(SUBSETS, quarter).numpy())

    def _share(self, learned: Tensor, numbers: Array) -> BatchSums:
        """What all processes say of a batch, of which this one runs its portions."""
        ids = torch.from_numpy(self._ids[numbers]).to(self._decoder.device)
        distils = self._settings.distillation_weight > 0
        whole, left_out = (BatchSums.empty(ids, len(self._family.share), distils) for _ in range(2))
        count, rank = self._ranks.count, self._ranks.rank
        try:
            with self._decoder.uncounted():
                for place, counts in dealt(numbers.shape[1], self.sequences.size, count, rank):
                    self._portion(whole if counts else left_out, place, learned, numbers, ids)
        except (RuntimeError, MemoryError) as error:
            if oom_backoff.out_of_memory(error):
                raise self._too_large(error, numbers.size) from error
            raise
        parts = (whole.cross_entropy, whole.distillation, whole.cross_entropy_gradient)
        for part in (*parts, whole.distillation_gradient):
            if part is not None:
                self._ranks.add(part)
        self._decoder.count_forward(ids.numel() * (1 + distils))
        self._decoder.count_backward(ids.numel() * (1 + distils))
        return whole

    def _portion(self, sums: BatchSums, place: Place, learned: Tensor, numbers: Array, ids: Tensor) -> None:
        target = None
        if self._settings.distillation_weight > 0:
            target = self._teacher.hidden_states(numbers[place].ravel(), ids[place].flatten(0, 1))
        self._add(sums, place, learned, ids[place], target)

    def _too_large(self, error: BaseException, sequences: int) -> SettingsError:
        """The others wait in the middle of a layer, so that fewer sequences at a time cannot be tried."""
        each = ceil(sequences / self._ranks.count)
        return SettingsError(
            f"sparsity.batch: memory ran out with {each} of {sequences} sequences of {self._ids.shape[1]:,} "
            f"tokens on process {self._ranks.rank + 1} "
            f"({oom_backoff.sizes(error, self._decoder.device)}): use more "
            "GPUs (--model-gpus), a smaller calibration.length, or dtype bfloat16"
        )


def follow(ranks: Ranks, decoder: Decoder, order: Order) -> None:
    """What the other processes do while rank 0 learns.

    Args:
        ranks: the processes.
        decoder: the model, its layers in shards.
        order: as rank 0 has given it.
    """
    values, arrays = order.values, order.arrays
    ids, family = arrays["ids"], FAMILIES[values["family"]].heard(values, arrays, decoder.device)
    settings = SparsitySettings(**values["settings"])
    with gated(decoder) as gate:
        # without room for states to keep: a sequence comes to another process each time
        teacher = Teacher.build(decoder, len(ids), ids.shape[1], epochs=1)
        passes = SharedPasses(ranks, decoder, family, gate, teacher, ids, settings, silent)
        passes.serve(family.count, int(values["quarter"]))


def _blank(count: int, quarter: int) -> Tensor:
    """Room for what a step takes; as it is, it says that there are no more steps."""
    return torch.zeros(2 + count + SUBSETS * quarter, dtype=torch.float64)


def _message(size: int, learned: Tensor, numbers: Array) -> Tensor:
    """What a step takes, as numbers all of which float64 holds exactly."""
    head = torch.tensor([1, size], dtype=torch.float64)
    return torch.cat([head, learned.detach().cpu().double(), torch.from_numpy(numbers).double().flatten()])
