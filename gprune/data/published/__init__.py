"""The figures that the paper itself reports, by table, model and accuracy rule.

The figures are those of the paper's tables and text (Liu et al., GPrune-LLM), kept as a data file beside this module;
README.md there says which table each comes from and in which unit. Nothing here was measured by this project: a
published figure may stand beside a measured one, never among them.

Tables carry the names of the `reproduce` command. `max` is the higher of raw and length-normalised accuracy
a task, `fixed` the length-normalised one where the task has it (appendix, robustness to the evaluation
protocol); perplexities do not depend on it.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

import pandas as pd

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
    "figure-1a": "rank correlation under resampling and under a swap (Fig. 1a)",
    "figure-1b": "agreement of the partitions under a swap (Fig. 1b)",
    "figure-3a": "retention of drift bins (Fig. 3a)",
    "figure-3b": "agreement of the kept neurons with FLAP's (Fig. 3b)",
    "speed": "decoding throughput at 50% retention (appendix)",
    "cost": "time of BCM and of an epoch of MSL on one A6000 (section 4)",
}
"""name of a table: what it shows, and where in the paper it is"""

METHODS = {
    "dense": "dense",
    "LLM-Pruner": "llm_pruner",
    "Wanda-sp": "wanda_sp",
    "FLAP": "flap",
    "FANG": "fang",
    "GPrune-LLM (Wanda-sp)": "gprune:wanda_sp",
    "GPrune-LLM (FLAP)": "gprune:flap",
    "GPrune-LLM (twFLAP)": "gprune:twflap",
}
"""the paper's name of a method: our id"""
TASKS = ("boolq", "piqa", "hellaswag", "winogrande", "arc_easy", "arc_challenge", "openbookqa")
"""the seven zero-shot tasks, by their names in the evaluation harness"""

_COLUMNS = {
    "wikitext2_ppl": "ppl:wikitext2",
    "ptb_ppl": "ppl:ptb",
    "mean_accuracy": "accuracy",
    **{task: f"accuracy:{task}" for task in TASKS},
}
_MAX_ONLY = "the paper gives the accuracy of this table under max only"


@dataclass(frozen=True, slots=True)
class Figure:
    """One published row: a method in one setting, with every number given for it."""

    table: str
    """one of TABLES"""
    model: str
    """one of MODELS"""
    retention: float | None
    """target retention, 1 for the dense model, or None if it plays no part"""
    method: str
    """id of the method, a value of METHODS; empty if the paper names none"""
    variant: str
    """what distinguishes the row within its table, in the paper's words; empty if nothing does"""
    seed: int | None
    """random seed, or None if nothing is drawn or the paper does not say"""
    rule: str
    """which accuracy of a task counts, max or fixed; empty if no accuracy is involved"""
    values: dict[str, float]
    """perplexities (windows of 128 tokens), accuracies in points, and what the table is about"""
    note: str = ""
    """what a reader of this row must know; empty if nothing"""


def table(name: str, model: str | None = MODELS[0], rule: str = "max") -> list[Figure]:
    """The published rows of one of TABLES, for one of MODELS or None for all, in the paper's order.

    `rule` says which accuracy of a task counts, max or fixed. Outside the main tables accuracy is published
    under max only: rows asked for under fixed keep their perplexities and lose the accuracy. No rows where
    the paper has none for the model.
    """
    rows = [row for row in _all() if row.table == name and model in (None, row.model)]
    if name == "main":
        rows = [row for row in rows if row.rule == rule]
    elif rule == "fixed":
        rows = [_without_accuracy(row) for row in rows]
    return rows


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
    lines_frame = pd.DataFrame(lines, columns=None if lines else list(names)).rename(columns={"rule": "protocol"})
    return lines_frame.astype({"retention": float, "seed": "Int64"})


def paper_name(method: str) -> str:
    """The paper's name of a method id, with its own method short: GPrune (FLAP)."""
    names = {identifier: name for name, identifier in METHODS.items()}
    return names[method].replace("GPrune-LLM", "GPrune")


@cache
def _all() -> tuple[Figure, ...]:
    text = resources.files(__package__).joinpath("figures.jsonl").read_text(encoding="utf-8")
    return tuple(Figure(**json.loads(line)) for line in text.splitlines())


def _without_accuracy(figure: Figure) -> Figure:
    if "mean_accuracy" not in figure.values:
        return figure
    values = {key: value for key, value in figure.values.items() if key != "mean_accuracy"}
    return replace(figure, values=values, rule="fixed", note=_MAX_ONLY)
