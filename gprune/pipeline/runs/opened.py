"""Runs and their results, read from the cache for the pages, which read result files only through this module.

Records are shared between sessions and read-only. The keys of the in-memory caches in this module contain the key of a
result, which identifies its content, or a stamp of the files. Cached values can therefore not become outdated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from gprune import records
from gprune.pipeline import runs, stages
from gprune.pipeline.stages import Graph, Results, Stage
from gprune.pipeline.stages.inputs import from_plain, missing_texts
from gprune.pipeline.stages.results import Declaration
from gprune.records import ModelShape, ModelSize
from gprune.store import Store, default_cache
from gprune.store.checksums import Stamp, stamp
from gprune.study import Study, from_dict
from gprune.study.methods import of_masks, register_recorded
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError, StoreError, UnreadableError
from gprune.system.units import seconds_since_1970

R = TypeVar("R")
T = TypeVar("T")
P = ParamSpec("P")
_RECORD_TYPES = {kind.record.__name__: kind.record for kind in stages.KINDS.values() if kind.record is not None}


class MissingResultError(StoreError):
    """A page needs a result that its run does not have."""

    def __init__(self, title: str) -> None:
        """Build the error for the missing stage with this title."""
        super().__init__(f"“{title}” is not there yet")
        self.title = title


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A run whose record cannot be used."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run with its current record; it is equal only to itself."""

    root: str
    """the cache folder"""
    name: str
    """name of the run's folder"""
    record: dict[str, Any]
    """content of run.json"""
    study: Study
    """the study of the run"""
    graph: Graph
    """its stages, with the digests of the inputs that the run has read"""
    about: runs.RunNotes = runs.RunNotes()
    """the user's notes on the run"""
    complaint: str = ""
    """reason why the notes cannot be read; empty if they can be read"""

    @property
    def masks_of(self) -> dict[str, str]:
        """Return the name of the masks of each pruning method of the study, by method."""
        methods = (self.graph.methods[name] for name in self.study.methods)
        return {method.name: method.masks for method in methods if method.decision != "none"}

    @property
    def title(self) -> str:
        """Return the user's name of the run, or else the name of its study; may be empty."""
        return self.about.name or self.study.name

    @property
    def state(self) -> str:
        """Return running, done, failed, cancelled or interrupted; interrupted if its process has died."""
        return runs.current_state(Path(self.root), self.record)

    @property
    def stages(self) -> dict[str, dict[str, Any]]:
        """Return the entries of finished stages, by name."""
        return cast("dict[str, dict[str, Any]]", self.record["stages"])

    @property
    def shape(self) -> ModelShape | None:
        """Return the sizes of the model, or None before they are computed."""
        return self.find(stages.shape)

    @property
    def size(self) -> ModelSize | None:
        """Return the parameter counts of the model, or None before they are computed."""
        return self.find(stages.size)

    @property
    def unavailable(self) -> dict[str, dict[str, Any]]:
        """Return key and reason of each failed stage, by stage name."""
        return cast("dict[str, dict[str, Any]]", self.record.get("unavailable") or {})

    @property
    def missing_tasks(self) -> Mapping[str, str]:
        """Return the reasons why zero-shot tasks could not be measured, by task."""
        return self.record.get("missing_tasks") or {}

    @property
    def expected_seconds(self) -> dict[str, float]:
        """Return the seconds of every stage as expected when the run began, by name, in order."""
        return self.record.get("expected") or {}

    @property
    def complete(self) -> bool:
        """Return True if the run reached its last stage, which may be an early one set by `until`."""
        return self.state == "done" and (bool(self.record.get("result")) or self.stopped_early)

    @property
    def stopped_early(self) -> bool:
        """Return True if the run was set to end before perplexities, for example after drift."""
        early = self.record.get("until") in stages.UNTIL[: stages.UNTIL.index("perplexity")]
        return early and not self.record.get("result")

    @property
    def outdated(self) -> int:
        """Return the number of results in the record whose formula or layout has changed since; they are not used."""
        current_stages = stages.stages_by_name(self.graph)
        current_keys = {name: current_stages[name].key if name in current_stages else "" for name in self.stages}
        return sum(entry["key"] != current_keys[name] for name, entry in self.stages.items())

    @property
    def packed(self) -> bool:
        """Return True if the run was read from a pack, without model and texts."""
        return isinstance(self.record.get("packed"), dict)

    @property
    def left_out(self) -> dict[str, str]:
        """Return the reason why the run's pack left out a result, by stage name; empty if it was not unpacked."""
        return dict((self.record.get("packed") or {}).get("left_out") or {})

    @property
    def results(self) -> Results:
        """Return the results of the study, including those that other runs computed."""
        return Results(_open_store(self.root), self.graph)

    def has(self, declare: Declaration[P, Any], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Return True if a result exists: `run.has(stages.scores, "primary")`."""
        return self.has_result(declare(self.graph, *args, **kwargs))

    def has_result(self, stage: Stage[Any]) -> bool:
        """Return True if a stage's result exists.

        A result that the run itself has computed counts as existing even if it is damaged or lost, because reading it
        then reports the damage.
        """
        entry = self.stages.get(stage.name)
        is_recorded = entry is not None and entry["key"] == stage.key and stage.name not in self.left_out
        return bool(stage.key) and (is_recorded or self.results.holds(stage))

    def key(self, declare: Declaration[P, Any], *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the content key of a result. Raises MissingResultError if no run has computed it yet."""
        return self._require_result(declare(self.graph, *args, **kwargs)).key

    def load(self, declare: Declaration[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return a record: `run.load(stages.masks, "flap")`.

        Raises MissingResultError if the run has not computed it yet, StoreError if the result is damaged.
        """
        return self.read(declare(self.graph, *args, **kwargs))

    def find(self, declare: Declaration[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Return a record like `load`, or None if no run has computed it yet."""
        stage = declare(self.graph, *args, **kwargs)
        return self.read(stage) if self.has_result(stage) else None

    def require(self, value: T | None, declare: Declaration[P, Any], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return `value`, which depends on a declared result. Raises MissingResultError if `value` is empty."""
        if not value:
            raise MissingResultError(declare(self.graph, *args, **kwargs).title)
        return value

    def read(self, stage: Stage[R]) -> R:
        """Return the record of a stage; for errors see `load`."""
        record_type = stages.KINDS[self._require_result(stage).kind].record
        return cast(R, record(self.root, stage.kind, stage.key, record_type.__name__ if record_type else ""))

    def _require_result(self, stage: Stage[R]) -> Stage[R]:
        if not self.has_result(stage):
            raise MissingResultError(stage.title)
        return stage

    @property
    def methods_with_masks(self) -> list[str]:
        """Return the methods whose masks exist, GPrune first."""
        methods = [name for name, masks in self.masks_of.items() if self.has(stages.masks, masks)]
        return sorted(methods, key=lambda name: name != "gprune")

    @property
    def mask_names(self) -> list[str]:
        """Return the names of the existing masks: GPrune's first, controls last."""
        controls = {name: of_masks(name, self.graph.methods).control for name in self.masks_of.values()}
        order = sorted(controls, key=lambda name: (name != "gprune", controls[name], name))
        return [name for name in order if self.has(stages.masks, name)]

    def masks(self) -> dict[str, records.PruningMasks]:
        """Return the existing masks by name. Raises StoreError if one is damaged."""
        return {name: self.load(stages.masks, name) for name in self.mask_names}

    def agreement(self) -> records.Agreement:
        """Return the existing comparisons of modules. Raises MissingResultError if there is none."""
        comparisons = stages.agreements(self.graph)
        agreements = {name: self.read(stage) for name, stage in comparisons.items() if self.has_result(stage)}
        if not agreements:
            raise MissingResultError("module agreement")
        return records.Agreement.of(agreements)


def root() -> str:
    """Return the cache folder of the app."""
    return str(default_cache().resolve())


@lru_cache(maxsize=16)
def _open_store(root: str) -> Store:
    # cached, because a page opens the store about a hundred times, and resolving a path reads all its parent folders
    return Store(Path(root))


def record(root: str, stage: str, key: str, record_type: str) -> Any:
    """Return a read-only record of the store, which all sessions share; `record_type` is the name of its class.

    The files are checked on every call: a record that another program has changed in place is read again. Without this
    check, access to a memory map of a truncated file would crash the whole app. Raises StoreError if the result is
    absent or damaged.
    """
    return _load_record(root, stage, key, record_type, _open_store(root).stamp(stage, key))


# enough for four large runs, each with 233 records
@lru_cache(maxsize=1024)
def _load_record(root: str, stage: str, key: str, record_type: str, _: str) -> Any:
    # the stamp is part of the cache key, so a changed file is read again
    return _open_store(root).get(stage, key, _RECORD_TYPES[record_type])


@lru_cache(maxsize=1024)
def _read_run(path: Path, _: Stamp) -> tuple[dict[str, Any], Graph] | str:
    """Return record and graph of a run, or the reason why they cannot be read."""
    try:
        record = runs.load(path)
        return record, recorded_graph(record, str(path), require_inputs=False)
    except UnreadableError as error:
        return str(error)


def recorded_graph(record: dict[str, Any], source: str, *, require_inputs: bool = True) -> Graph:
    """Return the stages of a run with the digests in its record; neither model nor texts are read.

    `source` names the record in an error. Raises UnreadableError if the study in the record is of another version, or
    if some digests are missing. A record without any digests is accepted unless `require_inputs` is True.
    """
    try:
        register_recorded(record)
        study = from_dict(record["study"])
    except SettingsError as error:
        raise UnreadableError(safe_parsing.sentence(f"{source} holds a study of another version: {error}")) from error
    inputs = from_plain((record.get("provenance") or {}).get("inputs"))
    missing_text = min(missing_texts(study, inputs), default="") if inputs else ""
    if missing_text:
        raise UnreadableError(f"{source} has no digest of the text {missing_text!r}")
    if inputs is None and require_inputs:
        raise UnreadableError(f"{source} has no digests of the run’s inputs: run the study again")
    return Graph(study, inputs, failures=runs.failures(record))


def all_runs(root: str) -> tuple[list[Run], list[Unreadable]]:
    """Return every run of a cache, latest started first, and the runs whose records cannot be used."""
    readable, unreadable = list[Run](), list[Unreadable]()
    for path in sorted((Path(root) / "runs").glob(f"*/{runs.RECORD}")):
        try:
            content = _read_run(path, stamp(path))
        except OSError:
            continue
        name = path.parent.name
        if isinstance(content, str):
            unreadable.append(Unreadable(name, content))
        else:
            record, graph = content
            readable.append(Run(root, name, record, graph.study, graph, *runs.read_notes(path.parent)))
    readable.sort(key=lambda run: (seconds_since_1970(run.record.get("started")), run.name), reverse=True)
    return readable, unreadable


def run_named(root: str, name: str) -> Run:
    """Return a run of a cache. Raises SettingsError if it was deleted or its record cannot be used."""
    readable, damaged = all_runs(root)
    run = next((run for run in readable if run.name == name), None)
    if run is None:
        reasons = (unreadable.reason for unreadable in damaged if unreadable.name == name)
        raise SettingsError(next(reasons, f"the run {name!r} was deleted in the meantime: choose another one"))
    return run
