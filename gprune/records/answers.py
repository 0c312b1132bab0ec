"""What models answer to the questions of a task, and the questions as they were asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from gprune.records.base import Array, Record, integers, real, require_range

MOST_QUESTIONS, MOST_OPTIONS = 12_000, 60_000
"""questions of a task, and options of them all, whose answers are kept: 0.6 MB a task and method at most. The
largest of the seven tasks has 10,042 questions with 40,168 options"""
QUESTION_CHARACTERS, OPTION_CHARACTERS = 600, 200
"""of a question the last so many are kept, of an option the first"""


@dataclass(frozen=True, slots=True, eq=False)
class Answers(Record):
    """The answers of one model to the questions of one task: the likelihood of every option, or a score."""

    task: str
    """the task as asked for"""
    documents: int
    """questions that were asked; the first of them are kept"""
    likelihoods: Annotated[Array, real("options")]
    """(options,) log-likelihood of every option in nats, question after question; if `scored` 1 for right, else 0"""
    lengths: Annotated[Array, integers("options")]
    """(options,) characters of the option, by which acc_norm divides"""
    counts: Annotated[Array, integers("questions", within=(0, MOST_OPTIONS))]
    """(questions,) options of each question"""
    right: Annotated[Array, integers("questions")]
    """(questions,) index of the right option among them"""
    scored: bool = False
    """whether answers are generated and scored: each question then has one option, the right text"""

    def check(self) -> None:
        """Checks that every question has its options, and the right one is among them."""
        if int(self.counts.sum()) != len(self.likelihoods) or (self.counts < 1).any():
            raise ValueError("Answers.counts does not add up to the options")
        if ((self.right < 0) | (self.right >= self.counts)).any():
            raise ValueError("Answers.right names options that are not there")


@dataclass(frozen=True, slots=True, eq=False)
class Questions(Record):
    """The questions of one task as models were asked them, cut to a bounded length."""

    task: str
    """the task as asked for"""
    text: Annotated[Array, integers("bytes", within=(0, 255))]
    """(bytes,) UTF-8 of all questions, each followed by its options"""
    ends: Annotated[Array, integers("pieces")]
    """(pieces,) where each question and each option ends in the text"""
    counts: Annotated[Array, integers("questions", within=(0, MOST_OPTIONS))]
    """(questions,) options of each question"""

    def check(self) -> None:
        """Checks that the text is divided into questions and options."""
        require_range(self, 0, len(self.text), "ends")
        if int(self.counts.sum()) + len(self.counts) != len(self.ends) or (np.diff(self.ends) < 0).any():
            raise ValueError("Questions.ends does not divide the text into questions and options")

    @classmethod
    def of(cls, task: str, items: list[tuple[str, list[str]]]) -> Questions:
        """Keeps every question of a task with its options, each cut to what is kept of it."""
        pieces = [
            piece for question, options in items for piece in (_tail(question), *(_head(option) for option in options))
        ]
        # half a surrogate pair, which JSON may hold, is no text
        encoded = [piece.encode("utf-8", "replace") for piece in pieces]
        ends = np.cumsum([len(piece) for piece in encoded], dtype=np.int64)
        counts = np.array([len(options) for _, options in items], dtype=np.int32)
        return cls(task, np.frombuffer(b"".join(encoded), dtype=np.uint8), ends, counts)

    def asked(self, number: int) -> tuple[str, list[str]]:
        """A question, counted from 0, and its options."""
        first = int(self.counts[:number].sum()) + number
        begin, pieces = int(self.ends[first - 1]) if first else 0, list[str]()
        for end in self.ends[first : first + 1 + int(self.counts[number])]:
            pieces.append(self.text[begin:end].tobytes().decode("utf-8", "replace"))
            begin = int(end)
        question, *options = pieces
        return question, options


def _tail(text: str) -> str:
    return text if len(text) <= QUESTION_CHARACTERS else "…" + text[1 - QUESTION_CHARACTERS :]


def _head(text: str) -> str:
    return text if len(text) <= OPTION_CHARACTERS else text[: OPTION_CHARACTERS - 1] + "…"
