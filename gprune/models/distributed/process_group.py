"""Answers: how do several processes compute one model together, each with a GPU of its own?

The one module that names torch.distributed, beside gprune.models.distributed.launch, which starts the
processes. Rank 0 runs the study as a single process does: it alone reads and writes the cache, keeps the
record and reports. The others wait for its orders, and do their share of the work that an order names; so all
of them do the same work in the same sequence, whatever a study asks for. Where nobody starts several
processes, none of this is loaded.

Nobody waits for a process that is gone (gprune.models.distributed.heartbeat).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.rendezvous import rendezvous

from gprune.models import devices, oom_backoff
from gprune.models.decoder import Decoder
from gprune.models.distributed.heartbeat import GRACE_SECONDS, Heartbeat
from gprune.models.distributed.rpc import Order, made, plain
from gprune.records import Array
from gprune.system import safe_parsing
from gprune.system.errors import GpruneError, RanksError, SettingsError

_LONGEST = timedelta(hours=2)
"""the longest wait for the others within some work: whoever is gone is noticed long before"""
_IDLE_SECONDS = 0.02
_WORDS = 160
"""letters of a library's message"""
_LAST_SECONDS = 30
"""what an exit may take when all is said: a GPU may wait for what never comes"""
_LAUNCHERS = {
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
}
"""variables in which the launcher says to each process what it is, beside those of its own name"""


class Ranks:
    """The processes of one run, as one of them sees them."""

    def __init__(self, store: Any, rank: int, count: int, gpu: bool) -> None:
        """Meets the others; see `join`."""
        self.rank, self.count = rank, count
        self._store, self._given = distributed_c10d.PrefixStore("gprune", store), 0
        self._depth, self._peers = 0, Heartbeat(self._store, rank, [])
        self.place = torch.device(devices.GPU, rank) if gpu else torch.device("cpu")
        """where this process computes"""
        numbers = [int(one) for one in self.gathered(torch.tensor([os.getpid()]))]
        self._peers = Heartbeat(self._store, rank, numbers)
        self._peers.watch()

    @classmethod
    def join(cls, device: str) -> Ranks:
        """Meets the processes that were started with this one; each computes on the GPU of its number.

        `device` is auto, cpu or cuda, as in a study. Raises SettingsError where there are fewer GPUs than
        processes, or none where one is asked for, RanksError where the processes do not find each other.
        """
        rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        gpu = device != "cpu" and devices.automatic().type == devices.GPU
        if devices.is_gpu(device) and not gpu:
            raise SettingsError(f"device is {device!r}, but torch sees no CUDA device here: use auto or cpu")
        if gpu and count > devices.count():
            raise SettingsError(
                f"--model-gpus is {count}, but torch sees {devices.count()} CUDA devices here: ask for as "
                "many as there are"
            )
        if gpu:
            devices.choose(rank)
        backend = f"cpu:gloo,{devices.GPU}:nccl" if gpu else "gloo"
        try:
            store, _, _ = next(rendezvous("env://", rank, count, timeout=_LONGEST))
            store.set(f"here/{rank}", "said")
            # no signal is heard inside of what comes next, so that all are waited for here
            while not store.check([f"here/{one}" for one in range(count)]):
                time.sleep(_IDLE_SECONDS)
            dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=_LONGEST)
        except RuntimeError as error:
            raise _unable(error) from error
        # other libraries, and processes that are started from here, would take themselves for one of several
        for name in {*os.environ}:
            if name in _LAUNCHERS or name.startswith("TORCHELASTIC_"):
                del os.environ[name]
        return cls(store, rank, count, gpu)

    @property
    def within(self) -> bool:
        """Whether all are at work together, so that none can leave without the others."""
        return self._depth > 0

    @property
    def device(self) -> str:
        """Where this process computes, as a study names it."""
        return str(self.place)

    def rows(self, samples: int) -> list[slice]:
        """The samples of every process: contiguous runs whose sizes differ by one at most."""
        ends = [(samples * one) // self.count for one in range(self.count + 1)]
        return [slice(*pair) for pair in zip(ends, ends[1:], strict=False)]

    def order(self, name: str, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Tells the others what work is to be done; rank 0 then does its own share.

        `values` are what JSON can hold, `arrays` whatever is large. Raises RanksError where another process
        has ended.
        """
        data = torch.from_numpy(Order(name, values, arrays).encoded())
        with self.working():
            self._given += 1
            self._store.set(f"order/{self._given}", "given")
            dist.broadcast(torch.tensor([len(data)]), 0)
            dist.broadcast(data, 0)

    def awaited(self) -> Order | None:
        """The next order, however long it takes to come; None where there will be none any more."""
        self._given += 1
        while not self._store.check([f"order/{self._given}"]):
            if self._store.check(["over"]):
                return None
            time.sleep(_IDLE_SECONDS)
        size = self.broadcast(torch.zeros(1, dtype=torch.int64))
        found = self.broadcast(torch.empty(int(size), dtype=torch.uint8))
        return Order.decoded(found.numpy().tobytes())

    def broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Gives every process what rank 0 has, in place."""
        with self.working():
            dist.broadcast(tensor, 0)
        return tensor

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        """Adds up over all processes, in place; all get the same bits."""
        with self.working():
            dist.all_reduce(tensor)
        return tensor

    def gathered(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """What every process has, in the order of their ranks; of one shape and type."""
        found = [torch.empty_like(tensor) for _ in range(self.count)]
        with self.working():
            dist.all_gather(found, tensor.contiguous())
        return found

    @contextlib.contextmanager
    def agreed(self) -> Iterator[None]:
        """Around work of one's own: where it goes wrong on one process it ends on all, which stay together.

        Raises GpruneError on rank 0, what went wrong first by rank, and Withdrawn on the others.
        """
        error = None
        try:
            yield
        except GpruneError as found:
            error = found
        place = f"fault/{self._given}"
        if error is not None:
            self._store.set(f"{place}/{self.rank}", plain(error))
        failed = self.gathered(torch.tensor([int(error is not None)]))
        first = next((rank for rank, one in enumerate(failed) if bool(one)), None)
        if first is None:
            return
        if self.rank:
            raise Withdrawn
        raise error or made(self._store.get(f"{place}/{first}"))

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Around work that no process can leave alone: RanksError says who is gone."""
        self._depth += 1
        try:
            yield
        except RuntimeError as error:
            if oom_backoff.out_of_memory(error):
                raise
            # the others end with rank 0, which is given time to
            gone = self._peers.missed(20.0 if self.rank else 10.0)
            if gone is not None:
                raise gone from error
            if isinstance(error, dist.DistError):
                raise _unable(error) from error
            raise
        self._depth -= 1

    def withdraw(self, error: GpruneError) -> None:
        """Leaves for good, and says why; the others are told by `missing`."""
        self._peers.withdraw(error)

    def missing(self) -> GpruneError | None:
        """What is to be said of another process that has ended; None while all are there."""
        return self._peers.missing()

    def end(self) -> bool:
        """Lets all processes go: nothing more is to be done together, and none is in the middle of something.

        Says whether this process has left them; if not, it is held back by one that is gone.
        """
        self._tell_over()
        leaving = threading.Thread(target=self._destroy, daemon=True)
        leaving.start()
        leaving.join(GRACE_SECONDS)
        return not leaving.is_alive()

    def leave(self) -> None:
        """Ends early: the others, who may be in the middle of something, leave when this process has.

        What they share is not taken apart, since that waits for all of them.
        """
        self._tell_over()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_LAST_SECONDS)

    def _tell_over(self) -> None:
        self._peers.over = True
        if self.rank == 0 and not self.within:
            with contextlib.suppress(RuntimeError):
                self._store.set("over", "said")

    def _destroy(self) -> None:
        with contextlib.suppress(RuntimeError):
            if devices.is_gpu(self.place):
                # of each thread its own
                devices.choose(self.rank)
            dist.destroy_process_group()


class Withdrawn(Exception):  # noqa: N818  (an outcome, not an error)
    """The work at hand went wrong on some process, and rank 0 knows why."""


def shard(decoder: Decoder) -> None:
    """Leaves each process a part of every layer's weights; a layer is whole only while it is at work.

    Embeddings, norms outside of layers and the LM head stay whole. The model's own calls bring a layer
    together, on its way forward as on the way back; no gradient of a weight is ever formed. Layers are
    changed in place, and one whose weights wait in their files is read.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from gprune.models import offloading

    backbone: Any = decoder.model.base_model
    kind = decoder.device.type
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    for layer in decoder.layers:
        offloading.bring(layer)
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    offloading.release_hooks(decoder.model)
    inside = {id(one) for layer in decoder.layers for one in layer.parameters()}
    whole = {one for one in backbone.parameters() if id(one) not in inside}
    fully_shard(backbone, mesh=mesh, ignored_params=whole)


def _unable(error: RuntimeError) -> RanksError:
    """What is said of an exchange that fails although nobody is gone, as without NCCL or memory to share."""
    words = safe_parsing.sentence(str(error).strip().partition("\n")[0], _WORDS)
    return RanksError(
        f"the processes that compute this model together cannot exchange what they have ({words}): run it "
        "again, with NCCL_DEBUG=INFO to see more, or without --model-gpus"
    )
