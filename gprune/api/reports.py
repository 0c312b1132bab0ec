"""The report of a run, as the app's page makes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gprune import untrusted
from gprune.errors import SettingsError
from gprune.untrusted import quoted
from gprune.views.frame.loaders import Run


def report(run: Run, file: str | os.PathLike[str], cards: Sequence[str]) -> Path:
    """Writes the report of a run; see `gprune.Run.report`."""
    from gprune.views.outside import outside

    with outside():
        # loads Streamlit
        from gprune.views.report import making

        if isinstance(cards, str) or not all(isinstance(name, str) for name in cards):
            raise SettingsError(f"cards must be names of figures (got {quoted(cards)})")
        path = untrusted.path(os.fspath(file), "the file")
        making.require_place(path)
        making.save(making.make(run, tuple(cards)), path)
    return path
