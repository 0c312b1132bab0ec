"""A damaged checkpoint, a taken target or a full disk: one sentence, and nothing written or overwritten."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pruned_folder import byte_tokenizer, needs_gguf, save, small_decoder
from safetensors.torch import load_file, save_file

from gprune.models import identity
from gprune.models.export import gguf, padded
from gprune.system.errors import CheckpointError

Export = Callable[[Path, Path], Any]


EXPORTS: dict[str, Export] = {"pad": padded.save_padded, "gguf": gguf.save_gguf}
READING = [pytest.param("pad"), pytest.param("gguf", marks=[pytest.mark.long, needs_gguf])]


@pytest.fixture
def folder(tmp_path):
    """A checkpoint beside its dense model."""
    decoder = small_decoder()
    decoder.model.save_pretrained(tmp_path / "dense")
    byte_tokenizer().save_pretrained(tmp_path / "dense")
    fingerprint = identity.fingerprint(str(tmp_path / "dense"))
    save(decoder, tmp_path / "in", tokenizer=byte_tokenizer(), fingerprint=fingerprint)
    return tmp_path / "in"


def remove_a_shard(folder):
    tensors = load_file(folder / "model.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, "model-00002-of-00002.safetensors")}
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def truncate(folder):
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-8])


def change_widths(folder):
    """Configuration and record agree, the weights are others."""
    for name, values in (
        ("config.json", {"ffn_widths": [4, 11, 7]}),
        ("pruning.json", {"kept_neurons": [list(range(4)), list(range(11)), list(range(7))]}),
    ):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_a_weight(folder, factor=2.0):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.2.mlp.gate_proj.weight"] *= factor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("export", READING)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove_a_shard, "lacks 1 of 1 weight files, the first is 'model-00002-of-00002.safetensors'"),
        (truncate, "model.safetensors' is truncated or damaged"),
        (change_widths, r"config.json in .* disagrees with the weights: .* of another size"),
        (change_a_weight, "is damaged: .*logits differ from the live model's"),
        (partial(change_a_weight, factor=float("nan")), r"is damaged: model\.layers\.2\.mlp\.gate_proj\.weight .* NaN"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
        (
            lambda folder: (folder / "pruning.json").unlink(),
            "^the folder .* has no pruning.json, so it is not a pruned checkpoint: choose another",
        ),
    ],
)
def test_a_damaged_checkpoint_is_not_exported(export, damage, words, folder, tmp_path):
    damage(folder)
    with pytest.raises(CheckpointError, match=words) as caught:
        EXPORTS[export](folder, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dense", "in"]


@pytest.mark.parametrize("export", READING)
def test_a_taken_target_is_left_alone(export, folder, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"out' (exists and is not an empty folder|exists already): choose"):
        EXPORTS[export](folder, tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["thesis.tex"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dense", "in", "out"]


@pytest.mark.parametrize("export", READING)
def test_an_interrupted_export_leaves_nothing_behind(export, folder, tmp_path):
    def stop(done, total, message):
        if done == 3:
            raise KeyboardInterrupt

    save_as: Any = EXPORTS[export]
    with pytest.raises(KeyboardInterrupt):
        save_as(folder, tmp_path / "out", on_progress=stop)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dense", "in"]


def flip_a_byte(file, *_):
    content = bytearray(file.read_bytes())
    content[-1000] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("module", "writer", "damage", "words"),
    [
        (
            padded,
            "save_model",
            lambda *paths: change_a_weight(paths[-1]),
            "differs from the live one in model.layers.2",
        ),
        pytest.param(gguf, "_write", flip_a_byte, "in the file differs from the written one", marks=READING[1].marks),
    ],
)
def test_an_export_that_does_not_read_back_is_refused(module, writer, damage, words, folder, tmp_path, monkeypatch):
    write, export = getattr(module, writer), EXPORTS["pad" if module is padded else "gguf"]

    def write_damaged(*arguments):
        write(*arguments)
        damage(*arguments)

    monkeypatch.setattr(module, writer, write_damaged)
    with pytest.raises(CheckpointError, match=words):
        export(folder, tmp_path / "out")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dense", "in"]
