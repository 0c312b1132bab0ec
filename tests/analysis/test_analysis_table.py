"""A table says the same in every form, and nothing in it means something else to the form."""

import numpy as np
import pandas as pd
import pytest

from gprune.analysis import latex
from gprune.analysis.table import Table, read


def test_latex_is_escaped_and_aligned():
    text = "a_b & 50% of $x$ #1 {y} ~z ^2 \\n ± 1 <|> 0–20"
    escaped = latex.escape(text)
    assert escaped == (
        r"a\_b \& 50\% of \$x\$ \#1 \{y\} \textasciitilde{}z \textasciicircum{}2 \textbackslash{}n $\pm$ 1 "
        r"\textless{}\textbar{}\textgreater{} 0--20"
    )
    table = pd.DataFrame({"method": ["A & B_1"], "PPL ↓": ["1.0 ± 0.1 (+5%) ★"], "n": [3], "kept": [np.nan]})
    made = Table(table).latex("100 % of it")
    assert r"A \& B\_1 & 1.0 $\pm$ 0.1 (+5\%) $\star$ & 3 & -- \\" in made
    assert r"\begin{tabular}{lrrr}" in made and r"\caption{100 \% of it}" in made
    assert r"PPL $\downarrow$" in made
    table = pd.DataFrame([["a", "1"], ["b", "2"]], columns=["x", "x"], index=[0, 0])
    made = Table(table).latex("")
    assert r"x & x \\" in made and "a & 1 \\\\\nb & 2 \\\\" in made


def test_a_table_is_one_float_with_the_rules_of_booktabs():
    made = Table(pd.DataFrame({"n": [1], "why": ["not run"]})).latex("one").split("\n")
    assert made == [
        r"\begin{table}",
        r"\centering",
        r"\caption{one}",
        r"\begin{tabular}{rl}",
        r"\toprule",
        r"n & why \\",
        r"\midrule",
        r"1 & not run \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ]


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
    assert read(value, digits) == words


def test_markdown_html_and_text_have_the_cells_in_their_places():
    table = Table.of(("a|b", "n"), [("<x>\ny", 1.5), ("z", None)])
    assert table.markdown().split("\n") == ["| a\\|b | n |", "| --- | --- |", "| <x> y | 1.5 |", "| z | – |"]
    assert "<th scope='col'>n</th>" in table.html() and "<td>&lt;x&gt;\ny</td><td>1.5</td>" in table.html()
    assert Table.of(("name", "n"), [("a", 10), ("bb", 2)]).text() == ["name   n", "a     10", "bb     2"]
    assert Table(pd.DataFrame(columns=["a"])).markdown() == "no rows"
    assert Table(pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("t", "x")]))).heads == ["t x"]


@pytest.mark.parametrize("table", [pd.DataFrame(), pd.DataFrame(columns=["a", "b"])], ids=["none", "no rows"])
def test_an_empty_table_is_still_a_table(table):
    made = Table(table).latex("empty")
    assert made.count(r"\begin{tabular}") == made.count(r"\end{tabular}") == 1
