"""Names, folders and fingerprints of models; nothing here needs torch."""

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from gprune.models import identity
from gprune.system.errors import ModelError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files with the right names; their content does not matter here."""
    place = tmp_path / "model"
    place.mkdir()
    (place / "config.json").write_text('{"model_type": "llama"}')
    (place / "model.safetensors").write_bytes(b"weights" * 1000)
    (place / "tokenizer.json").write_text("{}")
    (place / "tokenizer_config.json").write_text("{}")
    return place


def shard(folder: Path, count: int) -> None:
    (folder / "model.safetensors").unlink()
    names = [f"model-{index}-of-{count}.safetensors" for index in range(count)]
    for name in names:
        (folder / name).write_bytes(name.encode())
    weight_map = {f"tensor{index}": name for index, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_fingerprint_is_the_hash_of_config_and_weights(folder):
    digest = hashlib.sha256()
    for name in ("config.json", "model.safetensors"):
        content = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        digest.update(f"{name}:{content}\n".encode())
    assert identity.fingerprint(str(folder)) == digest.hexdigest()


def test_files_are_read_once_until_they_change(folder, monkeypatch):
    read: list[str] = []
    original = hashlib.file_digest

    def counted(file, *arguments):
        read.append(Path(file.name).name)
        return original(file, *arguments)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    # a file that is younger than a tick of the system's clock could change unseen
    time.sleep(0.06)
    first = identity.fingerprint(str(folder))
    assert identity.fingerprint(str(folder)) == first
    assert read == ["config.json", "model.safetensors"]
    weights = folder / "model.safetensors"
    weights.write_bytes(b"WEIGHTS" * 1000)
    os.utime(weights, ns=(1, 1))
    assert identity.fingerprint(str(folder)) != first
    assert read[2:] == ["model.safetensors"]


def test_tokenizer_fingerprint_follows_the_tokenizer_alone(folder):
    before = identity.tokenizer_fingerprint(str(folder))
    (folder / "config.json").write_text("{}")
    assert identity.tokenizer_fingerprint(str(folder)) == before
    (folder / "tokenizer_config.json").write_text('{"add_bos_token": false}')
    assert identity.tokenizer_fingerprint(str(folder)) != before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/no/such/folder", "there is no model folder '/no/such/folder'"),
        ("./no-such-folder", "there is no model folder"),
        ("~/no-such-folder", "there is no model folder"),
        ("typo", "there is no model folder 'typo'"),
        ("a/b/c", "there is no model folder 'a/b/c'"),
        ("own er/na me", "neither a folder on this machine nor a hub name"),
        ("no-such-owner/no-such-model", "has not been downloaded yet.*a local model folder"),
    ],
)
def test_names_without_a_model(name, words):
    with pytest.raises(ModelError, match=words):
        identity.fingerprint(name)


def test_what_is_no_model_folder_is_told(folder):
    with pytest.raises(ModelError, match="hub cannot be reached.*a local model folder"):
        identity.locate("no-such-owner/no-such-model", download=True)
    with pytest.raises(ModelError, match="is a file: give the folder"):
        identity.fingerprint(str(folder / "config.json"))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="has no tokenizer: it needs one of tokenizer.json"):
        identity.tokenizer_fingerprint(str(folder))


def test_missing_and_damaged_files_are_named(folder):
    shard(folder, 2)
    (folder / "model-1-of-2.safetensors").unlink()
    with pytest.raises(
        ModelError, match="lacks 1 of 2 weight files, the first is 'model-1-of-2.safetensors'"
    ):
        identity.fingerprint(str(folder))
    (folder / "model.safetensors.index.json").write_text('{"no map": 1}')
    with pytest.raises(ModelError, match="index.json' cannot be read"):
        identity.fingerprint(str(folder))
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(ModelError, match="has no weights"):
        identity.fingerprint(str(folder))
    (folder / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="pickled weights only.*convert"):
        identity.fingerprint(str(folder))


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "has no config.json"), ("{", "cannot be read"), ("[1]", "holds no configuration")],
)
def test_configurations_that_are_none(folder, content, words):
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_text(content)
    with pytest.raises(ModelError, match=words):
        identity.fingerprint(str(folder))
