"""What leaves for a spreadsheet runs nothing there, and numbers stay numbers."""

import csv
import io

import pandas as pd
import pytest

from gprune.analysis import spreadsheet
from gprune.analysis.table import Table

FORMULAS = (
    "=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1+1", "\r=1+1", " =1+1", "\n=1+1", " \n\t =cmd|' /C calc'!A0",
    "\ufeff=1+1", "\u200b=1+1", "\0=1+1", "\u00a0=1+1", "＝1+1", "-cmd", "=A1", "-1\n=2", "\tx",
)  # fmt: skip
HARMLESS = (
    "",
    "a=1",
    "–",
    "-",
    "==",
    "+=",
    " -",
    "−0.5",
    "x\n=1",
    "1",
    "@",
    "'=1",
)


@pytest.mark.parametrize("cell", FORMULAS, ids=repr)
def test_a_cell_that_would_run_is_marked_as_text(cell):
    assert spreadsheet.guarded(cell) == "'" + cell


@pytest.mark.parametrize("cell", [*HARMLESS, 1, -2.5, None, True], ids=repr)
def test_every_other_cell_stays_as_it_is(cell):
    assert spreadsheet.guarded(cell) is cell


@pytest.mark.parametrize("cell", ["-0.5", "+3", "-1.2e-5", "-3 %"])
def test_a_text_that_is_a_number_is_marked_in_a_file_and_not_on_a_page(cell):
    assert spreadsheet.guarded(cell) == "'" + cell and spreadsheet.guarded(cell, shown=True) is cell


def test_headings_row_names_and_cells_are_guarded_and_numbers_are_not_touched():
    frame = pd.DataFrame(
        {
            "=name": ["=a", "b"],
            "value": [-1.5, 2.0],
            "mixed": [-3, "@x"],
            "kind": pd.Categorical(["+a", "b"]),
        },
        index=["-row", "other"],
    )
    safe = spreadsheet.guard(frame)
    assert list(safe.columns) == ["'=name", "value", "mixed", "kind"] and list(safe.index) == [
        "'-row",
        "other",
    ]
    assert safe.iloc[0].tolist() == ["'=a", -1.5, -3, "'+a"] and safe["value"].dtype == float
    assert frame.iloc[0].tolist() == ["=a", -1.5, -3, "+a"], "the table itself is not changed"
    frame = pd.DataFrame(
        [["=a", 1.0, "b"]], columns=pd.MultiIndex.from_tuples([("=t", "x"), ("u", "y"), ("u", "y")])
    )
    safe = spreadsheet.guard(frame)
    assert safe.columns.tolist() == [("'=t", "x"), ("u", "y"), ("u", "y")]
    assert safe.iloc[0].tolist() == ["'=a", 1.0, "b"]
    frame = pd.DataFrame({"text": ['a,"b"\n=1', " =2", "c"], "number": [-1.0, 0.5, 2.0]})
    rows = list(csv.reader(io.StringIO(Table(frame).csv())))
    assert rows == [["text", "number"], ['a,"b"\n=1', "-1.0"], ["' =2", "0.5"], ["c", "2.0"]]
