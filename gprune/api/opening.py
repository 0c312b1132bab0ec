"""Run studies and open runs from a notebook or a script."""

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
    from gprune.pipeline.record import Listener

NameOrPath = str | os.PathLike[str]


def run(
    study: Study | dict[str, Any] | NameOrPath,
    *,
    until: str = "all",
    cache: NameOrPath | None = None,
    progress: bool = True,
    anyway: bool = False,
) -> Run:
    """Run a study and return the run. Stages whose results are cached are not computed again.

    An interrupted call keeps every finished stage; the next call continues there.

    Args:
        study: study, its fields as plain values, a study file, or `demo` for the bundled study.
        until: last result to compute: drift, adapted, agreement, masks, perplexity or all.
        cache: cache folder; by default GPRUNE_CACHE or the folder `cache`.
        progress: show a progress bar, on a terminal and in a notebook.
        anyway: start even if the estimated memory does not fit.

    Raises:
        GpruneError: the same errors, with the same messages, as the command line.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", until="drift", progress=False)
        >>> float(run.drift["drift"].max()) <= 1
        True
    """
    from gprune import pipeline

    parsed, store = as_study(study), store_in(cache)
    require_choice("until", until, UNTIL)
    name = run_name(parsed)
    listener: contextlib.AbstractContextManager[Listener] = (
        bar(store, name) if progress else contextlib.nullcontext(lambda *_: None)
    )
    # stdout belongs to the caller, and libraries print while they work
    with listener as on_event, contextlib.redirect_stdout(sys.stderr):
        pipeline.run(parsed, store, on_event, until, anyway)
    # the caller has passed the study, so code that its trust_remote_code allows is trusted
    return _load_from(store.folder("runs", name), trusted=True)


def open(run: NameOrPath, *, cache: NameOrPath | None = None, trust_remote_code: bool = False) -> Run:
    """Open a run of a cache, whatever its state; nothing is computed.

    Args:
        run: name of the run, as `runs` lists it, or its folder.
        cache: cache folder; by default GPRUNE_CACHE or the folder `cache`.
        trust_remote_code: allow `tokenizer` and `model` to run Python code that comes with the model, if the run's
            study has this setting too. Use it only if you trust the authors of the run and of the model.

    Raises:
        StoreError: there is no such run.
        UnreadableError: the record of the run is damaged.
        SettingsError: the record was written by another version.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", until="drift", progress=False)
        >>> gprune.open(run.name).study == run.study
        True
    """
    text = _as_text(run, "the run")
    folder = safe_parsing.path(text, "the run")
    if folder.name != text and (folder / "run.json").is_file():
        store, name = Store(folder.resolve().parent.parent), folder.resolve().name
    else:
        store, name = store_in(cache), text
    run_records.require_record(store, name)
    return _load_from(store.folder("runs", name), trust_remote_code)


def runs(*, cache: NameOrPath | None = None) -> pd.DataFrame:
    """Return one row per run of a cache, the latest first. The default cache is GPRUNE_CACHE or the folder `cache`.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", until="drift", progress=False)
        >>> run.name in set(gprune.runs()["run"])
        True
    """
    fields = ("name", "model", "metric", "retention", "primary", "auxiliary", "seed")
    rows = []
    store = store_in(cache)
    for name, record in run_records.read_all(store):
        study = record["study"]
        row = {"run": name, "state": run_records.current_state(store.root, record), "started": record.get("started")}
        rows.append(row | {field: study.get(field) for field in fields})
    return pd.DataFrame(rows, columns=["run", "state", "started", *fields])


def as_study(study: Study | dict[str, Any] | NameOrPath) -> Study:
    """Return a study given as an object, its fields, its file or its name. Raises SettingsError if it is not valid."""
    if isinstance(study, Study):
        return study
    if isinstance(study, dict):
        return from_dict(study)
    if not isinstance(study, str | os.PathLike):
        raise SettingsError(
            f"a study must be a gprune.Study, its fields by name, or a file (got {safe_parsing.quote(study)})"
        )
    from gprune.study.demo import read_study

    return read_study(str(os.fspath(study)))


def store_in(cache: NameOrPath | None) -> Store:
    """Return the store of a cache folder. Raises StoreError if the path is not valid on this system."""
    if cache is None:
        return Store()
    with safe_parsing.reraise_as(StoreError):
        return Store(safe_parsing.path(_as_text(cache, "the cache"), "the cache"))


def _as_text(path: NameOrPath, label: str) -> str:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise StoreError(f"{label} must be a name or a folder (got {safe_parsing.quote(path)})")
    return text


def _load_from(folder: Path, trusted: bool) -> Run:
    # run_named also reads the other runs of the cache, which can have later measurements of the same models
    return Run(run_named(str(folder.parent.parent), folder.name), trusted)


_WIDEST = 60
"""maximum number of characters of the text next to the bar"""
_FORM = "{percentage:3.0f}%|{bar}| {desc} [{elapsed}]"


@contextmanager
def bar(store: Store, run: str) -> Iterator[Listener]:
    """Yield a listener that draws a progress bar."""
    with warnings.catch_warnings():
        # no warning that a notebook without ipywidgets gets the bar of a terminal
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

        progress_bar: Any = tqdm(total=1, bar_format=_FORM, file=sys.stderr, desc="starting", miniters=0)
    shares: dict[str, float] = {}
    """finished share of each stage of the run, 0 to 1, by name"""

    def listener(stage: str, done: int, total: int, message: str) -> None:
        if isinstance(message, Notice):
            # a notice stays above the bar
            progress_bar.write(f"{stage}: {message}", file=sys.stderr)
            return
        record = None if shares else run_records.read(store, run)
        if record and record.get("state") == "running":
            # the run writes its stages into its record before the first event
            shares.update(dict.fromkeys(record.get("expected") or {}, 0.0))
            progress_bar.total = max(len(shares), 1)
        if stage in shares:
            shares[stage] = max(shares[stage], done / max(total, 1))
        text = f"{stage}: {message}" if message and not isinstance(message, Reused) else stage
        progress_bar.set_description_str(sentence(text, _WIDEST), refresh=False)
        progress_bar.update(sum(shares.values()) - progress_bar.n)

    try:
        yield listener
        progress_bar.set_description_str("done", refresh=False)
        progress_bar.n = progress_bar.total
        progress_bar.refresh()
    finally:
        progress_bar.close()
