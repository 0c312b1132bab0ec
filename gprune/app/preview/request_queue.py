"""Queues of requests: their owners, their turns and their results.

The part of the bookkeeping that does not depend on what is asked. Pure: no process, no clock, no lock.
"""

import itertools
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from gprune.app.preview.request import key_of
from gprune.app.preview.response import Progress

LOOK_SECONDS = 20.0
"""a question that nobody has looked at for so long is dropped"""
PREVIEW, CURVE = "preview", "curve"
"""kinds of questions: a curve's points are measured when no preview is open"""


@dataclass(eq=False, kw_only=True)
class Entry(ABC):
    """One question and where it stands."""

    identity: str
    owners: set[tuple[str, str]] = field(default_factory=set)
    """(owner, kind) of those who ask"""
    looked: float = 0.0
    """when somebody last looked at its answer"""
    served: int = 0
    """when it last had its turn, as a running number"""
    progress: Progress = "open"
    problem: str = ""
    retry: float = 0.0
    """before this time, asking again changes nothing: what went wrong would go wrong again"""

    @property
    @abstractmethod
    def loads(self) -> dict[str, Any]:
        """The model that its worker loads; see gprune.app.preview.request.Source."""

    @property
    def model(self) -> str:
        """The same as one word."""
        return key_of(self.loads)

    @property
    def urgent(self) -> bool:
        """True if it is a preview, not a point of a curve."""
        return any(kind == PREVIEW for _, kind in self.owners)


E = TypeVar("E", bound=Entry)
I = TypeVar("I")  # noqa: E741  (an item, what a worker does next)


class RequestQueue(ABC, Generic[E, I]):
    """The questions of one kind, of every session."""

    def __init__(self, turns: Iterator[int] | None = None) -> None:
        """Knows nothing yet; `turns` are running numbers, shared by queues that take turns."""
        self._entries: OrderedDict[str, E] = OrderedDict()
        self._faults: dict[str, tuple[str, float]] = {}
        self._turns = itertools.count(1) if turns is None else turns

    @abstractmethod
    def item(self, entry: E) -> I | None:
        """Return the next item of work of a request; None if nothing is left."""

    @abstractmethod
    def heard(self, item: I, reply: dict[str, Any], seconds: float) -> None:
        """Notes what the worker said, and how long that took."""

    @abstractmethod
    def fail(self, item: I, problem: str, retry: float) -> None:
        """Notes why something cannot be had: all questions that need it fail."""

    def wanted(self, item: I) -> bool:
        """Return True if a request still waits for an item of the worker."""
        return True

    def open(self, model: str | None = None) -> list[E]:
        """Questions that lack something, those of one model or all."""
        return [entry for entry in self._entries.values() if entry.progress == "open" and model in (None, entry.model)]

    def turn(self, entry: E) -> I | None:
        """Gives a question its turn; None, and it is complete, where nothing is left."""
        item = self.item(entry)
        if item is None:
            entry.progress = "complete"
        else:
            entry.served = next(self._turns)
        return item

    def next(self, model: str) -> I | None:
        """Return the next item of work for a worker with this model; None if there is none."""
        for entry in sorted(self.open(model), key=order):
            item = self.turn(entry)
            if item is not None:
                return item
        return None

    def expire(self, now: float) -> None:
        """Drops what nobody looks at any more."""
        for entry in self.open():
            if now - entry.looked > LOOK_SECONDS:
                entry.progress = "dropped"

    def fail_model(self, model: str, problem: str, retry: float) -> None:
        """Notes why a model cannot be asked; before `retry` new questions of it fail as well."""
        self._faults[model] = problem, retry
        for entry in self.open(model):
            entry.progress, entry.problem, entry.retry = "failed", problem, retry

    def drop(self) -> None:
        """Drops every question."""
        for entry in self.open():
            entry.owners.clear()
            entry.progress = "dropped"

    def _take_up(self, asked: list[E], owner: str, kind: str, now: float) -> list[str]:
        """Takes questions up; the owner's others of this kind are dropped."""
        for entry in self._entries.values():
            if (owner, kind) in entry.owners and entry not in asked:
                entry.owners.remove((owner, kind))
                if not entry.owners and entry.progress == "open":
                    entry.progress = "dropped"
        for entry in asked:
            entry.owners.add((owner, kind))
            entry.looked = now
            self._reopen(entry, now)
        return [entry.identity for entry in asked]

    def _looked_at(self, identity: str, now: float) -> E | None:
        """A question whose answer is asked for; one that was dropped because nobody looked goes on."""
        entry = self._entries.get(identity)
        if entry is None:
            return None
        entry.looked = now
        if entry.owners and entry.progress == "dropped":
            self._reopen(entry, now)
        return entry

    def _reopen(self, entry: E, now: float) -> None:
        """Takes up what can be: complete where nothing lacks, failed where it would fail again."""
        if entry.progress == "failed" and now < entry.retry:
            return
        problem, until = self._faults.get(entry.model, ("", 0.0))
        if self.item(entry) is None:
            entry.progress, entry.problem = "complete", ""
        elif now < until:
            entry.progress, entry.problem, entry.retry = "failed", problem, until
        else:
            entry.progress, entry.problem = "open", ""

    def _forget_entries(self, most: int) -> None:
        """Remove the oldest answers that no request waits for."""
        for identity in surplus(self._entries, most, {entry.identity for entry in self.open()}):
            del self._entries[identity]


def order(entry: Entry) -> tuple[bool, int]:
    """Sort key of requests: previews before curves, then the one that has waited longest."""
    return not entry.urgent, entry.served


def surplus(kept: Iterable[str], most: int, needed: set[str]) -> Iterator[str]:
    """The oldest names beyond the most, without those that are needed."""
    names = list(kept)
    count = len(names) - most
    yield from [name for name in names if name not in needed][: max(0, count)]
