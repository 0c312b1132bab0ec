"""Subsets stay disjoint, and every sequence comes up; the teacher runs once for each."""

import numpy as np
import pytest
import torch
from sparsity.reference_sparsity import random_tokens

from gprune.models.tiny import tiny_decoder
from gprune.pruning.sparsity.batches import SubsetSampler, Teacher
from gprune.system import machine
from gprune.system.errors import SettingsError


def _tokens(samples, length=4, seed=0):
    return random_tokens(samples, length, 64, np.random.default_rng(seed))


def test_subsets_are_fixed_disjoint_halves_of_each_text():
    sampler = SubsetSampler(_tokens(16), _tokens(16), 8, seed=0)
    seen = [set() for _ in range(4)]
    for _ in range(5 * sampler.steps_per_epoch):
        for subset, part in enumerate(np.split(sampler.draw(), 4)):
            seen[subset] |= set(part.tolist())
    assert [len(subset) for subset in seen] == [8, 8, 8, 8]
    assert seen[0] | seen[1] == set(range(16))
    assert seen[2] | seen[3] == set(range(16, 32))


def test_the_shorter_text_is_gone_through_again():
    sampler = SubsetSampler(_tokens(40), _tokens(8), 8, seed=0)
    assert sampler.steps_per_epoch == 6
    drawn = np.concatenate([sampler.draw() for _ in range(6)])
    counts = np.bincount(drawn, minlength=48)
    assert set(counts[40:]) == {3}
    assert set(counts[:40]) == {0, 1}


def test_a_remainder_is_carried_over_and_a_small_text_makes_smaller_batches():
    sampler = SubsetSampler(_tokens(10), _tokens(10), 8, seed=0)
    drawn = np.concatenate([sampler.draw() for _ in range(5)])
    assert set(np.bincount(drawn, minlength=20)) == {2}
    sampler = SubsetSampler(_tokens(64), _tokens(7), 32, seed=0)
    assert sampler.quarter == 3
    assert len(sampler.draw()) == 12


def test_texts_that_cannot_be_halved_or_differ_in_length_are_refused():
    with pytest.raises(SettingsError, match=r"auxiliary calibration set has 1 sequence.*longer text"):
        SubsetSampler(_tokens(4), _tokens(1), 4, seed=0)
    with pytest.raises(SettingsError, match="sequences of 4 and of 5 tokens"):
        SubsetSampler(_tokens(4), _tokens(4, length=5), 4, seed=0)


def test_the_teacher_keeps_what_it_said(monkeypatch):
    decoder = tiny_decoder()
    ids = torch.arange(12).view(3, 4)
    numbers = np.array([5, 0, 2])
    teacher = Teacher.build(decoder, sequences=6, length=4, epochs=2)
    first = teacher.hidden_states(numbers, ids)
    monkeypatch.setattr(decoder, "hidden_states", lambda ids: pytest.fail("the decoder ran again"))
    again = teacher.hidden_states(np.array([2, 5]), ids[[2, 0]])
    assert torch.equal(again, first[[2, 0]])
    assert not again.requires_grad


@pytest.mark.parametrize(("epochs", "limit"), [(1, 2**30), (2, 0)])
def test_no_cache_where_it_is_of_no_use_or_too_large(monkeypatch, epochs, limit):
    monkeypatch.setattr(machine, "spare", lambda: limit)
    decoder = tiny_decoder()
    teacher = Teacher.build(decoder, sequences=6, length=4, epochs=epochs)
    ids = torch.arange(8).view(2, 4)
    assert teacher.cache is None
    expected = decoder.hidden_states(ids)
    for _ in range(2):
        assert torch.equal(teacher.hidden_states(np.array([0, 1]), ids), expected)
