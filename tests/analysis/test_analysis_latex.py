"""A table's LaTeX source says what the table says, and nothing in it means something else to LaTeX."""

import numpy as np
import pandas as pd
import pytest

from gprune.analysis import latex


def test_every_special_character_is_escaped() -> None:
    text = "a_b & 50% of $x$ #1 {y} ~z ^2 \\n ± 1 <|> 0–20"
    escaped = latex.escape(text)
    assert escaped == (
        r"a\_b \& 50\% of \$x\$ \#1 \{y\} \textasciitilde{}z \textasciicircum{}2 \textbackslash{}n $\pm$ 1 "
        r"\textless{}\textbar{}\textgreater{} 0--20"
    )


def test_a_table_is_escaped_and_aligned() -> None:
    table = pd.DataFrame({"method": ["A & B_1"], "PPL ↓": ["1.0 ± 0.1 (+5%) ★"], "n": [3], "kept": [np.nan]})
    made = latex.source(table, "100 % of it")
    assert r"A \& B\_1 & 1.0 $\pm$ 0.1 (+5\%) $\star$ & 3 & -- \\" in made
    assert r"\begin{tabular}{lrrr}" in made and r"\caption{100 \% of it}" in made
    assert r"PPL $\downarrow$" in made


def test_a_table_is_one_float_with_the_rules_of_booktabs() -> None:
    made = latex.source(pd.DataFrame({"n": [1], "why": ["not run"]}), "one").split("\n")
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
    "value, read", [(1.23456, "1.235"), (120000, "120000"), (None, "--"), (True, "True")]
)
def test_numbers_are_read_as_on_the_page(value: object, read: str) -> None:
    assert f"\n{read} \\\\\n" in latex.source(pd.DataFrame({"n": pd.Series([value], dtype=object)}), "")


@pytest.mark.parametrize("table", [pd.DataFrame(), pd.DataFrame(columns=["a", "b"])], ids=["none", "no rows"])
def test_an_empty_table_is_still_a_table(table: pd.DataFrame) -> None:
    made = latex.source(table, "empty")
    assert made.count(r"\begin{tabular}") == made.count(r"\end{tabular}") == 1


def test_rows_and_columns_of_the_same_name_all_stay() -> None:
    table = pd.DataFrame([["a", "1"], ["b", "2"]], columns=["x", "x"], index=[0, 0])
    made = latex.source(table, "")
    assert r"x & x \\" in made and "a & 1 \\\\\nb & 2 \\\\" in made
