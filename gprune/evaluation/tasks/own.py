"""Answers: what must a file of one's own questions hold?

One row a question: ``{"question": "...", "choices": ["...", "..."], "answer": 0}``. The answer is the index
of the right choice, counted from 0, or the choice itself. The model sees the question, a space and one of the
choices.
"""

from collections import Counter

from gprune.evaluation.tasks.columns import Columns, Row
from gprune.system import safe_parsing

VERSION = "1.0"
"""of prompt and scoring of such questions; raise it whenever they change"""


def check(row: Row) -> Row:
    """Reads one question: the three columns of a row, with the answer as an index.

    Raises ColumnError, with the names of all, where columns are missing or hold something else.
    """
    read = Columns(row)
    question, choices = read.text("question"), read.texts("choices")
    if not all(choice.strip() for choice in choices):
        read.odd("has an empty text in the column 'choices'")
    elif len(set(choices)) < len(choices):
        repeated = Counter(choices).most_common(1)[0][0]
        read.odd(f"has {safe_parsing.quoted(repeated)} more than once in the column 'choices'")
    if isinstance(read.value("answer"), str):
        named = read.one_of("answer", choices)
        answer = choices.index(named) if named in choices else 0
    else:
        answer = read.index("answer", len(choices))
    read.require()
    return {"question": question, "choices": choices, "answer": answer}
