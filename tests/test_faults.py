"""A run that is killed, or whose disk is full, before any kind of result leaves no wrong one and is completed."""

import os

import pytest
from faults import scenarios
from faults.arena import Arena

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.longest]


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    before = dict(os.environ)
    # a process with threads must not be forked; every step of a learning has its own state
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "GPRUNE_SAVE_SECONDS": "0"}
    yield Arena.built(tmp_path_factory.mktemp("faults").resolve())
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize("disturb", [scenarios.kills_at_events, scenarios.full_at_events])
def test_a_fault_before_each_kind_of_result_loses_nothing(arena, disturb):
    assert len(arena.events) >= 20
    assert not disturb(arena, 1, 0).sentences
