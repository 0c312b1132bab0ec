"""Fixtures of the corpora tests: a tiny tokenizer, an empty hub cache, and a small hub on this machine."""

import hashlib
import io
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from huggingface_hub import constants
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE that puts <s> before each text, as LLaMA's tokenizer does."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["<s>"], initial_alphabet=alphabet)
    backend.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 4, trainer)
    begin = backend.token_to_id("<s>")
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", begin)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", model_max_length=64)


@pytest.fixture(autouse=True)
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, so that no test sees or changes the machine's own."""
    folder = tmp_path / "hub-cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    return folder


@pytest.fixture
def put_in_cache(hub_cache: Path) -> Callable[..., Path]:
    """Lays files out as the hub's client caches them; returns the snapshot."""

    def put(repository: str, files: dict[str, bytes], revision: str = "main") -> Path:
        folder = hub_cache / f"datasets--{repository.replace('/', '--')}"
        snapshot = folder / "snapshots" / COMMIT
        for path, content in files.items():
            (snapshot / path).parent.mkdir(parents=True, exist_ok=True)
            (snapshot / path).write_bytes(content)
        if revision:
            (folder / "refs" / revision).parent.mkdir(parents=True, exist_ok=True)
            (folder / "refs" / revision).write_text(COMMIT)
        return snapshot

    return put


@pytest.fixture
def parquet() -> Callable[..., bytes]:
    """Makes the bytes of a parquet file from columns."""

    def make(**columns: list[Any]) -> bytes:
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
        return buffer.getvalue()

    return make


class SmallHub:
    """Answers what the hub's client asks for one or more dataset repositories; counts the requests."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # noqa: N802
                hub.answer(self, True)

            def do_HEAD(self) -> None:  # noqa: N802
                hub.answer(self, False)

            def log_message(self, *_: Any) -> None:
                """Stays silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler, body: bool) -> None:
        """Serves the listing of a repository and its files."""
        self.requests.append(f"{handler.command} {handler.path}")
        path = handler.path.split("?")[0]
        for repository, files in self.repositories.items():
            if path.startswith(f"/api/datasets/{repository}"):
                listing = [
                    {"type": "file", "path": file, "size": len(content), "oid": COMMIT}
                    for file, content in files.items()
                ]
                return self._send(handler, 200, json.dumps(listing).encode(), body)
            start = f"/datasets/{repository}/resolve/"
            if path.startswith(start):
                file = path.removeprefix(start).split("/", 1)[1]
                if file in files:
                    return self._send(handler, 200, files[file], body)
                return self._send(handler, 404, b"", body, {"X-Error-Code": "EntryNotFound"})
        return self._send(handler, 404, b"", body, {"X-Error-Code": "RepoNotFound"})

    def _send(
        self, handler: BaseHTTPRequestHandler, code: int, content: bytes, body: bool, extra: Any = None
    ):
        handler.send_response(code)
        handler.send_header("Content-Length", str(len(content)))
        handler.send_header("X-Repo-Commit", COMMIT)
        handler.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        for key, value in (extra or {}).items():
            handler.send_header(key, value)
        handler.end_headers()
        if body:
            handler.wfile.write(content)


@pytest.fixture
def small_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallHub]:
    """A hub on this machine that the hub's client talks to."""
    hub = SmallHub()
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
