"""Answers: where on this machine are the files of a hub dataset, and can they be fetched?

A file that the hub's cache holds is used without any request. Otherwise the network is probed for a few
seconds before the hub's client starts, whose own retries take much longer to give up. Only data files are
fetched; loading scripts are neither fetched nor run.
"""

import re
import socket
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gprune.data.texts import layout
from gprune.data.texts.naming import TextName
from gprune.system import limits, safe_parsing
from gprune.system.errors import CorpusError

CONVERTED = "refs/convert/parquet"
"""branch on which the hub keeps parquet copies of datasets that come with a loading script"""
# train-00000-of-00003.parquet, and 0000.parquet among the hub's converted copies
_NUMBERED = re.compile(r"(?:[-.](?=\d{5}-of-)|^(?=\d{4}\.))(?P<number>\d+)")
_PROBE_SECONDS = 3.0
_LONGEST_COMMIT = 4096
_BRANCHES = ("main", CONVERTED)
_PORTS = {"http": 80, "https": 443}


def cached_file(repository: str, revision: str, path: str) -> Path | None:
    """A file of a dataset in the hub's cache: of this revision, else the copy that came last."""
    for snapshot in _snapshots(repository, revision):
        if (snapshot / path).is_file():
            with safe_parsing.refused_as(CorpusError):
                return safe_parsing.inside(snapshot, path, f"the dataset {repository!r}")
    return None


def cached_split(repository: str, revision: str, name: TextName, split: str) -> tuple[Path, ...]:
    """The files of a split that the hub's cache holds without a gap, from the first one on."""
    for snapshot in _snapshots(repository, revision):
        with suppress(CorpusError):
            return tuple(_without_gap(layout.folder_files(snapshot, name, split)))
    return ()


def _without_gap(files: Iterable[Path]) -> Iterator[Path]:
    """The files before the first one that is missing, where their names number them as the hub does."""
    numbered: Counter[Path] = Counter()
    for file in files:
        found = _NUMBERED.search(file.name)
        if found:
            group = file.parent / file.name[: found.start()]
            if int(found["number"]) != numbered[group]:
                return
            numbered[group] += 1
        yield file


def fetch(repository: str, revision: str, path: str) -> Path:
    """A file of a dataset, from the cache or else downloaded into it.

    Raises CorpusError where it is neither on this machine nor can be downloaded.
    """
    found = cached_file(repository, revision, path)
    if found is not None:
        return found
    from huggingface_hub import hf_hub_download

    require_network(repository)
    where: dict[str, Any] = {"repo_type": "dataset", "revision": revision}
    with _plain_errors(repository, revision, path):
        # before the bytes of a large file
        asked: Any = hf_hub_download(repository, path, dry_run=True, **where)
        _require_room(repository, asked.file_size or 0)
        return Path(hf_hub_download(repository, path, **where))


def split_files(
    repository: str, revision: str, name: TextName, split: str, download: bool, whole: bool = False
) -> Iterator[tuple[Path, bool]]:
    """The files of a split in order, and of each whether it is known to be the last.

    What is in the cache comes first and without a request; if `download`, the others are fetched one by one,
    as they are asked for, of the commit that the first is of. `repository` is owner/name on the hub,
    `revision` a branch, tag or commit; `name` has the configuration. If the `whole` split will be asked for,
    the disk has room for all of it, or nothing is fetched. Raises CorpusError where no file is here and none
    can be downloaded, or the dataset lacks the split.
    """
    held = cached_split(repository, revision, name, split)
    for number, file in enumerate(held, 1):
        yield file, not download and number == len(held)
    if not download:
        return
    try:
        commit, sizes = _listed(repository, _snapshot_of(held[0]).name if held else revision, name, split)
    except CorpusError:
        # the beginning of a split is a text too
        if held:
            return
        raise
    there = {file.relative_to(_snapshot_of(file)).as_posix() for file in held}
    missing = [path for path in sizes if path not in there]
    if whole:
        _require_room(repository, sum(sizes[path] for path in missing))
    for number, path in enumerate(missing):
        # the first one leaves the reference of its branch in the cache
        first = not held and not number
        yield fetch(repository, revision if first else commit, path), path == missing[-1]


def _listed(repository: str, revision: str, name: TextName, split: str) -> tuple[str, dict[str, int]]:
    """The commit of a revision on the hub, and the files of a split in order with their bytes."""
    from huggingface_hub import HfApi

    try:
        require_network(repository)
    except CorpusError:
        # a cached copy that lacks the split or configuration says so itself
        for snapshot in _snapshots(repository, revision):
            layout.folder_files(snapshot, name, split)
        raise
    with _plain_errors(repository, revision):
        found = HfApi().dataset_info(repository, revision=revision, files_metadata=True)
    sizes = {file.rfilename: file.size or 0 for file in found.siblings or ()}
    card = fetch(repository, revision, layout.CARD) if layout.CARD in sizes else None
    splits = layout.splits_of(list(sizes), layout.read_card(card) if card else {}, name)
    if not any(splits.values()) and any(path.endswith(".py") for path in sizes):
        raise CorpusError(
            f"the dataset {repository!r} has a loading script and no data files, and scripts are not run. "
            f"Its converted copy may exist: type {name.typed(revision=CONVERTED)}"
        )
    return found.sha or revision, {path: sizes[path] for path in layout.pick_split(splits, name, split)}


def _snapshot_of(file: Path) -> Path:
    """The folder of the hub's cache that holds one commit of a dataset, to which a file belongs."""
    return next(folder for folder in file.parents if folder.parent.name == "snapshots")


def _require_room(repository: str, size: int) -> None:
    from huggingface_hub import constants

    what, cache = f"the download of {repository!r}", Path(constants.HF_HUB_CACHE)
    limits.require_room(CorpusError, what, size, cache, limits.LARGER_DISK)


def require_network(repository: str) -> None:
    """Finds out within a few seconds whether the hub can be reached.

    Raises CorpusError where it cannot, or the environment forbids it.
    """
    from huggingface_hub import constants

    remedy = "A local file, a dataset folder or an embedded text works without a network"
    if constants.HF_HUB_OFFLINE:
        raise CorpusError(
            f"the dataset {repository!r} is not on this machine and HF_HUB_OFFLINE forbids to download it. {remedy}"
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
    folder = _cache_of(repository)
    what = f"the revision of the dataset {safe_parsing.quoted(repository)}"
    with safe_parsing.refused_as(CorpusError):
        safe_parsing.path(folder.name, "the dataset")
        reference = safe_parsing.inside(folder / "refs", revision, what)
        found = safe_parsing.contents(reference, what, most=_LONGEST_COMMIT) if reference.is_file() else b""
        commit = found.decode("utf-8", errors="replace").strip() or revision
        exact = safe_parsing.inside(folder / "snapshots", commit, what)
    if exact.is_dir():
        yield exact
    if revision not in _BRANCHES or not (folder / "snapshots").is_dir():
        return
    # a client that resolved the branch itself leaves a snapshot and no reference
    others = [child for child in (folder / "snapshots").iterdir() if child.is_dir() and child != exact]
    yield from sorted(others, key=lambda child: child.stat().st_mtime, reverse=True)


def _cache_of(repository: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"datasets--{repository.replace('/', '--')}"


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
            f"the hub has no dataset {repository!r}, or it is private: check the name, or log in with `hf auth login`"
        ) from error
    except errors.EntryNotFoundError as error:
        missing = f"no file {path!r} on its revision {revision!r}"
        raise CorpusError(f"the dataset {repository!r} has {missing}: see {page}") from error
    except Exception as error:  # the client's transport errors have other classes in each of its versions
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CorpusError(f"the dataset {repository!r} cannot be downloaded: {reason}") from error
