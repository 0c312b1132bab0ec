"""The results of one study that a store has, looked up by the stages of its graph."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from gprune.pipeline.stages.choosing import choice
from gprune.pipeline.stages.graph import KINDS, Graph, Stage
from gprune.pipeline.stages.plan import execution_plan
from gprune.pipeline.stages.pruning import chosen_repairs, repairs
from gprune.records import Choice, Repair
from gprune.records.repairs import AUTO
from gprune.store import Store
from gprune.study.methods import METHODS
from gprune.system.errors import DamagedError

R = TypeVar("R")
P = ParamSpec("P")
Declaration = Callable[Concatenate[Graph, P], Stage[R]]
"""A function of gprune.pipeline.stages that declares a stage, as `drift` or `masks`."""


class Results:
    """The results of a study; one exists if its key does, whichever run computed it."""

    def __init__(self, store: Store, graph: Graph) -> None:
        """Bind a graph, with the digests of what it reads, to a store; nothing is read."""
        self.store, self.graph = store, graph

    def holds(self, stage: Stage[Any]) -> bool:
        """Return True if the result of this stage itself exists."""
        return bool(stage.key) and self.store.has(stage.kind, stage.key, KINDS[stage.kind].record)

    def record(self, stage: Stage[R]) -> R:
        """Return the record of a stage, with read-only arrays, or the path of a folder; all of it is checked.

        Raises StoreError if the result is absent or damaged.
        """
        kind, key = stage.kind, stage.key
        record = KINDS[kind].record
        record_read: Any = self.store.check(kind, key) if record is None else self.store.get(kind, key, record)
        return record_read

    def is_intact(self, stage: Stage[Any]) -> bool:
        """Return True if the result of this stage exists and is intact; all of it is read.

        Raises StoreError if it is there and cannot be read.
        """
        try:
            return self.holds(stage) and bool(self.store.check(stage.kind, stage.key, KINDS[stage.kind].record))
        except DamagedError:
            return False

    def plan(self, until: str) -> tuple[Stage[Any], ...]:
        """Return every stage that a run of the study as far as `until`, one of UNTIL, goes through."""
        return execution_plan(self.graph, until)

    def set_aside(self, stage: Stage[Any]) -> str:
        """Quarantine a damaged result, and return a notice of it.

        Raises StoreError if the cache cannot be written.
        """
        return self.store.set_aside(stage.kind, stage.key, KINDS[stage.kind].record)

    def has(self, declare: Declaration[P, Any], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Return True if the result of a declaration exists: `results.has(drift)`."""
        return self.holds(declare(self.graph, *args, **kwargs))

    def get(self, declare: Declaration[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the record of a declared stage: `results.get(scores, "auxiliary")`.

        Raises StoreError if the result is absent or damaged.
        """
        return self.record(declare(self.graph, *args, **kwargs))

    def details(self, stage: Stage[Any]) -> dict[str, Any]:
        """Return the details of a result: seconds, passes, versions; empty if it is absent."""
        return self.store.manifest(stage.kind, stage.key, KINDS[stage.kind].record) or {}

    def model_folder(self, stage: Stage[Any]) -> Path:
        """Return the folder of a pruned model that a checkpoint's stage has written."""
        return self.store.folder(stage.kind, stage.key) / "model"


def find_choice(results: Results, method: str) -> Choice | None:
    """Return the choice for a method; None if there is none, or not yet.

    Raises StoreError if the record is damaged.
    """
    if AUTO not in repairs(results.graph, method):
        return None
    stage = choice(results.graph, METHODS[method].masks)
    return results.record(stage) if results.holds(stage) else None


def applied_repairs(results: Results, method: str) -> tuple[Repair, ...]:
    """Return the repairs of the weights that a method keeps; AUTO if they are yet to be chosen."""
    selection = find_choice(results, method)
    if selection is None:
        return repairs(results.graph, method)
    return chosen_repairs(results.graph, method, selection.repair.partition(":")[0])
