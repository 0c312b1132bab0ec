"""A learning that is stopped and goes on: the same bits as one that nobody disturbed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from counted_memory import hold_sequences
from sparsity.reference_sparsity import random_tokens, random_units

from gprune.models.decoder import Decoder
from gprune.models.tiny import tiny_decoder
from gprune.pruning.sparsity import passes
from gprune.pruning.sparsity.gates import learn_gates
from gprune.pruning.sparsity.learner import LearningInputs
from gprune.pruning.sparsity.learning import learn
from gprune.records import UnitScores
from gprune.records.base import axes_of
from gprune.store import Store, resumption
from gprune.store.resumption import VARIABLE, Resumption, Spent, StateFile
from gprune.study import GateSettings, SparsitySettings
from gprune.system import machine
from gprune.system.progress import Notice, silent

KEY = "5" * 32


class StoppedError(Exception):
    """Stands for whatever ends a process in its middle."""


class Study:
    """A small learning and the cache in which it leaves its state."""

    def __init__(self, folder, samples=18, dtype=torch.float32, **settings):
        generator = np.random.default_rng(0)
        self.dtype = dtype
        self.units = random_units(self.decoder().shape, 5, generator)
        self.texts = [random_tokens(samples, 8, 64, generator) for _ in range(2)]
        self.settings = SparsitySettings(**({"batch": 8, "epochs": 3, "learning_rate": 0.05} | settings))
        self.store, self.notices, self.reached = Store(folder), [], []

    def decoder(self):
        return tiny_decoder("llama", neurons=60, kv_heads=2, head_width=4, dtype=self.dtype)

    @property
    def file(self):
        return StateFile(self.store, "learning", KEY)

    def run(self, on_progress=silent, resumed=True, seed=None):
        """Learns in a process of its own, as far as anything can tell: model and random numbers are new."""

        def listener(done, total, message):
            if isinstance(message, Notice):
                self.notices.append(str(message))
            self.reached.append(done)
            on_progress(done, total, message)

        decoder = self.decoder()
        torch.manual_seed(np.random.default_rng(seed).integers(2**31))
        spent = lambda: Spent(decoder.forward_tokens, decoder.backward_tokens, 1.0)  # noqa: E731
        resumption = Resumption(self.file, spent, listener)
        begun = resumption if resumed else None
        return self.learn(LearningInputs(decoder, tuple(self.texts), self.settings, 0, listener, begun)), resumption

    def stop_after(self, step, on_progress=silent):
        """End a learning once a step is done, and forget its notices."""

        def stop(done, total, message):
            on_progress(done, total, message)
            if done == step and not isinstance(message, Notice):
                raise StoppedError

        with pytest.raises(StoppedError):
            self.run(stop)
        self.notices.clear()

    def learn(self, setting):
        return learn(setting, *self.units, 0.5)


class GateStudy(Study):
    """The same for gates."""

    def learn(self, setting):
        scores = UnitScores("flap", "text", *self.units[:2], np.zeros((2, 8)))
        return learn_gates(setting, [scores], GateSettings(), 0.5, self.settings.epochs)


def assert_same(actual, expected):
    assert actual.retention == expected.retention
    for name in axes_of(type(expected)):
        value, expected_value = getattr(actual, name), getattr(expected, name)
        assert value.dtype == expected_value.dtype and value.tobytes() == expected_value.tobytes(), name


@pytest.fixture
def study(tmp_path):
    return Study(tmp_path)


@pytest.fixture(autouse=True)
def every_step(monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")


@pytest.mark.parametrize("kind", [Study, GateStudy])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"supervision": "primary", "distillation_weight": 0.0},
        pytest.param({"batch": 4, "distillation_temperature": 2.0}, marks=pytest.mark.long),
        {"dtype": torch.bfloat16},
    ],
    ids=["both losses", "one text alone", "small batches", "bfloat16"],
)
def test_stopped_at_any_step_it_ends_with_the_same_bits(tmp_path, kind, settings):
    study = kind(tmp_path, **settings)
    expected, _ = study.run(resumed=False)
    steps = len(expected.steps)
    assert steps >= 12
    for step in (1, steps // 2, steps - 1):
        study.stop_after(step)
        study.reached.clear()
        actual, resumption = study.run()
        assert_same(actual, expected)
        assert resumption.began == step and study.reached[-1] == steps == len(actual.steps)
        assert min(study.reached) == step
        assert f"resumes at step {step + 1} of {steps}" in study.notices[0]
        resumption.end()
        assert not study.file.path.exists()


def test_where_rounding_depends_on_what_else_is_in_a_batch_the_bits_are_the_same(study, monkeypatch):
    """As on larger models: what the dense model says of a text differs a little with its company."""
    true, accumulate, portions = Decoder.hidden_states, passes.Passes._accumulate_portion, []

    def rounded(self, ids):
        return true(self, ids) * (1 + 1e-3 * float(ids.double().std()))

    def counted(self, *arguments):
        portions.append(arguments)
        # in the middle of a step
        if len(portions) in (3, 3 + 4, 3 + 4 + 4):
            raise StoppedError
        accumulate(self, *arguments)

    monkeypatch.setattr(Decoder, "hidden_states", rounded)
    expected, _ = study.run(resumed=False)
    monkeypatch.setattr(passes.Passes, "_accumulate_portion", counted)
    for _ in range(3):
        with pytest.raises(StoppedError):
            study.run()
    actual, resumption = study.run()
    assert_same(actual, expected)
    assert resumption.began == 2 + 3 + 3


@pytest.mark.parametrize(("seconds", "left"), [("1000", 4), ("0", 7)])
def test_a_kill_loses_less_than_an_epoch_and_less_than_the_chosen_seconds(study, monkeypatch, seconds, left):
    monkeypatch.setenv(VARIABLE, seconds)
    expected, _ = study.run(resumed=False)
    assert len(expected.steps) == 12
    with monkeypatch.context() as patch:
        patch.setattr(Resumption, "stop", lambda *_: None)
        study.stop_after(7)
    assert study.file.read().step == left
    assert_same(study.run()[0], expected)


def test_a_batch_that_memory_has_divided_stays_divided(study, monkeypatch):
    limit = [8]

    def at(step):
        def shrink(done, *_):
            limit[0] = 2 if done >= step else 8

        return shrink

    hold_sequences(monkeypatch, limit)
    expected, _ = study.run(at(3), resumed=False)
    alone = [words for words in study.notices if "continuing with" in words]
    limit[0] = 8
    study.stop_after(5, at(3))
    # there is room again, and its steps go on as they were
    limit[0] = 8
    assert_same(study.run()[0], expected)
    assert [words for words in study.notices if "continuing with" in words] == alone


def test_without_room_for_the_dense_models_states_it_goes_on_and_says_so(study, monkeypatch):
    expected, _ = study.run(resumed=False)
    study.stop_after(6)
    monkeypatch.setattr(machine, "cache_budget", lambda: 0)
    actual, _ = study.run()
    assert "rounds differently" in study.notices[-1]
    np.testing.assert_allclose(actual.thresholds, expected.thresholds, atol=1e-4)


def _cut(file):
    file.path.write_bytes(file.path.read_bytes()[:-9])


def _flipped(file):
    data = bytearray(file.path.read_bytes())
    data[-20] ^= 4
    file.path.write_bytes(data)


def _of_another_result(file):
    other = StateFile(file.store, file.stage, "6" * 32)
    other.write(file.read())
    other.path.replace(file.path)


def _of_another_version(file):
    with pytest.MonkeyPatch.context() as patch:
        state = file.read()
        patch.setattr(resumption, "FORM", resumption.FORM + 1)
        file.write(state)


def _changed(**arrays):
    def change(file):
        state = file.read()
        file.write(replace(state, arrays={**state.arrays, **arrays}))

    return change


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_cut, "cannot be used"),
        (_flipped, "has changed since it was written"),
        (_of_another_result, "another result or version"),
        (_of_another_version, "another result or version"),
        (_changed(thresholds=np.ones(3, np.float32)), "another training"),
        (_changed(**{"queue.0": np.array([35])}), "other texts"),
        (_changed(**{"teacher.members": np.array([99])}), "other texts"),
    ],
)
def test_a_state_that_cannot_be_used_is_reported_and_replaced(study, damage, said):
    expected, _ = study.run(resumed=False)
    study.stop_after(5)
    damage(study.file)
    actual, resumption = study.run()
    assert_same(actual, expected)
    assert resumption.began == 0 and resumption.spent.seconds == 1.0
    assert said in study.notices[0] and "restart at step 1" in study.notices[0]
