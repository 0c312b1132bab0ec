"""Tell whether two texts come from one corpus, and how much of one occurs verbatim in the other.

Corpus and part are read from a text's name: a known name, a hub dataset, or a file or folder by its resolved path.
No file is read, so that the answer is the same on machines without the texts.

Verbatim overlap is the share of runs of several tokens that occur in both.
"""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gprune.data.demo import texts
from gprune.data.texts import catalogue, naming, sampled
from gprune.data.texts.naming import TextName
from gprune.data.texts.source import HUB_PREFIX, Role
from gprune.records import Array, TextOverlap, Tokens
from gprune.system.errors import SettingsError

Kinship = Literal["same", "part", "other"]
SAME: Kinship = "same"
"""one corpus, and the same split of it"""
PART: Kinship = "part"
"""one corpus, and another split, file or slice of it"""
OTHER: Kinship = "other"
"""two corpora"""
_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_SIGNS = {"wikitext2": ("wikitext",), "ptb": ("ptb", "penntreebank"), "c4": ("c4",)}
"""words in the name of a copy of a known corpus; a short one counts only as a separate word"""
_LONG = 5
"""letters from which a sign counts inside a longer word too"""
_UPLOADED = re.compile(r"[0-9a-f]{12}")
_DEFAULTS = {"calibration": "train", "evaluation": "test"}


@dataclass(frozen=True, slots=True)
class Corpus:
    """The origin of a text by its name."""

    name: str
    """identifies the corpus"""
    part: str
    """its split, or the path of a file that names none"""
    documents: tuple[int, int | None]
    """the documents read; a bound that counts from the end is left open"""


def corpus(text: str, role: Role) -> Corpus:
    """Return the corpus of a text as typed, and its part; the role decides the split where none was typed."""
    try:
        name = naming.parse(text)
    except SettingsError:
        # no text has such a name: it is a corpus of its own
        return Corpus(text, "", (0, None))
    return Corpus(*_corpus_and_part(name, role), _document_range(name))


def kinship(evaluated: Corpus, calibrated: Corpus) -> Kinship:
    """Return how two texts are related by their names."""
    if evaluated.name != calibrated.name:
        return OTHER
    is_same = evaluated.part == calibrated.part and _ranges_meet(evaluated.documents, calibrated.documents)
    return SAME if is_same else PART


def _corpus_and_part(name: TextName, role: Role) -> tuple[str, str]:
    split = name.option("split")
    if sampled.is_sampled(name.place):
        # every role, seed and temperature is another part of one model's text
        return sampled.PREFIX, f"{role} {sorted(name.options)}"
    if name.place in texts.NAMES:
        return name.place, split or _DEFAULTS[role]
    if name.place in catalogue.HUB_TEXTS:
        evaluation = catalogue.HUB_TEXTS[name.place].evaluation
        return name.place, split or (evaluation if role == "evaluation" else _DEFAULTS[role])
    if name.place.startswith(HUB_PREFIX):
        # copies of a corpus have its name under other owners
        stem = name.place.removeprefix(HUB_PREFIX).rsplit("/", 1)[-1].lower()
        return _known_corpus(_words(stem)) or HUB_PREFIX + stem, split or _DEFAULTS[role]
    return _local(name, split, role)


def _local(name: TextName, split: str, role: Role) -> tuple[str, str]:
    # files whose names differ in a split only are one corpus
    try:
        path = Path(os.path.realpath(name.place))
        folder = path.is_dir() or not path.suffix
    except (OSError, ValueError):
        return name.place, split
    words = _words(path.name if folder else path.name.removesuffix(".gz").rpartition(".")[0])
    # the name of an uploaded text ends with a digest of its content
    words = words[:-1] if words and _UPLOADED.fullmatch(words[-1]) else words
    splits = [_SPLIT_WORDS[word] for word in words if word in _SPLIT_WORDS]
    stem = [word for word in words if word not in _SPLIT_WORDS]
    known_corpus = _known_corpus(stem) or _known_corpus(_words(path.parent.name))
    part = split or (splits[-1] if splits else _DEFAULTS[role] if folder else str(path))
    return known_corpus or str(path.parent / "-".join(stem)), part


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _known_corpus(words: list[str]) -> str:
    joined = "".join(words)
    for name, signs in _SIGNS.items():
        if any(sign in words or (len(sign) >= _LONG and sign in joined) for sign in signs):
            return name
    return ""


def _document_range(name: TextName) -> tuple[int, int | None]:
    span = name.documents
    start, stop = span.start or 0, span.stop
    return max(start, 0), stop if stop is None or stop > 0 else None


def _ranges_meet(first: tuple[int, int | None], second: tuple[int, int | None]) -> bool:
    low = max(first[0], second[0])
    return all(stop is None or low < stop for _, stop in (first, second))


_TOKENS, _VOCABULARY = 13, 32_000
"""13 tokens of a vocabulary of 32,000 rarely coincide by chance; Brown et al. (2020) use the same length"""


def run_length(vocabulary: int) -> int:
    """Return the tokens of a run for which there are as many possible runs as for 13 tokens of 32,000.

    A small vocabulary has short tokens, and needs longer runs.
    """
    return math.ceil(_TOKENS * math.log(_VOCABULARY) / math.log(max(vocabulary, 2)))


def cut(stream: Array, length: int, limit: int | None = None) -> Array:
    """Return (windows, length) consecutive windows from the start of a stream, `limit` at most, for perplexity.

    The tokens left at the end are dropped.
    """
    count = len(stream) // length
    count = min(count, limit or count)
    return np.asarray(stream)[: count * length].reshape(count, length)


def measure_overlap(text: str, windows: Array, calibration: Sequence[Tokens], vocabulary: int) -> TextOverlap:
    """Return how much of a text's (windows, length) ids occurs in calibration sets.

    Runs are no longer than the windows and sequences; `vocabulary` is the size of the tokenizer's vocabulary.
    """
    lengths = [windows.shape[1], *(tokens.ids.shape[1] for tokens in calibration)]
    run = min(run_length(vocabulary), *lengths)
    share = [shared_share(windows, tokens.ids, run) for tokens in calibration]
    used = [min(1.0, len(tokens.ids) / max(tokens.available, 1)) for tokens in calibration]
    return TextOverlap(text, run, len(windows), np.array(share), np.array(used))


def shared_share(windows: Array, sequences: Array, run: int) -> float:
    """Return the share in [0, 1] of the runs of (windows, length) ids that occur in (samples, length) ids.

    `run` is the tokens of a run, at most either length; the share is 0 without windows.
    """
    calibrated = set(_runs(sequences, run))
    repeats = [each in calibrated for each in _runs(windows, run)]
    return float(np.mean(repeats)) if repeats else 0.0


def _runs(ids: Array, run: int) -> list[bytes]:
    """The bytes of every `run` neighbouring ids of a (rows, length) array."""
    rows = sliding_window_view(np.asarray(ids, dtype=np.int32), run, axis=1)
    return [each.tobytes() for each in rows.reshape(-1, run)]
