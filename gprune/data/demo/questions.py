"""Answers: which multiple-choice questions can the demo model be asked without a network?

Three kinds, made on the spot from the split "test" of the demo's texts, which no training and no calibration
ever sees. They stand in for the zero-shot tasks of section 4 where those are not at hand: the accuracy of
guessing is known for each, and their figures compare models on one installation only.
"""

import hashlib
import keyword
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gprune.data.demo import texts

NAMES: tuple[str, ...] = ("demo_continuation", "demo_order", "demo_cloze")
"""which of four continuations is a passage's own; which of two sentences has its words in order, where the
other has two neighbours changed; which of four names of a source file stands at this place"""
CHOICES: dict[str, int] = {"demo_continuation": 4, "demo_order": 2, "demo_cloze": 4}
DELIMITERS: dict[str, str] = {"demo_continuation": " ", "demo_order": " ", "demo_cloze": ""}
"""what stands between a question and a choice"""

# Goes into the version: raise it whenever a change here changes the questions.
_BUILDER = "1"
_SEED = 7
_COUNT = 200
_PROSE = ("python-reference", "science-docs")
_CODE = "python-code"
_CONTEXT_WORDS = 20
_CONTINUATION_WORDS = 10
_FEWEST_WORDS, _MOST_WORDS = 8, 16
_CONTEXT_CHARACTERS = 160
_QUESTIONS_A_FILE = 12
_SENTENCE_BREAK = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_PLAIN_WORD = re.compile(r"[A-Za-z]+(?:[-'][A-Za-z]+)*,?")
_IDENTIFIER = re.compile(r"(?<![\w'\"#])[A-Za-z_]\w{3,}")


@dataclass(frozen=True, slots=True)
class Question:
    """One multiple-choice question."""

    question: str
    """what comes before each choice; may be empty"""
    choices: tuple[str, ...]
    """distinct choices"""
    answer: int
    """index of the right choice"""


# A question and the held-out piece of text that it gives away.
_Candidate = tuple[Question, str]


def questions(name: str, cache: Path | None = None) -> list[Question]:
    """About 200 questions, or fewer, of one of ``NAMES``, always the same on one installation.

    `cache` keeps the built texts from call to call; None builds them anew. Raises ValueError where the name
    is not known.
    """
    _check(name)
    builders: dict[str, Callable[[Path | None, random.Random], list[_Candidate]]] = {
        "demo_continuation": _continuations,
        "demo_order": _orders,
        "demo_cloze": _clozes,
    }
    generator = random.Random(f"{_SEED} {name}")
    candidates = builders[name](cache, generator)
    # In random order, so that the first few are a fair choice among all.
    generator.shuffle(candidates)
    trained = "\n".join("\n".join(texts.documents(source, "train", cache)) for source in _sources(name))
    # Held-out documents may repeat a piece of a document that was trained on.
    held_out = (question for question, piece in candidates if piece not in trained)
    return list(islice(held_out, _COUNT))


def version(name: str) -> str:
    """Twelve hexadecimal digits that hash everything that decides the questions, without building them.

    Raises ValueError where the name is not known.
    """
    _check(name)
    versions = [texts.version(source) for source in _sources(name)]
    parts = [name, _BUILDER, str(_SEED), str(_COUNT), *versions]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _check(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"unknown kind of question {name!r}; known kinds: {', '.join(NAMES)}")


def _sources(name: str) -> tuple[str, ...]:
    return (_CODE,) if name == "demo_cloze" else _PROSE


def _continuations(cache: Path | None, generator: random.Random) -> list[_Candidate]:
    length = _CONTEXT_WORDS + _CONTINUATION_WORDS
    passages = [words[:length] for words in _paragraphs(cache) if len(words) >= length]
    # One passage a start, so that no two of them can continue alike.
    passages = list({tuple(words[:3]): words for words in passages}.values())
    endings = {" ".join(words[_CONTEXT_WORDS:]) for words in passages}
    found = []
    for words in passages:
        context, ending = " ".join(words[:_CONTEXT_WORDS]), " ".join(words[_CONTEXT_WORDS:])
        others = sorted(endings - {ending})
        question = _question(context, ending, others, "demo_continuation", generator)
        found.append((question, " ".join(words)))
    return found


def _orders(cache: Path | None, generator: random.Random) -> list[_Candidate]:
    found = []
    for words in dict.fromkeys(_sentences(cache)):
        right, wrong = " ".join(words), " ".join(_swapped(words, generator))
        found.append((_question("", right, [wrong], "demo_order", generator), right))
    return found


def _clozes(cache: Path | None, generator: random.Random) -> list[_Candidate]:
    found = []
    for document in texts.documents(_CODE, "test", cache):
        places = list(_repeated_names(document))
        names = sorted({document[start:end] for start, end in places})
        for start, end in generator.sample(places, min(len(places), _QUESTIONS_A_FILE)):
            context, right = _context(document, start), document[start:end]
            others = [name for name in names if name not in context and name != right]
            if len(others) >= CHOICES["demo_cloze"] - 1:
                found.append((_question(context, right, others, "demo_cloze", generator), context + right))
    return found


def _question(context: str, right: str, others: list[str], name: str, generator: random.Random) -> Question:
    choices = generator.sample(others, CHOICES[name] - 1)
    answer = generator.randrange(CHOICES[name])
    choices.insert(answer, right)
    return Question(context, tuple(choices), answer)


def _paragraphs(cache: Path | None) -> Iterator[list[str]]:
    """The words of each held-out paragraph."""
    for source in _PROSE:
        for document in texts.documents(source, "test", cache):
            for paragraph in document.split("\n\n"):
                yield paragraph.split()


def _sentences(cache: Path | None) -> Iterator[tuple[str, ...]]:
    """The words of each held-out sentence that is neither short nor long and holds nothing but words."""
    for paragraph in _paragraphs(cache):
        for sentence in _SENTENCE_BREAK.split(" ".join(paragraph)):
            words = sentence.split()
            fits = _FEWEST_WORDS <= len(words) <= _MOST_WORDS and words[-1].endswith(".")
            plain = all(_PLAIN_WORD.fullmatch(word) for word in words[:-1])
            # With equal words a change of order could change nothing.
            if fits and plain and len(set(words)) == len(words):
                yield tuple(words)


def _swapped(words: tuple[str, ...], generator: random.Random) -> list[str]:
    """The sentence with two neighbours inside it in the other order."""
    first = generator.randrange(1, len(words) - 2)
    swapped = list(words)
    swapped[first : first + 2] = words[first + 1], words[first]
    return swapped


def _repeated_names(document: str) -> Iterator[tuple[int, int]]:
    """Start and end of every name that its context already holds."""
    for match in _IDENTIFIER.finditer(document):
        if keyword.iskeyword(match.group()) or match.start() < _CONTEXT_CHARACTERS:
            continue
        if re.search(rf"\b{match.group()}\b", _context(document, match.start())):
            yield match.start(), match.end()


def _context(document: str, end: int) -> str:
    """The lines before a place, about a fixed number of characters."""
    piece = document[end - _CONTEXT_CHARACTERS : end]
    return piece.partition("\n")[2] or piece
