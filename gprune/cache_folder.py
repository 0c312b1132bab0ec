"""Answers: where is the cache, and what does it mean when the system refuses something there?"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from gprune import untrusted
from gprune.errors import StoreError


def default_cache() -> Path:
    """The cache folder: GPRUNE_CACHE, or `cache/` in the project.

    Raises:
        StoreError: no folder of this system can have the name in GPRUNE_CACHE.
    """
    chosen = os.environ.get("GPRUNE_CACHE")
    if not chosen:
        return Path(__file__).resolve().parents[1] / "cache"
    with untrusted.refused_as(StoreError):
        return untrusted.path(chosen, "GPRUNE_CACHE").resolve()


def is_full(error: OSError) -> bool:
    """Whether an error means a full disk; numpy reports a short write without the system's error number."""
    short = error.errno is None and "requested and" in str(error) and "written" in str(error)
    return short or error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_refused(error: OSError) -> bool:
    """Whether an error means that this account may not write."""
    return error.errno in (errno.EACCES, errno.EROFS, errno.EPERM)


def explain(error: OSError, folder: Path) -> StoreError:
    """Turns an operating system error about the cache into one sentence with the remedy."""
    remedy = "or set GPRUNE_CACHE to another folder"
    if is_full(error):
        return StoreError(f"the disk that holds the cache {folder} is full: free some space, {remedy}")
    if is_refused(error):
        return StoreError(
            f"the cache {folder} cannot be written (read-only): change its permissions, {remedy}"
        )
    return StoreError(f"the cache {folder} cannot be used ({error}): set GPRUNE_CACHE to another folder")
