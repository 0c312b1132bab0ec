"""Small pieces of work go on at the same time, each on one thread, and come back in their order."""

import threading
import time

import pytest
import torch

from gprune.pruning.modules.partition import run_in_parallel


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_small_pieces_run_together_on_a_thread_each_and_keep_their_order():
    met = threading.Barrier(2, timeout=30)

    def piece(number):
        # neither gets further alone
        met.wait()
        time.sleep(0.05 * (number == 0))
        return number, torch.get_num_threads()

    results = list(run_in_parallel((True, lambda number=number: piece(number)) for number in range(4)))
    assert results == [(number, 1) for number in range(4)]
    assert torch.get_num_threads() == 2


def test_a_large_piece_has_all_threads_and_ends_before_the_next_is_asked_for():
    events = []

    def pieces():
        for number in range(3):
            events.append(f"asked for {number}")
            yield number != 1, lambda number=number: (number, torch.get_num_threads())

    for number, threads in run_in_parallel(pieces()):
        events.append(f"{number} on {threads}")
    assert events == ["asked for 0", "asked for 1", "0 on 1", "1 on 2", "asked for 2", "2 on 1"]


def test_an_error_comes_through_and_what_waits_is_dropped():
    done = []

    def fail():
        raise ValueError("piece 0")

    slow = [lambda number=number: (time.sleep(0.2), done.append(number)) for number in range(20)]
    pieces = [(True, piece) for piece in (fail, *slow)]
    with pytest.raises(ValueError, match="piece 0"):
        list(run_in_parallel(pieces))
    assert len(done) < 5
    assert torch.get_num_threads() == 2
