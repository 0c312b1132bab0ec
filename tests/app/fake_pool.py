"""A pool of live evaluation that has every answer at once, for the pages that ask one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gprune.app import preview
from gprune.app.preview import Answer, WorkerState


class FakePool:
    """Answers with the losses that it is given for a question and its base, and remembers what it was asked."""

    def __init__(self, losses: Callable[[Any, Any], Any] | None = None) -> None:
        self.asked: list[tuple[Any, Any]] = []
        """questions with their bases, or requests with their models"""
        self.names: list[str] = []
        self.losses = losses or self.paired_losses
        self.more, self.progress, self.status = 0.0, "complete", WorkerState("warm")

    def ask(self, source: Any, question: Any, owner: str, base: Any = None) -> str:
        return self.ask_many(source, [question], owner, base)[0]

    def ask_many(self, source: Any, questions: list[Any], owner: str, base: Any = None) -> list[str]:
        return [self._note((question, base), owner) for question in questions]

    def read(self, source: Any, request: Any, models: list[Any], owner: str) -> str:
        return self._note((request, models), owner)

    def _note(self, asked: tuple[Any, Any], owner: str) -> str:
        self.asked.append(asked)
        self.names.append(f"{len(self.asked) - 1} {owner}")
        return self.names[-1]

    def latest(self, identity: str) -> Answer:
        question, base = self.asked[int(identity.split()[0])]
        return Answer(identity, question.method, question.text, self.progress, *self.losses(question, base))

    def state(self, source: Any) -> WorkerState:
        return self.status

    def paired_losses(self, question: Any = None, base: Any = None) -> tuple[Any, Any]:
        """Losses of 40 windows: `more` nats above those of the base, with a little noise."""
        generator = np.random.default_rng(0)
        reference = 4 + generator.normal(0, 0.5, 40)
        return reference + self.more + generator.normal(0, 0.01, 40), reference

    def installed(self, patch: pytest.MonkeyPatch) -> Any:
        """This pool in the place of the one that the pages ask."""
        patch.setattr(preview, "pool", lambda: self)
        return self
