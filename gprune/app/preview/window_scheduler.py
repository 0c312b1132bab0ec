"""What is asked of the preview, what is known already, and which windows are measured next.

Pure bookkeeping: no process, no clock and no lock of its own, so that the pool can be read without it.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gprune.app.preview.request import Resolved
from gprune.app.preview.request_queue import Entry, RequestQueue, surplus
from gprune.app.preview.response import Answer
from gprune.records import Array

MOST_ENTRIES, MOST_LOSSES = 512, 1024
"""answers and losses that are kept, the newest"""
TARGET_SECONDS = 0.5
"""how long a batch should take: between batches something newer can come first"""
FIRST_WINDOWS = 2
"""of a first batch, whose pace is not known: with fewer there is no standard error"""


@dataclass(eq=False, kw_only=True)
class Compared(Entry):
    """One question with what it is compared with."""

    question: Resolved
    base: Resolved

    @property
    def loads(self) -> dict[str, Any]:
        """What its worker has loaded."""
        return self.question.model


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """What a worker does next."""

    asked: Resolved
    numbers: Array | None
    """windows to measure; None to count those of the text"""

    @property
    def identity(self) -> str:
        """What its answer carries."""
        return self.asked.identity

    @property
    def message(self) -> dict[str, Any]:
        """The question as it is sent; see gprune.app.preview.worker.messages."""
        asked = {"id": self.asked.identity, "text": self.asked.text}
        if self.numbers is None:
            return asked
        numbers = [int(number) for number in self.numbers]
        return asked | {"numbers": numbers, "pruned": self.asked.pruned}


class WindowScheduler(RequestQueue[Compared, Item]):
    """Every question of every session."""

    def __init__(self, turns: Iterator[int] | None = None) -> None:
        """Knows nothing yet; see RequestQueue."""
        super().__init__(turns)
        self._losses: OrderedDict[str, Array] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._pace: dict[str, float] = {}

    def put(self, pairs: Sequence[tuple[Resolved, Resolved]], owner: str, kind: str, now: float) -> list[str]:
        """Takes questions up, each with its base; the owner's others of this kind are dropped.

        `kind` is PREVIEW or CURVE. Gives the identities of the answers. `now` is seconds on any clock.
        """
        asked = [self._entry(question, base) for question, base in pairs]
        identities = self._take_up(asked, owner, kind, now)
        self._forget()
        return identities

    def look(self, identity: str, now: float) -> Answer | None:
        """The newest answer; one that was dropped because nobody looked is taken up again."""
        entry = self._looked_at(identity, now)
        if entry is None:
            return None
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

    def item(self, entry: Compared) -> Item | None:
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

    def wanted(self, item: Item) -> bool:
        """Whether an open question needs the windows of an item."""
        identity = item.asked.identity
        sides = ((one.question, one.base) for one in self.open(item.asked.model_key))
        return any(identity in (question.identity, base.identity) for question, base in sides)

    def heard(self, item: Item, reply: dict[str, Any], seconds: float) -> None:
        """Notes losses, or how many windows a text has."""
        if item.numbers is None:
            self.counted(item, int(reply["windows"]))
        else:
            # weights that were fitted on the way say nothing about the pace of windows
            self.record(item, reply["losses"], seconds - float(reply.get("fitting", 0.0)))

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
            if self.item(entry) is None:
                entry.progress = "complete"

    def counted(self, item: Item, windows: int) -> None:
        """Notes how many windows a text has."""
        self._counts[item.asked.text_key] = windows

    def fail(self, item: Item, problem: str, retry: float) -> None:
        """Notes why something cannot be measured: all questions that need it fail."""
        for entry in self.open(item.asked.model_key):
            if item.asked.identity in (entry.question.identity, entry.base.identity):
                entry.progress, entry.problem, entry.retry = "failed", problem, retry

    def _entry(self, question: Resolved, base: Resolved) -> Compared:
        pair = f"{question.identity} {base.identity}"
        identity = hashlib.sha256(pair.encode()).hexdigest()[:32]
        for one in (question, base):
            if one.losses is not None:
                self._losses[one.identity] = np.array(one.losses, dtype=np.float64)
                self._counts[one.text_key] = len(one.losses)
        if identity not in self._entries:
            self._entries[identity] = Compared(identity=identity, question=question, base=base)
        self._entries.move_to_end(identity)
        return self._entries[identity]

    def _batch(self, asked: Resolved) -> int:
        pace = self._pace.get(asked.text_key)
        most = int(asked.text["batch"])
        wanted = FIRST_WINDOWS if pace is None else int(TARGET_SECONDS / max(pace, 1e-9))
        return max(1, min(wanted, most))

    def _known(self, asked: Resolved) -> Array | None:
        return self._losses.get(asked.identity)

    def _count(self, entry: Compared) -> int | None:
        return self._counts.get(entry.question.text_key)

    def _forget(self) -> None:
        """Lets go of the oldest answers that nobody waits for."""
        self._forget_entries(MOST_ENTRIES)
        needed = {one.identity for entry in self._entries.values() for one in (entry.question, entry.base)}
        for identity in surplus(self._losses, MOST_LOSSES, needed):
            del self._losses[identity]


@lru_cache(maxsize=16)
def visiting_order(windows: int) -> Array:
    """(windows,) the order in which all questions visit the windows: random, and always the same."""
    order: Array = np.random.default_rng(0).permutation(windows)
    order.flags.writeable = False
    return order
