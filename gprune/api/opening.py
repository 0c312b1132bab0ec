"""Studies are run, and runs found again, from a notebook or a script."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from gprune.api.results import Run
from gprune.pipeline import runs as run_records
from gprune.pipeline.runs.opened import run_named
from gprune.pipeline.stages import UNTIL
from gprune.store import Store
from gprune.study import Study, from_dict, run_name
from gprune.study.settings import require_choice
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError, StoreError
from gprune.system.progress import Notice, Reused
from gprune.system.safe_parsing import sentence

if TYPE_CHECKING:
    from gprune.pipeline import Listener

Place = str | os.PathLike[str]


def run(
    study: Study | dict[str, Any] | Place,
    *,
    until: str = "all",
    cache: Place | None = None,
    progress: bool = True,
    anyway: bool = False,
) -> Run:
    """Runs a study, every stage in order, reusing what is there, and gives the run with what it has come to.

    Stopped by the keyboard, by the button of a notebook or by force, it keeps every finished stage: called
    again, it goes on there.

    Args:
        study: a study, its fields as plain values, a study file, or `demo` for the bundled one.
        until: the last thing wanted: positions, drift, adapted, agreement, masks, perplexity or all.
        cache: the cache folder; GPRUNE_CACHE, or the default one, where left out.
        progress: whether a bar is drawn, on a terminal and in a notebook.
        anyway: whether it starts even if the estimate says that it cannot fit in memory.

    Raises GpruneError: the same errors as the command line, with the same sentences.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", until="drift", progress=False)
        >>> float(run.drift["drift"].max()) <= 1
        True
    """
    from gprune import pipeline

    chosen, store = as_study(study), store_in(cache)
    require_choice("until", until, UNTIL)
    name = run_name(chosen)
    listener: contextlib.AbstractContextManager[Listener] = (
        bar(store, name) if progress else contextlib.nullcontext(_silent)
    )
    # what libraries print while they work is no result of this call
    with listener as heard, contextlib.redirect_stdout(sys.stderr):
        pipeline.run(chosen, store, heard, until, anyway)
    # whoever calls has given the study, and with it what may be run
    return _loaded_from(store.folder("runs", name), trusted=True)


def open(run: Place, *, cache: Place | None = None, trust_remote_code: bool = False) -> Run:
    """Opens a run that is in a cache, whatever its state; nothing is computed.

    Args:
        run: its name, as `runs` lists it, or its folder.
        cache: the cache folder; GPRUNE_CACHE, or the default one, where left out.
        trust_remote_code: whether `tokenizer` and `model` may run Python code that comes with the model,
            where the run's study says so: only if you trust whoever wrote the run and the model.

    Raises:
        StoreError: there is no such run.
        UnreadableError: its record is damaged.
        SettingsError: its record is of another version.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", until="drift", progress=False)
        >>> gprune.open(run.name).study == run.study
        True
    """
    text = _typed(run, "the run")
    folder = safe_parsing.path(text, "the run")
    if folder.name != text and (folder / "run.json").is_file():
        store, name = Store(folder.resolve().parent.parent), folder.resolve().name
    else:
        store, name = store_in(cache), text
    run_records.required(store, name)
    return _loaded_from(store.folder("runs", name), trust_remote_code)


def runs(*, cache: Place | None = None) -> pd.DataFrame:
    """The runs of a cache, the latest written first; of GPRUNE_CACHE, or the default one, where left out.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", until="drift", progress=False)
        >>> run.name in set(gprune.runs()["run"])
        True
    """
    fields = ("name", "model", "metric", "retention", "primary", "auxiliary", "seed")
    rows = []
    for name, record in run_records.every(store_in(cache)):
        study = record["study"]
        row = {"run": name, "state": run_records.standing(record), "started": record.get("started")}
        rows.append(row | {field: study.get(field) for field in fields})
    return pd.DataFrame(rows, columns=["run", "state", "started", *fields])


def as_study(study: Study | dict[str, Any] | Place) -> Study:
    """A study, however it is given. Raises SettingsError where it is none."""
    if isinstance(study, Study):
        return study
    if isinstance(study, dict):
        return from_dict(study)
    if not isinstance(study, str | os.PathLike):
        raise SettingsError(
            f"a study is a gprune.Study, its fields by name, or a file (got {safe_parsing.quoted(study)})"
        )
    from gprune.study.demo import named

    return named(str(os.fspath(study)))


def store_in(cache: Place | None) -> Store:
    """The store of a cache folder; StoreError where no folder of this system can have that name."""
    if cache is None:
        return Store()
    with safe_parsing.refused_as(StoreError):
        return Store(safe_parsing.path(_typed(cache, "the cache"), "the cache"))


def _typed(place: Place, what: str) -> str:
    """A name or a path as text; StoreError where it is neither."""
    text = os.fspath(place) if isinstance(place, str | os.PathLike) else None
    if not isinstance(text, str):
        raise StoreError(f"{what} is a name or a folder (got {safe_parsing.quoted(place)})")
    return text


def _silent(stage: str, done: int, total: int, message: str) -> None:
    """Listens to nothing."""


def _loaded_from(folder: Path, trusted: bool) -> Run:
    """The run in a folder of a cache; SettingsError where its record cannot be used."""
    # what its models were measured on later stands in other runs
    return Run(run_named(str(folder.parent.parent), folder.name), trusted)


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
            record = run_records.read(self._store, self._run) or {}
            if record.get("state") == "running":
                self._stages = dict.fromkeys(record.get("expected") or {}, 0.0)
                self._drawn.total = max(len(self._stages), 1)
        if stage in self._stages:
            self._stages[stage] = max(self._stages[stage], done / max(total, 1))
        words = f"{stage}: {message}" if message and not isinstance(message, Reused) else stage
        self._drawn.set_description_str(sentence(words, _WIDEST), refresh=False)
        self._drawn.update(sum(self._stages.values()) - self._drawn.n)
