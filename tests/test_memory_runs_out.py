"""Where memory runs out, stages go on with fewer sequences at a time: the same results, and it is said."""

import gc
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial

import numpy as np
import pytest
import tiny_study
import torch
from counted_memory import hold_sequences, shorter
from evaluation.task_files import write_rows
from made_contexts import contexts_of
from sparsity.reference_sparsity import random_units

from gprune.evaluation.accuracy import measure_tasks
from gprune.evaluation.perplexity import perplexity
from gprune.models.devices import AdaptiveBatches, out_of_memory
from gprune.models.loading import load
from gprune.models.tiny import tiny_decoder
from gprune.pruning.allocation import uniform
from gprune.pruning.calibration import collect, sequential
from gprune.pruning.calibration.accumulators import ChannelMoments
from gprune.pruning.calibration.context_statistics import collect_contexts
from gprune.pruning.calibration.contexts import fit_contexts, project_inputs
from gprune.pruning.scoring import wanda_sp
from gprune.pruning.sparsity.learner import LearningInputs
from gprune.pruning.sparsity.learning import learn
from gprune.records import Tokens
from gprune.study import CalibrationSettings, EvaluationSettings, SparsitySettings
from gprune.study.settings import ContextSettings
from gprune.system.errors import MethodError, SettingsError
from gprune.system.progress import Notice, silent

LENGTH = 24


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """Every lack of memory collects garbage: without this, over all that earlier tests have left."""
    gc.collect()
    gc.freeze()


def decoder_of(**changes):
    return tiny_decoder(**({"layers": 2, "hidden": 16, "neurons": 40, "kv_heads": 2} | changes))


def tokens(samples=16, seed=0):
    ids = np.random.default_rng(seed).integers(0, 64, (samples, LENGTH)).astype(np.int32)
    return Tokens("a text", f"fingerprint {seed}", ids, samples)


def arrays(record):
    """Every array of records, by name."""
    if isinstance(record, dict | tuple):
        parts = record.items() if isinstance(record, dict) else enumerate(record)
        return {f"{name}.{key}": item for name, part in parts for key, item in arrays(part).items()}
    if is_dataclass(record):
        return arrays({field.name: getattr(record, field.name) for field in fields(record)})
    return {"": record} if isinstance(record, np.ndarray | float) else {}


@contextmanager
def full(decoder):
    """A model that not even one sequence fits beside."""

    def refuse(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")

    handle = decoder.layers[0].register_forward_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()


class Heard:
    """Keeps what is to be kept."""

    def __init__(self):
        self.notices = []

    def __call__(self, done, total, message):
        assert 0 <= done <= total
        if isinstance(message, Notice):
            self.notices.append(message)


def statistics(decoder, listener):
    settings = CalibrationSettings(samples=16, length=LENGTH, shards=4, batch=8, flap_variant="released")
    return collect(decoder, tokens(), settings, listener)


def clusters(decoder, listener):
    settings = ContextSettings(3, 4, 300)
    return fit_contexts(project_inputs(decoder, tokens(), settings, 8, listener), settings, 0)


def by_context(decoder, listener, gradient=True):
    return collect_contexts(decoder, tokens(), [contexts_of(decoder.shape)], 4, 8, gradient, listener)[0]


def forward_only(decoder, listener):
    return by_context(decoder, listener, gradient=False)


def layer_by_layer(decoder, listener):
    score = partial(wanda_sp.layer_scores, decoder.weight_norms(), decoder.shape)
    return sequential.prune_layerwise(decoder, tokens(), 8, uniform.layer_decision(score, decoder.shape, 0.5), listener)


def evaluated(decoder, listener):
    stream = tokens(13, 5).ids.ravel()
    return perplexity(decoder.model, stream, "text", EvaluationSettings(preset=str(LENGTH), batch=8), listener)


def learned(decoder, listener, **changes):
    units = random_units(decoder.shape, 5, np.random.default_rng(0))
    settings = SparsitySettings(**({"batch": 16, "epochs": 2, "learning_rate": 0.02} | changes))
    setting = LearningInputs(decoder, (tokens(), tokens(seed=1)), settings, 0, listener)
    return learn(setting, *units, 0.5)


SOME = [statistics, learned]
"""one without and one with gradients; the others take the same way"""
STAGES = [*SOME, clusters, forward_only, by_context, layer_by_layer, evaluated]
FEW_OR_ALL = [*SOME, *(pytest.param(stage, marks=pytest.mark.long) for stage in STAGES[len(SOME) :])]


@pytest.mark.parametrize(
    "share", [0.7, pytest.param(0.4, marks=pytest.mark.long)], ids=["halved once", "halved more often"]
)
@pytest.mark.parametrize("stage", FEW_OR_ALL, ids=lambda stage: stage.__name__)
def test_a_stage_goes_on_with_fewer_sequences_and_gives_the_same(stage, share):
    # what the clusters are made from is small beside a pass only where neurons are many
    decoder = decoder_of(neurons=800 if stage is clusters else 40)
    expected, before = stage(decoder, silent), (decoder.forward_tokens, decoder.backward_tokens)
    received = Heard()

    def run():
        received.notices.clear()
        decoder.forward_tokens = decoder.backward_tokens = 0
        return stage(decoder, received)

    result, refused = shorter(run, share)
    assert refused == len(received.notices) > 0
    assert "memory ran out with" in received.notices[0] and "does not change results" in received.notices[0]
    # what was begun and not finished is no pass
    assert (decoder.forward_tokens, decoder.backward_tokens) == before
    assert_near(result, expected, 1e-4, 2e-5)


def assert_near(actual, expected, relative, absolute):
    """Compare every array of two records, the second tolerance of its largest value."""
    actual, expected = arrays(actual), arrays(expected)
    assert actual.keys() == expected.keys() and expected
    for name, values in expected.items():
        atol = absolute * np.abs(values).max(initial=0.0)
        np.testing.assert_allclose(actual[name], values, rtol=relative, atol=atol, err_msg=name)


def test_a_batch_whose_merging_fails_changes_nothing(monkeypatch):
    """Memory runs out after the forward pass, where means and moments are merged."""
    decoder, true, calls = decoder_of(), ChannelMoments.prepare, []
    expected = statistics(decoder, silent)

    def failing(self, shard):
        calls.append(len(shard))
        created = true(self, shard)
        if self.name == "o_proj" and len(shard) > 4:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
        return created

    monkeypatch.setattr(ChannelMoments, "prepare", failing)
    result = statistics(decoder, silent)
    assert calls[:4] == [8, 8, 4, 4]
    assert_near(result, expected, 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("supervision", "weight"),
    [("adaptive", 1.0), *(pytest.param(*case, marks=pytest.mark.long) for case in (("primary", 0.0), ("dual", 1.0)))],
)
def test_the_admission_is_decided_on_whole_subsets(supervision, weight, monkeypatch):
    """Portions of one sequence give the thresholds, the masks and every decision of the whole batch."""
    changes = {"supervision": supervision, "distillation_weight": weight, "epochs": 1}
    expected = learned(decoder_of(), silent, **changes)
    hold_sequences(monkeypatch, 1)
    result = learned(decoder_of(), received := Heard(), **changes)
    assert "continuing with 1," in received.notices[-1]
    np.testing.assert_array_equal(result.ffn, expected.ffn)
    np.testing.assert_array_equal(result.heads, expected.heads)
    column = expected.columns.index("admitted")
    np.testing.assert_array_equal(result.steps[:, column], expected.steps[:, column])
    np.testing.assert_allclose(result.thresholds, expected.thresholds, atol=1e-4)


@pytest.mark.parametrize("stage", FEW_OR_ALL, ids=lambda stage: stage.__name__)
def test_below_one_sequence_one_sentence_has_the_sizes(stage):
    kind = MethodError if stage in (by_context, learned) else SettingsError
    setting = {learned: "sparsity.batch", evaluated: "evaluation.batch"}.get(stage, "calibration.batch")
    decoder = decoder_of()
    words = rf"{setting}: memory ran out with a single sequence of {LENGTH} tokens \(2.00 GiB more were requested"
    with full(decoder), pytest.raises(kind, match=words + r".*GiB are free on cpu\): .*bfloat16") as caught:
        stage(decoder, silent)
    assert len(str(caught.value)) <= 300 and out_of_memory(caught.value.__cause__)


@pytest.mark.long
def test_choices_of_tasks_are_answered_with_fewer_at_a_time(tmp_path):
    texts = tiny_study.write_texts(tmp_path / "texts")
    decoder = load(tiny_study.write_model(tmp_path / "model", texts))
    rows = [{"question": f"{n} and {n} make", "choices": ["four", "a five", "six"], "answer": n % 3} for n in range(9)]
    task, settings = str(write_rows(tmp_path / "own.jsonl", rows)), EvaluationSettings(batch=8)
    expected = measure_tasks(decoder.model, decoder.tokenizer, task, settings).accuracy
    received = Heard()

    def run():
        received.notices.clear()
        return measure_tasks(decoder.model, decoder.tokenizer, task, settings, received).accuracy

    result, refused = shorter(run, 0.5)
    assert refused == len(received.notices) > 0
    assert (result.acc, result.samples, result.acc_error) == (expected.acc, 9, expected.acc_error)
    with full(decoder), pytest.raises(SettingsError, match="evaluation.batch: memory ran out with a single"):
        run()


WORDS = (
    "[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory: you tried to allocate 1024 bytes.",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "CUDA error: out of memory",
)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError(WORDS[-1]), MemoryError(), *map(RuntimeError, WORDS)])
def test_memory_runs_out_in_many_words(error):
    requested = []

    def run(size):
        requested.append(size)
        if size > 3:
            raise error
        return size

    sequences = AdaptiveBatches(12, 5, "calibration.batch", "do something", torch.device("cpu"), silent)
    assert sequences.attempt(run, 100) == 3 and requested == [12, 6, 3]
    # what is left may be less than that, and the number never rises again
    assert sequences.attempt(run, 2) == 2 and sequences.attempt(run, 100) == 3
