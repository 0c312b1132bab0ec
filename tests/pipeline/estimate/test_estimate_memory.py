"""The formulas of memory against allocations that were counted, and ceilings at published shapes."""

from dataclasses import replace

import numpy as np
import pytest
import tiny_shape
import torch
from counted_memory import CountedMemory
from estimate.counted_stages import COUNTED, attention_of_a_gpu, decoder_of

from gprune.models.sources import SHAPES
from gprune.pipeline.estimate.dimensions import WIDTHS, Dimensions
from gprune.pipeline.estimate.memory import Case, memory_need
from gprune.pipeline.stages import Graph, StageId, execution_plan
from gprune.pruning.recovery.training import recover
from gprune.pruning.removal import osscar, slimllm
from gprune.pruning.removal.walk import remove_layerwise
from gprune.pruning.repair.fitting import fit
from gprune.pruning.surgery import cut
from gprune.records import PruningMasks, Tokens
from gprune.study import EvaluationSettings, Study
from gprune.study.methods import METHODS

PUBLISHED = ("llama2-7b", "llama2-13b", "llama3-8b")
PAPER = Study("model", "A", "B", methods=("dense", "gprune"), metric="twflap")
STAGES = {
    "statistics": StageId("statistics", ("primary",)),
    "context_statistics": StageId("context_statistics", ("primary",)),
    "learning": StageId("learning"),
    "gates": StageId("gates"),
    "perplexity": StageId("perplexity", method="dense", item=0),
}
GIB = 2**30


def case_of(shape, study=PAPER, precision="bfloat16", gpu=True):
    return Case(Dimensions.of(shape), study, WIDTHS[precision], gpu)


@pytest.mark.parametrize("shape", PUBLISHED)
def test_parameters_are_those_of_the_model(shape):
    decoder = decoder_of(SHAPES[shape], torch.bfloat16)
    assert Dimensions.of(SHAPES[shape]).parameters == decoder.size.parameters
    assert Dimensions.of(SHAPES[shape]).shape == decoder.shape


@pytest.mark.parametrize("kind", COUNTED)
@pytest.mark.parametrize(
    "shape", [PUBLISHED[0], *(pytest.param(shape, marks=pytest.mark.long) for shape in PUBLISHED[1:])]
)
def test_formulas_tell_what_is_allocated_at_true_shapes(shape, kind, monkeypatch):
    """The stage's own code on the meta device, with attention as a GPU's kernels keep it."""
    attention_of_a_gpu(monkeypatch)
    decoder, case = decoder_of(SHAPES[shape], torch.bfloat16), case_of(SHAPES[shape])
    result = memory_need(STAGES[kind], case)
    counts = COUNTED[kind](decoder, PAPER, result.batch, monkeypatch)
    assert result.on_device(result.batch) - result.weights == pytest.approx(counts, rel=0.3), (
        f"{counts / GIB:.2f} GiB counted"
    )


EVERYTHING = replace(
    PAPER,
    methods=("dense", "gprune", "wanda_sp", "flap", "fang", "llm_pruner"),
    evaluation=EvaluationSettings(texts=("C",), tasks=("piqa",), open_questions=True, speed="gpu"),
)
CEILINGS = {
    "shape size norms": (13, 25, 15.5),
    "statistics positions": (13.5, 25.5, 16),
    "contexts clusters partition": (14, 26.5, 16.5),
    "context_statistics": (24, 42, 28),
    "scores": (17, 31, 20),
    "learning": (26.5, 45.5, 29),
    "masks": (13.5, 25, 16),
    "perplexity": (19, 37, 22),
    "accuracy answers": (21, 38, 27),
    "open_answers": (23, 43, 27),
    "checkpoint": (19, 36.5, 22),
    "speed": (46, 78, 30.5),
}
"""GiB that a stage may take at most on a card at PUBLISHED: 2,048 x 128 tokens in bfloat16, usual batches"""


@pytest.mark.parametrize("number", range(3), ids=PUBLISHED)
def test_no_stage_grows_beyond_its_ceiling(number):
    """All of GPrune, and the speed of six models two at a time, fits on a card of 80 GiB, as it is set."""
    case, maximum = case_of(SHAPES[PUBLISHED[number]], EVERYTHING), {}
    for stage in execution_plan(Graph(EVERYTHING)):
        result = memory_need(stage.id, case)
        if result is not None:
            maximum[stage.kind] = max(maximum.get(stage.kind, 0.0), result.on_device(result.batch) / GIB)
    ceilings = {kind: sizes[number] for kinds, sizes in CEILINGS.items() for kind in kinds.split()}
    assert maximum.keys() == ceilings.keys()
    for kind, ceiling in ceilings.items():
        assert 0.9 * ceiling < maximum[kind] <= ceiling, kind


LARGE = tiny_shape.TINY | {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 6, "vocab_size": 16000}
LARGE |= {"num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 2048}


@pytest.mark.long
@pytest.mark.parametrize("kind", COUNTED)
def test_formulas_tell_what_a_run_allocates(kind, monkeypatch):
    """The same code for real, in float32 on a CPU: 110 million random weights, eight sequences of 128."""
    decoder = decoder_of(LARGE, torch.float32, "cpu")
    assert decoder.size.parameters > 1e8
    result = memory_need(STAGES[kind], case_of(LARGE, PAPER, "float32", gpu=False))
    counts = COUNTED[kind](decoder, PAPER, 8, monkeypatch)
    formula = result.on_device(8) - result.weights
    assert counts / 1.3 < formula < counts * 1.3


TINY = LARGE | {"hidden_size": 192, "intermediate_size": 720, "num_hidden_layers": 3, "vocab_size": 500}


def small_case(changes, shape=TINY, precision="float32"):
    """A small model on the CPU, its estimation case and two random texts of 64 tokens a sequence."""
    decoder = decoder_of(shape, getattr(torch, precision), "cpu")
    study = PAPER.with_settings(changes | {"calibration.length": 64, "retention": 0.5})
    samples = study.calibration.samples
    ids = np.random.default_rng(0).integers(0, 500, (2, samples, 64)).astype(np.int32)
    texts = [Tokens(text=str(index), ids=item, fingerprint="", available=item.size) for index, item in enumerate(ids)]
    return decoder, case_of(shape, study, precision, gpu=False), texts


def half_masks():
    """Masks of TINY that keep every second unit."""
    neurons, groups = (np.arange(3 * width).reshape(3, -1) % 2 == 0 for width in (720, 16))
    return PruningMasks("test", neurons, groups, 0.5, 0.5)


def require_near(counts, stage, case, batch):
    need = memory_need(stage, case)
    formula = need.on_device(batch) - need.weights
    assert counts.peak / 1.3 < formula < counts.peak * 1.3, (counts.peak, formula)


@pytest.mark.parametrize(("samples", "batch"), [(24, 4), pytest.param(96, 16, marks=pytest.mark.long)])
def test_the_formula_of_a_repair_tells_what_a_fit_allocates(samples, batch):
    changes = {"repair.kind": "least_squares_bias", "calibration.batch": batch, "calibration.samples": samples}
    decoder, case, texts = small_case(changes)
    with CountedMemory() as counts:
        fit(decoder, half_masks(), texts, case.study.repair, batch)
    require_near(counts, StageId("repaired", method="gprune"), case, batch)


@pytest.mark.parametrize("name", ["osscar", "slimllm"])
@pytest.mark.parametrize(
    ("samples", "batch", "neurons"), [pytest.param(24, 4, 720, marks=pytest.mark.long), (48, 32, 301)]
)
def test_the_formula_of_removal_tells_what_a_walk_allocates(name, samples, batch, neurons):
    changes = {"calibration.batch": batch, "calibration.samples": samples}
    decoder, case, texts = small_case(changes, TINY | {"intermediate_size": neurons})
    choose = osscar.osscar_decision(decoder.shape, 0.5)
    if name == "slimllm":
        choose = slimllm.slimllm_decision(decoder, 0.5, np.array([0.9, 0.8, 0.7]))
    with CountedMemory() as counts:
        remove_layerwise(decoder, texts[0], batch, choose, METHODS[name].fit)
    require_near(counts, StageId("masks", method=name), case, batch)


@pytest.mark.parametrize(("precision", "rank"), [("float32", 4), ("bfloat16", 16)])
def test_the_formula_of_a_recovery_tells_what_it_allocates(precision, rank):
    pytest.importorskip("peft")
    changes = {"recovery.kind": "lora", "recovery.texts": "both", "recovery.rank": rank, "recovery.batch": 8}
    changes |= {"recovery.steps": 2, "calibration.samples": 16, "calibration.shards": 2}
    decoder, case, texts = small_case(changes, precision=precision)
    model = cut(decoder, half_masks())
    with CountedMemory() as counts:
        recover(decoder, model, "gprune", texts, case.study.recovery, 0)
    require_near(counts, StageId("recovered", method="gprune"), case, 8)


@pytest.mark.parametrize(
    ("stage", "measured"),
    [
        (StageId("learning"), 24.9),
        (StageId("gates"), 24.9),
        (StageId("masks", method="osscar"), 16.6),
        (StageId("masks", method="slimllm"), 16.8),
        (StageId("repaired", method="osscar"), 16.0),
        (StageId("recovered", method="osscar"), 32.0),
    ],
)
def test_formulas_are_near_what_an_h200_has_measured(stage, measured):
    """GiB of tensors at 7B (docs/performance.md), without streams of activations that may lie on the host."""
    changes = {"calibration.batch": 32, "repair.kind": "least_squares", "recovery.kind": "lora"}
    study = PAPER.with_settings(changes | {"methods": ("dense", "gprune", "gates", "osscar", "slimllm")})
    result = memory_need(stage, case_of(SHAPES["llama2-7b"], study))
    assert measured <= result.on_device(result.batch) / GIB < 1.3 * measured
