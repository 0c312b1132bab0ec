"""Small pieces of work on several cores: each on one thread, not one after the other on all of them.

An operation on a small layer is too short to be divided: threads that share it wait for each other longer
than they compute. What a piece gives then no longer depends on the number of threads, to the last bit.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

R = TypeVar("R")
_SMALL = 1 << 21
"""numbers of a matrix up to which its products gain less by more threads than these cost"""


def small(matrix: torch.Tensor) -> bool:
    """Whether work on a matrix is better left to one thread; never on a GPU."""
    return matrix.device.type == "cpu" and matrix.numel() <= _SMALL


def side_by_side(pieces: Iterable[tuple[bool, Callable[[], R]]]) -> Iterator[R]:
    """What some pieces of work give, in their order.

    Each comes with whether it is small: those go on side by side, as many at a time as torch may use
    threads; any other has all threads to itself, before the next is asked for. Where the caller stops, pieces
    that wait are dropped, and those at work end.
    """
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, "pieces", initializer=torch.set_num_threads, initargs=(1,))
    waiting: list[Future[R]] = []
    try:
        for is_small, piece in pieces:
            if is_small:
                waiting.append(pool.submit(piece))
                continue
            yield from (one.result() for one in waiting)
            waiting.clear()
            yield piece()
        yield from (one.result() for one in waiting)
    finally:
        pool.shutdown(cancel_futures=True)
        # whatever thread begins later takes the number that was set last
        torch.set_num_threads(threads)
