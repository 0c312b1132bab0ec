"""Names of models with random weights: what each part of the program makes of them, without loading one."""

import argparse

import pytest
from synthetic_run import a_study

from gprune.app.pages.jobs import launch
from gprune.app.ui import packed
from gprune.cli import reproduce, study
from gprune.models import identity, shapes, vocabulary
from gprune.pipeline.estimate.dimensions import Dimensions, of_model
from gprune.pipeline.stages import inputs
from gprune.system import machine
from gprune.system.errors import GpruneError, ModelError

LLAMA = "random:llama2-7b"


def call(command, *words):
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    options = parser.parse_args(list(map(str, words)))
    return options.command(options)


def test_every_shape_is_a_folder_whose_tokens_all_have_a_row():
    largest = vocabulary.tokenizer("demo").get_vocab_size()
    for name, values in shapes.SHAPES.items():
        folder = identity.locate(f"random:{name}")
        assert identity.configuration(folder) == values
        assert largest <= values["vocab_size"] == vocabulary.entries(f"random:{name}")
        assert identity.weight_files(folder) == []
        assert of_model(f"random:{name}") == Dimensions.of(values)
        assert identity.tokenizer_fingerprint(f"random:{name}") == identity.tokenizer_fingerprint("demo")


def test_fingerprints_tell_shapes_versions_and_makers_apart(monkeypatch):
    found = [identity.fingerprint(f"random:{name}") for name in shapes.SHAPES]
    found += [identity.fingerprint(LLAMA, card=card) for card in ("NVIDIA H100", "NVIDIA A10")]
    monkeypatch.setattr(shapes, "WEIGHTS", "random weights 2")
    found.append(identity.fingerprint(LLAMA))
    assert len(set(found)) == len(shapes.SHAPES) + 3
    assert identity.fingerprint("demo", card="NVIDIA H100") == identity.fingerprint("demo")


def test_a_study_is_read_for_the_device_that_makes_its_model(monkeypatch):
    on_cpu = inputs.read(a_study(model=LLAMA))
    assert (on_cpu.model, on_cpu.precision) == (identity.fingerprint(LLAMA), "float32")
    monkeypatch.setattr(machine, "has_gpu", lambda: True)
    monkeypatch.setattr(machine, "cards", lambda: ("NVIDIA H100", "NVIDIA A10"))
    on_gpu = inputs.read(a_study(model=LLAMA, device="auto"))
    assert on_gpu.precision == "bfloat16"
    assert on_gpu.model == identity.fingerprint(LLAMA, card="NVIDIA H100")
    second = inputs.read(a_study(model=LLAMA, device="cuda:1"))
    assert second.model == identity.fingerprint(LLAMA, card="NVIDIA A10")
    assert inputs.read(a_study(model=LLAMA, device="cpu")) == on_cpu
    with pytest.raises(ModelError, match="random:llama2-7b has no files of weights .*: leave offload out"):
        inputs.read(a_study(model=LLAMA, offload=True))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("random:", "'random:' is no model with random weights: after random: comes one of llama2-7b, "),
        ("random:../../x", "'random:../../x' is no model with random weights"),
        ("random:owner/name", "'random:owner/name' is no model with random weights"),
        ("random:gpt9", "'random:gpt9' is no model with random weights"),
        ("random:gpt9@0.5", "'random:gpt9@0.5' is no model with random weights"),
        ("random:llama2-7b@0.5", "only `speed` takes: a study has one of its own, give random:llama2-7b$"),
    ],
)
def test_other_names_are_refused_alike_wherever_they_are_given(name, message):
    with pytest.raises(ModelError, match=message) as refused:
        identity.locate(name)
    assert len(str(refused.value)) <= 300
    asked = a_study(model=name)
    for ask in (
        lambda: call(study, "study", "--model", name),
        lambda: call(reproduce, "reproduce", "main", "--model", name, "--dry-run"),
        lambda: inputs.read(asked),
        lambda: packed.require_here("/no/such/cache", asked),
    ):
        with pytest.raises(GpruneError, match=message):
            ask()
    assert launch.input_problem(asked) == str(refused.value)


def test_the_form_takes_a_shape_and_says_what_it_cannot_do():
    assert launch.input_problem(a_study(model=LLAMA)) == ""
    packed.require_here("/no/such/cache", a_study(model=LLAMA))
    assert "leave offload out" in launch.input_problem(a_study(model=LLAMA, offload=True))


def test_the_estimate_is_of_the_shape(capfd):
    assert call(study, "study", "--model", LLAMA, "--dtype", "bfloat16", "--dry-run") == 0
    said = capfd.readouterr().err
    assert "statistics_primary" in said and "switch offload on" not in said
