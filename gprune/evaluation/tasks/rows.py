"""Read and check rows of tasks from JSON lines: the paper's seven tasks and a user's own questions.

Prompts and scoring are lm-eval's own definitions (section 4). ARC and OpenBookQA are measured on the split test, the
others on validation, whose answers are public.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from gprune.data.demo import questions
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError
from gprune.system.safe_parsing import quote

Row = dict[str, Any]
Check = Callable[[Row], Row]
"""returns the columns of a row that a task reads; raises ValueError with a description of the first invalid column"""

OWN_COLUMNS = ("question", "choices", "answer")
OWN_QUESTIONS = "1.0"
"""version of prompt and scoring of own questions and prompts; raise it whenever they change"""
_NESTED_REPETITION = re.compile(r"[+*}]\)[+*{]")
_NUMBER = re.compile(r"-?(?:\d[\d,]*(?:\.\d+)?|\.\d+)")
_LISTED = 120
"""maximum length of a list in an error"""


@dataclass(frozen=True, slots=True)
class TaskSource:
    """A task and the location of its data."""

    task: str
    """the task as typed"""
    kind: Literal["demo", "own", "registered"]
    file: Path | None = None
    """local rows; None for the demo and for a dataset of the hub"""

    @property
    def on_hub(self) -> bool:
        """Return True if the rows come from a dataset of the hub."""
        return self.kind == "registered" and self.file is None


def check_question(row: Row) -> Row:
    """Return a user's question, its choices, and the index of the right choice as the answer."""
    question, choices, answer = _select_columns(row, OWN_COLUMNS).values()
    if not isinstance(question, str):
        raise _column_error(row, "question", "text")
    are_texts = isinstance(choices, list) and all(isinstance(choice, str) and choice.strip() for choice in choices)
    if not are_texts or len(choices) < 2 or len(set(choices)) < len(choices):
        raise _column_error(row, "choices", "a list of at least 2 different texts, none of them empty")
    indices = range(len(choices))
    if isinstance(answer, str):
        if answer not in choices:
            raise _column_error(row, "answer", f"one of {safe_parsing.sentence(', '.join(choices), _LISTED)}")
        answer = choices.index(answer)
    elif type(answer) is not int or answer not in indices:
        raise _column_error(row, "answer", f"a number from 0 to {indices[-1]}")
    return {"question": question, "choices": choices, "answer": answer}


def last_number(text: str) -> float | None:
    """Return the last number in a text, with commas removed; None if it has none."""
    numbers = _NUMBER.findall(text)
    return float(numbers[-1].replace(",", "")) if numbers else None


CHECKS: Mapping[str, Callable[[str, str], bool]] = {
    "exact": lambda text, answer: text.strip() == answer.strip(),
    "contains": lambda text, answer: answer in text,
    "number": lambda text, answer: last_number(text) == last_number(answer),
    "regex": lambda text, answer: re.search(answer, text) is not None,
}
"""checks of a generated text against the answer of a row, by name"""


def check_prompt(row: Row) -> Row:
    """Return a user's prompt, its answer as text, and the name of the check."""
    prompt, answer, check = _select_columns(row, ("prompt", "answer", "check")).values()
    if not isinstance(prompt, str) or not prompt.strip():
        raise _column_error(row, "prompt", "a text that is not empty")
    if check not in CHECKS:
        raise _column_error(row, "check", f"one of {', '.join(CHECKS)}")
    is_valid = _NUMBER.fullmatch(str(answer).strip()) if check == "number" else str(answer).strip()
    if not isinstance(answer, str | int | float) or not is_valid:
        raise _column_error(row, "answer", "a number" if check == "number" else "a text or a number")
    if check == "regex":
        try:
            re.compile(str(answer))
            if _NESTED_REPETITION.search(str(answer)):
                raise re.error("repetition of a repetition can take forever")
        except (re.error, OverflowError, RecursionError) as error:
            raise _column_error(row, "answer", f"a regular expression ({error})") from error
    return {"prompt": prompt, "answer": str(answer), "check": check}


@dataclass(frozen=True, slots=True)
class StandardTask:
    """One of the paper's tasks."""

    folder: str
    """folder of lm-eval's definition, below its folder of tasks"""
    columns: tuple[str, ...]
    """columns that the definition reads; the last is the answer"""
    answers: Callable[[Row], Collection[Any]]
    """returns the answers that a row may have"""
    split: str = "validation"
    """the split that is measured"""

    def check_row(self, row: Row) -> Row:
        """Return the columns of a row. Raises ValueError if one is missing or the answer is invalid."""
        selected, column = _select_columns(row, self.columns), self.columns[-1]
        try:
            answers = self.answers(row)
        except (KeyError, TypeError) as error:
            raise ValueError("has no choices in the format of the hub's rows: see docs/tasks.md") from error
        # some rows of the hub have a space before the answer
        types = {type(answer) for answer in answers}
        forms = row[column], str(row[column]).lstrip()
        answer = next((form for form in forms if type(form) in types and form in answers), None)
        if answer is None:
            raise _column_error(row, column, f"one of {safe_parsing.sentence(', '.join(map(str, answers)), _LISTED)}")
        return selected | {column: answer}


def _select_columns(row: Row, names: tuple[str, ...]) -> Row:
    missing = [repr(name) for name in names if row.get(name) is None]
    if missing:
        present = safe_parsing.sentence(", ".join(map(str, row)) or "none", _LISTED)
        raise ValueError(f"lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; it has {present}")
    return {name: row[name] for name in names}


def _column_error(row: Row, name: str, rule: str) -> ValueError:
    return ValueError(f"holds {quote(row[name], 60)} in the column {name!r}, which must be {rule}")


def _choice_labels(row: Row) -> Collection[Any]:
    return row["choices"]["label"]


_ARC = StandardTask("arc", ("question", "choices", "answerKey"), _choice_labels, split="test")
_HELLASWAG_COLUMNS = ("activity_label", "ctx_a", "ctx_b", "endings", "label")
STANDARD_TASKS: Mapping[str, StandardTask] = {
    "boolq": StandardTask("super_glue/boolq", ("passage", "question", "label"), lambda _: (0, 1, False, True)),
    "piqa": StandardTask("piqa", ("goal", "sol1", "sol2", "label"), lambda _: (0, 1)),
    "hellaswag": StandardTask(
        "hellaswag", _HELLASWAG_COLUMNS, lambda row: [str(i) for i in range(len(row["endings"]))]
    ),
    "winogrande": StandardTask("winogrande", ("sentence", "option1", "option2", "answer"), lambda _: ("1", "2")),
    "arc_easy": _ARC,
    "arc_challenge": _ARC,
    "openbookqa": StandardTask("openbookqa", ("question_stem", "choices", "answerKey"), _choice_labels, split="test"),
}
"""the paper's seven tasks by lm-eval's name, in the order of its tables"""


def read_documents(source: TaskSource) -> list[Row]:
    """Read and check the local rows of a task.

    Raises:
        CorpusError: The file cannot be read or is empty, or a column is missing or wrong.
    """
    task, file = source.task, source.file
    if source.kind == "demo":
        return [{**asdict(row), "choices": list(row.choices)} for row in questions.questions(task)]
    if file is None:
        raise CorpusError(f"the task {task!r} has no local rows: they come from the hub")
    check: Check | None = STANDARD_TASKS[task].check_row if task in STANDARD_TASKS else None
    rows = list[Row]()
    for number, row in _read_lines(file):
        location = f"the task {task!r}: line {number} of {str(file)!r}"
        if not isinstance(row, dict):
            raise CorpusError(f"{location} is not a JSON object: write one question per line")
        if source.kind == "own" and not rows:
            # the first row decides whether the file has prompts or questions
            check = check_prompt if "prompt" in row else check_question
        try:
            checked = row if check is None else check(row)
            # the ability that the question tests, by which accuracies are averaged
            ability = {"ability": str(row["ability"])} if source.kind == "own" and row.get("ability") else {}
            rows.append(checked | ability)
        except ValueError as error:
            raise CorpusError(f"{location} {error}") from error
    if not rows:
        raise CorpusError(f"the task {task!r}: {str(file)!r} is empty: write one question per line")
    return rows


def _read_lines(file: Path) -> Iterator[tuple[int, Any]]:
    with safe_parsing.reraise_as(CorpusError):
        data = safe_parsing.contents(file, repr(str(file)))
        for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
            if line.strip():
                yield number, safe_parsing.json_value(line, f"line {number} of {str(file)!r}")
