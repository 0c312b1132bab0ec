"""Reads runs and records from the cache; the only place of the pages that touches files of results.

Records are shared between sessions as read-only memory maps. Every cache here is keyed by strings alone:
a key in the store names its content, so nothing that is cached can go stale.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import streamlit as st

from gprune import records
from gprune.analysis import thresholds
from gprune.errors import GpruneError, SettingsError, StoreError
from gprune.records import ModelShape, ModelSize
from gprune.store import Store, default_cache
from gprune.study import ReliabilitySettings, Study, from_dict
from gprune.views.frame import stages
from gprune.views.frame.chart_style import label
from gprune.views.frame.text import short

Record = TypeVar("Record")
_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        records.Tokens,
        records.UnitScores,
        records.RankDrift,
        records.Partition,
        records.Agreement,
        records.ModuleStatistics,
        records.AdaptedScores,
        records.PruningMasks,
        records.LearningHistory,
        records.Perplexity,
    )
}


class MissingResultError(StoreError):
    """A page needs a result that its run does not have."""

    def __init__(self, stage: str) -> None:
        """Names the missing stage."""
        super().__init__(f"“{stages.title(stage)}” is not there yet")
        self.stage = stage


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A run whose record cannot be used."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """One run as its record stands now."""

    root: str
    """the cache folder"""
    name: str
    """name of the run's folder"""
    record: dict[str, Any]
    """what run.json holds"""
    study: Study
    """the study behind it"""

    @property
    def state(self) -> str:
        """running, done, failed or cancelled, as the run last wrote it."""
        return str(self.record.get("state", ""))

    @property
    def stages(self) -> dict[str, dict[str, Any]]:
        """Finished stages by name."""
        return cast("dict[str, dict[str, Any]]", self.record["stages"])

    @property
    def shape(self) -> ModelShape | None:
        """Sizes of the model, once known."""
        values = self.record.get("shape")
        return ModelShape(**values) if values else None

    @property
    def size(self) -> ModelSize | None:
        """Parameters and biases of the model, once known."""
        values = self.record.get("size")
        return ModelSize(**values) if values else None

    @property
    def complete(self) -> bool:
        """Whether it ran to its end, or as far as it was asked to."""
        return self.state == "done" and (bool(self.record.get("result")) or self.stopped_early)

    @property
    def stopped_early(self) -> bool:
        """Whether it was only asked to go a part of the way, as far as drift or agreement."""
        early = str(self.record.get("until", "all")) in ("drift", "adapted", "agreement", "masks")
        return early and not self.record.get("result")

    @property
    def is_demo(self) -> bool:
        """Whether the bundled model was run."""
        return self.study.model == "demo"

    def has(self, *names: str) -> bool:
        """Whether all these stages are finished."""
        return all(name in self.stages for name in names)

    def key(self, name: str) -> str:
        """Content key of a stage.

        Raises:
            MissingResultError: the run has not come that far.
        """
        if name not in self.stages:
            raise MissingResultError(name)
        return str(self.stages[name]["key"])

    def load(self, name: str, kind: type[Record]) -> Record:
        """The record of a stage.

        Raises:
            MissingResultError: the run has not come that far.
            StoreError: the result is damaged.
        """
        key = self.key(name)
        return cast(Record, record(self.root, str(self.stages[name]["stage"]), key, kind.__name__))

    def masks(self) -> dict[str, records.PruningMasks]:
        """Masks that are there, by method."""
        methods = [name.removeprefix("masks_") for name in self.stages if name.startswith("masks_")]
        order = sorted(methods, key=lambda method: (method != "gprune", method))
        return {method: self.load(f"masks_{method}", records.PruningMasks) for method in order}


def labels(runs: list[Run]) -> dict[str, str]:
    """Readable names of runs, by the name of their folder.

    Name or model, the state of those that are not done, what is not the default, metric, kept share and a
    short hash that keeps all apart: what tells runs apart comes early, where a narrow sidebar shows it.
    """
    return {run.name: _label(run) for run in runs}


def _label(run: Run) -> str:
    study = run.study
    parts = [study.name or short(study.model)]
    if run.state != "done":
        parts.append(run.state or "state unknown")
    rule = thresholds.described(study.reliability)
    if study.reliability != ReliabilitySettings() and rule not in parts[0]:
        parts.append(rule)
    if study.seed:
        parts.append(f"seed {study.seed}")
    parts += [label(study.metric), f"keep {100 * study.retention:.3g} %", run.name.rsplit("-", 1)[-1][:6]]
    return " · ".join(parts)


def root() -> str:
    """The cache folder that the app looks at."""
    return str(default_cache().resolve())


@st.cache_resource(max_entries=256, show_spinner=False)
def record(root: str, stage: str, key: str, kind: str) -> Any:
    """One record of the store, shared by all sessions, read-only.

    Raises:
        StoreError: the result is absent or damaged.
    """
    try:
        return Store(Path(root)).get(stage, key, _KINDS[kind])
    except GpruneError:
        raise
    except (KeyError, ValueError, TypeError, IndexError, OSError) as error:
        folder = Path(root) / stage / key
        raise StoreError(
            f"the result in {folder} is damaged ({error}): delete this folder and run the study again"
        ) from error


def all_runs(root: str) -> tuple[list[Run], list[Unreadable]]:
    """Every run of a cache, the latest started first, and those that cannot be read."""
    good: list[Run] = []
    bad: list[Unreadable] = []
    for path in sorted((Path(root) / "runs").glob("*/run.json")):
        try:
            status = path.stat()
        except OSError:
            continue
        values, study, reason = _read(str(path), status.st_mtime_ns, status.st_size)
        if values is None or study is None:
            bad.append(Unreadable(path.parent.name, reason))
        else:
            good.append(Run(root, path.parent.name, values, study))
    good.sort(key=lambda run: (str(run.record.get("started", "")), run.name), reverse=True)
    return good, bad


@st.cache_resource(max_entries=1024, show_spinner=False)
def _read(path: str, changed: int, size: int) -> tuple[dict[str, Any] | None, Study | None, str]:
    """Record and study of a run, or why there is none; read again only when the file has changed."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return None, None, f"{path} is not readable JSON ({error})"
    reason = _fault(values)
    if reason:
        return None, None, f"{path} {reason}"
    try:
        return values, from_dict(values["study"]), ""
    except SettingsError as error:
        return None, None, f"{path} holds a study of another version: {error}"


def _fault(values: Any) -> str:
    """What is wrong with the form of a run's record; empty if nothing is."""
    if not isinstance(values, dict):
        return "holds no object"
    for name in ("study", "stages"):
        if not isinstance(values.get(name), dict):
            return f"lacks the field {name!r}"
    for name, stage in values["stages"].items():
        if not isinstance(stage, dict) or not isinstance(stage.get("key"), str) or "stage" not in stage:
            return f"lacks the key of the stage {name!r}"
    shape = values.get("shape")
    expected = set(ModelShape.__dataclass_fields__)
    if shape is not None and (not isinstance(shape, dict) or set(shape) != expected):
        return "holds a model shape of another version"
    return ""
