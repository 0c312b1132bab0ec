"""What the paper itself gives for a table, to stand beside the measured rows and never among them."""

import pandas as pd

from gprune.analysis import accuracy
from gprune.analysis import published as claims
from gprune.analysis import tables as gains
from gprune.data import published
from gprune.evaluation.protocol import PUBLISHED
from gprune.experiments.reproduction import means
from gprune.experiments.reproduction.cells import cell, heading, number
from gprune.experiments.reproduction.grid import Series
from gprune.experiments.reproduction.scale import paper_model

MAIN, GAP = "main", "metric-gap"


def figures(name: str, derived: bool, series: Series, rule: str) -> tuple[pd.DataFrame, str]:
    """The paper's figures of a table as text cells, and their title; no cells where the paper gives nothing.

    `derived` tables are computed from the rows of the main table; the paper's own models are held against
    their own figures; `rule` of single tasks is max or fixed.
    """
    known = paper_model(series.model)
    model = known if known and (name == MAIN or derived) else published.MODELS[0]
    title = f"published, {model}, not measured here: its texts and sample counts are the paper's; {PUBLISHED}"
    if derived:
        return spelled(_derived(name, model)), title
    if name not in published.TABLES:
        return pd.DataFrame(), ""
    return _table(name, model, rule), title


def _derived(name: str, model: str) -> pd.DataFrame:
    parts = {rule: published.frame(published.table(MAIN, model, rule)) for rule in accuracy.RULES}
    if name != GAP:
        made = means.under_both(gains.gain_by_retention, parts)
    else:
        gaps = [claims.metric_gap(model, rule).assign(metric=means.ruled(means.MEAN, rule)) for rule in parts]
        made = pd.concat(gaps, ignore_index=True)
    made = means.without_singles(made)
    return made.sort_values("retention", ascending=False, kind="stable", ignore_index=True)


def _table(name: str, model: str, rule: str) -> pd.DataFrame:
    found = published.table(name, model, rule if name == MAIN else accuracy.RULES[0])
    frame = published.frame(found)
    frame["note"] = [figure.note for figure in found]
    frame["method"] = [published.paper_name(method) if method else "" for method in frame["method"]]
    if name == MAIN:
        frame = _both_means(frame, model)
    frame = frame.rename(columns={means.MEAN: means.ruled(means.MEAN, accuracy.RULES[0])})
    shown = frame.drop(columns=["table", "model"])
    texts = pd.DataFrame({heading(str(column)): _texts(shown[column], str(column)) for column in shown.columns})
    return texts.loc[:, (texts != "").any()]


def _both_means(frame: pd.DataFrame, model: str) -> pd.DataFrame:
    """The mean accuracies of the main table under both rules, which it lists in the same order."""
    place = frame.columns.get_loc(means.MEAN)
    frame = frame.drop(columns=means.MEAN)
    for offset, rule in enumerate(accuracy.RULES):
        values = published.frame(published.table(MAIN, model, rule))[means.MEAN]
        frame.insert(int(place) + offset, means.ruled(means.MEAN, rule), values)
    return frame


def _texts(column: pd.Series, name: str) -> list[str]:
    measured = name.startswith(("ppl:", "accuracy"))
    return [number(value, name) if measured else cell(value, name) for value in column]


def spelled(made: pd.DataFrame) -> pd.DataFrame:
    """A derived table with names for ids, percentages for retentions, and words for truth."""
    lines = []
    for row in made.drop(columns="seed", errors="ignore").to_dict("records"):
        lines.append({str(name): _word(str(name), value) for name, value in row.items()})
    return pd.DataFrame(lines, columns=[str(name) for name in made.columns if name != "seed"], dtype=str)


def _word(name: str, value: object) -> str:
    if name in ("base", "method"):
        return published.paper_name(str(value))
    if name == "metric":
        return heading(str(value))
    return ("yes" if value else "no") if name == "better" else cell(value, name)
