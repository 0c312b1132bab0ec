"""The report of a run, as the app's page makes it."""

import os
from collections.abc import Sequence
from pathlib import Path

from gprune.pipeline.runs.opened import Run
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError
from gprune.system.safe_parsing import quoted


def report(run: Run, file: str | os.PathLike[str], cards: Sequence[str]) -> Path:
    """Writes the report of a run; see `gprune.Run.report`."""
    # loads plotly
    from gprune.app.report import making

    if isinstance(cards, str) or not all(isinstance(name, str) for name in cards):
        raise SettingsError(f"cards must be names of figures (got {quoted(cards)})")
    path = safe_parsing.path(os.fspath(file), "the file")
    making.require_place(path)
    making.save(making.make(run, tuple(cards)), path)
    return path
