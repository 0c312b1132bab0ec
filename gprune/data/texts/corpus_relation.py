"""Answers: do two texts come from one corpus, and are they the same part of it?

What a text is declared to be, from its name alone: a known name, a hub dataset, or a file or folder by its
resolved path. Nothing is read, so that a run is judged alike where its texts are and where they are not.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gprune.data.demo import texts
from gprune.data.texts import catalogue, naming, sampled
from gprune.data.texts.layout import SPLIT_WORDS
from gprune.data.texts.naming import TextName
from gprune.data.texts.source import HUB_PREFIX, Role
from gprune.system.errors import SettingsError

Kinship = Literal["same", "part", "other"]
SAME: Kinship = "same"
"""one corpus, and the same split of it"""
PART: Kinship = "part"
"""one corpus, and another split, file or slice of it"""
OTHER: Kinship = "other"
"""two corpora"""
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
    """The corpus of a text, and its part.

    Args:
        text: the name as typed.
        role: calibration or evaluation; decides the split that is meant where none was typed.
    """
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
    said = [SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS]
    stem = [word for word in words if word not in SPLIT_WORDS]
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
