"""As many processes of one run as a test wants, as threads of this one."""

import queue
import threading
from collections.abc import Callable
from typing import Any

import torch
from waiting import limit

from gprune.models.distributed.heartbeat import Heartbeat
from gprune.models.distributed.process_group import Ranks, Withdrawn
from gprune.models.distributed.rpc import Order
from gprune.system.errors import GpruneError


class Meeting:
    """Where the threads exchange what they have."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.barrier = threading.Barrier(count, timeout=limit(30))
        self.parts: list[Any] = [None] * count
        self.kept: dict[str, Any] = {}
        self.orders: list[queue.Queue[Order | None]] = [queue.Queue() for _ in range(count)]

    def exchange(self, rank: int, part: Any) -> list[Any]:
        self.parts[rank] = part
        self.barrier.wait()
        found = list(self.parts)
        self.barrier.wait()
        return found

    def set(self, name: str, value: str) -> None:
        self.kept[name] = value.encode()

    def get(self, name: str) -> Any:
        return self.kept[name]


class ThreadRanks(Ranks):
    """A thread that takes itself for a process."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.meeting, self.rank, self.count = meeting, rank, meeting.count
        self._store: Any = meeting
        self.place = torch.device("cpu")
        self._given, self._depth, self._peers = 0, 0, Heartbeat(meeting, rank, [])

    def gathered(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        found: list[torch.Tensor] = self.meeting.exchange(self.rank, tensor.clone())
        return found

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.copy_(torch.stack(self.gathered(tensor)).sum(0))

    def broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.copy_(self.gathered(tensor)[0])

    def order(self, name: str, values: Any, arrays: Any) -> None:
        for one in self.meeting.orders[1:]:
            one.put(Order.decoded(Order(name, values, arrays).encoded().tobytes()))

    def awaited(self) -> Order | None:
        return self.meeting.orders[self.rank].get(timeout=limit(30))


def together(count: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """What some work gives on each of so many processes; an exception in the place of what it gives."""
    meeting, found = Meeting(count), [None] * count

    def run(rank: int) -> None:
        try:
            found[rank] = work(ThreadRanks(meeting, rank))
        except Exception as error:
            found[rank] = error
            if not isinstance(error, GpruneError | Withdrawn):
                # the others do not wait for it, as they would not for a process that is gone
                meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return found
