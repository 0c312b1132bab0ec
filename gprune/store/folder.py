"""The cache folder, and sentences for errors of the system there."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from gprune.system import installation, safe_parsing
from gprune.system.errors import StoreError

NAME = "gprune"
"""of the cache of an installed package, among the user's caches"""


def default_cache() -> Path:
    """Return the cache folder: GPRUNE_CACHE, else `cache/` in a checkout or a folder among the user's caches.

    Raises StoreError if no folder can have the name in GPRUNE_CACHE, or there is no home folder.
    """
    chosen = os.environ.get("GPRUNE_CACHE")
    with safe_parsing.reraise_as(StoreError):
        if chosen:
            return safe_parsing.path(chosen, "GPRUNE_CACHE").resolve()
        return _of_user() if installation.INSTALLED else installation.APP_FOLDER / "cache"


def _of_user() -> Path:
    # by the XDG Base Directory Specification only an absolute name counts
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    caches = chosen if chosen.startswith("/") else "~/.cache"
    return (safe_parsing.path(caches, "GPRUNE_CACHE is not set, and the user's cache folder") / NAME).resolve()


def require_folder(root: Path) -> None:
    """Raise StoreError if the cache or a parent of it exists and is not a folder."""
    existing = next((parent for parent in (root, *root.parents) if os.path.lexists(parent)), root.parent)
    if not existing.is_dir():
        raise StoreError(
            f"the cache {root} cannot be a folder, because {existing} is a file: set GPRUNE_CACHE to another "
            "folder, or move that file"
        )


def is_full(error: OSError) -> bool:
    """Return True if an error means a full disk; numpy reports a short write without the system's error number."""
    short = error.errno is None and "requested and" in str(error) and "written" in str(error)
    return short or error.errno in (errno.ENOSPC, errno.EDQUOT)


def store_error(error: OSError, folder: Path) -> StoreError:
    """Return the StoreError for an operating system error on the cache: one sentence with the remedy."""
    remedy = "or set GPRUNE_CACHE to another folder"
    if is_full(error):
        disk = f"the disk that holds the cache {folder}, or your quota on it,"
        return StoreError(f"{disk} is full: free some space, {remedy}")
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return StoreError(f"the cache {folder} cannot be written (read-only): change its permissions, {remedy}")
    return StoreError(f"the cache {folder} cannot be used ({error}): set GPRUNE_CACHE to another folder")


@contextlib.contextmanager
def explain_errors(folder: Path) -> Iterator[None]:
    """Raise an operating system error of the block as the StoreError of `store_error`."""
    try:
        yield
    except OSError as error:
        raise store_error(error, folder) from error
