"""Models of the hub, fetched by its own client from a hub on this machine: what is told, and when."""

import json
import shutil
from collections import namedtuple

import pytest
from huggingface_hub import constants, errors
from small_hub import COMMIT, serving

from gprune.models import identity, sources
from gprune.system import safe_parsing
from gprune.system.errors import ModelError

NAME = "someone/small-llama"
SHARDS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {str(at): shard for at, shard in enumerate(SHARDS)}}
    ).encode(),
    SHARDS[0]: b"1" * 3_000_000,
    SHARDS[1]: b"2" * 2_000_000,
    "pytorch_model.bin": b"pickled",
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def small(cache, monkeypatch):
    with serving(monkeypatch) as result:
        result.models[NAME] = dict(FILES)
        yield result


def halved(cache):
    """A cached snapshot of which one shard is missing, as an interrupted download leaves it."""
    folder = cache / f"models--{NAME.replace('/', '--')}"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for name, content in FILES.items():
        if name not in (SHARDS[1], "pytorch_model.bin"):
            (snapshot / name).write_bytes(content)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    return snapshot


def one_sentence(error):
    result = safe_parsing.sentence(error.value)
    assert result == str(error.value), "the sentence is too long to be shown whole"
    return result


def test_a_model_is_fetched_once_without_pickles(small):
    with pytest.raises(ModelError, match="has not been downloaded yet"):
        identity.locate(NAME)
    folder = identity.locate(NAME, download=True)
    assert (folder / SHARDS[1]).read_bytes() == FILES[SHARDS[1]] and not (folder / "pytorch_model.bin").exists()
    requests = len(small.requests)
    assert identity.locate(NAME, download=True) == identity.locate(NAME) == folder
    assert len(identity.fingerprint(NAME)) == 64
    # what is whole here is used without asking
    assert len(small.requests) == requests


def test_half_a_model_is_called_so_and_completed_where_there_is_a_network(cache, monkeypatch):
    halved(cache)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    words = r"is incomplete on this machine \(it lacks 1 of 2 weight files, the first is 'model-00002-of-00002"
    for download, reason in (
        (False, "has not been"),
        (True, r"cannot be reached \(no network: HF_HUB_OFFLINE is set\)"),
    ):
        with pytest.raises(ModelError, match=f"{words}.*{reason}.*repeat the command with a network") as caught:
            identity.locate(NAME, download=download)
        one_sentence(caught)
    with serving(monkeypatch) as result:
        result.models[NAME] = dict(FILES)
        folder = identity.locate(NAME, download=True)
        assert (folder / SHARDS[1]).is_file()
        # what was there has not been fetched again
        assert not [r for r in result.requests if r.startswith("GET") and SHARDS[0] in r]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (errors.GatedRepoError, "is gated: ask for access at"),
        (errors.RepositoryNotFoundError, "the hub has no model 'a/b': check the spelling, or log in"),
        (errors.HfHubHTTPError, r"the hub cannot be reached \(it answers 503\)"),
        (ConnectionError, r"the hub cannot be reached \(no network\)"),
    ],
)
@pytest.mark.parametrize("wrapped", [True, False])
def test_every_refusal_of_the_hub_is_one_sentence(kind, words, wrapped, cache, monkeypatch):
    response = namedtuple("Response", "status_code headers request url text")(503, {}, None, "", "")
    refusal = kind("no", response=response) if issubclass(kind, errors.HfHubHTTPError) else kind("no")

    def refuse(name):
        if wrapped:
            raise errors.DryRunError("cannot be performed") from refusal
        raise refusal

    monkeypatch.setattr(sources, "require_download", refuse)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(ModelError, match=words) as caught:
        identity.locate("a/b", download=True)
    one_sentence(caught)


def test_a_disk_that_is_too_small_is_told_before_the_start(small, cache, monkeypatch):
    usage = shutil.disk_usage(cache.parent)
    monkeypatch.setattr("gprune.system.files.shutil.disk_usage", lambda path: usage._replace(free=4_000_000))
    small.models[NAME][SHARDS[1]] = b"2" * 97_000_000
    with pytest.raises(ModelError, match=r"needs 95.4 MiB, but '.*' has 3.8 MiB free: make room") as caught:
        identity.locate(NAME, download=True)
    assert "set HF_HOME to a folder on a larger disk" in one_sentence(caught)
    assert not list(cache.rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"config.json": b"{}", "pytorch_model.bin": b"p"},
            "has no safetensors, and pickled weights, which can run code",
        ),
        (
            {"adapter_config.json": b"{}", "adapter_model.safetensors": b"weights"},
            r"is a PEFT adapter: merge it first \(`merge_and_unload`\)",
        ),
    ],
)
def test_pickles_and_adapters_are_refused_before_anything_is_fetched(small, files, words):
    small.models[NAME] = files
    with pytest.raises(ModelError, match=words) as caught:
        identity.locate(NAME, download=True)
    one_sentence(caught)
