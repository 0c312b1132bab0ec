"""A run that is killed, or whose disk is full, before any kind of result leaves no wrong one and is completed."""

import pytest
from faults import scenarios
from faults.arena import Arena


@pytest.mark.process
@pytest.mark.long
@pytest.mark.longest
def test_a_fault_before_each_kind_of_result_loses_nothing(tmp_path, monkeypatch):
    # a process with threads must not be forked; every step of a learning has its own state
    settings = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "GPRUNE_SAVE_SECONDS": "0"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    arena = Arena.built(tmp_path.resolve())
    assert len(arena.events) >= 20
    for disturb in (scenarios.kills_at_events, scenarios.full_at_events):
        verdict = disturb(arena)
        assert verdict.tries > 15 and not verdict.sentences
