"""Stages of a study, the cache with their results, and the runs that compute them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gprune.pipeline.running import opened as opened
    from gprune.pipeline.running import run as run


def __getattr__(name: str) -> Any:
    """Import `run` and `opened` on first use, because the app only reads runs and needs no code that computes them."""
    if name not in ("run", "opened"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gprune.pipeline import running

    return getattr(running, name)
