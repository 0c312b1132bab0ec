"""Fetch models of the Hugging Face hub: safetensors, configuration and tokenizer only, no pickled weights.

A complete model in the hub's cache is used without any request. Before a download starts, a gated model, an unknown
name and a disk that is too small are reported in one sentence.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gprune.system import limits
from gprune.system.errors import GpruneError, ModelError

DOWNLOADED = ["*.json", "model*.safetensors", "*.py", "tokenizer.model", "merges.txt", "README.md", "LICENSE*"]
"""patterns of the files that are fetched"""
LOCAL = "a local model folder needs no network"


def snapshot(name: str, download: bool, find_gap: Callable[[Path], str]) -> Path:
    """Return the folder of a model, owner/name, in the hub's cache; fetch what is missing if `download`.

    `find_gap` returns what a folder lacks of a whole model, or "". The hub's client draws its bars. Raises ModelError
    if the model is missing or incomplete and may not or cannot be fetched.
    """
    folder = _cached_folder(name)
    gap = find_gap(folder) if folder is not None else ""
    if folder is not None and not gap:
        return folder
    if not download:
        raise ModelError(_missing(name, gap, "has not been downloaded yet"))
    with _as_model_error(name, gap):
        from huggingface_hub import snapshot_download

        require_room(name)
        return Path(snapshot_download(name, allow_patterns=DOWNLOADED))


def require_room(name: str) -> None:
    """Check that the missing files of a model can be fetched and have room on the disk; fetch nothing.

    Raises ModelError if the disk is too small or the model is an adapter or has pickled weights only, and the
    hub client's own errors where the hub refuses or does not answer.
    """
    from huggingface_hub import constants, snapshot_download

    files: Any = snapshot_download(name, allow_patterns=DOWNLOADED, dry_run=True)
    if any(file.filename == "adapter_config.json" for file in files):
        raise ModelError(f"the hub's model {name!r} is a PEFT adapter: merge it first (`merge_and_unload`)")
    if not any(file.filename.endswith(".safetensors") for file in files):
        raise ModelError(
            f"the hub's model {name!r} has no safetensors, and pickled weights, which can run code, are not "
            "read: choose a copy that has them"
        )
    size = sum(file.file_size or 0 for file in files if file.will_download)
    cache = Path(constants.HF_HUB_CACHE)
    limits.require_room(ModelError, f"the download of {name!r}", size, cache, limits.LARGER_DISK)


def _cached_folder(name: str) -> Path | None:
    """Return the folder of a model in the hub's cache, complete or not."""
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


def _missing(name: str, gap: str, reason: str) -> str:
    if not gap:
        return f"{name!r} is not a folder on this machine, and {reason}: {LOCAL}"
    fault = gap.rpartition("' ")[2]
    return (
        f"{name!r} is only half on this machine (it {fault}), and {reason}: start it again "
        f"with a network, it goes on where it stopped; {LOCAL}"
    )


@contextmanager
def _as_model_error(name: str, gap: str) -> Iterator[None]:
    from huggingface_hub import constants, errors

    try:
        yield
    except GpruneError:
        raise
    except Exception as error:  # the client's transport errors have other classes in each of its versions
        # a dry run reports the reason as its cause
        cause = error.__cause__ if isinstance(error, errors.DryRunError) else error
        status = getattr(getattr(cause, "response", None), "status_code", None)
        reason = f"it answers {status}" if status else "no network"
        if constants.HF_HUB_OFFLINE:
            reason = "no network: HF_HUB_OFFLINE is set"
        message = _missing(name, gap, f"the hub cannot be reached ({reason})")
        if isinstance(cause, errors.GatedRepoError):
            message = (
                f"the model {name!r} is gated: ask for access at {constants.ENDPOINT}/{name}, and when it is "
                "granted log in with `hf auth login` (or set HF_TOKEN); nothing has been downloaded"
            )
        elif isinstance(cause, errors.RepositoryNotFoundError):
            message = (
                f"the hub shows no model {name!r}: check the spelling, or log in with `hf auth login` if the "
                "model is private"
            )
        raise ModelError(message) from error
