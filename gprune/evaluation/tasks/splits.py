"""Answers: does a file hold the split that a task is measured on, as far as its number of rows tells?

People take the wrong file of a download: the training rows, or the test rows, whose answers are not public.
The sizes are those of the published data sets.
"""

from __future__ import annotations

from collections.abc import Mapping

from gprune.evaluation.tasks.standard import STANDARD_TASKS

SIZES: Mapping[str, Mapping[str, int]] = {
    "boolq": {"train": 9427, "validation": 3270, "test": 3245},
    "piqa": {"train": 16113, "validation": 1838, "test": 3084},
    "hellaswag": {"train": 39905, "validation": 10042, "test": 10003},
    "winogrande": {
        "train_xs": 160,
        "train_s": 640,
        "train_m": 2558,
        "train_l": 10234,
        "train_xl": 40398,
        "validation": 1267,
        "test": 1767,
    },
    "arc_easy": {"train": 2251, "validation": 570, "test": 2376},
    "arc_challenge": {"train": 1119, "validation": 299, "test": 1172},
    "openbookqa": {"train": 4957, "validation": 500, "test": 500},
}
"""rows of every split, by task"""
_ALIKE = ("arc_easy", "arc_challenge")
"""tasks whose files have the same columns"""


def doubt(task: str, rows: int) -> str:
    """Why a file of so many rows is probably not the split that a task is measured on.

    Args:
        task: one of the seven; any other gives no reason for doubt.
        rows: rows of the file.

    Returns:
        One sentence that names the split which the rows fit; empty where they fit the right one, or none.
    """
    if task not in SIZES:
        return ""
    split = STANDARD_TASKS[task].split
    wanted = SIZES[task][split]
    others = _ALIKE if task in _ALIKE else (task,)
    # its own splits first
    named = sorted(((name, each) for name in others for each in SIZES[name]), key=lambda one: one[0] != task)
    fits = next((one for one in named if SIZES[one[0]][one[1]] == rows), None)
    if fits is None or rows == wanted:
        return ""
    other = fits[1] if fits[0] == task else f"{fits[1]} of {fits[0]}"
    return (
        f"its {rows:,} rows are as many as the split {other} has: {task} is measured on the split {split} "
        f"({wanted:,} rows)"
    )
