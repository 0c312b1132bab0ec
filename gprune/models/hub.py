"""Answers: is a model of the hub whole on this machine, and if not, what does it take to have it?

A model that is whole here is used without any request. Before a download starts, the hub says what is missing
and how large it is: a gated model, a name that is none and a disk that is too small are told then, in one
sentence, and not after an hour. Only safetensors, configuration and tokenizer are fetched, no pickled
weights.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gprune.system import limits
from gprune.system.errors import GpruneError, ModelError
from gprune.system.progress import Progress
from gprune.system.units import amount

DOWNLOADED = [
    "*.json",
    "model*.safetensors",
    "*.py",
    "tokenizer.model",
    "merges.txt",
    "README.md",
    "LICENSE*",
]
"""patterns of the files that are fetched"""
LOCAL = "a local model folder needs no network"
_MEGABYTE = 1_000_000


def snapshot(name: str, download: bool, lacking_in: Callable[[Path], str], on_progress: Progress | None = None) -> Path:
    """The folder of a model, owner/name, in the hub's cache; if `download`, what is missing is fetched.

    `lacking_in` says what a folder lacks of what every model needs; empty where it is whole. `on_progress` is
    told of megabytes while they are fetched; the hub's own bars are drawn where left out. Raises ModelError
    where the model is not here, or only half, and may not or cannot be fetched.
    """
    folder = _local(name)
    lacking = lacking_in(folder) if folder is not None else ""
    if folder is not None and not lacking:
        return folder
    if not download:
        raise ModelError(_absent(name, lacking, "has not been downloaded yet"))
    with _plain_errors(name, lacking):
        require_room(name)
        return _fetch(name, on_progress)


def offer(name: str, lacking_in: Callable[[Path], str]) -> str:
    """What it takes to have a model that is not whole on this machine; fetches nothing.

    One sentence with what is to be fetched, where to, and how much room there is; for `lacking_in` see
    `snapshot`. Raises ModelError where it cannot be fetched; says why and what to do.
    """
    from huggingface_hub import constants

    folder = _local(name)
    with _plain_errors(name, lacking_in(folder) if folder is not None else ""):
        size, cache = _missing(name), Path(constants.HF_HUB_CACHE)
        free = limits.room(cache)
        return f"{amount(size)} of {name!r} are to be fetched into {str(cache)!r}, with {amount(free)} free"


def require_room(name: str) -> None:
    """Checks that what is missing of a model can be fetched and has room on the disk; fetches nothing.

    Raises ModelError, with how much is missing and how much room there is, where the disk is too small, or
    there are pickled weights only; OSError where the hub does not answer, or refuses: its client has a class
    for each reason.
    """
    from huggingface_hub import constants

    what, cache = f"the download of {name!r}", Path(constants.HF_HUB_CACHE)
    limits.require_room(ModelError, what, _missing(name), cache, limits.LARGER_DISK)


def _missing(name: str) -> int:
    """Bytes of a model that are not on this machine."""
    from huggingface_hub import snapshot_download

    files: Any = snapshot_download(name, allow_patterns=DOWNLOADED, dry_run=True)
    if any(file.filename == "adapter_config.json" for file in files):
        raise ModelError(f"the hub's model {name!r} is a PEFT adapter: merge it first (`merge_and_unload`)")
    if not any(file.filename.endswith(".safetensors") for file in files):
        raise ModelError(
            f"the hub's model {name!r} has no safetensors, and pickled weights, which can run code, are not "
            "read: choose a copy that has them"
        )
    return sum(file.file_size or 0 for file in files if file.will_download)


def _fetch(name: str, on_progress: Progress | None) -> Path:
    from huggingface_hub import snapshot_download

    bars = None if on_progress is None else _bar(name, on_progress)
    return Path(snapshot_download(name, allow_patterns=DOWNLOADED, tqdm_class=bars))


def _local(name: str) -> Path | None:
    """The folder of a model in the hub's cache, whole or not; None where there is none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, IncompleteSnapshotError

    try:
        return Path(snapshot_download(name, allow_patterns=DOWNLOADED, local_files_only=True))
    except HFValidationError as error:
        raise ModelError(f"{name!r} is neither a folder on this machine nor a hub name owner/name") from error
    except IncompleteSnapshotError as error:
        return Path(error.snapshot_path)
    except (OSError, ValueError):
        return None


def _absent(name: str, lacking: str, reason: str) -> str:
    if not lacking:
        return f"{name!r} is not a folder on this machine, and {reason}: {LOCAL}"
    half = lacking.rpartition("' ")[2]
    return (
        f"{name!r} is only half on this machine (it {half}), and {reason}: start it again with a network, it "
        f"goes on where it stopped; {LOCAL}"
    )


@contextmanager
def _plain_errors(name: str, lacking: str) -> Iterator[None]:
    """Turns the errors of the hub's client into one sentence each."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{name}"
    try:
        yield
    except GpruneError:
        raise
    except Exception as error:  # the client's transport errors have other classes in each of its versions
        # asked what it would fetch, the client tells the reason as the cause
        cause = error.__cause__ if isinstance(error, errors.DryRunError) else error
        if isinstance(cause, errors.GatedRepoError):
            words = (
                f"the model {name!r} is gated: ask for access at {page}, and when it is granted log in with "
                "`hf auth login` (or set HF_TOKEN); nothing has been downloaded"
            )
        elif isinstance(cause, errors.RepositoryNotFoundError):
            words = (
                f"the hub shows no model {name!r}: check the spelling, or log in with `hf auth login` if the "
                "model is private"
            )
        else:
            words = _absent(name, lacking, f"the hub cannot be reached ({_reason(cause)})")
        raise ModelError(words) from error


def _reason(error: BaseException | None) -> str:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "no network: HF_HUB_OFFLINE is set"
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f"it answers {status}" if status else "no network"


def _bar(name: str, on_progress: Progress) -> type:
    """A class of bars, as the hub's client takes one, that draws nothing and tells of the bytes on disk."""
    from tqdm.std import tqdm

    lock, message = threading.Lock(), f"downloading {name}, megabytes"

    class Bar(tqdm):
        """Several files add to one bar from threads of their own."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            # the client draws a second bar for what the network has brought
            self._bytes = options.get("unit") == "B" and "Reconstructing" in str(options.get("desc", ""))
            options.pop("name", None)
            super().__init__(*arguments, **options | {"disable": False, "delay": 1e9})

        def display(self, *unused: Any, **options: Any) -> bool:
            """Nothing is drawn."""
            return True

        def update(self, n: float | None = 1) -> bool | None:
            """Counts, and tells."""
            with lock:
                told = super().update(n)
                if self._bytes and self.total:
                    done = min(int(self.n), int(self.total))
                    on_progress(done // _MEGABYTE, max(1, int(self.total) // _MEGABYTE), message)
            return told

    return Bar
