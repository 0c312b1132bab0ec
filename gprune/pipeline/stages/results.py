"""The results of one study that a store has, looked up by the stages of its graph."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from gprune.pipeline.stages.graph import KINDS, Graph, Stage
from gprune.pipeline.stages.plan import course
from gprune.pipeline.stages.stage_order import served
from gprune.store import Store
from gprune.system.errors import DamagedError

R = TypeVar("R")
P = ParamSpec("P")
Declaration = Callable[Concatenate[Graph, P], Stage[R]]
"""A function of gprune.pipeline.stages that declares a stage, as `drift` or `masks`."""


class Results:
    """What is there of a study; a result is there when its key is, whichever run made it."""

    def __init__(self, store: Store, graph: Graph) -> None:
        """Binds a graph, with the digests of what it reads, to a store; nothing is read."""
        self.store, self.graph = store, graph

    def holds(self, stage: Stage[Any]) -> bool:
        """Whether the result of this very stage is there."""
        return bool(stage.key) and self.store.has(stage.kind, stage.key, KINDS[stage.kind].record)

    def there(self, stage: Stage[Any]) -> bool:
        """Whether a stage's result is there, or one that serves for it."""
        return self.holds(served(stage, self.holds))

    def record(self, stage: Stage[R]) -> R:
        """The record of a stage, its arrays read-only; of a folder's stage its path, all of it checked.

        Raises StoreError where the result is absent or damaged.
        """
        kind, key = stage.kind, served(stage, self.holds).key
        record = KINDS[kind].record
        found: Any = self.store.check(kind, key) if record is None else self.store.get(kind, key, record)
        return found

    def whole(self, stage: Stage[Any]) -> bool:
        """Whether the result of this very stage is there and is what was written; all of it is read.

        Raises StoreError where it is there and cannot be read.
        """
        try:
            return self.holds(stage) and bool(self.store.check(stage.kind, stage.key, KINDS[stage.kind].record))
        except DamagedError:
            return False

    def damaged(self, stage: Stage[Any]) -> bool:
        """Whether the result of this very stage was there and is spoilt, as far as can be told unread."""
        return bool(stage.key) and self.store.damaged(stage.kind, stage.key, KINDS[stage.kind].record)

    def course(self, until: str) -> tuple[Stage[Any], ...]:
        """Every stage that a run of the study as far as `until`, one of UNTIL, goes through here."""
        return course(self.graph, until, self.holds, self.damaged)

    def set_aside(self, stage: Stage[Any]) -> str:
        """Moves what is in the place of a result out of its way if it is damaged, and says so.

        Raises StoreError where the cache cannot be written.
        """
        return self.store.set_aside(stage.kind, stage.key, KINDS[stage.kind].record)

    def has(self, declare: Declaration[P, Any], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Whether the result that a declaration speaks of is there: `results.has(drift)`."""
        return self.there(declare(self.graph, *args, **kwargs))

    def get(self, declare: Declaration[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The record that a declaration speaks of: `results.get(scores, "auxiliary")`.

        Raises StoreError where the result is absent or damaged.
        """
        return self.record(declare(self.graph, *args, **kwargs))

    def details(self, stage: Stage[Any]) -> dict[str, Any]:
        """What is kept beside a result: seconds, passes, versions; nothing where it is absent."""
        return self.store.manifest(stage.kind, stage.key, KINDS[stage.kind].record) or {}

    def model_folder(self, stage: Stage[Any]) -> Path:
        """Where a pruned model is that a checkpoint's stage has written."""
        return self.store.folder(stage.kind, stage.key) / "model"
