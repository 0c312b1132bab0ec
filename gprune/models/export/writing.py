"""Write exports under a temporary name beside their target, and rename them when they are complete."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gprune.models.library_errors import one_line
from gprune.system import limits
from gprune.system.errors import CheckpointError, GpruneError, ModelError
from gprune.system.files import beside, replaced


def require_free_space(target: Path, size: int) -> None:
    """Raise CheckpointError if an absolute path is taken, or the disk has fewer bytes left than `size`."""
    _require_free(target)
    remedy = "free some space or choose another folder"
    limits.require_room(CheckpointError, "the model", size, target.parent, remedy)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to write into; it gets its name when the context ends without an error.

    `folder` is an absolute path that ``require_free_space`` has checked. Raises CheckpointError, one sentence, for
    any error inside. Nothing is left behind.
    """
    partial = beside(folder)
    try:
        with as_checkpoint_error(f"the model cannot be saved in {str(folder)!r}"):
            partial.mkdir(parents=True, exist_ok=True)
            yield partial
            if folder.is_dir():
                folder.rmdir()
            partial.replace(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def new_file(file: Path) -> Iterator[Path]:
    """Yield a path to write one file to; otherwise as `new_folder`."""
    with as_checkpoint_error(f"the model cannot be saved as {str(file)!r}"):
        file.parent.mkdir(parents=True, exist_ok=True)
        with replaced(file) as partial:
            yield partial
            _require_free(file)


@contextmanager
def as_checkpoint_error(context: str) -> Iterator[None]:
    """Turn errors of transformers, safetensors and the disk into a CheckpointError that starts with `context`."""
    try:
        yield
    except (CheckpointError, ModelError) as error:
        raise CheckpointError(f"{context}: {error}") from error
    except GpruneError:
        raise
    except Exception as error:
        raise CheckpointError(f"{context}: {one_line(error)}") from error


def _require_free(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{str(target)!r} already holds something: choose a new folder or file name")
