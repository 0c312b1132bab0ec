"""A text of one's own against the texts of a run, at once: questions, their turn, their answers.

The worker of the preview measures it, between two batches of whatever else it is asked: a GPU never holds a
second model for it. The text is written to a folder that only this user can read, and removed with the
answer.
"""

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gprune.app.preview.request import Source
from gprune.app.preview.request_queue import PREVIEW, Entry, RequestQueue
from gprune.app.preview.worker.messages import OWN_PAIRS
from gprune.pipeline.stages import drift
from gprune.records import RankDrift
from gprune.store import Store

MOST_KEPT = 12
"""answers that are kept; at the size of the demo each is a megabyte"""
Phase = Literal["waiting", "loading", "measuring", "complete", "failed"]


@dataclass(frozen=True, slots=True, eq=False)
class OwnText:
    """A text to be held against the texts of a run."""

    source: Source
    """the run, with a study that has the text as its C, and the digest of its content"""
    raw: bytes = field(repr=False)
    """its bytes"""
    suffix: str
    """ending of its file, by which it is read"""

    @property
    def identity(self) -> str:
        """Equal where the answers are the same arrays."""
        keys = [drift(self.source.graph, *pair).key for pair in OWN_PAIRS.values()]
        return hashlib.sha256(" ".join(keys).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What is known of a text."""

    phase: Phase
    """waiting: its turn is not yet, see the reason; loading: the model is read; failed: see the reason"""
    reason: str = ""
    """one sentence for people; empty where there is nothing to explain"""
    drifts: Mapping[str, RankDrift] = field(default_factory=dict)
    """once complete: the drift of every pair by its name in `OWN_PAIRS`"""


@dataclass(eq=False, kw_only=True)
class Asked(Entry):
    """A text with who asks for it; what has its turn is measured, whoever still looks."""

    text: OwnText
    drifts: Mapping[str, RankDrift] = field(default_factory=dict)
    measured: bool = False
    """whether the worker has it"""

    @property
    def loads(self) -> dict[str, Any]:
        """What its worker has loaded."""
        return self.text.source.model


class Task:
    """A text on its way to the worker and back."""

    def __init__(self, asked: Asked) -> None:
        """Writes nothing yet."""
        self.asked, self.identity = asked, asked.identity
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def message(self) -> dict[str, Any]:
        """The question as it is sent, with the text in a folder of its own; see `worker.messages`."""
        text = self.asked.text
        self._folder, self.asked.measured = tempfile.TemporaryDirectory(prefix="gprune-own-"), True
        place = Path(self._folder.name) / f"text{text.suffix}"
        place.write_bytes(text.raw)
        # no key depends on the name of a file
        study = replace(text.source.graph.study, substitute=str(place))
        known = {"folder": self._folder.name, "study": study.to_dict()}
        return {"id": self.identity, "own": known | {"inputs": asdict(text.source.graph.inputs)}}

    def drifts(self, keys: Mapping[str, Any]) -> dict[str, RankDrift]:
        """What the worker has left in the folder, by the name of the pair."""
        assert self._folder is not None
        kept = Store(Path(self._folder.name))
        return {pair: _copied(kept.get("drift", str(keys[pair]), RankDrift)) for pair in OWN_PAIRS}

    def end(self) -> None:
        """Removes the text, of which nothing is kept once it has its answer."""
        self.asked.measured = False
        if self.asked.progress != "open":
            self.asked.text = replace(self.asked.text, raw=b"")
        if self._folder is not None:
            self._folder.cleanup()


class OwnTexts(RequestQueue[Asked, Task]):
    """The texts of all sessions of one server."""

    def put(self, text: OwnText, owner: str, now: float) -> str:
        """Takes a text up; what the owner asked before is dropped unless it has its turn.

        Gives the identity under which `look` has the answer; asking the same again is cheap. `now` is seconds
        on any clock.
        """
        identity = text.identity
        entry = self._entries.setdefault(identity, Asked(identity=identity, text=text))
        if not entry.measured and not entry.drifts:
            entry.text = text
        self._entries.move_to_end(identity)
        self._take_up([entry], owner, PREVIEW, now)
        self._forget_dropped()
        self._forget_entries(MOST_KEPT)
        return identity

    def look(self, identity: str, now: float) -> Held | None:
        """What is known of a text; None where it was never asked for, or dropped."""
        entry = self._looked_at(identity, now)
        if entry is None:
            return None
        if entry.measured:
            return Held("measuring")
        if entry.progress == "failed":
            return Held("failed", entry.problem)
        return Held("complete", drifts=entry.drifts) if entry.drifts else Held("waiting")

    def source(self, identity: str) -> Source:
        """The run that a text is held against."""
        return self._entries[identity].text.source

    def item(self, entry: Asked) -> Task | None:
        """The text itself, until it was measured."""
        return None if entry.drifts else Task(entry)

    def heard(self, item: Task, reply: dict[str, Any], seconds: float) -> None:
        """Takes the drifts over."""
        try:
            item.asked.drifts = item.drifts(reply["drifts"])
            item.asked.progress = "complete"
        finally:
            item.end()

    def fail(self, item: Task, problem: str, retry: float) -> None:
        """Notes why a text cannot be measured; whoever asks again has it tried again."""
        item.asked.progress, item.asked.problem = "failed", problem
        item.end()

    def lost(self, item: Task) -> None:
        """Removes a text whose worker has gone."""
        item.end()

    def expire(self, now: float) -> None:
        """Drops what nobody looks at any more, and forgets it."""
        super().expire(now)
        self._forget_dropped()

    def _forget_dropped(self) -> None:
        for entry in list(self._entries.values()):
            if entry.progress == "dropped" and not entry.measured:
                del self._entries[entry.identity]


def _copied(found: RankDrift) -> RankDrift:
    """A record without its files."""
    return RankDrift(**{one.name: np.array(getattr(found, one.name)) for one in fields(found)})
