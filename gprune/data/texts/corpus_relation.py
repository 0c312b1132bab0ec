"""Answers: do two texts come from one corpus, and are they the same part of it?

What a text is declared to be, from its name alone: a known name, a hub dataset, or a file or folder by its
resolved path. Nothing is read, so that a run is judged alike where its texts are and where they are not.

How much of an evaluated text stands in a calibration text is counted word for word: by runs of several
tokens that occur in both. Runs are compared exactly, without hashing: every run of k tokens gets a number,
those of 2k tokens the number of a pair of such runs, and so on.
"""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

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
"""what the name of a copy of a known corpus holds; the shorter ones as a word of their own"""
_LONG = 5
"""letters from which a sign counts within a word too"""
_UPLOADED = re.compile(r"[0-9a-f]{12}")
_DEFAULTS = {"calibration": "train", "evaluation": "test"}


@dataclass(frozen=True, slots=True)
class Corpus:
    """Where a text is declared to come from."""

    name: str
    """what tells the corpus from others"""
    part: str
    """its split, or the path of a file that names none"""
    documents: tuple[int, int | None]
    """the documents read; a bound that counts from the end is left open"""


def corpus(text: str, role: Role) -> Corpus:
    """The corpus of a text as typed, and its part; the role decides the split where none was typed."""
    try:
        name = naming.parse(text)
    except SettingsError:
        # a name that nothing can be read by; it is itself and nothing else
        return Corpus(text, "", (0, None))
    found, part = _declared(name, role)
    return Corpus(found, part, _documents(name))


def kinship(evaluated: Corpus, calibrated: Corpus) -> Kinship:
    """How two texts are related by what they are declared to be."""
    if evaluated.name != calibrated.name:
        return OTHER
    apart = evaluated.part != calibrated.part or not _meet(evaluated.documents, calibrated.documents)
    return PART if apart else SAME


def _declared(name: TextName, role: Role) -> tuple[str, str]:
    """Corpus and part of a text."""
    split = name.option("split")
    if sampled.is_sampled(name.place):
        # every role, seed and temperature is another part of what one model says
        return sampled.PREFIX, f"{role} {sorted(name.options)}"
    if name.place in texts.NAMES:
        return name.place, split or _DEFAULTS[role]
    if name.place in catalogue.HUB_TEXTS:
        known = catalogue.HUB_TEXTS[name.place]
        return name.place, split or (known.evaluation if role == "evaluation" else _DEFAULTS[role])
    if name.place.startswith(HUB_PREFIX):
        # a corpus has one name under many owners: whoever copies it, it is that corpus
        stem = name.place.removeprefix(HUB_PREFIX).rsplit("/", 1)[-1].lower()
        return _known(_words(stem)) or HUB_PREFIX + stem, split or _DEFAULTS[role]
    return _local(name, split, role)


def _local(name: TextName, split: str, role: Role) -> tuple[str, str]:
    """Corpus and part of a file or folder; files whose names differ in a split only are one corpus."""
    try:
        path = Path(os.path.realpath(name.place))
        folder = path.is_dir() or not path.suffix
    except (OSError, ValueError):
        return name.place, split
    words = _words(path.name if folder else path.name.removesuffix(".gz").rpartition(".")[0])
    # a text that was uploaded is called by its content as well
    words = words[:-1] if words and _UPLOADED.fullmatch(words[-1]) else words
    said = [_SPLIT_WORDS[word] for word in words if word in _SPLIT_WORDS]
    stem = [word for word in words if word not in _SPLIT_WORDS]
    known = _known(stem) or _known(_words(path.parent.name))
    place = str(path.parent / "-".join(stem))
    part = split or (said[-1] if said else _DEFAULTS[role] if folder else str(path))
    return known or place, part


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _known(words: list[str]) -> str:
    """The known corpus that some words name, or an empty string."""
    joined = "".join(words)
    for name, signs in _SIGNS.items():
        if any(sign in words or (len(sign) >= _LONG and sign in joined) for sign in signs):
            return name
    return ""


def _documents(name: TextName) -> tuple[int, int | None]:
    span = name.documents
    start, stop = span.start or 0, span.stop
    return max(start, 0), stop if stop is None or stop > 0 else None


def _meet(first: tuple[int, int | None], second: tuple[int, int | None]) -> bool:
    """Whether two slices of documents have one in common."""
    low = max(first[0], second[0])
    return all(stop is None or low < stop for _, stop in (first, second))


_TOKENS, _VOCABULARY = 13, 32_000
"""13 tokens of a vocabulary of 32,000 rarely meet by chance; Brown et al. (2020) look for as many"""


def run_length(vocabulary: int) -> int:
    """Tokens of a run that is looked for: as many possible runs as 13 tokens of 32,000 have.

    A small vocabulary has short tokens, and needs longer runs.
    """
    return math.ceil(_TOKENS * math.log(_VOCABULARY) / math.log(max(vocabulary, 2)))


def cut(stream: Array, length: int, most: int | None = None) -> Array:
    """(windows, length) consecutive windows from the start of a stream, at most so many, for perplexity.

    What is left at the end is dropped.
    """
    count = len(stream) // length
    count = min(count, most or count)
    return np.asarray(stream)[: count * length].reshape(count, length)


def measured(text: str, windows: Array, calibration: Sequence[Tokens], vocabulary: int) -> TextOverlap:
    """How much of a text's (windows, length) ids stands in calibration sets.

    Runs are no longer than the windows and sequences are; `vocabulary` is how many tokens the tokenizer
    knows.
    """
    lengths = [windows.shape[1], *(tokens.ids.shape[1] for tokens in calibration)]
    run = min(run_length(vocabulary), *lengths)
    share = [shared(windows, tokens.ids, run) for tokens in calibration]
    drawn = [min(1.0, len(tokens.ids) / max(tokens.available, 1)) for tokens in calibration]
    return TextOverlap(text, run, len(windows), np.array(share), np.array(drawn))


def shared(windows: Array, sequences: Array, run: int) -> float:
    """Share in [0, 1] of the runs of some (windows, length) ids that occur in some (samples, length) ids.

    `run` is the tokens of a run, at most either length; 0 where there is no window.
    """
    first, second = _numbered(windows, sequences, run)
    known = np.zeros(int(max(first.max(initial=-1), second.max(initial=-1))) + 1, dtype=bool)
    known[second] = True
    return float(known[first].mean()) if first.size else 0.0


def _numbered(windows: Array, sequences: Array, run: int) -> tuple[Array, Array]:
    """A number for every run of tokens of both; equal runs, and only they, have equal numbers."""
    parts = [np.asarray(windows, dtype=np.int64), np.asarray(sequences, dtype=np.int64)]
    done = 1
    while done < run:
        # two runs that overlap or touch make a longer one
        step = min(done, run - done)
        parts = _paired(parts, step)
        done += step
    return parts[0].ravel(), parts[1].ravel()


def _paired(parts: list[Array], step: int) -> list[Array]:
    """A number for every pair of numbers that stand `step` apart in a row."""
    base = int(max(part.max(initial=0) for part in parts)) + 1
    pairs = [part[:, :-step] * base + part[:, step:] for part in parts]
    _, numbers = np.unique(np.concatenate([pair.ravel() for pair in pairs]), return_inverse=True)
    first, second = np.split(numbers, [pairs[0].size])
    return [first.reshape(pairs[0].shape), second.reshape(pairs[1].shape)]
