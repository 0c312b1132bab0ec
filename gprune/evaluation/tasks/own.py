"""Answers: what must a file of one's own questions hold?

One row a question: ``{"question": "...", "choices": ["...", "..."], "answer": 0}``. The answer is the index
of the right choice, counted from 0, or the choice itself. The model sees the question, a space and one of the
choices.
"""

from __future__ import annotations

from collections import Counter

from gprune import untrusted
from gprune.evaluation.tasks import columns
from gprune.evaluation.tasks.columns import ColumnError, Row

VERSION = "1.0"
"""of prompt and scoring of such questions; raise it whenever they change"""


def check(row: Row) -> Row:
    """Reads one question.

    Args:
        row: the row as it stands in the file.

    Returns:
        The three columns, with the answer as an index.

    Raises:
        ColumnError: a column is missing or holds something else than it must.
    """
    question, choices = columns.text(row, "question"), columns.texts(row, "choices")
    if not all(choice.strip() for choice in choices):
        raise ColumnError("has an empty text in the column 'choices'")
    if len(set(choices)) < len(choices):
        repeated = Counter(choices).most_common(1)[0][0]
        raise ColumnError(f"has {untrusted.quoted(repeated)} more than once in the column 'choices'")
    if isinstance(row.get("answer"), str):
        answer = choices.index(columns.one_of(row, "answer", choices))
    else:
        answer = columns.index(row, "answer", len(choices))
    return {"question": question, "choices": choices, "answer": answer}
