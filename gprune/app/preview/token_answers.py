"""What can be asked of a model token by token, and what it answers: see gprune.app.preview.token_requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gprune.app.preview.histogram import Histogram
from gprune.app.preview.response import Progress
from gprune.records import Array

MOST_WRITTEN = 40
"""tokens of a continuation"""


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
    """A neuron of the dense model, asked which tokens its column of down_proj promotes and suppresses."""

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


def answered(content: Mapping[str, Any], reply: Mapping[str, Any], known: Found | None) -> Found:
    """What the reply to a request says, its content as gprune.app.preview.worker.messages has it.

    `known` is what was said before; None where nothing was.
    """
    if "write" in content:
        before = known.ids if isinstance(known, Written) else ()
        return _written(reply, before, int(content["write"]["most"]))
    if "fires" in content:
        passages = reply["passages"]
        return Fired(tuple((_pieces(one), np.array(one["values"], dtype=np.float64)) for one in passages))
    if "direction" in content:
        return Promoted(_named(reply["promoted"]), _named(reply["suppressed"]))
    if "spread" in content:
        return _counted(reply, known if isinstance(known, Counted) else None)
    return _read(reply)


def _read(reply: Mapping[str, Any]) -> Read:
    losses = np.array([np.nan, *reply["losses"]], dtype=np.float64)
    return Read(_pieces(reply), losses, int(reply["total"]), int(reply["places"]))


def _named(logits: Sequence[Any]) -> tuple[tuple[str, float], ...]:
    return tuple((str(text), float(value)) for text, value in logits)


def _counted(reply: Mapping[str, Any], known: Counted | None) -> Counted:
    counts = np.array(reply["counts"], dtype=np.int64)
    found = Histogram(int(reply["power"]), int(reply["first"]), counts)
    found = found if known is None else known.histogram.joined(found)
    return Counted(found, int(reply["sequences"]), int(reply["wanted"]), int(reply["total"]))


def _pieces(reply: Mapping[str, Any]) -> tuple[Piece, ...]:
    return tuple(Piece(str(text), int(place), int(of)) for text, place, of in reply["pieces"])


def _written(reply: Mapping[str, Any], before: Sequence[int], most: int) -> Written:
    ids = (*before, *(int(one) for one in reply["ids"]))
    ended = bool(reply["ended"]) or len(ids) >= most
    return Written(str(reply["text"]), ids, ended, int(reply["read"]), int(reply["total"]))
