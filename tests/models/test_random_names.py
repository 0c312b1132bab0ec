"""Names of models with random weights: what each part of the program makes of them, without loading one."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import tiny_shape
from views.synthetic_run import a_study

from gprune import machine
from gprune.analysis import published
from gprune.commands import accept, reproduce, study
from gprune.errors import GpruneError, ModelError, SettingsError
from gprune.estimate.dimensions import Dimensions, of_model
from gprune.models import identity, shapes, vocabulary
from gprune.reproduction.scale import choose
from gprune.reproduction.series import Series
from gprune.stages import inputs
from gprune.study import run_name
from gprune.views.frame import packed
from gprune.views.jobs import launch

LLAMA = "random:llama2-7b"


def call(command, *words):
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    options = parser.parse_args(list(map(str, words)))
    return options.command(options)


def test_every_shape_is_a_folder_whose_tokens_all_have_a_row() -> None:
    largest = vocabulary.tokenizer("demo").get_vocab_size()
    for name, values in shapes.SHAPES.items():
        folder = identity.locate(f"random:{name}")
        assert identity.configuration(folder) == values
        assert largest <= values["vocab_size"] == vocabulary.entries(f"random:{name}")
        assert identity.weight_files(folder) == []
        assert of_model(f"random:{name}") == Dimensions.of(values)
        assert identity.tokenizer_fingerprint(f"random:{name}") == identity.tokenizer_fingerprint("demo")


def test_fingerprints_tell_shapes_versions_and_makers_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [identity.fingerprint(f"random:{name}") for name in shapes.SHAPES]
    found += [identity.fingerprint(LLAMA, card=card) for card in ("NVIDIA H100", "NVIDIA A10")]
    monkeypatch.setattr(shapes, "WEIGHTS", "random weights 2")
    found.append(identity.fingerprint(LLAMA))
    assert len(set(found)) == len(shapes.SHAPES) + 3
    assert identity.fingerprint("demo", card="NVIDIA H100") == identity.fingerprint("demo")


def test_a_study_is_read_for_the_device_that_makes_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_other_names_are_refused_alike_wherever_they_are_given(name: str, message: str) -> None:
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


def test_a_name_without_end_is_cut_in_its_sentence() -> None:
    with pytest.raises(ModelError, match="…x+' is no model with random weights: after random:") as refused:
        identity.locate("random:" + "x" * 9000)
    assert len(str(refused.value)) <= 300


def test_the_form_takes_a_shape_and_says_what_it_cannot_do() -> None:
    assert launch.input_problem(a_study(model=LLAMA)) == ""
    packed.require_here("/no/such/cache", a_study(model=LLAMA))
    assert "leave offload out" in launch.input_problem(a_study(model=LLAMA, offload=True))


def test_no_published_figure_belongs_to_random_weights(tmp_path: Path) -> None:
    words = ("--as", "LLaMA2-7B", "--cache", tmp_path)
    with pytest.raises(
        SettingsError, match="random weights, which no published figure is of: give the folder"
    ):
        call(accept, "accept", "--model", LLAMA, *words)
    texts = {"primary": "wikitext2", "auxiliary": "ptb"}
    assert published.same_setting(published.DRIFT, a_study(model="llama2-7b", **texts))
    assert not published.same_setting(published.DRIFT, a_study(model=LLAMA, **texts))


def test_series_runs_and_jobs_are_called_by_the_whole_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # a folder that happens to have this name is not meant
    (tmp_path / LLAMA).mkdir()
    monkeypatch.chdir(tmp_path)
    words = ("main", "--model", LLAMA, "--dry-run", "--cache", tmp_path)
    assert call(reproduce, "reproduce", *words) == 0
    assert "random:llama2-7b FLAP 50%" in capsys.readouterr().out
    assert Series(LLAMA, choose(LLAMA, "paper")).width == 11008
    assert run_name(a_study(model=LLAMA, name="")).startswith("random-llama2-7b-")


def test_the_estimate_is_of_the_shape(capfd: pytest.CaptureFixture[str]) -> None:
    assert call(study, "study", "--model", LLAMA, "--dtype", "bfloat16", "--dry-run") == 0
    said = capfd.readouterr().err
    assert "statistics_primary" in said and "switch offload on" not in said


def test_a_tiny_shape_of_the_tests_is_a_shape(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny_shape.put(monkeypatch, tmp_path, tiny={})
    assert identity.resolve("random:tiny") == str(tmp_path / "tiny")
    assert shapes.holds(tmp_path / "tiny") and not shapes.holds(tmp_path / "elsewhere" / "tiny")
