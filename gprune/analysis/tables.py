"""Tables of the gain of GPrune over each base metric, the gap between base metrics, and the spread over seeds.

Section 4 (main results) and appendix (seed repeatability). The input is a frame of either measured or published rows
with the columns `method` (id), `retention` (target), optionally `seed`, and the metrics `ppl:<text>`, `accuracy` and
`accuracy:<task>`. Accuracies are in points.
"""

import numpy as np
import pandas as pd

from gprune.analysis.claims import BASES

PERPLEXITY = "ppl:"
ACCURACY = "accuracy"
GPRUNE = "gprune:"


def metrics(rows: pd.DataFrame) -> list[str]:
    """Return the columns with perplexities or accuracies in the frame's order."""
    starts = (PERPLEXITY, f"{ACCURACY}:")
    return [name for name in map(str, rows.columns) if name == ACCURACY or name.startswith(starts)]


def metric_gap(
    rows: pd.DataFrame, column: str = ACCURACY, bases: tuple[str, str] = ("wanda_sp", "flap")
) -> pd.DataFrame:
    """Return how far the methods of two base metrics differ in a column, before and after GPrune is applied to both.

    `rows` has one row per method, retention and seed. The columns are retention, seed if present, before, after, and
    reduction (1 - after / before; negative if the gap grows, NaN if there was no gap). Rows are in descending order of
    retention; those without all four results are left out.
    """
    keys = _key_columns(rows)
    columns = [*keys, "before", "after", "reduction"]
    if column not in rows.columns:
        return pd.DataFrame(columns=columns)
    methods = [*bases, *(GPRUNE + base for base in bases)]
    four = pd.concat([_select_method(rows, keys, name)[column].rename(name) for name in methods], axis=1, join="inner")
    four = four.astype(float).dropna()
    # rounded, because equal differences may differ in the last bit
    before = (four[methods[0]] - four[methods[1]]).abs().round(12)
    after = (four[methods[2]] - four[methods[3]]).abs().round(12)
    table = pd.DataFrame({"before": before, "after": after, "reduction": 1 - after / before.replace(0, np.nan)})
    return _order_columns(table.reset_index(), columns)


def gain_by_retention(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the change by GPrune relative to its base metric at every retention.

    `rows` has one row per method, retention and seed. The columns are base, method, retention, seed if present, metric,
    before, after, gain, unit and better. A gain is the ratio after / before of perplexities (below 1 is better) or the
    difference after - before of accuracies in points (above 0 is better). Rows are in descending order of retention.
    """
    keys = _key_columns(rows)
    columns = ["base", "method", *keys, "metric", "before", "after", "gain", "unit", "better"]
    methods = list(dict.fromkeys(rows["method"]))
    tables = []
    for method in (name for name in methods if str(name).startswith(GPRUNE)):
        metric = method.removeprefix(GPRUNE)
        base = next((name for name in BASES.get(metric, (metric,)) if name in methods), None)
        if base is not None:
            tables.extend(_compute_gains(rows, keys, base, method))
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)
    return _order_columns(table, columns)


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean and standard deviation over seeds of every metric, method and retention.

    `rows` has one row per method, retention and seed. The columns are method, retention, metric, mean, std (divisor n,
    as in the paper's table) and the number of seeds.
    """
    long = rows.melt(["method", "retention", "seed"], metrics(rows), "metric", "value").dropna(subset="value")
    long["value"] = long["value"].astype(float)
    grouped = long.groupby(["method", "retention", "metric"], sort=False)["value"]
    table = grouped.agg(mean="mean", std=lambda values: values.std(ddof=0), seeds="size")
    return table.reset_index()


def _compute_gains(rows: pd.DataFrame, keys: list[str], base: str, method: str) -> list[pd.DataFrame]:
    """Return the gains of a method over its base metric, one table per metric."""
    before, after = _select_method(rows, keys, base), _select_method(rows, keys, method)
    tables = []
    for metric in metrics(rows):
        pairs = pd.concat({"before": before[metric], "after": after[metric]}, axis=1, join="inner")
        gains = pairs.astype(float).dropna().reset_index()
        is_ratio = metric.startswith(PERPLEXITY)
        gains["gain"] = gains["after"] / gains["before"] if is_ratio else gains["after"] - gains["before"]
        gains["better"] = gains["gain"] < 1 if is_ratio else gains["gain"] > 0
        tables.append(gains.assign(base=base, method=method, metric=metric, unit="ratio" if is_ratio else "points"))
    return tables


def _key_columns(rows: pd.DataFrame) -> list[str]:
    return ["retention", "seed"] if "seed" in rows.columns else ["retention"]


def _select_method(rows: pd.DataFrame, keys: list[str], method: str) -> pd.DataFrame:
    return rows[rows["method"] == method].set_index(keys)


def _order_columns(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    return table[columns].sort_values("retention", ascending=False, kind="stable", ignore_index=True)
