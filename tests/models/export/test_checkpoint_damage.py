"""A checkpoint that cannot be written or has been damaged is told, and nothing half-written stays."""

import json
import resource
import shutil
from contextlib import contextmanager

import pytest
from safetensors.torch import load_file, save_file

from gprune.models.export import checkpoint, pruning_file, same_model
from gprune.pruning.surgery import cut
from gprune.system.errors import CheckpointError


def test_a_taken_folder_is_refused_and_left_alone(tmp_path, masks, saved, decoder_of):
    live = cut(decoder_of("llama"), masks)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("")
    for name in ("taken", "file"):
        with pytest.raises(CheckpointError, match=f"{name}' already holds something: choose a new folder"):
            saved(live, None, tmp_path / name)
    assert (tmp_path / "taken" / "thesis.tex").read_text() == "years of work"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "taken"]
    (tmp_path / "empty").mkdir()
    folder = saved(live, None, tmp_path / "empty")
    checkpoint.load_verified(folder)
    assert pruning_file.read_record(folder).source == "dense"


@contextmanager
def largest_file(size):
    """Writes beyond the size fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_leaves_nothing_behind(tmp_path, masks, saved, decoder_of):
    live = cut(decoder_of("llama"), masks)
    with largest_file(4096), pytest.raises(CheckpointError, match="cannot be saved in .*out'"):
        saved(live, None, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_too_little_room_is_told_before(tmp_path, masks, monkeypatch, saved, decoder_of):
    free = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(CheckpointError, match="needs .* KiB, but .* has 0.1 KiB free"):
        saved(cut(decoder_of("llama"), masks), None, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model.layers.1.mlp.up_proj.weight", "differs from the live one in model.layers.1.mlp.up_proj.weight"),
        ("model.embed_tokens.weight", "differs from the live one in model.embed_tokens.weight"),
    ],
)
def test_what_does_not_read_back_is_not_kept(
    name,
    words,
    tmp_path,
    masks,
    monkeypatch,
    saved,
    decoder_of,
):
    original = checkpoint.save_model

    def damaged(model, tokenizer, folder, *rest):
        original(model, tokenizer, folder, *rest)
        tensors = load_file(folder / "model.safetensors")
        # Row 1 of the embedding is no token of the probe: only the comparison of tensors can see it.
        tensors[name][1] += 1
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    monkeypatch.setattr(checkpoint, "save_model", damaged)
    with pytest.raises(CheckpointError, match=words):
        saved(cut(decoder_of("llama"), masks), None, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_that_reads_back_otherwise_is_not_kept(
    tmp_path,
    masks,
    tokenizer,
    monkeypatch,
    saved,
    decoder_of,
):
    monkeypatch.setattr(same_model, "load_tokenizer", lambda folder: lambda text: tokenizer("w1"))
    with pytest.raises(CheckpointError, match="the saved tokenizer splits"):
        saved(cut(decoder_of("llama"), masks), tokenizer, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def folder(tmp_path, masks, saved, decoder_of):
    return saved(cut(decoder_of("llama"), masks), None, tmp_path / "out")


def change(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": 3}, "pruning.json' cannot be read .method: .*valid string.*: export the model again"),
        ({"kept_neurons": [[99]]}, "cannot be read .*it keeps unit 99 of layers with 13"),
        ({"kept_neurons": [[-1]]}, "cannot be read .*it keeps unit -1 of layers with 13"),
        ({"kept_neurons": [[1]]}, "of different numbers of layers"),
        ({"probe_tokens": None}, "cannot be read .probe_tokens: "),
    ],
)
def test_a_record_that_is_none(folder, values, message):
    change(folder / "pruning.json", **values)
    with pytest.raises(CheckpointError, match=message):
        pruning_file.read_record(folder)


def test_a_record_that_is_no_file_is_not_read(folder):
    (folder / "pruning.json").unlink()
    (folder / "pruning.json").mkdir()
    with pytest.raises(CheckpointError, match=r"pruning\.json' cannot be read .it is no ordinary file"):
        pruning_file.read_record(folder)
