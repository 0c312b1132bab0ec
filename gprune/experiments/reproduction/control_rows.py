"""The rows of a comparison that is fair to every method.

Every baseline in every form, the controls that say where a gain comes from, and GPrune under both profiles,
at each retention under each seed, on the same texts and windows; beside them the price of equal widths, and
the choice of the recommended recipe.
"""

from dataclasses import replace
from typing import Any

from gprune.analysis.claims import RECOMMENDED, equal, repaired
from gprune.experiments.reproduction.grid import Row, Series, label, together
from gprune.records import REPAIRS
from gprune.records.repairs import COMPENSATION
from gprune.study import profiles
from gprune.study.methods import BUILT_IN, METHODS
from gprune.study.methods import RECOMMENDED as RECIPE

FAIR = "study"
"""name of the table"""
_AT_EQUAL_WIDTHS = ("gprune", "flap")


def fair_rows(series: Series) -> list[Row]:
    """Return one row a retention, seed and method; the dense model once."""
    scale = series.scale
    rows = [
        row
        for retention in scale.retentions
        for seed in scale.seeds
        for row in _rows(series, retention=retention, seed=seed)
    ]
    dense = replace(rows[0].study, methods=("dense",))
    return [Row({"retention": 1.0, "seed": scale.seed, "method": "dense"}, dense, "dense"), *rows]


def _rows(series: Series, **where: Any) -> list[Row]:
    # a method that is another by definition, or chosen among them, is no row of its own
    others = {METHODS[name].same_as for name in BUILT_IN} | {"dense", RECIPE}
    methods = together(name for name in BUILT_IN if name not in others)
    study = series.study(methods=methods, **where)
    rows = [Row({}, replace(study, methods=(name,)), name, extra=METHODS[name].control, item=name) for name in methods]
    for identity, method, words, changes in _variants():
        changed = series.study(methods=(method,), changes=changes, **where)
        rows.append(Row({"words": words}, changed.renamed(f"{study.name} {words}"), method, item=identity))
    return [
        replace(row, labels=where | {"method": ", ".join(filter(None, (label(row), row.labels.get("words"))))})
        for row in rows
    ]


def _variants() -> list[tuple[str, str, str, dict[str, Any]]]:
    """Return id, method, words and settings of further rows; a profile that changes nothing is left out."""
    compensation = REPAIRS[COMPENSATION]
    recommended = dict(profiles.profile("recommended").settings)
    return [
        (repaired(compensation), "gprune", compensation.label, {f"sparsity.{COMPENSATION}": True}),
        *([(RECOMMENDED, "gprune", "recommended profile", recommended)] if recommended else []),
        *((equal(name), name, "equal widths", {"sparsity.widths": "equal"}) for name in _AT_EQUAL_WIDTHS),
        (RECIPE, RECIPE, "", {}),
    ]


def identifier(row: Row) -> str:
    """Return what tells a row's method from the others of its retention and seed."""
    return str(row.item) or row.method
