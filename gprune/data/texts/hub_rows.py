"""Download the first documents of a hub dataset and store them as a result.

Documents are streamed, so that only the part that a study reads is downloaded. They are stored with the commit of the
dataset, so that later runs, also without a network, read the same documents.
"""

import hashlib
import json
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np

from gprune.data.texts import reading
from gprune.data.texts.naming import TextName
from gprune.records.base import Array, Record, integers
from gprune.store import Store
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, DamagedError

CONVERTED = "refs/convert/parquet"
"""branch with the hub's parquet copies of datasets that have a loading script"""
EVERYTHING = 10**15
"""size in bytes that stands for a complete dataset"""
_STAGE = "hub_rows"
_TIMEOUT_SECONDS = 10.0
# documents read at a time; few, because a document may be a book
_BATCH = 16


@dataclass(frozen=True, slots=True, eq=False)
class HubRows(Record):
    """The first documents of a hub dataset."""

    repository: str
    revision: str
    """commit of the dataset"""
    sha256: str
    """SHA-256 of `ends` and `utf8`"""
    utf8: Annotated[Array, integers("bytes")]
    """(bytes,) concatenated documents"""
    ends: Annotated[Array, integers("documents")]
    """(documents,) end offset of each document"""

    def documents(self) -> Iterator[str]:
        """Yield the documents in order."""
        start = 0
        for end in self.ends.tolist():
            yield self.utf8[start:end].tobytes().decode("utf-8", "surrogatepass")
            start = end

    def first(self, size: int) -> "HubRows":
        """Return the smallest number of first documents with at least `size` bytes, or all if they have fewer."""
        count = int(np.searchsorted(self.ends, size)) + 1
        if count >= len(self.ends):
            return self
        ends = self.ends[:count]
        utf8 = self.utf8[: ends[-1]]
        return HubRows(self.repository, self.revision, _digest(utf8, ends), utf8, ends)


@dataclass(frozen=True, slots=True)
class HubSplit:
    """One split of a hub dataset."""

    repository: str
    branch: str
    """branch, tag or commit"""
    name: TextName
    """name of the text, with the options config, fields and documents"""
    split: str
    file: str = ""
    """file to read; empty for all files of the split"""

    def load(self, size: int, cache: Path, quarantine: bool = False) -> HubRows | None:
        """Return stored documents of at least `size` bytes or of the complete split, or None; see `stored`."""
        for stored_size, rows in self.stored(cache, quarantine):
            # a download of fewer bytes than requested has the complete split
            if size <= stored_size or len(rows.utf8) < stored_size:
                return rows.first(size)
        return None

    def stored(self, cache: Path, quarantine: bool = False) -> Iterator[tuple[int, HubRows]]:
        """Yield the requested size and the documents of each stored download in ascending order of size.

        Damaged results are quarantined if `quarantine` is set, else DamagedError is raised.
        """
        store = Store(cache)
        for key in sorted(path.name for path in (cache / _STAGE).glob(f"{self._prefix}-*")):
            try:
                yield int(key.rpartition("-")[2]), store.get(_STAGE, key, HubRows)
            except DamagedError:
                if not quarantine:
                    raise
                store.set_aside(_STAGE, key, HubRows)

    def fetch(self, size: int, cache: Path) -> HubRows:
        """Return documents of at least `size` bytes or of the complete split, from the cache or the hub.

        Raises CorpusError if they are available from neither.
        """
        rows = self.load(size, cache, quarantine=True)
        if rows is None:
            store, key = Store(cache), f"{self._prefix}-{size:016d}"
            # a longer download uses the commit of the first one
            revision = next((earlier.revision for _, earlier in self.stored(cache)), "")
            store.put(_STAGE, key, self._download(size, revision, cache))
            # another process may have stored it first
            rows = store.get(_STAGE, key, HubRows)
        return rows.first(size)

    @property
    def _prefix(self) -> str:
        """Return the part of the store's keys that identifies the dataset, without the size."""
        options = [self.name.option(option) for option in ("config", "fields", "documents")]
        request = [self.repository, self.branch, self.split, self.file, *options]
        return hashlib.sha256(json.dumps(request).encode()).hexdigest()[:32]

    def _download(self, size: int, revision: str, cache: Path) -> HubRows:
        """Download documents of at least `size` bytes, or of the complete split, and return them."""
        with _convert_hub_errors(self):
            revision = revision or _find_commit(self.repository, self.branch)
            dataset = self._open(revision, cache / "datasets")
            utf8, ends = bytearray(), array("q")
            documents = reading.documents_of(dataset, self.name, _BATCH)
            for document in reading.slice_documents(documents, self.name.documents):
                utf8 += document.encode("utf-8", "surrogatepass")
                ends.append(len(utf8))
                if len(utf8) >= size:
                    break
            if not ends:
                raise CorpusError(f"the text {self.name.text!r} has no documents: choose another split or slice")
        arrays = np.frombuffer(bytes(utf8), np.uint8), np.array(ends, np.int64)
        return HubRows(self.repository, revision, _digest(*arrays), *arrays)

    def _open(self, revision: str, cache: Path) -> reading.Opener:
        if self.file:
            return partial(reading.open_files, [f"hf://datasets/{self.repository}@{revision}/{self.file}"], cache)
        return reading.open_folder(self.repository, self.name, self.split, cache, revision).open


def _digest(utf8: Array, ends: Array) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(ends, dtype="<i8").tobytes())
    digest.update(np.ascontiguousarray(utf8).data)
    return digest.hexdigest()


def _find_commit(repository: str, branch: str) -> str:
    from huggingface_hub import HfApi

    return HfApi().dataset_info(repository, revision=branch, timeout=_TIMEOUT_SECONDS).sha or branch


@contextmanager
def _convert_hub_errors(source: HubSplit) -> Iterator[None]:
    """Convert errors of the hub client into CorpusError with one sentence."""
    from huggingface_hub import constants

    dataset = f"the dataset {source.repository!r} is not on this machine"
    remedy = (
        "Run the study once on a machine with a network and the same cache, or use a local file, a dataset folder or "
        "an embedded text"
    )
    if constants.HF_HUB_OFFLINE:
        raise CorpusError(f"{dataset} and cannot be downloaded, because HF_HUB_OFFLINE is set. {remedy}")
    try:
        yield
    except Exception as error:  # the client's transport errors have other classes in each of its versions
        cause = error.__cause__ if isinstance(error, CorpusError) and error.__cause__ else error
        refusal = _describe_refusal(cause, source)
        if not refusal and isinstance(error, CorpusError):
            raise
        reason = safe_parsing.sentence(error, 120) or type(error).__name__
        raise CorpusError(refusal or f"{dataset} and cannot be downloaded: {reason}. {remedy}") from error


def _describe_refusal(error: BaseException, source: HubSplit) -> str:
    """Return the reason why the hub refuses a request, with a remedy; empty if the error is of another kind."""
    from huggingface_hub import constants, errors

    dataset = f"the dataset {source.repository!r}"
    page = f"{constants.ENDPOINT}/datasets/{source.repository}"
    login = "log in with `hf auth login`"
    if isinstance(error, errors.GatedRepoError) or "gated dataset" in str(error):
        return f"{dataset} is gated: accept its terms at {page} and {login}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{dataset} has no revision {source.branch!r}: see {page}"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"{dataset} does not exist on the hub, or is private: check the name, or {login}"
    if "scripts are no longer supported" in str(error):
        converted = f"Its converted copy may exist: type {source.name.with_options(revision=CONVERTED)}"
        return f"{dataset} has a loading script, and scripts are not run. {converted}"
    return ""
