"""Answers: where on this machine is a file of a hub dataset, and can it be fetched?

A file that the hub's cache holds is used without any request. Otherwise the network is probed for a few
seconds before the hub's client starts, whose own retries take much longer to give up. Only data files are
fetched; loading scripts are neither fetched nor run.
"""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gprune import limits, untrusted
from gprune.corpora import layout
from gprune.corpora.naming import TextName
from gprune.errors import CorpusError

CONVERTED = "refs/convert/parquet"
"""branch on which the hub keeps parquet copies of datasets that come with a loading script"""
_PROBE_SECONDS = 3.0
_LONGEST_COMMIT = 4096
_BRANCHES = ("main", CONVERTED)
_PORTS = {"http": 80, "https": 443}


def cached_file(repository: str, revision: str, path: str) -> Path | None:
    """A file of a dataset in the hub's cache: of this revision, else the copy that came last."""
    for snapshot in _snapshots(repository, revision):
        if (snapshot / path).is_file():
            with untrusted.refused_as(CorpusError):
                return untrusted.inside(snapshot, path, f"the dataset {repository!r}")
    return None


def cached_split(repository: str, revision: str, name: TextName, split: str) -> Path | None:
    """The first file of a split among what the hub's cache holds of a dataset, or None."""
    for snapshot in _snapshots(repository, revision):
        try:
            return layout.folder_files(snapshot, name, split)[0]
        except CorpusError:
            continue
    return None


def fetch(repository: str, revision: str, path: str) -> Path:
    """A file of a dataset, from the cache or else downloaded into it.

    Raises:
        CorpusError: the file is not on this machine and cannot be downloaded.
    """
    found = cached_file(repository, revision, path)
    if found is not None:
        return found
    from huggingface_hub import constants, hf_hub_download

    require_network(repository)
    where: dict[str, Any] = {"repo_type": "dataset", "revision": revision}
    with _plain_errors(repository, revision, path):
        # before the bytes of a large file
        asked: Any = hf_hub_download(repository, path, dry_run=True, **where)
        what, cache = f"the download of {repository!r}", Path(constants.HF_HUB_CACHE)
        limits.require_room(CorpusError, what, asked.file_size or 0, cache, limits.LARGER_DISK)
        return Path(hf_hub_download(repository, path, **where))


def fetch_split(repository: str, revision: str, name: TextName, split: str) -> Path:
    """The first file of a split of any dataset, from the cache or else downloaded into it.

    Raises:
        CorpusError: the dataset is not on this machine and cannot be downloaded, or lacks the split.
    """
    found = cached_split(repository, revision, name, split)
    if found is not None:
        return found
    from huggingface_hub import HfApi

    try:
        require_network(repository)
    except CorpusError:
        # a cached copy that lacks the split or configuration says so itself
        for snapshot in _snapshots(repository, revision):
            layout.folder_files(snapshot, name, split)
        raise
    with _plain_errors(repository, revision):
        paths = HfApi().list_repo_files(repository, repo_type="dataset", revision=revision)
    card = fetch(repository, revision, layout.CARD) if layout.CARD in paths else None
    splits = layout.splits_of(paths, layout.read_card(card) if card else {}, name)
    if not any(splits.values()) and any(path.endswith(".py") for path in paths):
        raise CorpusError(
            f"the dataset {repository!r} has a loading script and no data files, and scripts are not run. "
            f"Its converted copy may exist: type {name.typed(revision=CONVERTED)}"
        )
    return fetch(repository, revision, layout.pick_split(splits, name, split)[0])


def require_network(repository: str) -> None:
    """Finds out within a few seconds whether the hub can be reached.

    Raises:
        CorpusError: it cannot, or the environment forbids it.
    """
    from huggingface_hub import constants

    remedy = "A local file, a dataset folder or an embedded text works without a network"
    if constants.HF_HUB_OFFLINE:
        raise CorpusError(
            f"the dataset {repository!r} is not on this machine and HF_HUB_OFFLINE forbids to download it. "
            f"{remedy}"
        )
    host, port = _first_hop(constants.ENDPOINT)
    if not _answers(host, port):
        raise CorpusError(
            f"the dataset {repository!r} is not on this machine and there is no network ({host} does not "
            f"answer). {remedy}"
        )


def _snapshots(repository: str, revision: str) -> Iterator[Path]:
    """Folders of a dataset in the hub's cache, the revision's own first, then the newest.

    The client's own look-ups serve less: ``try_to_load_from_cache`` and ``snapshot_download`` find nothing
    without the branch's reference, the latter refuses a copy that holds only a part of the dataset, and
    ``scan_cache_dir`` reads through everything that the cache holds.
    """
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"datasets--{repository.replace('/', '--')}"
    what = f"the revision of the dataset {untrusted.quoted(repository)}"
    with untrusted.refused_as(CorpusError):
        untrusted.path(folder.name, "the dataset")
        reference = untrusted.inside(folder / "refs", revision, what)
        found = untrusted.contents(reference, what, most=_LONGEST_COMMIT) if reference.is_file() else b""
        commit = found.decode("utf-8", errors="replace").strip() or revision
        exact = untrusted.inside(folder / "snapshots", commit, what)
    if exact.is_dir():
        yield exact
    if revision not in _BRANCHES or not (folder / "snapshots").is_dir():
        return
    # a client that resolved the branch itself leaves a snapshot and no reference
    others = [child for child in (folder / "snapshots").iterdir() if child.is_dir() and child != exact]
    yield from sorted(others, key=lambda child: child.stat().st_mtime, reverse=True)


def _first_hop(endpoint: str) -> tuple[str, int]:
    """The host a request to the hub goes to first: the proxy where there is one."""
    target = urlsplit(endpoint)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(target.scheme) or proxies.get("all", "")
    if proxy and not urllib.request.proxy_bypass(target.netloc):
        target = urlsplit(proxy if "//" in proxy else f"//{proxy}", scheme="http")
    return target.hostname or "", target.port or _PORTS.get(target.scheme, 443)


def _answers(host: str, port: int) -> bool:
    # name resolution has no time limit of its own, hence the thread
    reached = threading.Event()
    probe = threading.Thread(target=_connect, args=(host, port, reached.set), daemon=True)
    probe.start()
    probe.join(_PROBE_SECONDS)
    return reached.is_set()


def _connect(host: str, port: int, on_success: Callable[[], None]) -> None:
    try:
        socket.create_connection((host, port), timeout=_PROBE_SECONDS).close()
    except OSError:
        return
    on_success()


@contextmanager
def _plain_errors(repository: str, revision: str, path: str = "") -> Iterator[None]:
    """Turns the errors of the hub's client into one sentence each."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/datasets/{repository}"
    try:
        yield
    except CorpusError:
        raise
    except errors.GatedRepoError as error:
        raise CorpusError(
            f"the dataset {repository!r} is gated: accept its terms at {page} and log in with `hf auth login`"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise CorpusError(f"the dataset {repository!r} has no revision {revision!r}: see {page}") from error
    except errors.RepositoryNotFoundError as error:
        raise CorpusError(
            f"the hub has no dataset {repository!r}, or it is private: check the name, or log in with "
            "`hf auth login`"
        ) from error
    except errors.EntryNotFoundError as error:
        missing = f"no file {path!r} on its revision {revision!r}"
        raise CorpusError(f"the dataset {repository!r} has {missing}: see {page}") from error
    except Exception as error:  # the client's transport errors have other classes in each of its versions
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CorpusError(f"the dataset {repository!r} cannot be downloaded: {reason}") from error
