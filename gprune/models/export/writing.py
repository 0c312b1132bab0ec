"""Write exports under a temporary name next to their target, and rename them when they are complete."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gprune.system import limits
from gprune.system.errors import CheckpointError, GpruneError, ModelError
from gprune.system.files import replace_file, temporary_path
from gprune.system.safe_parsing import sentence


def require_free_space(target: Path, size: int) -> None:
    """Raise CheckpointError if an absolute path is taken, or the disk has fewer bytes left than `size`."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{str(target)!r} already holds something: choose a new folder or file name")
    remedy = "free some space or choose another folder"
    limits.require_room(CheckpointError, "the model", size, target.parent, remedy)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to write into; it gets its name when the context ends without an error.

    `folder` is an absolute path that ``require_free_space`` has checked. Raises CheckpointError, one sentence, for
    any error inside. Nothing is left behind.
    """
    partial = temporary_path(folder)
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
        with replace_file(file) as partial:
            yield partial


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
        raise CheckpointError(f"{context}: {sentence(error, 200)}") from error
