"""Stages of a study, their results in a cache, and the runs that compute them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gprune.pipeline.running import opened as opened
    from gprune.pipeline.running import run as run


def __getattr__(name: str) -> Any:
    """Load `run` and `opened` at their first use: the app reads runs without what computes them."""
    if name not in ("run", "opened"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gprune.pipeline import running

    return getattr(running, name)
