"""What is asked of the preview, what is known already, and which windows are measured next.

Pure bookkeeping: no process, no clock and no lock of its own, so that the pool can be read without it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from gprune.preview.answer import Answer, Progress
from gprune.preview.question import Resolved
from gprune.records import Array

LOOK_SECONDS = 20.0
"""a question that nobody has looked at for so long is dropped"""
PREVIEW, CURVE = "preview", "curve"
"""kinds of questions: a curve's points are measured when no preview is open"""
MOST_ENTRIES, MOST_LOSSES = 512, 1024
"""answers and losses that are kept, the newest"""
TARGET_SECONDS = 0.5
"""how long a batch should take: between batches something newer can come first"""
FIRST_WINDOWS = 2
"""of a first batch, whose pace is not known: with fewer there is no standard error"""


@dataclass(eq=False)
class Entry:
    """One question with what it is compared with."""

    identity: str
    question: Resolved
    base: Resolved
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
    def model(self) -> str:
        """What its worker has loaded."""
        return self.question.model_key

    @property
    def urgent(self) -> bool:
        """Whether it is somebody's preview."""
        return any(kind == PREVIEW for _, kind in self.owners)


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """What a worker does next."""

    asked: Resolved
    numbers: Array | None
    """windows to measure; None to count those of the text"""

    @property
    def message(self) -> dict[str, Any]:
        """The question as it is sent; see gprune.bench.protocol."""
        asked = {"id": self.asked.identity, "text": self.asked.text}
        if self.numbers is None:
            return asked
        numbers = [int(number) for number in self.numbers]
        return asked | {"numbers": numbers, "masks": self.asked.masks, "means": list(self.asked.means)}


class Agenda:
    """Every question of every session."""

    def __init__(self) -> None:
        """Knows nothing yet."""
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._losses: OrderedDict[str, Array] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._pace: dict[str, float] = {}
        self._faults: dict[str, tuple[str, float]] = {}
        self._turn = itertools.count(1)

    def put(self, pairs: Sequence[tuple[Resolved, Resolved]], owner: str, kind: str, now: float) -> list[str]:
        """Takes questions up; the owner's others of this kind are dropped.

        Args:
            pairs: questions, each with its base.
            owner: who asks.
            kind: PREVIEW or CURVE.
            now: seconds on any clock.

        Returns:
            The identities of the answers.
        """
        asked = [self._entry(question, base) for question, base in pairs]
        for entry in self._entries.values():
            if (owner, kind) in entry.owners and entry not in asked:
                entry.owners.remove((owner, kind))
                if not entry.owners and entry.progress == "open":
                    entry.progress = "dropped"
        for entry in asked:
            entry.owners.add((owner, kind))
            entry.looked = now
            self._reopen(entry, now)
        self._forget()
        return [entry.identity for entry in asked]

    def look(self, identity: str, now: float) -> Answer | None:
        """The newest answer; one that was dropped because nobody looked is taken up again."""
        entry = self._entries.get(identity)
        if entry is None:
            return None
        entry.looked = now
        if entry.owners and entry.progress == "dropped":
            self._reopen(entry, now)
        question, base = self._known(entry.question), self._known(entry.base)
        count = self._count(entry) or 0
        return Answer(
            identity=identity,
            method=entry.question.question.method,
            text=entry.question.question.text,
            progress=entry.progress,
            losses=np.full(count, np.nan) if question is None else question.copy(),
            base=np.full(count, np.nan) if base is None else base.copy(),
            problem=entry.problem,
        )

    def expire(self, now: float) -> None:
        """Drops what nobody looks at any more."""
        for entry in self.open():
            if now - entry.looked > LOOK_SECONDS:
                entry.progress = "dropped"

    def open(self, model: str | None = None) -> list[Entry]:
        """Questions that lack windows, those of one model or all."""
        return [
            entry
            for entry in self._entries.values()
            if entry.progress == "open" and model in (None, entry.model)
        ]

    def next(self, model: str) -> Item | None:
        """What a worker with this model does now; None where nothing is to be done.

        Previews come before curves; among equals comes what has waited longest for a turn.
        """
        entries = self.open(model)
        for entry in sorted(entries, key=lambda one: (not one.urgent, one.served)):
            item = self._item(entry)
            if item is not None:
                entry.served = next(self._turn)
                return item
            entry.progress = "complete"
        return None

    def record(self, item: Item, values: Sequence[float], seconds: float) -> None:
        """Notes losses that were measured, and how long that took."""
        assert item.numbers is not None
        losses = self._known(item.asked)
        if losses is None:
            losses = self._losses[item.asked.identity] = np.full(self._counts[item.asked.text_key], np.nan)
        losses[item.numbers] = values
        pace, key = seconds / len(values), item.asked.text_key
        self._pace[key] = pace if key not in self._pace else 0.5 * (pace + self._pace[key])
        for entry in self.open(item.asked.model_key):
            if self._item(entry) is None:
                entry.progress = "complete"

    def counted(self, item: Item, windows: int) -> None:
        """Notes how many windows a text has."""
        self._counts[item.asked.text_key] = windows

    def fail(self, item: Item, problem: str, retry: float) -> None:
        """Notes why something cannot be measured: all questions that need it fail."""
        for entry in self.open(item.asked.model_key):
            if item.asked.identity in (entry.question.identity, entry.base.identity):
                entry.progress, entry.problem, entry.retry = "failed", problem, retry

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

    def _entry(self, question: Resolved, base: Resolved) -> Entry:
        pair = f"{question.identity} {base.identity}"
        identity = hashlib.sha256(pair.encode()).hexdigest()[:32]
        for one in (question, base):
            if one.losses is not None:
                self._losses[one.identity] = np.array(one.losses, dtype=np.float64)
                self._counts[one.text_key] = len(one.losses)
        if identity not in self._entries:
            self._entries[identity] = Entry(identity, question, base)
        self._entries.move_to_end(identity)
        return self._entries[identity]

    def _reopen(self, entry: Entry, now: float) -> None:
        """Takes up what can be: complete where nothing lacks, failed where it would fail again."""
        if entry.progress == "failed" and now < entry.retry:
            return
        problem, until = self._faults.get(entry.model, ("", 0.0))
        if self._item(entry) is None:
            entry.progress, entry.problem = "complete", ""
        elif now < until:
            entry.progress, entry.problem, entry.retry = "failed", problem, until
        else:
            entry.progress, entry.problem = "open", ""

    def _item(self, entry: Entry) -> Item | None:
        """The next windows of one side that the question lacks, in the one order that all follow."""
        count = self._count(entry)
        if count is None:
            return Item(entry.question, None)
        sides = [
            np.full(count, np.nan) if known is None else known
            for known in map(self._known, (entry.question, entry.base))
        ]
        order = visiting_order(count)
        lacking = order[np.isnan(sides[0][order]) | np.isnan(sides[1][order])]
        if not len(lacking):
            return None
        batch = lacking[: self._batch(entry.question)]
        own = batch[np.isnan(sides[0][batch])]
        return Item(entry.question, own) if len(own) else Item(entry.base, batch)

    def _batch(self, asked: Resolved) -> int:
        pace = self._pace.get(asked.text_key)
        most = int(asked.text["batch"])
        wanted = FIRST_WINDOWS if pace is None else int(TARGET_SECONDS / max(pace, 1e-9))
        return max(1, min(wanted, most))

    def _known(self, asked: Resolved) -> Array | None:
        return self._losses.get(asked.identity)

    def _count(self, entry: Entry) -> int | None:
        return self._counts.get(entry.question.text_key)

    def _forget(self) -> None:
        """Lets go of the oldest answers that nobody waits for."""
        for identity in _surplus(self._entries, MOST_ENTRIES, {entry.identity for entry in self.open()}):
            del self._entries[identity]
        needed = {one.identity for entry in self._entries.values() for one in (entry.question, entry.base)}
        for identity in _surplus(self._losses, MOST_LOSSES, needed):
            del self._losses[identity]


@lru_cache(maxsize=16)
def visiting_order(windows: int) -> Array:
    """(windows,) the order in which all questions visit the windows: random, and always the same."""
    order: Array = np.random.default_rng(0).permutation(windows)
    order.flags.writeable = False
    return order


def _surplus(kept: Iterable[str], most: int, needed: set[str]) -> Iterator[str]:
    """The oldest names beyond the most, without those that are needed."""
    names = list(kept)
    surplus = len(names) - most
    yield from [name for name in names if name not in needed][: max(0, surplus)]
