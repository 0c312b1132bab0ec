"""Keeps several processes at one attempt of work that begins anew where memory runs out on one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from gprune.system.errors import GpruneError

if TYPE_CHECKING:
    from gprune.models.distributed.process_group import Ranks

_FAILED = -1


class Attempts:
    """The attempts of one process; all of them meet before whatever they do together."""

    def __init__(self, ranks: Ranks | None) -> None:
        """Binds the processes; None where this one is alone."""
        self.ranks, self._number = ranks, 0

    def begin(self) -> None:
        """Begins the next attempt."""
        self._number += 1

    def meet(self) -> None:
        """Waits until all are at the same attempt.

        Raises torch's error of memory that ran out where another process has begun anew, as this one has to.
        """
        while self.ranks is not None:
            found = [int(one) for one in self.ranks.gathered(torch.tensor([self._number]))]
            if _FAILED in found:
                raise _Failed
            if max(found) > self._number:
                raise torch.OutOfMemoryError("out of memory on another process")
            if min(found) == self._number:
                return

    @contextmanager
    def told(self) -> Iterator[None]:
        """Around all attempts: where one process gives up, the others do, and it says why."""
        try:
            yield
        except _Failed:
            return
        except GpruneError:
            if self.ranks is not None:
                self.ranks.gathered(torch.tensor([_FAILED]))
            raise


class _Failed(Exception):  # noqa: N818
    """Another process has given up."""
