"""Steps of learning that are saved on the way and gone on with after a stop, with the same bits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from gprune.pruning.sparsity.checkpoint import CHANGED_ROUNDING, Running, noting
from gprune.records import Array
from gprune.store.resumption import Resumption, Spent
from gprune.system.progress import Notice, Progress

R = TypeVar("R", bound=Running)


@dataclass(frozen=True, slots=True)
class Course(Generic[R]):
    """How a learning goes from its first step to its last."""

    columns: Sequence[str]
    """names of what a row tells of a step"""
    steps: int
    """in all"""
    ids: Array
    """(sequences, tokens) int64 ids of its texts"""
    again: Callable[[], R]
    """makes it as it is before its first step"""
    step: Callable[[int, int, R], list[float]]
    """takes one: finished steps, steps in all and the learning, to the row of this step"""
    words: Callable[[list[float]], str]
    """a row for the listener"""
    on_progress: Progress
    """called after every step; may raise to stop"""

    def run(self, running: R, kept: Resumption | None) -> list[list[float]]:
        """Goes through all steps and returns a row for each.

        Args:
            running: the learning before its first step.
            kept: where it leaves what it can go on from, and finds what an earlier process has left.
        """
        if kept is not None:
            running = self._gone_on(running, kept)
        moment = None
        try:
            while len(running.rows) < self.steps:
                row = self.step(len(running.rows), self.steps, running)
                running.rows.append(row)
                if kept is not None:
                    moment = running.noted(kept.spent.plain)
                    if len(running.rows) < self.steps and kept.due(moment.step):
                        kept.save(running.state(moment, self.steps))
                self.on_progress(len(running.rows), self.steps, self.words(row))
        except BaseException:
            if kept is not None and moment is not None and moment.step < self.steps:
                kept.stopped(moment.step, partial(running.state, moment, self.steps))
            raise
        return running.rows

    def _gone_on(self, running: R, kept: Resumption) -> R:
        """The same learning where an earlier process has left it, or from its first step."""
        state, steps = kept.found(), self.steps
        if state is None:
            return running
        try:
            spent = Spent.of(state.values.get("spent"))
            alike = running.take_up(state, steps, self.columns, self.ids)
        except (ValueError, KeyError, TypeError, IndexError, RuntimeError) as error:
            kept.refuse(str(error))
            return self.again()
        for words in running.notices:
            self.on_progress(state.step, steps, Notice(words))
        told = noting(running.notices, self.on_progress)
        told(state.step, steps, kept.goes_on(state, spent))
        if not alike:
            told(state.step, steps, Notice(CHANGED_ROUNDING))
        return running
