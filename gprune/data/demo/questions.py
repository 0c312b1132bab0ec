"""The demo's multiple-choice questions, which stand in for the zero-shot tasks of section 4 without a network.

They were made from the split "test" of the demo's texts and stand as JSON lines in the folder `questions`, in random
order, so that the first few are a fair choice among all.
"""

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("questions")
NAMES: tuple[str, ...] = ("demo_continuation", "demo_order", "demo_cloze")
"""which of four continuations is a passage's own; which of two sentences has its words in order, where the
other has two neighbours changed; which of four names of a source file stands at this place"""
CHOICES: dict[str, int] = {"demo_continuation": 4, "demo_order": 2, "demo_cloze": 4}
DELIMITERS: dict[str, str] = {"demo_continuation": " ", "demo_order": " ", "demo_cloze": ""}
"""what stands between a question and a choice"""
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
    """what comes before each choice; may be empty"""
    choices: tuple[str, ...]
    """distinct choices"""
    answer: int
    """index of the right choice"""


def questions(name: str) -> list[Question]:
    """Return the 200 questions of one of `NAMES`."""
    with (FOLDER / f"{name}.jsonl").open(encoding="ascii") as lines:
        rows = [json.loads(line) for line in lines]
    return [Question(row["question"], tuple(row["choices"]), row["answer"]) for row in rows]
