"""Text cells of tables: formatted numbers and labels, and the paper's figures."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from gprune.analysis import accuracy
from gprune.analysis import published as paper_results
from gprune.analysis import tables as gains
from gprune.data import published
from gprune.evaluation.protocol import PUBLISHED
from gprune.experiments.reproduction.grid import Series
from gprune.experiments.reproduction.scale import paper_model
from gprune.study import short

MAIN, GAP = "main", "metric-gap"


def heading(metric: str) -> str:
    """Return a metric's column title: `wikitext2 PPL`, `accuracy (max)`, `boolq`."""
    kind, separator, subject = metric.partition(":")
    if not separator:
        return kind
    return f"{short(subject)} PPL" if kind == "ppl" else short(subject)


def decimals(metric: str) -> int:
    """Return the number of decimals of a metric: two for perplexities, accuracies and tokens per second, else three."""
    if metric.endswith("MiB"):
        return 1
    return 2 if metric.startswith(("ppl:", "accuracy")) or metric.endswith("tokens/s") else 3


def format_number(value: float, metric: str) -> str:
    """Format a number with the decimals of its metric; empty for NaN."""
    return "" if np.isnan(value) else f"{value:.{decimals(metric)}f}"


def format_with_error(text: str, error: float, digits: int = 3) -> str:
    """Append `± error` to a formatted number, unless the number is empty or the error is NaN."""
    return text if not text or np.isnan(error) else f"{text} ± {error:.{digits}f}"


def format_parameter_count(parameters: int) -> str:
    """Format a number of parameters in millions or billions; empty if unknown."""
    if not parameters:
        return ""
    return f"{parameters / 1e9:.2f}B" if parameters >= 1e9 else f"{parameters / 1e6:.2f}M"


def format_cell(value: Any, name: str) -> str:
    """Format a label or a number; retentions are percentages."""
    if value is None or (isinstance(value, float) and np.isnan(value)) or value is pd.NA:
        return ""
    if name == "retention":
        return f"{value:.0%}"
    if name == "parameters":
        return format_parameter_count(int(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def metric_with_rule(metric: str, rule: str) -> str:
    """Return a metric's name, followed by the rule if it is an accuracy: `accuracy (max)`."""
    return f"{metric} ({rule})" if metric.startswith(gains.ACCURACY) else metric


def is_single(metric: str) -> bool:
    """Return True if a metric is the accuracy of a single task."""
    return metric.startswith(f"{gains.ACCURACY}:")


def under_both_rules(derive: Callable[[pd.DataFrame], pd.DataFrame], frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return a derived table under both accuracy rules, as one table with a `metric` column.

    `derive` computes the table from a frame of rows, and `frames` has the frame under each rule. Metrics that do not
    depend on the rule appear once.
    """
    tables = []
    for index, (rule, frame) in enumerate(frames.items()):
        table = derive(frame)
        if "metric" not in table.columns:
            continue
        # only accuracies differ under the second rule
        rows = table if index == 0 else table[table["metric"].astype(str).str.startswith(gains.ACCURACY)]
        tables.append(rows.assign(metric=[metric_with_rule(str(metric), rule) for metric in rows["metric"]]))
    filled = [part for part in tables if len(part)]
    if filled:
        return pd.concat(filled, ignore_index=True)
    return tables[0] if tables else derive(next(iter(frames.values())))


def without_single_tasks(values: pd.DataFrame) -> pd.DataFrame:
    """Return a derived table without the rows of single tasks."""
    if "metric" not in values.columns:
        return values
    return values[[not is_single(str(metric)) for metric in values["metric"]]]


def published_figures(name: str, is_derived: bool, series: Series, rule: str) -> tuple[pd.DataFrame, str]:
    """Return the paper's figures of a table as text cells, and their title; no cells if the paper has none.

    Derived tables are computed from the rows of the main table. The title names the paper's model. `rule` is the
    accuracy rule of single tasks, max or fixed.
    """
    measured_by_paper = paper_model(series.model)
    model = measured_by_paper if measured_by_paper and (name == MAIN or is_derived) else published.MODELS[0]
    title = f"published, {model}, not measured here: its texts and sample counts are the paper's; {PUBLISHED}"
    if is_derived:
        return spell_out(_compute_derived_table(name, model)), title
    return (_build_published_table(name, model, rule), title) if name in published.TABLES else (pd.DataFrame(), "")


def _compute_derived_table(name: str, model: str) -> pd.DataFrame:
    frames = {rule: paper_results.main_frame(model, rule) for rule in accuracy.RULES}
    values = without_single_tasks(under_both_rules(_compute_gap if name == GAP else gains.gain_by_retention, frames))
    return values.sort_values("retention", ascending=False, kind="stable", ignore_index=True)


def _compute_gap(rows: pd.DataFrame) -> pd.DataFrame:
    return gains.metric_gap(rows).assign(metric=gains.ACCURACY)


def _build_published_table(name: str, model: str, rule: str) -> pd.DataFrame:
    """Return the paper's figures of a table as text; the main table has its mean accuracy under both rules."""
    rows = published.table(name, model, rule if name == MAIN else accuracy.RULES[0])
    frame = published.frame(rows).assign(note=[row.note for row in rows])
    frame["method"] = [published.paper_name(method) if method else "" for method in frame["method"]]
    for rule in accuracy.RULES if name == MAIN else accuracy.RULES[:1]:
        if gains.ACCURACY in frame:
            # the main table lists the same rows in the same order under both rules
            values = published.frame(published.table(name, model, rule))[gains.ACCURACY]
            frame.insert(int(frame.columns.get_loc(gains.ACCURACY)), metric_with_rule(gains.ACCURACY, rule), values)
    columns = [str(column) for column in frame if column not in ("table", "model", gains.ACCURACY)]
    texts = pd.DataFrame({heading(column): _format_texts(frame[column], column) for column in columns})
    return texts.loc[:, (texts != "").any()]


def _format_texts(column: pd.Series, name: str) -> list[str]:
    is_measure = name.startswith(("ppl:", gains.ACCURACY))
    return [format_number(value, name) if is_measure else format_cell(value, name) for value in column]


def spell_out(values: pd.DataFrame) -> pd.DataFrame:
    """Return a derived table with names for ids, percentages for retentions, and words for booleans."""
    names = [str(name) for name in values.columns if name != "seed"]
    lines = [{name: _spell_value(name, row[name]) for name in names} for row in values.to_dict("records")]
    return pd.DataFrame(lines, columns=names, dtype=str)


def _spell_value(name: str, value: object) -> str:
    if name in ("base", "method"):
        return published.paper_name(str(value))
    if name == "metric":
        return heading(str(value))
    return ("yes" if value else "no") if name == "better" else format_cell(value, name)
