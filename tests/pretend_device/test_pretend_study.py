"""A whole tiny study on the pretend device against the same on the CPU.

The long tests run every metric and every number type: with every method in float32, where all can be held
against each other, and layers on two devices; in halves with a method of each kind, on one.
"""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_study
import torch
from accelerate import dispatch_model
from pretend_device import backend, studies
from pretend_device.tensors import NAME

from gprune.analysis import ablation_effect
from gprune.analysis.calibration_report import measuring
from gprune.evaluation import speed
from gprune.models import loading
from gprune.pipeline import stages
from gprune.study.methods import METHODS

pytestmark = pytest.mark.slow

# of the largest number of an array: attention is computed in another way there, and halves round more
TOLERANCES = {"float32": 1e-5, "bfloat16": 3e-2, "float16": 5e-3}
WRITTEN = ("tokens_sampled", "tokens_fresh")
"""what the model has written itself is another text from the first token that a half drew otherwise"""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return tiny_study.workshop(tmp_path_factory.mktemp("pretend"), questions=5, choices=2)


def require_same(runs, dtype):
    """Compare everything in float32; in 16 bits what follows without a decision, and most decisions."""
    if dtype == "float32":
        results = studies.differences(runs, TOLERANCES[dtype])
        assert not results, "\n".join(results)
        return
    study = runs.cpu.graph.study
    # scores by context follow from clusters, which a rounded number can move
    results = studies.differences(
        runs, TOLERANCES[dtype], studies.STEADY - ({"scores"} if study.metric == "twflap" else set())
    )
    results = [line for line in results if not line.startswith(WRITTEN)]
    assert not results, "\n".join(results)
    equal = studies.mask_agreement(runs)
    assert min(equal.values()) > 0.8 and np.mean(list(equal.values())) > 0.9, str(equal)
    text = next(text for text in study.evaluation.texts if text != studies.FRESH_TEXT)
    for method in study.methods:
        actual, expected = (item.get(stages.perplexity, method, text).perplexity for item in (runs.cpu, runs.device))
        assert np.log(expected) == pytest.approx(np.log(actual), abs=0.02 if method == "dense" else 0.5), method


def require_same_diagnosis(runs):
    """Compare the diagnosis and the calibration cards of both runs."""
    actual, expected = (ablation_effect.diagnose(item) for item in (runs.cpu, runs.device))
    assert actual == expected
    actual, expected = (measuring.measure(item, "a run") for item in (runs.cpu, runs.device))
    assert list(actual) == list(expected)
    for letter, card in actual.items():
        assert card.undecided == expected[letter].undecided
        np.testing.assert_allclose(card.resampled.drift, expected[letter].resampled.drift, rtol=1e-5)


@pytest.mark.long
def test_what_the_model_writes_itself_and_speed_under_wanda_sp(gpu, workshop, monkeypatch):
    # a few tokens: how fast a pretend device is says nothing
    monkeypatch.setitem(speed.PRESETS, "cpu", speed.SpeedSettings(2, 8, 4, 1, "float32", "cpu", ("eager",)))
    changes = {"metric": "wanda_sp", "dtype": "float32", "methods": ["dense", "gprune"]}
    changes |= {"primary": studies.SAMPLED_TEXT}
    evaluation = {"texts": [studies.FRESH_TEXT, workshop["texts"][2]], "speed": "cpu"}
    runs = studies.run(workshop, "wanda-float32", evaluation, **changes)
    require_same(runs, "float32")
    assert {"sampled_primary", "sampled.evaluation.0"} <= set(runs.keys)
    dense, pruned = (row["peak_bytes"] for row in runs.device.get(stages.speed).rows if row["phase"] == "decode")
    assert dense > pruned > 0
    assert {row["memory"] for row in runs.device.get(stages.speed).rows} == {"allocated"}


@pytest.fixture
def read_through_the_host(monkeypatch):
    """Files are read to the host and moved: safetensors itself knows no device of Python's."""
    from accelerate.utils import offload

    original = offload.safe_open

    @contextmanager
    def moved(file, framework, device):
        with original(file, framework=framework, device="cpu") as opened:
            yield SimpleNamespace(get_tensor=lambda name: opened.get_tensor(name).to(device))

    monkeypatch.setattr(offload, "safe_open", moved)


def test_layers_that_stay_in_their_files(gpu, workshop, read_through_the_host):
    changes = {"metric": "flap", "dtype": "float32", "substitute": workshop["texts"][2]}
    runs = studies.run(workshop, "offloaded", until="agreement", on_device={"offload": True}, **changes)
    result = studies.differences(runs, TOLERANCES["float32"])
    assert not result, "\n".join(result)
    assert {"statistics_primary", "drift", "partition", "adapted", "agreement_ab_ac"} <= set(runs.keys)
    # four batches of three texts bring the nine weights of both layers anew
    assert runs.waits.uploads > 4 * 3 * 9 * 2


PARTS = {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.layers.0": 0, "model.layers.1": 1, "model.norm": 1}


def map_parts(monkeypatch, **places):
    """Load models for the pretend device with their parts on these places; a number is that of a device."""
    parts = {name.replace("__", "."): location for name, location in places.items()}
    parts = {name: f"{NAME}:{location}" if isinstance(location, int) else location for name, location in parts.items()}
    read = loading.read_weights

    def read_mapped(folder, target, *settings):
        if target.type != NAME:
            return read(folder, target, *settings)
        # transformers reads weights in threads, which know no device of Python's
        return dispatch_model(read(folder, torch.device("cpu"), *settings), parts, f"{NAME}:0")

    monkeypatch.setattr(loading, "read_weights", read_mapped)


def test_no_operation_mixes_two_devices(gpu):
    with backend.active(count=2):
        first, second = (torch.ones(2, device=f"{NAME}:{index}") for index in range(2))
        with pytest.raises(RuntimeError, match=f"at least two devices, {NAME}:0 and {NAME}:1"):
            first + second
        assert torch.equal((first.to(second.device) + second).cpu(), torch.full((2,), 2.0))


def test_recovery_and_tasks_on_two_devices(gpu, workshop, monkeypatch):
    """A head of its own would be on the second device; speed wants one device and is left out."""
    map_parts(monkeypatch, **PARTS, lm_head=0)
    changes = {"metric": "wanda_sp", "dtype": "float32", "methods": ["dense", "wanda_sp"]}
    recovery = {"kind": "lora", "steps": 4, "batch": 4, "learning_rate": 0.01}
    changes |= {"primary": studies.SAMPLED_TEXT, "recovery": recovery}
    evaluation = {"tasks": [workshop["questions"]], "texts": [studies.FRESH_TEXT, workshop["texts"][2]]}
    runs = studies.run(workshop, "two-recovered", evaluation, devices=2, **changes)
    require_same(runs, "float32")
    assert any(name.startswith("recovered_perplexity") for name in runs.keys)


def test_a_layer_in_the_memory_of_the_host(gpu, workshop, monkeypatch):
    map_parts(monkeypatch, **PARTS | {"model.layers.0": "cpu", "model.layers.1": 0, "model.norm": 0}, lm_head=0)
    methods = ["dense", "wanda_sp", "flap", "osscar", "slimllm"]
    runs = studies.run(workshop, "in-memory", metric="flap", dtype="float32", methods=methods)
    require_same(runs, "float32")


@pytest.mark.long
@pytest.mark.parametrize(("metric", "dtype"), [("wanda_sp", "float16"), ("twflap", "bfloat16")])
def test_metrics_and_number_types(gpu, workshop, metric, dtype):
    changes = {"metric": metric, "dtype": dtype, "substitute": workshop["texts"][2], "methods": studies.OF_EACH_KIND}
    evaluation = {"tasks": [workshop["questions"]], "texts": [studies.FRESH_TEXT, workshop["texts"][2]]}
    runs = studies.run(workshop, f"whole-{metric}-{dtype}", evaluation, **studies.WHOLE | changes)
    require_same(runs, dtype)


@pytest.mark.long
def test_every_method_with_layers_on_two_devices(gpu, workshop, monkeypatch):
    map_parts(monkeypatch, **PARTS, lm_head=0)
    # the texts have no sample of the model, so that their words can be compared
    texts = workshop["texts"]
    evaluation = {"tasks": [workshop["questions"]], "texts": [texts[0], texts[2]]}
    changes = {"metric": "flap", "dtype": "float32", "substitute": texts[2], "methods": list(METHODS)}
    runs = studies.run(workshop, "whole-flap-float32", evaluation, devices=2, **studies.WHOLE | changes)
    require_same(runs, "float32")
    require_same_diagnosis(runs)
    assert {"checkpoint", "overlap.0", "agreement_ab_ac", "agreement_fang_ab"} <= set(runs.keys)
    assert sum(name.startswith("accuracy.") for name in runs.keys) == len(METHODS)
