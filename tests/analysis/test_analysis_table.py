"""A table says the same in every form; nothing in it means something else there or runs in a spreadsheet."""

import csv
import io

import numpy as np
import pandas as pd
import pytest

from gprune.analysis import table
from gprune.analysis.formatting import format_signed, percent
from gprune.analysis.table import Table, format_cell


def test_latex_is_escaped_and_aligned():
    text = "a_b & 50% of $x$ #1 {y} ~z ^2 \\n ± 1 <|> 0–20"
    escaped = table.escape(text)
    assert escaped == (
        r"a\_b \& 50\% of \$x\$ \#1 \{y\} \textasciitilde{}z \textasciicircum{}2 \textbackslash{}n $\pm$ 1 "
        r"\textless{}\textbar{}\textgreater{} 0--20"
    )
    frame = pd.DataFrame({"method": ["A & B_1"], "PPL ↓": ["1.0 ± 0.1 (+5%) ★"], "n": [3], "kept": [np.nan]})
    created = Table(frame).latex("100% of it")
    assert r"A \& B\_1 & 1.0 $\pm$ 0.1 (+5\%) $\star$ & 3 & -- \\" in created
    assert r"\begin{tabular}{lrrr}" in created and r"\caption{100\% of it}" in created
    assert r"PPL $\downarrow$" in created
    frame = pd.DataFrame([["a", "1"], ["b", "2"]], columns=["x", "x"], index=[0, 0])
    created = Table(frame).latex("")
    assert r"x & x \\" in created and "a & 1 \\\\\nb & 2 \\\\" in created


def test_a_table_is_one_float_with_the_rules_of_booktabs():
    created = Table(pd.DataFrame({"n": [1], "why": ["not run"]})).latex("one").split("\n")
    head = [r"\begin{table}", r"\centering", r"\caption{one}", r"\begin{tabular}{rl}", r"\toprule", r"n & why \\"]
    rest = [r"\midrule", r"1 & not run \\", r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    assert created == head + rest


@pytest.mark.parametrize(
    "value, digits, words",
    [
        (1.23456, 4, "1.235"),
        (120000, 4, "120000"),
        (None, 4, "–"),
        (float("nan"), 6, "–"),
        (True, 4, "True"),
        (np.float32(5.6789), 6, "5.6789"),
        (2.5e7, 6, "25000000"),
        (2.5e7, 4, "2.5e+07"),
    ],
)
def test_a_number_is_read_with_its_first_digits(value, digits, words):
    assert format_cell(value, digits) == words


def test_markdown_html_and_text_have_the_cells_in_their_places():
    table = Table.of(("a|b", "n"), [("<x>\ny", 1.5), ("z", None)])
    assert table.markdown().split("\n") == ["| a\\|b | n |", "| --- | --- |", "| <x> y | 1.5 |", "| z | – |"]
    assert "<th scope='col'>n</th>" in table.html() and "<td>&lt;x&gt;\ny</td><td>1.5</td>" in table.html()
    assert Table.of(("name", "n"), [("a", 10), ("bb", 2)]).text() == ["name   n", "a     10", "bb     2"]
    assert Table(pd.DataFrame(columns=["a"])).markdown() == "no rows"
    assert Table(pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("t", "x")]))).heads == ["t x"]


@pytest.mark.parametrize("table", [pd.DataFrame(), pd.DataFrame(columns=["a", "b"])], ids=["none", "no rows"])
def test_an_empty_table_is_still_a_table(table):
    created = Table(table).latex("empty")
    assert created.count(r"\begin{tabular}") == created.count(r"\end{tabular}") == 1


FORMULAS = (
    "=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1+1", "\r=1+1", " =1+1", "\n=1+1", " \n\t =cmd|' /C calc'!A0",
    "\ufeff=1+1", "\u200b=1+1", "\0=1+1", "\u00a0=1+1", "＝1+1", "-cmd", "=A1", "-1\n=2", "\tx",
)  # fmt: skip
HARMLESS = ("", "a=1", "–", "-", "==", "+=", " -", "−0.5", "x\n=1", "1", "@", "'=1")


NUMBERS = ("-0.5", "+3", "-1.2e-5", "-3%")


@pytest.mark.parametrize("cell", [*FORMULAS, *NUMBERS, *HARMLESS, 1, -2.5, None, True], ids=repr)
def test_a_cell_that_would_run_is_marked_as_text_and_a_number_in_a_file_alone(cell):
    marked = cell in (*FORMULAS, *NUMBERS)
    assert table.escape_formula(cell) == "'" + cell if marked else table.escape_formula(cell) is cell
    assert cell in FORMULAS or table.escape_formula(cell, display=True) is cell


def test_headings_row_names_and_cells_are_guarded_and_numbers_are_not_touched():
    frame = pd.DataFrame(
        {"=name": ["=a", "b"], "value": [-1.5, 2.0], "mixed": [-3, "@x"], "kind": pd.Categorical(["+a", "b"])},
        index=["-row", "other"],
    )
    safe = table.guard(frame)
    assert [*safe.columns, *safe.index] == ["'=name", "value", "mixed", "kind", "'-row", "other"]
    assert safe.iloc[0].tolist() == ["'=a", -1.5, -3, "'+a"] and safe["value"].dtype == float
    assert frame.iloc[0].tolist() == ["=a", -1.5, -3, "+a"], "the table itself is not changed"
    frame = pd.DataFrame([["=a", 1.0, "b"]], columns=pd.MultiIndex.from_tuples([("=t", "x"), ("u", "y"), ("u", "y")]))
    safe = table.guard(frame)
    assert safe.columns.tolist() == [("'=t", "x"), ("u", "y"), ("u", "y")]
    assert safe.iloc[0].tolist() == ["'=a", 1.0, "b"]
    frame = pd.DataFrame({"text": ['a,"b"\n=1', " =2", "c"], "number": [-1.0, 0.5, 2.0]})
    rows = list(csv.reader(io.StringIO(Table(frame).csv())))
    assert rows == [["text", "number"], ['a,"b"\n=1', "-1.0"], ["' =2", "0.5"], ["c", "2.0"]]


@pytest.mark.parametrize(
    ("share", "digits", "words"),
    [(0.41, 0, "41%"), (1.0, 1, "100.0%"), (-0.0725, 1, "−7.2%"), (float("nan"), 0, "nan%")],
)
def test_shares_are_in_percent_with_a_true_minus(share, digits, words):
    assert percent(share, digits) == words


def test_changes_and_shares_have_a_true_minus():
    assert [format_signed(value, ".1%") for value in (0.156, -0.156)] == ["+15.6%", "−15.6%"]
    assert format_signed(-0.0681, ".3f") == "−0.068"
