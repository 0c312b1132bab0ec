"""Is every equation of the paper in docs/equations.csv, with a function and a test that exist?"""

import ast
import csv
import importlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "method.md"
TABLE = PROJECT / "docs" / "equations.csv"
# environments of LaTeX that print a number, starred they do not
NUMBERED = r"\\begin\{(equation|align|gather|multline|eqnarray)\}(.*?)\\end\{\1\}"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    where: str
    functions: tuple[str, ...]
    test: str


LINES = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))
ROWS = [Row(line["where"], tuple(line["function"].split()), line["test"]) for line in LINES]


def equations(text):
    """Numbers of the equations that a text cites, as in `Eq. 1`, `Eqs. 2 to 5` or `Eqs. 8, 9 and 11`."""
    numbers = []
    for cited in re.findall(r"\bEqs?\. (\d+(?:(?:, | and | to )\d+)*)", text):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", cited):
            numbers += range(int(first), int(last or first) + 1)
    return numbers


def resolve(name):
    """What a dotted name means: a module, and then attributes."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            result = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if not name.startswith(f"{error.name}."):
                raise
            continue
        for part in parts[length:]:
            result = getattr(result, part)
        return result
    raise AssertionError(f"nothing is called {name}")


@cache
def names_in(file):
    """Names of the tests of a file."""
    tree = ast.parse((PROJECT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("function", sorted({function for row in ROWS for function in row.functions}))
def test_function_exists_and_says_what_it_does(function):
    result = resolve(function)
    assert callable(result)
    assert result.__doc__


@pytest.mark.parametrize("test", sorted({row.test for row in ROWS}))
def test_test_exists(test):
    file, name = test.split("::")
    assert name in names_in(file)


def test_every_row_has_a_function_and_equations_come_in_order_once_each():
    assert all(all(line.values()) and len(line) == 4 for line in LINES)
    numbers = [number for row in ROWS for number in equations(row.where)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_headings_of_the_page_are_its_own_and_the_table_has_every_equation_of_the_paper(shared):
    page = PAGE.read_text(encoding="utf-8")
    reference = ("Eq. ", "Fig. ", "section ", "appendix, ")
    for row in ROWS:
        assert row.where.startswith(reference) or f"\n## {row.where}\n" in page, row.where
    paper = shared / "paper" / "gprune-llm.tex"
    if not paper.is_file():
        pytest.skip(f"the paper's source is not at {paper}")
    source = re.sub(r"(?<!\\)%.*", "", paper.read_text(encoding="utf-8"))
    printed = [body for _, body in re.findall(NUMBERED, source, re.DOTALL)]
    assert all("\\nonumber" not in body and "\\tag" not in body for body in printed)
    labels = set(re.findall(r"\\label\{(eq:[^}]+)\}", source))
    assert labels == {label for body in printed for label in re.findall(r"\\label\{(eq:[^}]+)\}", body)}
    assert len(printed) == max(number for row in ROWS for number in equations(row.where))


def test_the_code_cites_no_other_equations():
    last = max(number for row in ROWS for number in equations(row.where))
    for file in (PROJECT / "gprune").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert all(1 <= number <= last for number in equations(text)), file
        # one way to cite: by the number
        assert len(re.findall(r"\bEqs?\.|\b[Ee]quation \d", text)) == len(re.findall(r"\bEqs?\. \d", text)), file
