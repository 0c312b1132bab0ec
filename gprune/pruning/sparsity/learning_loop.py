"""Run a training loop with checkpoints; a resumed training has the same result bit for bit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gprune.pruning.sparsity.checkpoint import CHANGED_ROUNDING, TrainingState, record_notices
from gprune.records import Array
from gprune.store.resumption import Resumption, Spent
from gprune.system.machine import defer_interrupts
from gprune.system.progress import Notice, Progress

R = TypeVar("R", bound=TrainingState)


@dataclass(frozen=True, slots=True)
class LearningLoop(Generic[R]):
    """Run the steps of a training with checkpoints."""

    columns: Sequence[str]
    """names of the columns of the history"""
    steps: int
    """total steps"""
    epoch_steps: int
    """steps per epoch; a checkpoint is saved after each epoch"""
    ids: Array
    """(sequences, tokens) `Tokens.signed_ids` of all texts"""
    restart: Callable[[], R]
    """returns the state before the first step"""
    step: Callable[[int, int, R], list[float]]
    """runs a step: (finished steps, total steps, state) -> row of the history"""
    describe_row: Callable[[list[float]], str]
    """returns the progress message for a row"""
    on_progress: Progress
    """called after every step; may raise to stop"""

    def run(self, training: R, resumption: Resumption | None) -> list[list[float]]:
        """Run all steps and return one row per step.

        Args:
            training: the state before the first step.
            resumption: reads the checkpoint of an earlier process and writes new ones.
        """
        if resumption is not None:
            training = self._resume(training, resumption)
        while len(training.rows) < self.steps:
            # the last step needs no checkpoint, because the result is stored right after it
            finished, saves = len(training.rows), resumption if len(training.rows) + 1 < self.steps else None
            try:
                with defer_interrupts():
                    training.rows.append(self.step(finished, self.steps, training))
                    step = finished + 1
                    if saves is not None and (step % self.epoch_steps == 0 or saves.is_due):
                        saves.save(training.state(self.steps, saves.spent.plain))
                self.on_progress(step, self.steps, self.describe_row(training.rows[-1]))
            except BaseException:
                if saves is not None and len(training.rows) > finished:
                    saves.stop(training.state(self.steps, saves.spent.plain))
                raise
        return training.rows

    def _resume(self, training: R, resumption: Resumption) -> R:
        """Return the state of the checkpoint; the initial state if there is no checkpoint or it is not valid."""
        state, steps = resumption.load(), self.steps
        if state is None:
            return training
        try:
            spent = Spent.of(state.values.get("spent"))
            is_exact = training.restore(state, steps, self.columns, self.ids)
        except (ValueError, KeyError, TypeError, IndexError, RuntimeError) as error:
            resumption.refuse(str(error))
            return self.restart()
        for notice in training.notices:
            self.on_progress(state.step, steps, Notice(notice))
        on_progress = record_notices(training.notices, self.on_progress)
        on_progress(state.step, steps, resumption.resume(state, spent))
        if not is_exact:
            on_progress(state.step, steps, Notice(CHANGED_ROUNDING))
        return training
