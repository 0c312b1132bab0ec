"""A checkpoint that cannot be written or has been damaged is told, and nothing half-written stays."""

import json
import resource
import shutil
from contextlib import contextmanager

import pytest
from pruned_folder import byte_tokenizer, save, small_decoder
from safetensors.torch import load_file, save_file

from gprune.models.export import checkpoint, model_card
from gprune.system import safe_parsing
from gprune.system.errors import CheckpointError


def test_a_taken_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("")
    for name in ("taken", "file"):
        with pytest.raises(CheckpointError, match=f"{name}' exists and is not an empty folder: choose a new folder"):
            save(small_decoder(), tmp_path / name)
    assert (tmp_path / "taken" / "thesis.tex").read_text() == "years of work"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "taken"]
    (tmp_path / "empty").mkdir()
    save(small_decoder(), tmp_path / "empty")
    checkpoint.load_verified(tmp_path / "empty")


@contextmanager
def largest_file(size):
    """Writes beyond the size fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_leaves_nothing_behind(tmp_path):
    with largest_file(4096), pytest.raises(CheckpointError, match="cannot be saved in .*out'"):
        save(small_decoder(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_too_little_room_is_reported_before_anything_is_written(tmp_path, monkeypatch):
    free = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(CheckpointError, match="needs .* KiB, but .* has 0.1 KiB free"):
        save(small_decoder(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# Row 1 of the embedding is no token of the probe: only the comparison of tensors can see it.
@pytest.mark.parametrize("name", ["model.layers.1.mlp.up_proj.weight", "model.embed_tokens.weight"])
def test_a_tensor_that_reads_back_changed_is_refused(name, tmp_path, monkeypatch):
    original = checkpoint.save_model

    def save_damaged(model, tokenizer, folder, *rest):
        original(model, tokenizer, folder, *rest)
        tensors = load_file(folder / "model.safetensors")
        tensors[name][1] += 1
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    monkeypatch.setattr(checkpoint, "save_model", save_damaged)
    with pytest.raises(CheckpointError, match=f"differs from the live one in {name}"):
        save(small_decoder(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_that_reads_back_changed_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "load_tokenizer", lambda folder: lambda text: byte_tokenizer()("w1"))
    with pytest.raises(CheckpointError, match="the saved tokenizer splits"):
        save(small_decoder(), tmp_path / "out", tokenizer=byte_tokenizer())
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def folder(tmp_path):
    save(small_decoder(), tmp_path / "out")
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": 3}, "method: .*valid string"),
        ({"neurons": True}, "neurons: .*valid integer"),
        ({"kept_neurons": [[True, False]]}, "kept_neurons: 0: 0: .*valid integer"),
        ({"kept_neurons": [[0.5]]}, "kept_neurons: 0: 0: .*valid integer"),
        ({"kept_neurons": 3}, "kept_neurons: .*valid array"),
        ({"kept_neurons": [[99]]}, "it keeps unit 99 of layers with 13"),
        ({"kept_neurons": [[-1]]}, "it keeps unit -1 of layers with 13"),
        ({"kept_neurons": [[1]]}, "differ in the number of layers"),
        ({"probe_logits": 1}, "probe_logits: .*valid array"),
        ({"probe_tokens": [-1]}, "probe_tokens: 0: .*greater than or equal to 0"),
        ({"study": "x"}, "study: .*an object"),
        ({"repairs": ["float32", 3]}, "repairs: 1: .*valid string"),
        ({"retention": "x" * 5000}, "retention: .*valid number"),
    ],
)
def test_a_record_with_an_impossible_value_is_refused_in_one_sentence(folder, values, message):
    path = folder / "pruning.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    with pytest.raises(
        CheckpointError, match=f"pruning.json' cannot be read .*{message}.*: export the model again"
    ) as refusal:
        model_card.read_record(folder)
    assert len(safe_parsing.sentence(refusal.value)) <= 300 and "\n" not in str(refusal.value)


def test_a_record_that_is_no_file_is_not_read(folder):
    (folder / "pruning.json").unlink()
    (folder / "pruning.json").mkdir()
    with pytest.raises(CheckpointError, match=r"pruning\.json' cannot be read .it is not a regular file"):
        model_card.read_record(folder)
