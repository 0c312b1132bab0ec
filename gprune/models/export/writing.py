"""Answers: how does an export get its name only when it is complete?

Everything is written under a temporary name beside the target and renamed at the end, so that nothing is
overwritten and nothing half-written stays.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gprune.models.library_errors import one_line
from gprune.system import limits
from gprune.system.errors import CheckpointError, GpruneError, ModelError
from gprune.system.files import beside, replaced
from gprune.system.network_files import move


def require_room(target: Path, size: int) -> None:
    """Checks that an absolute path is free (a folder may be empty), and that the disk has room.

    Raises CheckpointError where it is taken, or so many bytes are not left.
    """
    _require_free(target)
    remedy = "free some space or choose another folder"
    limits.require_room(CheckpointError, "the model", size, target.parent, remedy)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to write into; it gets its name when the context ends without an error.

    `folder` is an absolute path that ``require_room`` has checked. Raises CheckpointError for anything that
    went wrong inside, as one sentence. Nothing is left behind.
    """
    partial = beside(folder)
    try:
        with as_checkpoint_error(f"the model cannot be saved in {str(folder)!r}"):
            # the name is nobody else's: one that is there is the answer to a request that was asked twice
            partial.mkdir(parents=True, exist_ok=True)
            yield partial
            if folder.is_dir():
                folder.rmdir()
            move(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def new_file(file: Path) -> Iterator[Path]:
    """A path to write one file to; otherwise as `new_folder`."""
    with as_checkpoint_error(f"the model cannot be saved as {str(file)!r}"):
        file.parent.mkdir(parents=True, exist_ok=True)
        with replaced(file) as partial:
            yield partial
            # asked again: nothing that has appeared meanwhile may be overwritten
            _require_free(file)


@contextmanager
def as_checkpoint_error(what: str) -> Iterator[None]:
    """Turns what transformers, safetensors or the disk raise into one sentence."""
    try:
        yield
    except (CheckpointError, ModelError) as error:
        raise CheckpointError(f"{what}: {error}") from error
    except GpruneError:
        raise
    except Exception as error:
        raise CheckpointError(f"{what}: {one_line(error)}") from error


def _require_free(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{str(target)!r} already holds something: choose a new folder or file name")
