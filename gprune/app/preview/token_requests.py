"""Token requests: how models read a passage token by token, go on from a prompt, or what a neuron does.

Each model is one part of a reading. A part is known by its content, so that the dense model's is had once
for whatever it is held beside. A continuation grows by a few tokens a turn, so that previews have their turns
between: always as many, because a model rounds a token that it reads with others unlike one that it reads
alone, and near ties would otherwise fall as the clock has it. The activations of a text are counted some
sequences a turn.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gprune.app.preview.request import Question, Source, digest, place_of, silent, text_of
from gprune.app.preview.request_queue import PREVIEW, Entry, RequestQueue, surplus
from gprune.app.preview.token_answers import (
    Counted,
    Direction,
    Firing,
    Found,
    Prompt,
    Reading,
    Spread,
    What,
    Written,
    answered,
)
from gprune.pipeline import stages

MOST_CHARACTERS = 6_000_000
"""of a passage that is typed; what is beyond is not sent"""
TURN_TOKENS = 4
"""of a continuation in one turn, whatever the pace"""
MOST_ENTRIES, MOST_PARTS = 24, 96
"""requests that are kept, the newest"""


@dataclass(frozen=True, slots=True, eq=False)
class ModelRequest:
    """A passage, a prompt or a neuron's passages before one model."""

    identity: str
    model: dict[str, Any]
    """see Source.model"""
    content: dict[str, Any]
    """`read`, `write`, `fires`, `spread` or `direction`, as gprune.app.preview.worker.messages has it"""
    pruned: dict[str, Any] | None
    """see gprune.app.preview.request.silent"""

    @property
    def writes(self) -> bool:
        """Whether it is a continuation."""
        return "write" in self.content


@dataclass(eq=False, kw_only=True)
class Asked(Entry):
    """A reading that somebody waits for."""

    parts: tuple[ModelRequest, ...]

    @property
    def loads(self) -> dict[str, Any]:
        """What its worker has loaded."""
        return self.parts[0].model


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """What a worker does next."""

    part: ModelRequest
    ids: tuple[int, ...] = ()
    """tokens that are written already"""
    tokens: int = 0
    """how many are to be written now"""
    sequences: int = 0
    """that are counted already"""

    @property
    def identity(self) -> str:
        """What its answer carries."""
        return self.part.identity

    @property
    def message(self) -> dict[str, Any]:
        """The question as it is sent; see gprune.app.preview.worker.messages."""
        part = self.part
        sent = {"id": part.identity, **part.content, "pruned": part.pruned}
        if "spread" in part.content:
            return sent | {"sequences": self.sequences}
        return sent | {"ids": list(self.ids), "tokens": self.tokens} if part.writes else sent


def parts(source: Source, what: What, models: Sequence[Question]) -> tuple[ModelRequest, ...]:
    """What is asked of a worker, one part a model.

    Raises SettingsError where there is no such text or method, StoreError where the run lacks masks or
    statistics.
    """
    content = _content(source, what)
    # a text of megabytes is hashed once
    known = _short(content)
    found = []
    for question in models:
        pruned, _ = silent(source, question)
        identity = digest([source.model, known, pruned])
        found.append(ModelRequest(identity, source.model, content, pruned))
    return tuple(found)


def _content(source: Source, what: What) -> dict[str, Any]:
    if isinstance(what, Firing | Spread | Direction):
        return _of_neuron(source, what)
    if isinstance(what, Prompt):
        drawn = {"temperature": float(what.temperature), "seed": int(what.seed)}
        return {"write": {"prompt": what.typed[:MOST_CHARACTERS], "most": what.most, **drawn}}
    if what.text:
        return {"read": {"text": text_of(source, what.text), "number": what.window}}
    return {"read": {"typed": what.typed[:MOST_CHARACTERS]}}


def _of_neuron(source: Source, what: Firing | Spread | Direction) -> dict[str, Any]:
    asked: dict[str, Any] = {"layer": what.layer, "neuron": what.neuron}
    if isinstance(what, Direction):
        return {"direction": asked}
    asked["tokens"] = place_of(source.results, stages.tokens(source.graph, what.role))
    if isinstance(what, Spread):
        return {"spread": asked}
    return {"fires": asked | {"places": [list(one) for one in what.places]}}


def _short(content: dict[str, Any]) -> dict[str, Any]:
    """The same with texts as their hashes."""
    return {
        name: _short(value)
        if isinstance(value, dict)
        else hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
        if isinstance(value, str)
        else value
        for name, value in content.items()
    }


class TokenRequests(RequestQueue[Asked, Turn]):
    """Every reading of every session."""

    def __init__(self, turns: Iterator[int] | None = None) -> None:
        """Knows nothing yet; see RequestQueue."""
        super().__init__(turns)
        self._found: OrderedDict[str, Found] = OrderedDict()

    def put(self, wanted: tuple[ModelRequest, ...], owner: str, now: float) -> str:
        """Takes a reading up; the owner's other ones are dropped.

        `wanted` has at least one part. Gives the identity of the answer. `now` is seconds on any clock.
        """
        identity = digest([part.identity for part in wanted])
        if identity not in self._entries:
            self._entries[identity] = Asked(identity=identity, parts=wanted)
        self._entries.move_to_end(identity)
        self._take_up([self._entries[identity]], owner, PREVIEW, now)
        self._forget()
        return identity

    def look(self, identity: str, now: float) -> Reading | None:
        """What is known; a reading that was dropped because nobody looked is taken up again."""
        entry = self._looked_at(identity, now)
        if entry is None:
            return None
        found = tuple(self._found.get(part.identity) for part in entry.parts)
        return Reading(entry.progress, found, entry.problem)

    def item(self, entry: Asked) -> Turn | None:
        """The first part that lacks something: a passage whole, of a continuation the next tokens."""
        for part in entry.parts:
            known = self._found.get(part.identity)
            if isinstance(known, Counted) and known.sequences < known.wanted:
                return Turn(part, sequences=known.sequences)
            if known is None or (isinstance(known, Written) and not known.ended):
                if not part.writes:
                    return Turn(part)
                ids = known.ids if isinstance(known, Written) else ()
                most = int(part.content["write"]["most"]) - len(ids)
                return Turn(part, ids, max(1, min(most, TURN_TOKENS)))
        return None

    def heard(self, item: Turn, reply: dict[str, Any], seconds: float) -> None:
        """Notes what a model has read or written."""
        self._found[item.identity] = answered(item.part.content, reply, self._found.get(item.identity))
        for entry in self.open():
            if self.item(entry) is None:
                entry.progress = "complete"

    def fail(self, item: Turn, problem: str, retry: float) -> None:
        """Notes why a model cannot read it."""
        for entry in self.open():
            if item.identity in {part.identity for part in entry.parts}:
                entry.progress, entry.problem, entry.retry = "failed", problem, retry

    def _forget(self) -> None:
        self._forget_entries(MOST_ENTRIES)
        needed = {part.identity for entry in self._entries.values() for part in entry.parts}
        for identity in surplus(self._found, MOST_PARTS, needed):
            del self._found[identity]
