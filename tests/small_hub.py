"""A hub on this machine: what the hub's client asks for datasets and models, answered from memory."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import datasets
import pytest
from huggingface_hub import HfFileSystem, constants

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class SmallHub:
    """Answers what the hub's client asks for one or more repositories; counts the requests."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        """files of datasets by repository"""
        self.models: dict[str, dict[str, bytes]] = {}
        """files of models by repository"""
        self.gated: set[str] = set()
        """models that ask for permission"""
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
        for kind, prefix, every in (("datasets", "/datasets/", self.repositories), ("models", "/", self.models)):
            for repository, files in every.items():
                if path.startswith(f"/api/{kind}/{repository}"):
                    return self._send(handler, 200, json.dumps(_listing(handler.path, files)).encode(), body)
                start = f"{prefix}{repository}/resolve/"
                if not path.startswith(start):
                    continue
                file = path.removeprefix(start).split("/", 1)[1]
                if repository in self.gated:
                    return self._send(handler, 403, b"", body, {"X-Error-Code": "GatedRepo"})
                if file in files:
                    return self._send(handler, 200, files[file], body)
                return self._send(handler, 404, b"", body, {"X-Error-Code": "EntryNotFound"})
        return self._send(handler, 404, b"", body, {"X-Error-Code": "RepoNotFound"})

    def _send(self, handler: BaseHTTPRequestHandler, code: int, content: bytes, body: bool, extra: Any = None) -> None:
        if code == 200 and (span := re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range") or "")):
            start, stop = int(span[1]), int(span[2]) + 1
            extra = {"Content-Range": f"bytes {start}-{stop - 1}/{len(content)}"}
            content, code = content[start:stop], 206
        handler.send_response(code)
        handler.send_header("Content-Length", str(len(content)))
        handler.send_header("X-Repo-Commit", COMMIT)
        handler.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        for key, value in (extra or {}).items():
            handler.send_header(key, value)
        handler.end_headers()
        if body:
            handler.wfile.write(content)


def _listing(path: str, files: dict[str, bytes]) -> Any:
    """The tree of a repository, or what the hub says of it."""
    every = [{"type": "file", "path": file, "size": len(content), "oid": COMMIT} for file, content in files.items()]
    if "/tree/" in path:
        folder = unquote(path.partition("/tree/")[2].partition("?")[0].partition("/")[2])
        prefix = f"{folder}/" if folder else ""
        below = [entry for entry in every if entry["path"].startswith(prefix)]
        if "recursive=true" in path.lower():
            return below
        parts = {entry["path"]: entry["path"].removeprefix(prefix).split("/") for entry in below}
        folders = sorted({prefix + names[0] for names in parts.values() if len(names) > 1})
        flat = [entry for entry in below if len(parts[entry["path"]]) == 1]
        return flat + [{"type": "directory", "path": name, "oid": COMMIT} for name in folders]
    siblings = [{"rfilename": file, "size": len(content)} for file, content in files.items()]
    return {"id": "a/b", "sha": COMMIT, "siblings": siblings}


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallHub]:
    """A small hub that the hub's client talks to meanwhile."""
    hub = SmallHub()
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    for module, name in ((constants, "ENDPOINT"), (datasets.config, "HF_ENDPOINT")):
        monkeypatch.setattr(module, name, hub.address)
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", False)
    HfFileSystem.clear_instance_cache()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
