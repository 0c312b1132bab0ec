"""Answers of models to the questions of a task, and the questions."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from gprune.records.base import Array, Record, booleans, integers, real, require_range

MOST_QUESTIONS, MOST_OPTIONS = 12_000, 60_000
"""maximum number of stored questions, and of stored options, of a task: at most 0.6 MB per task and method. The largest
of the seven tasks has 10,042 questions with 40,168 options"""
QUESTION_CHARACTERS, OPTION_CHARACTERS = 600, 200
"""stored length of a question, from its end, and of an option, from its start"""
MOST_ANSWERS, ANSWER_CHARACTERS = 500, 2_000
"""maximum number of stored texts of generated answers, and their stored length"""


@dataclass(frozen=True, slots=True, eq=False)
class Answers(Record):
    """The answers of one model to the questions of one task: the likelihood of every option, or a score."""

    task: str
    """name of the task in the study"""
    documents: int
    """number of questions of the task; if they are too many, only the first are stored"""
    likelihoods: Annotated[Array, real("options")]
    """(options,) log-likelihood of every option in nats, sorted by question; if `scored`, 1 or 0"""
    lengths: Annotated[Array, integers("options")]
    """(options,) length of each option in characters, the divisor of acc_norm"""
    counts: Annotated[Array, integers("questions", within=(0, MOST_OPTIONS))]
    """(questions,) number of options of each question"""
    right: Annotated[Array, integers("questions")]
    """(questions,) index of the right option"""
    scored: bool = False
    """whether answers are generated and scored; each question then has one option, the right answer"""

    def check(self) -> None:
        """Check that counts, options and right options are consistent."""
        if int(self.counts.sum()) != len(self.likelihoods) or (self.counts < 1).any():
            raise ValueError("Answers.counts does not add up to the options")
        if ((self.right < 0) | (self.right >= self.counts)).any():
            raise ValueError("Answers.right names options that are not there")


@dataclass(frozen=True, slots=True, eq=False)
class Questions(Record):
    """The questions of one task as presented to models, truncated."""

    task: str
    """name of the task in the study"""
    text: Annotated[Array, integers("bytes", within=(0, 255))]
    """(bytes,) UTF-8 of all questions, each followed by its options"""
    ends: Annotated[Array, integers("pieces")]
    """(pieces,) end offset of each question and each option in the text"""
    counts: Annotated[Array, integers("questions", within=(0, MOST_OPTIONS))]
    """(questions,) number of options of each question"""

    def check(self) -> None:
        """Check that the offsets divide the text into questions and options."""
        require_range(self, 0, len(self.text), "ends")
        if int(self.counts.sum()) + len(self.counts) != len(self.ends) or (np.diff(self.ends) < 0).any():
            raise ValueError("Questions.ends does not divide the text into questions and options")

    @classmethod
    def of(cls, task: str, items: list[tuple[str, list[str]]]) -> Questions:
        """Build the record from (question, options) pairs, truncating each string."""
        pieces = [
            piece for question, options in items for piece in (_tail(question), *(_head(option) for option in options))
        ]
        # a string from JSON may contain unpaired surrogates, which UTF-8 cannot encode
        encoded = [piece.encode("utf-8", "replace") for piece in pieces]
        ends = np.cumsum([len(piece) for piece in encoded], dtype=np.int64)
        counts = np.array([len(options) for _, options in items], dtype=np.int32)
        return cls(task, np.frombuffer(b"".join(encoded), dtype=np.uint8), ends, counts)

    def question_at(self, number: int) -> tuple[str, list[str]]:
        """Return a question, counted from 0, and its options."""
        # each question is one piece, followed by its options
        first = int(self.counts[:number].sum()) + number
        begin, pieces = int(self.ends[first - 1]) if first else 0, list[str]()
        for end in self.ends[first : first + 1 + int(self.counts[number])]:
            pieces.append(self.text[begin:end].tobytes().decode("utf-8", "replace"))
            begin = int(end)
        question, *options = pieces
        return question, options


@dataclass(frozen=True, slots=True, eq=False)
class GeneratedAnswers(Record):
    """The answers that one model generated to the questions of one task; empty for a task without such answers."""

    task: str
    """name of the task in the study"""
    numbers: Annotated[Array, integers("answers")]
    """(answers,) number of the question of each answer, from 0"""
    tokens: Annotated[Array, integers("answers")]
    """(answers,) generated tokens up to the end of the answer"""
    is_cut: Annotated[Array, booleans("answers")]
    """(answers,) whether the limit of tokens ended the answer"""
    is_loop: Annotated[Array, booleans("answers")]
    """(answers,) whether the answer ends in a loop of tokens, see gprune.evaluation.accuracy.is_periodic"""
    is_right: Annotated[Array, booleans("answers")]
    """(answers,) whether the answer to an open question is right; False for other tasks, whose `Answers` have scores"""
    text: Annotated[Array, integers("bytes", within=(0, 255))]
    """(bytes,) UTF-8 of the first answers, each truncated"""
    ends: Annotated[Array, integers("texts")]
    """(texts,) end offset of each stored answer in the text"""

    @classmethod
    def of(cls, task: str, rows: list[tuple[int, str, int, bool, bool, bool]]) -> GeneratedAnswers:
        """Build the record from (number, text, tokens, is_cut, is_loop, is_right) rows, truncating the texts."""
        columns: list[Any] = list(zip(*rows, strict=True)) or [()] * 6
        encoded = [_head(text, ANSWER_CHARACTERS).encode("utf-8", "replace") for text in columns[1][:MOST_ANSWERS]]
        numbers, tokens = (np.array(column, dtype=np.int32) for column in (columns[0], columns[2]))
        is_cut, is_loop, is_right = (np.array(column, dtype=bool) for column in columns[3:])
        text = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        ends = np.cumsum([len(piece) for piece in encoded], dtype=np.int64)
        return cls(task, numbers, tokens, is_cut, is_loop, is_right, text, ends)

    def answer_to(self, number: int) -> str:
        """Return the text of the answer to question `number`, from 0; empty if it is not stored."""
        spans = dict(zip(self.numbers.tolist(), itertools.pairwise([0, *self.ends.tolist()]), strict=False))
        begin, end = spans.get(number, (0, 0))
        return self.text[begin:end].tobytes().decode("utf-8", "replace")


def _tail(text: str) -> str:
    # one character is the ellipsis
    return text if len(text) <= QUESTION_CHARACTERS else "…" + text[1 - QUESTION_CHARACTERS :]


def _head(text: str, length: int = OPTION_CHARACTERS) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
