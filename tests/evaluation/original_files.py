"""The documents of task_files.py as the tasks' authors write them, with the columns that nobody asks for."""

import json
from collections.abc import Callable
from pathlib import Path

from evaluation.task_files import SPLITS, row, write_rows


def _written(place: str, change: Callable[[dict, int], dict], labels: str = "") -> Callable[[str, Path, int], Path]:
    """A writer of one form: name of the file, how a row differs, which column goes into a file of labels."""

    def write(task: str, folder: Path, rows: int) -> Path:
        found = [change(row(task, number), number) for number in range(rows)]
        if labels:
            answers = "".join(f"{line.pop(labels)}\n" for line in found)
            file = folder / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.with_name(f"{file.stem}-labels.lst").write_text(answers)
        return write_rows(folder / place, found)

    return write


def _same(line: dict, number: int) -> dict:
    return line


def _super_glue(line: dict, number: int) -> dict:
    return {**line, "idx": number, "label": bool(line["label"])}


def _google(line: dict, number: int) -> dict:
    title, passage = line["passage"].split(" -- ") if " -- " in line["passage"] else ("", line["passage"])
    titled = {"title": title} if title else {}
    return {"question": line["question"], **titled, "answer": bool(line["label"]), "passage": passage}


def _stem(line: dict, number: int) -> dict:
    """AI2's form: the question is an object with its stem and its choices."""
    pairs = zip(line["choices"]["text"], line["choices"]["label"], strict=True)
    choices = [{"text": text, "label": label} for text, label in pairs]
    stem = line.get("question_stem") or line["question"]
    return {
        "id": f"Mercury_{number}",
        "question": {"stem": stem, "choices": choices},
        "answerKey": line["answerKey"],
    }


def _open_book(line: dict, number: int) -> dict:
    return {**_stem(line, number), "fact1": "things do deeds", "humanScore": "1.00", "clarity": "2.00"}


def _hellaswag(line: dict, number: int) -> dict:
    context = f"{line['ctx_a']} {line['ctx_b']}"
    more = {"ind": number, "ctx": context, "split": "val", "split_type": "indomain", "source_id": "made~up"}
    return {**more, **line, "label": int(line["label"])}


def _winogrande(line: dict, number: int) -> dict:
    return {"qID": f"3FCO4VKOZ4BJQ6CFTXNBXZQ37X7E7Y-{number}", **line}


FORMS = {
    ("boolq", "SuperGLUE"): _written("BoolQ/val.jsonl", _super_glue),
    ("boolq", "google"): _written("boolq/dev.jsonl", _google),
    ("piqa", "with labels"): _written("piqa/valid.jsonl", _same, "label"),
    ("piqa", "AI2's archive"): _written("physicaliqa-train-dev/dev.jsonl", _same, "label"),
    ("hellaswag", "authors"): _written("hellaswag_val.jsonl", _hellaswag),
    ("hellaswag", "AI2's archive"): _written("hellaswag-train-dev/valid.jsonl", _hellaswag, "label"),
    ("winogrande", "1.1"): _written("winogrande_1.1/dev.jsonl", _winogrande),
    ("winogrande", "with labels"): _written("winogrande/dev.jsonl", _winogrande, "answer"),
    ("arc_easy", "AI2"): _written("ARC-V1-Feb2018-2/ARC-Easy/ARC-Easy-Test.jsonl", _stem),
    ("arc_challenge", "AI2"): _written("ARC-Challenge/ARC-Challenge-Test.jsonl", _stem),
    ("openbookqa", "AI2"): _written("OpenBookQA-V1-Sep2018/Data/Main/test.jsonl", _open_book),
    ("boolq", "hub"): _written("boolq/validation-00000-of-00001.parquet", _same),
    ("piqa", "hub"): _written("piqa/validation.parquet", _same),
    ("hellaswag", "hub"): _written("hellaswag/data/validation-00000-of-00001.parquet", _same),
    ("winogrande", "hub"): _written("winogrande_xl/validation-00000-of-00001.parquet", _same),
    ("arc_easy", "hub"): _written("ARC-Easy/test-00000-of-00001.parquet", _same),
    ("arc_challenge", "hub"): _written("ARC-Challenge/test-00000-of-00001.parquet", _same),
    ("openbookqa", "hub"): _written("main/test-00000-of-00001.parquet", _same),
}
"""how to write the rows of a task in a form: (task, folder, rows) -> file"""
SETS = [{task: [form for name, form in FORMS if name == task][at] for task in SPLITS} for at in (0, 1, -1)]
"""a form for every task: three sets that have every form between them"""


def documented() -> list[tuple[str, dict]]:
    """The example rows of docs/tasks.md, each with the task of its section."""
    found, task = [], ""
    for line in (Path(__file__).resolve().parents[2] / "docs" / "tasks.md").read_text().splitlines():
        if line.startswith("## "):
            task = line.removeprefix("## ").split(" ")[0].strip("`")
        elif line.startswith("{"):
            found.append((task, json.loads(line)))
    return found
