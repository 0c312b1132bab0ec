"""Answers: which rows do the paper's figures have, and what do a run's records say in each?

Figs. 1 and 3 and the table of module agreement (appendix): numbers of records, not perplexities.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gprune.analysis import agreement, decisions, drift
from gprune.errors import MethodError, StoreError
from gprune.records import Agreement, Partition, PruningMasks, RankDrift
from gprune.reproduction.series import Row, Series, short
from gprune.store import Store

BINS = 5
HISTOGRAM_BINS = 50
FLAP_MASKS, OUR_MASKS = "masks_flap", "masks_gprune"
OVERLAP_NOTE = (
    "mean and standard deviation over layers; a shared k-means seed alone makes partitions agree, hence the "
    "controls"
)
SWAP_NOTE = (
    "mean and standard deviation over layers; the size of the drift is the same in both orders of the texts, "
    "so a swap says something of direction-aware profiles and of groups from one text only"
)
RETAINED_NOTE = "fraction of the neurons that is kept, modules in five bins of rising mean rank drift"
JACCARD_NOTE = (
    "agreement of the kept neurons with FLAP's, modules in five bins of rising mean rank drift; chance is "
    "the agreement of independent choices of the same sizes"
)
_PAIRS = {"A-B against A-C": "AB AC", "A-B against B-C": "AB BC", "A-C against B-C": "AC BC"}
_CONTROLS = ("control: A-B, another seed", "control: initialization only, A-B against A-C")
_FANG_SEED = "control: FANG, another seed"
_FANG_BESIDE = ("FANG: A against C", "FANG: B against C", _FANG_SEED)
_SWAPS = {"swap: A-B against B-A": "GPrune (twFLAP)", "FANG: A against B": "FANG"}
_CURVES = {
    drift.CROSS: "the texts switched",
    drift.FLOOR_PRIMARY: "A re-sampled",
    drift.FLOOR_AUXILIARY: "B re-sampled",
    drift.HALVES: "the texts switched, half of each",
}

Measure = tuple[str, float, float]
"""name, value and standard deviation (NaN where there is none)"""


def module_overlap(series: Series) -> list[Row]:
    """Modules under substitution of each text, with two controls."""
    study = series.study(substitute=series.scale.substitute)
    names = {"A": series.scale.primary, "B": series.scale.auxiliary, "C": series.scale.substitute}
    rows = []
    for title, pairs in _PAIRS.items():
        first, second = ("–".join(short(names[letter]) for letter in pair) for pair in pairs.split())
        rows.append(Row({"comparison": f"{first} vs. {second}"}, study, reads="agreement", item=title))
    return rows + [
        Row({"comparison": title}, study, reads="agreement", item=title, extra=True) for title in _CONTROLS
    ]


def figure_1b(series: Series) -> list[Row]:
    """Modules of token-weighted FLAP and FANG's groups when the texts swap; beside it, substitutions."""
    study = series.study(metric="twflap", substitute=series.scale.substitute)
    rows = [
        Row(
            {"method": method, "comparison": title.split(": ")[1]},
            study,
            "fang" if method == "FANG" else "gprune",
            "agreement",
            title,
        )
        for title, method in _SWAPS.items()
    ]
    beside = [("GPrune (twFLAP)", "gprune", title) for title in (*_PAIRS, *_CONTROLS)]
    beside += [("FANG", "fang", title) for title in _FANG_BESIDE]
    return rows + [
        Row(
            {"method": name, "comparison": title.removeprefix("FANG: ")},
            study,
            method,
            "agreement",
            title,
            True,
        )
        for name, method, title in beside
    ]


def figure_1a(series: Series) -> list[Row]:
    """Rank correlation when the text changes, above the floor of re-sampling it."""
    study = series.study()
    return [
        Row({"comparison": words}, study, reads="drift", item=curve, extra=curve == drift.HALVES)
        for curve, words in _CURVES.items()
    ]


def figure_3(series: Series) -> list[Row]:
    """GPrune beside FLAP in five bins of rising rank drift."""
    study = series.study(methods=("gprune", "flap"))
    return [
        Row({"drift bin": name}, study, reads="bins", item=str(index))
        for index, name in enumerate(decisions.bin_names(BINS))
    ]


def stages(row: Row) -> tuple[str, ...]:
    """The stages of a run that a figure's row is made of."""
    parts = {"bins": ("drift", "partition", OUR_MASKS, FLAP_MASKS), "masks": (OUR_MASKS,)}
    return parts.get(row.reads, (row.reads,))


def measures(row: Row, store: Store, keys: dict[str, str]) -> list[Measure]:
    """What a figure's row says.

    Args:
        row: a row that does not read perplexities.
        store: where the records are.
        keys: content key of each of its stages.

    Returns:
        The measures.

    Raises:
        MethodError: the model cannot have this row.
        StoreError: a record is damaged.
    """
    if row.reads == "drift":
        return _drift(store.get("drift", keys["drift"], RankDrift), row.item)
    if row.reads == "masks":
        return [("kept", float(store.get("masks", keys[OUR_MASKS], PruningMasks).retention), np.nan)]
    if row.reads == "agreement":
        return _agreement(store.get("agreement", keys["agreement"], Agreement), row.item)
    return _bin(store, keys, int(row.item))


def _drift(record: RankDrift, name: str) -> list[Measure]:
    curve = next(curve for curve in drift.distributions(record, HISTOGRAM_BINS) if curve.name == name)
    return [("rank correlation", curve.correlation, np.nan), ("median drift", curve.median, np.nan)]


def _agreement(record: Agreement, title: str) -> list[Measure]:
    if title not in record.comparisons:
        if title == _FANG_SEED and "FANG: A against B" in record.comparisons:
            raise StoreError(f"the agreement is from before the comparison {title!r} was made: run it again")
        raise MethodError(
            f"the run has no comparison {title!r}: the method behind it cannot run on this model"
        )
    index = record.comparisons.index(title)
    return [
        ("ARI", *agreement.spread(record.ari[index])),
        ("matched overlap", *agreement.spread(record.overlap[index])),
    ]


def _bin(store: Store, keys: dict[str, str], index: int) -> list[Measure]:
    record = store.get("drift", keys["drift"], RankDrift)
    partition = store.get("partition", keys["partition"], Partition)
    ours, base = (store.get("masks", keys[name], PruningMasks) for name in (OUR_MASKS, FLAP_MASKS))
    bins = decisions.compare(record.magnitude, partition, ours, base, BINS)
    if len(bins.names) < BINS:
        raise MethodError(f"the model has only {len(bins.names)} modules, too few for {BINS} bins")
    columns = {
        "mean drift": bins.drift,
        "retained, GPrune": bins.ours,
        "retained, FLAP": bins.base,
        "difference": bins.ours - bins.base,
        "Jaccard": bins.jaccard,
        "Jaccard by chance": bins.chance,
    }
    return [(name, float(values[index]), np.nan) for name, values in columns.items()]


SHOWN = {
    "figure-3a": ("mean drift", "retained, GPrune", "retained, FLAP", "difference"),
    "figure-3b": ("mean drift", "Jaccard", "Jaccard by chance"),
}
"""measures that a table of bins shows; the others belong to its sister"""


def histogram(store: Store, key: str) -> pd.DataFrame:
    """The curves of Figure 1a: share of neurons in bins of rank drift."""
    record = store.get("drift", key, RankDrift)
    return drift.distribution_table(drift.distributions(record, HISTOGRAM_BINS))
