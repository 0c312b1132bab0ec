"""The bar that a run draws, on a terminal and in a notebook: one for all its stages."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gprune.pipeline import runs
from gprune.store import Store
from gprune.system.progress import Notice, Reused
from gprune.system.safe_parsing import sentence

if TYPE_CHECKING:
    from gprune.pipeline import Listener

_WIDEST = 60
"""characters beside the bar"""
_FORM = "{percentage:3.0f}%|{bar}| {desc} [{elapsed}]"


@contextmanager
def bar(store: Store, run: str) -> Iterator[Listener]:
    """What draws a bar while it is told of stages."""
    with warnings.catch_warnings():
        # without ipywidgets a notebook gets the bar of a terminal, which is said in the documentation
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

        # drawn when it is told of something, and no oftener than people see
        drawn: Any = tqdm(total=1, bar_format=_FORM, file=sys.stderr, desc="starting", miniters=0)
    told = _Told(store, run, drawn)
    try:
        yield told
        drawn.set_description_str("done", refresh=False)
        drawn.n = drawn.total
        drawn.refresh()
    finally:
        drawn.close()


class _Told:
    """Hears of stages, and moves the bar."""

    def __init__(self, store: Store, run: str, drawn: Any) -> None:
        self._store, self._run, self._drawn = store, run, drawn
        self._stages: dict[str, float] = {}
        """the share of each stage of the run that is done, by name"""

    def __call__(self, stage: str, done: int, total: int, message: str) -> None:
        if isinstance(message, Notice):
            # how a result was made stays to be read when the bar has gone on
            self._drawn.write(f"{stage}: {message}", file=sys.stderr)
            return
        if not self._stages:
            # the run has written them into its record by then
            record = runs.read(self._store, self._run) or {}
            if record.get("state") == "running":
                self._stages = dict.fromkeys(record.get("expected") or {}, 0.0)
                self._drawn.total = max(len(self._stages), 1)
        if stage in self._stages:
            self._stages[stage] = max(self._stages[stage], done / max(total, 1))
        words = f"{stage}: {message}" if message and not isinstance(message, Reused) else stage
        self._drawn.set_description_str(sentence(words, _WIDEST), refresh=False)
        self._drawn.update(sum(self._stages.values()) - self._drawn.n)
