"""A learning whose batches several processes share: the thresholds of one, whatever their number."""

import numpy as np
import pytest
import torch
from sparsity.reference_sparsity import random_partition, random_tokens
from threads_of_ranks import together

from gprune.models.tiny import tiny_decoder
from gprune.pruning.sparsity import shared_passes
from gprune.pruning.sparsity.activation_checkpointing import SUBSETS
from gprune.pruning.sparsity.gates import learn_gates
from gprune.pruning.sparsity.learner import Setting
from gprune.pruning.sparsity.learning import learn
from gprune.records import UnitScores
from gprune.store import Store
from gprune.store.resumption import VARIABLE, Resumption, Spent
from gprune.store.states import StateFile
from gprune.study import GateSettings, SparsitySettings
from gprune.system.errors import Cancelled, NumericsError, SettingsError
from gprune.system.progress import Notice, silent


@pytest.mark.parametrize("quarter", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("size", [1, 2, 3, 64])
def test_every_sequence_is_run_by_one_process_and_all_run_equally_many_portions(quarter, count, size):
    seen = np.zeros((SUBSETS, quarter), dtype=int)
    dealt = [shared_passes.dealt(quarter, size, count, rank) for rank in range(count)]
    for portions in dealt:
        assert len(portions) == len(dealt[0])
        for place, counts in portions:
            seen[place] += counts
            assert seen[place].size <= max(size, 1)
    assert (seen == 1).all()
    if size == 64:
        # as equally as the four subsets allow
        assert len(dealt[0]) <= 2


class Learning:
    """A small one; every process has a model of its own."""

    def __init__(self, folder=None, dtype=torch.float64, **settings):
        generator = np.random.default_rng(0)
        self.dtype, shape = dtype, tiny_decoder(neurons=60, kv_heads=2, head_width=4).shape
        self.scores, self.heads = generator.random((2, 60)), generator.random((2, 2))
        self.partition = random_partition(shape, 5, generator)
        self.texts = [random_tokens(18, 8, 64, generator) for _ in range(2)]
        self.settings = SparsitySettings(**({"batch": 8, "epochs": 2, "learning_rate": 0.05} | settings))
        self.file = None if folder is None else StateFile(Store(folder), "learning", "5" * 32)
        self.notices, self.passed = [], (0, 0)

    def decoder(self):
        return tiny_decoder(neurons=60, kv_heads=2, head_width=4, dtype=self.dtype)

    def run(self, count=1, on_progress=silent):
        """What every process gives; transformers makes models one at a time."""
        decoders = [self.decoder() for _ in range(count)]
        if count == 1:
            return [self._learned(decoders[0], None, on_progress)]
        return together(count, lambda ranks: self._learned(decoders[ranks.rank], ranks, on_progress))

    def _learned(self, decoder, ranks, on_progress):
        if ranks is not None and ranks.rank:
            return shared_passes.follow(ranks, decoder, ranks.awaited())

        def heard(done, total, message):
            if isinstance(message, Notice):
                self.notices.append(str(message))
            on_progress(done, total, message)

        kept = None if self.file is None else Resumption(self.file, Spent, heard)
        found = self._found(decoder, heard, kept, ranks)
        self.passed = decoder.forward_tokens, decoder.backward_tokens
        return found

    def _found(self, decoder, heard, kept, ranks):
        setting = Setting(decoder, tuple(self.texts), self.settings, 0, heard, kept, ranks)
        return learn(setting, self.scores, self.heads, self.partition, 0.5)


class Gates(Learning):
    """The same of gates."""

    def _found(self, decoder, heard, kept, ranks):
        setting = Setting(decoder, tuple(self.texts), self.settings, 0, heard, kept, ranks)
        scores = UnitScores("flap", "text", self.scores, self.heads, np.zeros((2, 8)))
        return learn_gates(setting, [scores], GateSettings(), 0.5, self.settings.epochs)


@pytest.mark.parametrize(
    ("count", "settings"),
    [
        (2, {}),
        (3, {"batch": 16}),
        (5, {"batch": 4}),
        (2, {"distillation_weight": 0.0, "supervision": "dual"}),
    ],
    ids=["two", "three, unequal shares", "more than sequences", "cross-entropy alone"],
)
def test_the_thresholds_are_those_of_one_process(count, settings):
    learning = Learning(**settings)
    (expected,) = learning.run()
    found, *others = learning.run(count)
    assert others == [None] * (count - 1)
    np.testing.assert_allclose(found.thresholds, expected.thresholds, atol=1e-5)
    np.testing.assert_allclose(found.head_thresholds, expected.head_thresholds, atol=1e-5)
    # losses, retention, multiplier and whether the auxiliary text was admitted, step by step
    np.testing.assert_allclose(found.steps, expected.steps, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.ffn, expected.ffn)


@pytest.mark.parametrize(("count", "settings"), [(2, {}), (3, {"batch": 16})])
def test_the_gates_are_those_of_one_process(count, settings):
    learning = Gates(**settings)
    (expected,) = learning.run()
    found, *others = learning.run(count)
    assert others == [None] * (count - 1)
    np.testing.assert_allclose(found.gates, expected.gates, atol=1e-5)
    np.testing.assert_allclose(found.head_gates, expected.head_gates, atol=1e-5)
    np.testing.assert_allclose(found.steps, expected.steps, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.ffn, expected.ffn)


def stopping(done, total, message):
    if done == 3 and not isinstance(message, Notice):
        raise Cancelled("stop")


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 2), (2, 3)])
def test_any_number_of_processes_goes_on_where_another_has_stopped(tmp_path, monkeypatch, before, after):
    monkeypatch.setenv(VARIABLE, "0")
    (expected,) = Learning().run()
    learning = Learning(tmp_path)
    if before == 1:
        with pytest.raises(Cancelled):
            learning.run(1, stopping)
    else:
        first, *others = learning.run(before, stopping)
        # the others were let go, and wait for what comes next
        assert isinstance(first, Cancelled) and others == [None] * (before - 1)
    found, *_ = learning.run(after)
    np.testing.assert_allclose(found.thresholds, expected.thresholds, atol=1e-5)
    assert any("goes on at step 4" in words for words in learning.notices)
    words = f"begun by {before} process{'es' * (before > 1)} and goes on with {after}"
    assert any(words in one for one in learning.notices) == (before != after)


def test_what_rank_0_finds_wrong_and_memory_that_runs_out_let_the_others_go(
    monkeypatch,
):
    learning = Learning(learning_rate=0.5)
    true = learning.decoder

    def broken():
        decoder = true()
        with torch.no_grad():
            decoder.up_proj(1).weight[0] = 1e300
        return decoder

    learning.decoder = broken
    first, second = learning.run(2)
    assert isinstance(first, NumericsError) and second is None

    # Where the others wait in the middle of a layer, fewer sequences at a time cannot be tried.
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(shared_passes.SharedPasses, "_portion", full)
    first, second = Learning().run(2)
    assert isinstance(first, SettingsError) and isinstance(second, SettingsError)
    assert "memory ran out with 4 of 8 sequences of 8 tokens on process 1 (2.00 GiB more" in str(first)
    assert "use more GPUs (--model-gpus)" in str(first)
