"""Speed: who is in memory and at work when, which repetitions a row is of, and what a failure leaves."""

import weakref

import numpy as np
import pytest
import torch
from evaluation.test_speed import SETTINGS, Clock, dense, given, pruned

from gprune.evaluation.speed import Measurement, measure, with_changes
from gprune.system.errors import ModelError, SettingsError


def test_each_model_takes_turns_with_the_first_after_one_warm_up_each():
    turns = []
    models = given(**{name: dense(seed=number) for number, name in enumerate("ABC")})
    measure(models, with_changes(SETTINGS, repeats=2), lambda *event: turns.append(event))
    loading = [event for event in turns if event[2].startswith("loading")]
    assert loading == [(0, 12, "loading: A"), (0, 12, "loading: B"), (6, 12, "loading: C")]
    turns = [event for event in turns if event not in loading]
    assert [message.split(": ")[1][0] for _, _, message in turns] == list("ABABABACACAC")
    assert [message.split(":")[0] for _, _, message in turns] == (
        (["warm-up"] * 2 + ["repetition 1"] * 2 + ["repetition 2"] * 2) * 2
    )
    assert [(done, total) for done, total, _ in turns] == [(number, 12) for number in range(1, 13)]


def test_ratios_are_to_the_first_beside_it_and_the_first_shows_all_it_has_made():
    # prefill and decode of A, then of the other; the machine is three times slower when C's turn comes
    rounds = np.array([[1.0, 4.0, 0.5, 2.0]] * 3 + [[3.0, 12.0, 1.0, 3.0]] * 3)
    models = given(A=dense(), B=pruned(), C=pruned(seed=2))
    rows = {(row.model, row.phase): row for row in measure(models, SETTINGS, clock=Clock(rounds.ravel()))}
    assert [name for name, phase in rows if phase == "decode"] == list("ABC")
    assert rows["B", "decode"].ratio == pytest.approx(2) and rows["C", "decode"].ratio == pytest.approx(4)
    assert rows["C", "prefill"].ratio == pytest.approx(3) and rows["C", "prefill"].ratio_spread == 0
    first = rows["A", "decode"]
    assert first.seconds == (4.0, 4.0, 4.0, 12.0, 12.0, 12.0)
    # 2 sequences of 3 tokens in 4 or 12 s
    assert first.tokens_per_second == pytest.approx((6 / 4 + 6 / 12) / 2)
    assert first.spread == pytest.approx(6 / 4 - 6 / 12) and (first.ratio, first.ratio_spread) == (1, 0)
    assert rows["C", "decode"].seconds == (3.0, 3.0, 3.0)


def test_never_more_than_two_models_are_alive():
    alive, maximum = weakref.WeakSet(), []

    def loader_of(seed):
        def load():
            # whatever went before must have gone by now
            maximum.append(("before", len(alive)))
            model = pruned(seed=seed)
            alive.add(model)
            return model

        return load

    def on_progress(*_):
        maximum.append(("while", len(alive)))

    rows = measure({name: loader_of(seed) for seed, name in enumerate("ABCD")}, SETTINGS, on_progress)
    assert [number for when, number in maximum if when == "before"] == [0, 1, 1, 1]
    assert max(number for _, number in maximum) == 2 and len(alive) == 0
    assert [row.model for row in rows[::3]] == list("ABCD")


def no_such_model():
    raise ModelError("there is no model C: name another")


def test_a_model_that_cannot_be_loaded_leaves_those_before_it_measured():
    models = given(A=dense(), B=pruned()) | {"C": no_such_model} | given(D=pruned())
    measurement = Measurement(models, SETTINGS)
    assert measurement.rows() == []
    with pytest.raises(ModelError, match="no model C: name another"):
        measurement.run()
    rows = measurement.rows()
    assert [row.model for row in rows] == ["A"] * 3 + ["B"] * 3
    assert all(len(row.seconds) == 3 and row.tokens_per_second > 0 for row in rows)


def test_a_model_whose_memory_runs_out_half_way_leaves_whole_repetitions_only():
    broken, calls = pruned(), []

    def fail(*_):
        calls.append(1)
        # four passes a run, after the warm-up and one repetition
        if len(calls) > 8:
            raise torch.OutOfMemoryError("CUDA out of memory")

    broken.lm_head.register_forward_pre_hook(fail)
    measurement = Measurement(given(A=dense(), B=pruned(), C=broken.train()), SETTINGS)
    with pytest.raises(SettingsError, match="C does not fit in the memory of cpu beside the model that .* batch 2"):
        measurement.run()
    assert broken.training
    assert [(row.model, len(row.seconds)) for row in measurement.rows()] == [("A", 3)] * 3 + [("B", 3)] * 3


def test_memory_that_runs_out_while_a_model_is_loaded_is_one_sentence():
    def load():
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(SettingsError, match="^A does not fit in the memory of cpu with batch 2 and a prompt of 5"):
        measure({"A": load}, SETTINGS)
