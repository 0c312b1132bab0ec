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

import numpy as np

from gprune.app.preview.histogram import Histogram
from gprune.app.preview.request import Question, Source, digest, place_of, silent, text_of
from gprune.app.preview.request_queue import PREVIEW, Entry, RequestQueue, surplus
from gprune.app.preview.response import Progress
from gprune.pipeline import stages
from gprune.records import Array

MOST_WRITTEN = 40
"""tokens of a continuation"""
MOST_CHARACTERS = 6_000_000
"""of a passage that is typed; what is beyond is not sent"""
TURN_TOKENS = 4
"""of a continuation in one turn, whatever the pace"""
MOST_ENTRIES, MOST_PARTS = 24, 96
"""requests that are kept, the newest"""


@dataclass(frozen=True, slots=True)
class Passage:
    """What is read: a window of an evaluation text, or a text that was typed."""

    text: str = ""
    """evaluation text of the study; empty where the passage was typed"""
    window: int = 0
    """which window of it, from 0"""
    typed: str = ""
    """the passage itself"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What models go on from."""

    typed: str
    most: int = MOST_WRITTEN
    """tokens written at most"""
    temperature: float = 0.0
    """what logits are divided by before a token is drawn; 0 takes the likeliest"""
    seed: int = 0
    """of the draws; all models are given the same ones"""


@dataclass(frozen=True, slots=True)
class Firing:
    """A neuron of the dense model, asked for how strongly it answers to passages that the run has drawn."""

    role: str
    """the calibration text: primary, auxiliary or substitute"""
    layer: int
    neuron: int
    places: tuple[tuple[int, int, int], ...]
    """passages: sequence, first and last token, from 0"""


@dataclass(frozen=True, slots=True)
class Spread:
    """A neuron of the dense model, asked for all its activations on a text that the run has drawn."""

    role: str
    """the calibration text: primary, auxiliary or substitute"""
    layer: int
    neuron: int


@dataclass(frozen=True, slots=True)
class Direction:
    """A neuron of the dense model, asked for the tokens that its column of down_proj speaks for and against."""

    layer: int
    neuron: int


What = Passage | Prompt | Firing | Spread | Direction
"""all that can be asked"""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A token as text; one that is a part of a character stands for it with others."""

    text: str
    """empty where an earlier token of the same characters has it"""
    place: int = 1
    """which of the tokens that share the text it is, from 1"""
    of: int = 1
    """how many share it"""


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """A passage as one model reads it."""

    pieces: tuple[Piece, ...]
    """the tokens, in order"""
    losses: Array
    """(tokens,) negative log-likelihood in nats; NaN for the first, which nothing is before"""
    total: int
    """tokens that the passage has; more than there are pieces where not all are read"""
    places: int = 0
    """tokens that the model has places for; 0 where it does not say"""


@dataclass(frozen=True, slots=True, eq=False)
class Fired:
    """Passages with a neuron's answers, in the order of asking."""

    passages: tuple[tuple[tuple[Piece, ...], Array], ...]
    """tokens of each, and (tokens,) its activation before down_proj"""


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """A neuron's activations on a text, as far as it was read."""

    histogram: Histogram
    """of its activation before down_proj, one a token"""
    sequences: int
    """that were read, the first ones"""
    wanted: int
    """that are to be read"""
    total: int
    """that the run has drawn"""


@dataclass(frozen=True, slots=True, eq=False)
class Promoted:
    """Tokens by the logit that a neuron adds to them on the direct path, for an activation of 1."""

    promoted: tuple[tuple[str, float], ...]
    """tokens as text, the most promoted first, and logits"""
    suppressed: tuple[tuple[str, float], ...]
    """the most suppressed first"""


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """A continuation, as far as it has come."""

    text: str
    """what was written"""
    ids: tuple[int, ...]
    """its tokens"""
    ended: bool
    """whether the model has ended it, or it is as long as was asked"""
    read: int
    """tokens of the prompt that were read, the last ones"""
    total: int
    """tokens that the prompt has"""


Found = Read | Written | Fired | Counted | Promoted
"""all that can be answered"""


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What is known so far, one place a model in the order of asking."""

    progress: Progress
    """see Answer"""
    found: tuple[Found | None, ...]
    """None where a model has not had its turn"""
    problem: str = ""
    """one sentence that says what went wrong and what to do; empty where nothing did"""


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
        self._found[item.identity] = self._answer(item, reply)
        for entry in self.open():
            if self.item(entry) is None:
                entry.progress = "complete"

    def _answer(self, item: Turn, reply: dict[str, Any]) -> Found:
        """What a reply says, with what was known before."""
        if item.part.writes:
            return _written(item, reply)
        if "passages" in reply:
            return Fired(tuple(_fired(one) for one in reply["passages"]))
        if "promoted" in reply:
            return Promoted(_named(reply["promoted"]), _named(reply["suppressed"]))
        if "counts" in reply:
            known = self._found.get(item.identity)
            return _counted(reply, known if isinstance(known, Counted) else None)
        return _read(reply)

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


def _read(reply: dict[str, Any]) -> Read:
    losses = np.array([np.nan, *reply["losses"]], dtype=np.float64)
    return Read(_pieces(reply), losses, int(reply["total"]), int(reply["places"]))


def _fired(passage: dict[str, Any]) -> tuple[tuple[Piece, ...], Array]:
    return _pieces(passage), np.array(passage["values"], dtype=np.float64)


def _named(logits: list[Any]) -> tuple[tuple[str, float], ...]:
    return tuple((str(text), float(value)) for text, value in logits)


def _counted(reply: dict[str, Any], known: Counted | None) -> Counted:
    counts = np.array(reply["counts"], dtype=np.int64)
    found = Histogram(int(reply["power"]), int(reply["first"]), counts)
    found = found if known is None else known.histogram.joined(found)
    return Counted(found, int(reply["sequences"]), int(reply["wanted"]), int(reply["total"]))


def _pieces(reply: dict[str, Any]) -> tuple[Piece, ...]:
    return tuple(Piece(str(text), int(place), int(of)) for text, place, of in reply["pieces"])


def _written(item: Turn, reply: dict[str, Any]) -> Written:
    ids = (*item.ids, *(int(one) for one in reply["ids"]))
    ended = bool(reply["ended"]) or len(ids) >= int(item.part.content["write"]["most"])
    return Written(str(reply["text"]), ids, ended, int(reply["read"]), int(reply["total"]))
