"""Loop of a learning with checkpoints, which resumes after a stop with the same bits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gprune.pruning.sparsity.checkpoint import CHANGED_ROUNDING, Running, noting
from gprune.records import Array
from gprune.store.resumption import Resumption, Spent
from gprune.system.processes import defer_interrupts
from gprune.system.progress import Notice, Progress

R = TypeVar("R", bound=Running)


@dataclass(frozen=True, slots=True)
class LearningLoop(Generic[R]):
    """Steps of a learning from the first to the last, with checkpoints."""

    columns: Sequence[str]
    """names of what a row tells of a step"""
    steps: int
    """in all"""
    epoch_steps: int
    """steps of an epoch, after which a checkpoint is saved"""
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

    def run(self, running: R, resumption: Resumption | None) -> list[list[float]]:
        """Run all steps and return a row for each.

        Args:
            running: the learning before its first step.
            resumption: reads the checkpoint of an earlier process, and replaces it on the way.
        """
        if resumption is not None:
            running = self._resume(running, resumption)
        while len(running.rows) < self.steps:
            before, saves = len(running.rows), resumption if len(running.rows) + 1 < self.steps else None
            try:
                with defer_interrupts():
                    running.rows.append(self.step(before, self.steps, running))
                    step = before + 1
                    if saves is not None and (step % self.epoch_steps == 0 or saves.is_due):
                        saves.save(running.state(self.steps, saves.spent.plain))
                self.on_progress(step, self.steps, self.words(running.rows[-1]))
            except BaseException:
                if saves is not None and len(running.rows) > before:
                    saves.stop(running.state(self.steps, saves.spent.plain))
                raise
        return running.rows

    def _resume(self, running: R, resumption: Resumption) -> R:
        state, steps = resumption.load(), self.steps
        if state is None:
            return running
        try:
            spent = Spent.of(state.values.get("spent"))
            is_exact = running.take_up(state, steps, self.columns, self.ids)
        except (ValueError, KeyError, TypeError, IndexError, RuntimeError) as error:
            resumption.refuse(str(error))
            return self.again()
        for notice in running.notices:
            self.on_progress(state.step, steps, Notice(notice))
        on_progress = noting(running.notices, self.on_progress)
        on_progress(state.step, steps, resumption.resume(state, spent))
        if not is_exact:
            on_progress(state.step, steps, Notice(CHANGED_ROUNDING))
        return running
