"""Determine whether two texts are from one corpus, and measure their verbatim overlap.

Corpus and part follow from the name of a text: a known name, a hub dataset, or the resolved path of a file or folder.
No file is read, so that the result is the same on machines without the texts. Verbatim overlap is the share of token
runs of a fixed length that occur in both texts.
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
"""the evaluated text is from the corpus and split of the calibration text"""
PART: Kinship = "part"
"""the evaluated text is from another split, file or slice of the same corpus"""
OTHER: Kinship = "other"
"""the texts are from different corpora"""
_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_SIGNS = {"wikitext2": ("wikitext",), "ptb": ("ptb", "penntreebank"), "c4": ("c4",)}
"""words in the name of a text that identify a copy of a known corpus; short ones only as a separate word"""
_LONG = 5
"""minimum length of a word of `_SIGNS` that also counts inside a longer word"""
_UPLOADED = re.compile(r"[0-9a-f]{12}")
_DEFAULT_SPLITS = {"calibration": "train", "evaluation": "test"}


@dataclass(frozen=True, slots=True)
class Corpus:
    """Origin of a text, derived from its name."""

    name: str
    """identifier of the corpus"""
    part: str
    """its split, or the path of a file without a split in its name"""
    documents: tuple[int, int | None]
    """first document and end of the slice; the end is None if it is open or counted from the end of the text"""


def corpus(text: str, role: Role) -> Corpus:
    """Return corpus and part of a text by its name; `role` determines the default split."""
    try:
        name = naming.parse(text)
    except SettingsError:
        # an invalid name is treated as a separate corpus
        return Corpus(text, "", (0, None))
    return Corpus(*_corpus_and_part(name, role), _document_range(name))


def kinship(evaluated: Corpus, calibrated: Corpus) -> Kinship:
    """Return how an evaluated text is related to a calibration text by their names."""
    if evaluated.name != calibrated.name:
        return OTHER
    is_same = evaluated.part == calibrated.part and _ranges_meet(evaluated.documents, calibrated.documents)
    return SAME if is_same else PART


def _corpus_and_part(name: TextName, role: Role) -> tuple[str, str]:
    """Return the corpus of a text and its part: the split, or the path of a file."""
    split = name.option("split")
    if sampled.is_sampled(name.base):
        # texts with another role, seed or temperature are other parts of one corpus
        return sampled.PREFIX, f"{role} {sorted(name.options)}"
    if name.base in texts.NAMES:
        return name.base, split or _DEFAULT_SPLITS[role]
    if name.base in catalogue.HUB_TEXTS:
        evaluation = catalogue.HUB_TEXTS[name.base].evaluation
        return name.base, split or (evaluation if role == "evaluation" else _DEFAULT_SPLITS[role])
    if name.base.startswith(HUB_PREFIX):
        # copies of a corpus by other owners have the same name on the hub
        stem = name.base.removeprefix(HUB_PREFIX).rsplit("/", 1)[-1].lower()
        return _known_corpus(_words(stem)) or HUB_PREFIX + stem, split or _DEFAULT_SPLITS[role]
    return _local_corpus(name, split, role)


def _local_corpus(name: TextName, split: str, role: Role) -> tuple[str, str]:
    """Return corpus and part of a local text, from the words in the name of its file or folder."""
    # files whose names differ only in the split are of one corpus
    try:
        path = Path(os.path.realpath(name.base))
        is_folder = path.is_dir() or not path.suffix
    except (OSError, ValueError):
        return name.base, split
    words = _words(path.name if is_folder else path.name.removesuffix(".gz").rpartition(".")[0])
    # the name of an uploaded text ends with a digest of its content
    words = words[:-1] if words and _UPLOADED.fullmatch(words[-1]) else words
    splits = [_SPLIT_WORDS[word] for word in words if word in _SPLIT_WORDS]
    stem = [word for word in words if word not in _SPLIT_WORDS]
    known_corpus = _known_corpus(stem) or _known_corpus(_words(path.parent.name))
    part = split or (splits[-1] if splits else _DEFAULT_SPLITS[role] if is_folder else str(path))
    return known_corpus or str(path.parent / "-".join(stem)), part


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _known_corpus(words: list[str]) -> str:
    """Return the known corpus that words of a name identify; empty if there is none."""
    joined = "".join(words)
    for name, signs in _SIGNS.items():
        if any(sign in words or (len(sign) >= _LONG and sign in joined) for sign in signs):
            return name
    return ""


def _document_range(name: TextName) -> tuple[int, int | None]:
    """Return the range of documents of a text; bounds counted from the end are open, so the range is not too small."""
    start, stop = name.documents.start or 0, name.documents.stop
    return max(start, 0), stop if stop is None or stop > 0 else None


def _ranges_meet(first: tuple[int, int | None], second: tuple[int, int | None]) -> bool:
    start = max(first[0], second[0])
    return all(stop is None or start < stop for _, stop in (first, second))


_TOKENS, _VOCABULARY = 13, 32_000
"""13 tokens of a vocabulary of 32,000 rarely match by chance; Brown et al. (2020) use the same length"""


def run_length(vocabulary: int) -> int:
    """Return the smallest run length L with vocabulary^L >= 32,000^13, so that chance matches are equally rare."""
    return math.ceil(_TOKENS * math.log(_VOCABULARY) / math.log(max(vocabulary, 2)))


def cut(stream: Array, length: int, limit: int | None = None) -> Array:
    """Return (windows, length) consecutive windows of a token stream, at most `limit`.

    If `limit` is None, all complete windows are returned. The remaining tokens are dropped.
    """
    count = len(stream) // length
    count = min(count, limit or count)
    return np.asarray(stream)[: count * length].reshape(count, length)


def measure_overlap(text: str, windows: Array, calibration: Sequence[Tokens], vocabulary: int) -> TextOverlap:
    """Measure the verbatim overlap of a text's (windows, length) ids with each calibration set.

    `vocabulary` is the size of the tokenizer's vocabulary, which determines the run length.
    """
    lengths = [windows.shape[1], *(tokens.ids.shape[1] for tokens in calibration)]
    run = min(run_length(vocabulary), *lengths)
    shares = [shared_share(windows, tokens.unpadded_ids, run) for tokens in calibration]
    # share of each calibration text that was drawn
    drawn = [min(1.0, len(tokens.ids) / max(tokens.available, 1)) for tokens in calibration]
    return TextOverlap(text, run, len(windows), np.array(shares), np.array(drawn))


def shared_share(windows: Array, sequences: Array, run: int) -> float:
    """Return the share of `run`-token runs in (windows, length) ids that also occur in (samples, length) ids.

    `run` is at most either length; the share is 0 without windows.
    """
    calibrated = set(_runs(sequences, run))
    occurs = [token_run in calibrated for token_run in _runs(windows, run)]
    return float(np.mean(occurs)) if occurs else 0.0


def _runs(ids: Array, run: int) -> list[bytes]:
    """Return the bytes of all runs of `run` consecutive ids in a (rows, length) array; -1 is padding and in no run."""
    runs = sliding_window_view(np.asarray(ids, dtype=np.int32), run, axis=1).reshape(-1, run)
    return [row.tobytes() for row in runs[(runs >= 0).all(axis=1)]]
