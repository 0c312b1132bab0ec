"""The demo's multiple-choice questions, an offline replacement for the zero-shot tasks of section 4.

They were made from the split "test" of the demo's texts. The folder `questions` has them as JSON lines in random order,
so that the first lines of a file are a representative sample.
"""

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("questions")
NAMES: tuple[str, ...] = ("demo_continuation", "demo_order", "demo_cloze")
"""demo_continuation: choose the true continuation of a passage among four. demo_order: choose the original of a
sentence and a copy with two adjacent words swapped. demo_cloze: choose the name at a position of a source file among
four."""
CHOICES: dict[str, int] = {"demo_continuation": 4, "demo_order": 2, "demo_cloze": 4}
"""number of choices of a question"""
DELIMITERS: dict[str, str] = {"demo_continuation": " ", "demo_order": " ", "demo_cloze": ""}
"""string between a question and a choice"""
VERSIONS: dict[str, str] = {
    "demo_continuation": "b4d692019993",
    "demo_order": "1d8387fec7a2",
    "demo_cloze": "bb2b273d9371",
}
"""part of the keys of results: change it whenever the questions change"""


@dataclass(frozen=True, slots=True)
class Question:
    """One multiple-choice question."""

    question: str
    """text before each choice; may be empty"""
    choices: tuple[str, ...]
    """distinct choices"""
    answer: int
    """index of the right choice"""


def questions(name: str) -> list[Question]:
    """Return the 200 questions of one of `NAMES`."""
    with (FOLDER / f"{name}.jsonl").open(encoding="ascii") as lines:
        rows = [json.loads(line) for line in lines]
    return [Question(row["question"], tuple(row["choices"]), row["answer"]) for row in rows]
