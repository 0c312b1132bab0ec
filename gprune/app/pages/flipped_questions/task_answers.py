"""What the models of a run have answered, read from its results."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gprune.analysis import changed_answers
from gprune.analysis.changed_answers import ACC, ACC_NORM, Choices
from gprune.app.ui.memo import memoized
from gprune.app.ui.titles import called
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, record
from gprune.pipeline.stages.graph import Graph, Stage
from gprune.records import Answers, Questions
from gprune.system.errors import StoreError

DENSE = "dense"
Identity = tuple[str, str, tuple[tuple[str, str, str], ...]]
"""what the numbers of a task follow from: cache, task, and each method with the keys of its results"""


@dataclass(frozen=True, slots=True)
class TaskAnswers:
    """The answers to one task."""

    run: Run
    task: str
    """the task as asked for"""
    methods: tuple[str, ...]
    """whose answers are there, the dense model first where it is among them"""

    @property
    def name(self) -> str:
        """What to call the task."""
        return called(self.task)

    @property
    def identity(self) -> Identity:
        """Equal where the numbers are: the accuracy may come later than the answers, or never."""
        return (
            self.run.root,
            self.task,
            tuple((name, self._key(stages.answers, name), self._key(stages.accuracy, name)) for name in self.methods),
        )

    def _key(self, declare: Callable[[Graph, str, str], Stage[Any]], method: str) -> str:
        stage = declare(self.run.graph, method, self.task)
        return stage.key if self.run.there(stage) else ""

    @property
    def others(self) -> list[str]:
        """The methods that are held against the dense model; none where that has not answered."""
        return list(self.methods[1:]) if self.methods[0] == DENSE else []

    @property
    def rules(self) -> tuple[str, ...]:
        """The figures that the task has; the plain one alone where its accuracy is damaged."""
        try:
            accuracy = self.run.load(stages.accuracy, self.methods[0], self.task)
        except StoreError:
            return (ACC,)
        return (ACC,) if math.isnan(accuracy.acc_norm) else (ACC, ACC_NORM)

    def answers(self, method: str) -> Answers:
        """What a method has answered; StoreError where it is damaged."""
        return self.run.load(stages.answers, method, self.task)

    def choices(self, method: str, rule: str) -> Choices:
        """What a method chooses, by the figure that is asked for or the one that the task has."""
        known = rule if rule in self.rules else ACC
        return _choices(self.run.root, self.run.key(stages.answers, method, self.task), known)

    def other_pass(self, method: str) -> str:
        """How the accuracy of a method differs from its answers; empty where it does not, or none can tell.

        Raises StoreError where the answers are damaged.
        """
        answers = self.answers(method)
        if len(answers.counts) < answers.documents:
            return ""
        try:
            accuracy = self.run.load(stages.accuracy, method, self.task)
        except StoreError:
            return ""
        for rule, share in ((ACC, accuracy.acc), (ACC_NORM, accuracy.acc_norm)):
            found = _choices(self.run.root, self.run.key(stages.answers, method, self.task), rule)
            # an accuracy is of whole questions
            if not math.isnan(share) and abs(float(found.hit.sum()) - share * len(found.hit)) >= 0.5:
                return f"{rule} {found.hit.mean():.3f} by the answers, {share:.3f} as measured"
        return ""

    @property
    def questions(self) -> Questions | None:
        """The questions themselves; None where they are not there, as in a run that was unpacked."""
        return self.run.find(stages.questions, self.task)


def of(run: Run) -> list[TaskAnswers]:
    """The tasks of a run that answers are there of, in its order."""
    found = []
    for task in measurable(run):
        methods = [name for name in run.study.methods if run.has(stages.answers, name, task)]
        if methods and _has_questions(run, methods[0], task):
            # sorting is stable: the others stay in the order of the study
            found.append(TaskAnswers(run, task, tuple(sorted(methods, key=lambda name: name != DENSE))))
    return found


def _has_questions(run: Run, method: str, task: str) -> bool:
    """A figure that is not of single questions leaves none."""
    try:
        return len(run.load(stages.answers, method, task).counts) > 0
    except StoreError:
        return True


def measurable(run: Run) -> list[str]:
    """The tasks of a run that had data when it was made."""
    return [task for task in run.measured.tasks if task in run.graph.inputs.tasks]


def lacking(run: Run) -> Stage[Answers] | None:
    """The first answers that are missing although their accuracy is there; None where nothing is."""
    for task in measurable(run):
        for method in run.study.methods:
            if run.has(stages.accuracy, method, task) and not run.has(stages.answers, method, task):
                return stages.answers(run.graph, method, task)
    return None


@memoized(256)
def _choices(root: str, key: str, rule: str) -> Choices:
    return changed_answers.choices(record(root, "answers", key, Answers.__name__), rule)
