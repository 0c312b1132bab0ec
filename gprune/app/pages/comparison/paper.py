"""What the paper reports: every published table, tagged as published."""

from typing import Any

import pandas as pd
import streamlit as st

from gprune.analysis import published as claims
from gprune.analysis import tables as gains
from gprune.analysis.formatting import percent
from gprune.app.ui import tables, url_state
from gprune.app.ui.card import card, published_badge
from gprune.app.ui.text import plain
from gprune.data import published
from gprune.data.published import Figure
from gprune.evaluation.protocol import PUBLISHED
from gprune.experiments.reproduction.cells import cell, heading, number

MAIN, GAP, GAIN = "main", "metric-gap", "gain-by-retention"
DERIVED = {
    GAP: "distance of the two base metrics in mean accuracy, computed from the published main table",
    GAIN: "what GPrune changes at every retention, computed from the published main table",
}
_NARROW = {"boolq": 56, "piqa": 56, "ARC-e": 60, "ARC-c": 60, "openbookqa": 88, "accuracy": 66}
"""pixels: the tables of all tasks fit into a window of 1280, with the mean that the others lead to"""
_RULE_HELP = (
    "max: the higher of raw and length-normalised accuracy of each task. fixed: the normalised one where the "
    "task has it (appendix, robustness to the evaluation protocol)."
)
_NAMES = {"mean_accuracy": "accuracy", "arc_easy": "ARC-e", "arc_challenge": "ARC-c"}


def show() -> None:
    """Draws the card of the published figures."""
    with card("cp_published", "What the paper reports") as drawn:
        model, name, rule = _choose()
        with st.container(horizontal=True, gap="xsmall"):
            published_badge()
            st.badge(plain(model), color="grey")
        st.caption(f"{plain(model)}: {plain(DERIVED.get(name) or published.TABLES[name])}.")
        table = shown(model, name, rule)
        tables.show(
            table,
            height=tables.height(len(table)),
            column_config=_columns(table),
            alt="published figures of the paper",
        )
        if name in (MAIN, GAP, GAIN):
            st.caption("Perplexity: lower is better; accuracies in points: higher is better; one seed.")
        st.caption(f":material/straighten: The paper’s protocol: {plain(PUBLISHED)}.")
        drawn.tools(
            lambda: table,
            switch=False,
            how="What the authors report, on their models, texts and windows. Compare rows within a block; "
            "beside what was measured here they are no rank.",
        )


def _choose() -> tuple[str, str, str]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        models = published.MODELS
        model = url_state.selectbox("Model", models, "cp_paper_model", models[0], width=200)
        names = [name for name in published.TABLES if published.table(name, model)] + list(DERIVED)
        name = url_state.selectbox("Table", names, "cp_paper_table", MAIN, width=240)
        rule = "max"
        if name in (MAIN, GAP, GAIN):
            rule = url_state.segmented("Figure that counts", published.RULES, "cp_paper_rule", rule, help=_RULE_HELP)
    return model, name, rule


def shown(model: str, name: str, rule: str) -> pd.DataFrame:
    """A published table as a reader sees it: text cells.

    `model` is one of gprune.data.published.MODELS, `name` one of its TABLES or a derived table, `rule` max or
    fixed.
    """
    if name in DERIVED:
        made = gains.metric_gap(claims.main_frame(model, rule)) if name == GAP else _gain(model, rule)
        return _named(made).map(lambda value: cell(value, ""))
    figures = published.table(name, model, rule)
    return pd.DataFrame([_line(figure) for figure in figures]).fillna("–")


def _columns(table: pd.DataFrame) -> dict[str, Any]:
    """Align numbers to the right."""
    words = ("retention", "method", "variant", "note", "base", "metric", "unit", "better", "seed")
    config: dict[str, Any] = {}
    for name in (name for name in table.columns if name not in words):
        config[name] = st.column_config.TextColumn(alignment="right", width=_NARROW.get(name))
    return config | ({"note": st.column_config.TextColumn(width="large")} if "note" in table.columns else {})


def _gain(model: str, rule: str) -> pd.DataFrame:
    made = gains.gain_by_retention(claims.main_frame(model, rule))
    made["metric"] = [heading(metric) for metric in made["metric"]]
    return made


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """Retentions as percentages and methods by name."""
    made = table.drop(columns="seed", errors="ignore")
    made["retention"] = [percent(value) for value in made["retention"]]
    for name in {"base", "method"} & set(made.columns):
        made[name] = [published.paper_name(value) for value in made[name]]
    if "reduction" in made.columns:
        made["reduction"] = [percent(value) for value in made["reduction"]]
    return made


def _line(figure: Figure) -> dict[str, str]:
    line = {"retention": "" if figure.retention is None else percent(figure.retention)}
    line["method"] = published.paper_name(figure.method) if figure.method else ""
    line |= {"variant": figure.variant, "seed": str(figure.seed) if figure.table == "seeds" else ""}
    kept = {name: value for name, value in line.items() if value}
    for column, value in figure.values.items():
        kept[_title(column)] = _number(column, value)
    if figure.note:
        kept["note"] = figure.note
    return kept


def _title(column: str) -> str:
    if column.endswith("_ppl"):
        return f"{column.removesuffix('_ppl')} PPL ↓"
    return _NAMES.get(column, column.replace("_", " "))


def _number(column: str, value: float) -> str:
    if float(value).is_integer() and abs(value) >= 100:
        return f"{value:,.0f}"
    scored = column.endswith("_ppl") or column == "mean_accuracy" or column in published.TASKS
    return number(value, "accuracy" if scored else column)
