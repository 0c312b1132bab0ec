"""Answers: what did the paper report in this table, for this model, under this rule for accuracy?

Tables carry the names of the `reproduce` command. `max` is the higher of raw and length-normalised accuracy
a task, `fixed` the length-normalised one where the task has it (appendix, robustness to the evaluation
protocol); perplexities do not depend on it.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import pandas as pd

from gprune.data.published.rows import (
    METHODS,
    TASKS,
    Figure,
    main_rows,
    other_rows,
    quantile_rows,
    structure_rows,
)
from gprune.system.errors import SettingsError

MODELS = ("LLaMA2-7B", "Vicuna1.5-7B", "LLaMA2-13B")
RULES = ("max", "fixed")
TABLES = {
    "main": "comparison on each model (section 4 and appendix)",
    "ablation": "ablation of the components (section 4)",
    "calibration-pair": "ablation of the calibration datasets (section 4)",
    "multi-dataset": "multi-dataset scoring (section 4 for FANG, appendix for all base metrics)",
    "fine-grained": "fine-grained ablations of BCM, RASA and MSL (appendix)",
    "module-overlap": "module agreement under substitution of a text (appendix)",
    "calibration-samples": "effect of the calibration sample number (appendix)",
    "seeds": "seed repeatability (appendix)",
    "quantile-sweep": "the chosen quantiles of RASA (appendix, detailed settings)",
    "figure-1a": "rank correlation under re-sampling and under a swap (Fig. 1a)",
    "figure-1b": "agreement of the partitions under a swap (Fig. 1b)",
    "figure-3a": "retention of drift bins (Fig. 3a)",
    "figure-3b": "agreement of the kept neurons with FLAP's (Fig. 3b)",
    "speed": "decoding throughput at 50 % retention (appendix)",
    "cost": "time of BCM and of an epoch of MSL on one A6000 (section 4)",
}
"""name of a table: what it shows, and where in the paper it is"""

_COLUMNS = {
    "wikitext2_ppl": "ppl:wikitext2",
    "ptb_ppl": "ppl:ptb",
    "mean_accuracy": "accuracy",
    **{task: f"accuracy:{task}" for task in TASKS},
}
_MAX_ONLY = "the paper gives the accuracy of this table under max only"


def table(name: str, model: str | None = MODELS[0], rule: str = "max") -> list[Figure]:
    """The published rows of one of TABLES, for one of MODELS or None for all, in the paper's order.

    `rule` says which accuracy of a task counts, max or fixed. Outside the main tables accuracy is published
    under max only: rows asked for under fixed keep their perplexities and lose the accuracy. No rows where
    the paper has none for the model. Raises SettingsError for an unknown table, model or rule.
    """
    _require("table", name, tuple(TABLES))
    _require("rule", rule, RULES)
    if model is not None:
        _require("model", model, MODELS)
    found = [row for row in _all() if row.table == name and model in (None, row.model)]
    if name == "main":
        found = [row for row in found if row.rule == rule]
        return [_copy(row, row.note) for row in found]
    return [_without_accuracy(row) if rule == "fixed" else _copy(row, row.note) for row in found]


def frame(figures: Iterable[Figure]) -> pd.DataFrame:
    """Published rows as the frame that the functions of gprune.analysis.tables read.

    One line a row: table, model, protocol, variant, method, retention, seed, then `ppl:<text>`, `accuracy`
    and `accuracy:<task>` in points, and the other values under their own names.
    """
    names = ("table", "model", "rule", "variant", "method", "retention", "seed")
    lines = []
    for figure in figures:
        line = {name: getattr(figure, name) for name in names}
        lines.append(line | {_COLUMNS.get(key, key): value for key, value in figure.values.items()})
    made = pd.DataFrame(lines, columns=None if lines else list(names)).rename(columns={"rule": "protocol"})
    return made.astype({"retention": float, "seed": "Int64"})


def paper_name(method: str) -> str:
    """The paper's name of a method id, with its own method short: GPrune (FLAP).

    Raises SettingsError where the id is not one of the paper's methods.
    """
    names = {identifier: name for name, identifier in METHODS.items()}
    _require("method", method, tuple(names))
    return names[method].replace("GPrune-LLM", "GPrune")


@cache
def _all() -> tuple[Figure, ...]:
    return (*main_rows(), *other_rows(), *structure_rows(), *quantile_rows())


def _copy(figure: Figure, note: str) -> Figure:
    # the rows are read once and kept: a caller's change of the values must not reach the next caller
    return replace(figure, values=dict(figure.values), note=note)


def _without_accuracy(figure: Figure) -> Figure:
    if "mean_accuracy" not in figure.values:
        return _copy(figure, figure.note)
    values = {key: value for key, value in figure.values.items() if key != "mean_accuracy"}
    return replace(figure, values=values, rule="fixed", note=_MAX_ONLY)


def _require(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise SettingsError(f"published {what} must be one of {', '.join(choices)} (got {value!r})")
