"""Small files in the schemas of the seven zero-shot tasks, with invented content."""

import json
from pathlib import Path

ROWS = 6
SPLITS = {
    "boolq": "validation",
    "piqa": "validation",
    "hellaswag": "validation",
    "winogrande": "validation",
    "arc_easy": "test",
    "arc_challenge": "test",
    "openbookqa": "test",
}
THINGS = ("a kettle", "the moon", "an oak", "a red fox", "some rain", "the bridge", "a violin")
DEEDS = ("boils water", "pulls the tide", "drops acorns", "hunts mice", "fills the river", "carries trains")

OWN = [
    {"question": "The opposite of hot is", "choices": ["cold", "a very warm day", "blue"], "answer": 0},
    {"question": "Two and two make", "choices": ["four", "five"], "answer": 1},
    {"question": "2024", "choices": ["was a year", "{{answer}}", "12", "no"], "answer": 3},
    {"question": "", "choices": ["He reads the book.", "Book the reads he."], "answer": 1},
]
"""own questions"""
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
"""chat template"""


def row(task: str, number: int) -> dict:
    """One document; its answer changes with the number."""
    thing, deed = THINGS[number % len(THINGS)], DEEDS[number % len(DEEDS)]
    rest = [DEEDS[(number + step) % len(DEEDS)] for step in (1, 2, 3)]
    choices = [*rest[: number % 4], f"It {deed}", *rest[number % 4 :]]
    lettered = {"text": choices, "label": ["A", "B", "C", "D"]}
    if task == "boolq":
        return {"passage": f"{thing} {deed}.", "question": f"does {thing} do it", "label": number % 2}
    if task == "piqa":
        return {"goal": f"make {thing} work", "sol1": deed, "sol2": rest[0], "label": (number + 1) % 2}
    if task == "hellaswag":
        context = {"activity_label": "Outside", "ctx_a": f"We see {thing}.", "ctx_b": "then it"}
        return {**context, "endings": [f"[step] {choice}." for choice in choices], "label": str(number % 4)}
    if task == "winogrande":
        gap = {"sentence": f"{thing} beats a stone as _ {deed}.", "option1": thing, "option2": "a stone"}
        return {**gap, "answer": str(1 + number % 2)}
    if task == "openbookqa":
        return {"question_stem": f"What of {thing}?", "choices": lettered, "answerKey": "ABCD"[number % 4]}
    return {"question": f"What does {thing} do?", "choices": lettered, "answerKey": "ABCD"[number % 4]}


def write_rows(file: Path, rows: list[dict]) -> Path:
    """A file of rows as JSON lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in rows), encoding="utf-8")
    return file


def write_seven(folder: Path, rows: int = ROWS) -> Path:
    """A task folder with all seven."""
    for task in SPLITS:
        write_rows(folder / f"{task}.jsonl", [row(task, number) for number in range(rows)])
    return folder
