"""The app's side of the preview: one worker at most, the questions of all sessions, the newest answers.

Interface only so far: see the methods of Pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gprune.preview.answer import Answer, State
from gprune.preview.question import DENSE, Question, Source

IDLE_SECONDS = 120.0
"""a worker that has measured nothing for so long ends and gives its memory back"""


class Pool:
    """Answers the questions of all sessions of one server with one worker at most."""

    def __init__(self, idle: float = IDLE_SECONDS) -> None:
        """Starts nothing.

        Args:
            idle: seconds without work after which the worker ends.
        """
        self.idle = idle

    def ask(self, source: Source, question: Question, owner: str, base: Question | None = None) -> str:
        """Asks what masks cost; the owner's earlier preview is dropped, unless it is the same.

        Args:
            source: the run.
            question: what is measured.
            owner: who asks, one name a session and place (tab); other owners' questions go on.
            base: what it is compared with on the same text; the dense model by default.

        Returns:
            The identity under which `latest` has the answer. Asking the same again is harmless and cheap.

        Raises:
            SettingsError: the study does not measure the text, or there is no such method.
            StoreError: the run lacks the masks or statistics that are needed.
        """
        raise NotImplementedError

    def ask_many(
        self, source: Source, questions: Sequence[Question], owner: str, base: Question | None = None
    ) -> list[str]:
        """Asks the points of a curve, behind every preview; all of them refine in turn.

        The owner's earlier curve is dropped where it has other points. See `ask`.
        """
        raise NotImplementedError

    def latest(self, identity: str) -> Answer | None:
        """The newest answer; None where nothing of this identity was asked, or long ago.

        Looking keeps a question at work: one that nobody looks at for a while is dropped.
        """
        raise NotImplementedError

    def state(self, source: Source) -> State:
        """Where the worker of a run stands."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the worker and drops every question."""
        raise NotImplementedError


@lru_cache(maxsize=1)
def pool() -> Pool:
    """The one pool of this process."""
    return Pool()


__all__ = ["DENSE", "IDLE_SECONDS", "Pool", "pool"]
