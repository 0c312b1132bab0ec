"""Convert results to data frames with one row per unit, module or measurement (columns: docs/python.md)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import (
    AdaptedScores,
    Agreement,
    Array,
    ModuleStatistics,
    Partition,
    PruningMasks,
    RankDrift,
    UnitScores,
)
from gprune.records.experts import ExpertDrift, ExpertMasks
from gprune.study.settings import require_choice

NEURON, GROUP = "neuron", "key/value group"
"""values of the column `unit`"""


def drift(record: RankDrift) -> pd.DataFrame:
    """Return one row per neuron with its rank drift and the resampling controls."""
    return of_neurons(_drift_values(record))


def _drift_values(record: RankDrift | ExpertDrift) -> dict[str, Array]:
    return {
        "drift": record.magnitude,
        "signed_drift": record.signed,
        "resample_drift_primary": record.resample_primary,
        "resample_drift_auxiliary": record.resample_auxiliary,
        "half_drift": record.half,
    }


def expert_drift(run: Run) -> pd.DataFrame:
    """Return one row per criterion and expert with its rank drift, NaN for cold experts, and the controls."""
    parts = []
    for criterion in stages.criteria_of(run.graph):
        record = run.load(stages.expert_rank_drift, criterion)
        tokens = {"tokens_primary": record.tokens_primary, "tokens_auxiliary": record.tokens_auxiliary}
        parts.append(_of_experts(run, _drift_values(record) | tokens, "criterion", criterion))
    return pd.concat(parts, ignore_index=True)


def expert_scores(run: Run) -> pd.DataFrame:
    """Return one row per criterion and expert with its score on A, on B and, if the run has it, after RASA."""
    parts = []
    for criterion in stages.criteria_of(run.graph):
        values = {role: run.load(stages.expert_scores, criterion, role).values for role in stages.PAIR}
        adapted = run.find(stages.adapted_experts, criterion)
        values |= {} if adapted is None else {"adapted": adapted.values}
        parts.append(_of_experts(run, values, "criterion", criterion))
    return pd.concat(parts, ignore_index=True)


def experts(run: Run) -> pd.DataFrame:
    """Return one row per text and expert with its sums over all tokens of the text (`ExpertStatistics`)."""
    fields = ("routed", "weights", "weighted_norms", "norms")
    records = {role: run.load(stages.expert_statistics, role) for role in stages.PAIR}
    return pd.concat(
        [
            _of_experts(run, {name: getattr(record, name).sum(axis=0) for name in fields}, "text", role)
            for role, record in records.items()
        ],
        ignore_index=True,
    )


def _of_experts(run: Run, values: Mapping[str, Array], column: str, name: str) -> pd.DataFrame:
    """Return one row per expert with the index of its layer in the model, and `name` in the first column."""
    frame = of_neurons(values).rename(columns={"neuron": "expert"})
    frame["layer"] = np.array(run.load(stages.expert_shape).layers)[frame["layer"]]
    frame.insert(0, column, name)
    return frame


def of_neurons(values: Mapping[str, Array]) -> pd.DataFrame:
    """Return one row per neuron, ordered by layer and neuron.

    Args:
        values: (layers, neurons) arrays by column name.
    """
    layers, neurons = next(iter(values.values())).shape
    units = {"layer": np.repeat(np.arange(layers), neurons), "neuron": np.tile(np.arange(neurons), layers)}
    return pd.DataFrame(units | {name: array.ravel() for name, array in values.items()})


def of_units(neurons: Mapping[str, Array], groups: Mapping[str, Array]) -> pd.DataFrame:
    """Return one row per unit: all neurons, then all key/value groups, each ordered by layer and index.

    Args:
        neurons: (layers, neurons) arrays by column name.
        groups: (layers, key/value groups) arrays by column name.
    """
    parts = []
    for unit, values in ((NEURON, neurons), (GROUP, groups)):
        part = of_neurons(values).rename(columns={"neuron": "index"})
        part.insert(1, "unit", unit)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def scores_frame(primary: UnitScores, auxiliary: UnitScores, adapted: Array | None) -> pd.DataFrame:
    """Return one row per unit: importance on both texts, and after RASA if `adapted` (layers, neurons) is given."""
    neurons = {"primary": primary.ffn, "auxiliary": auxiliary.ffn}
    groups = {"primary": primary.heads, "auxiliary": auxiliary.heads}
    if adapted is not None:
        neurons["adapted"], groups["adapted"] = adapted, np.full(primary.heads.shape, np.nan)
    return of_units(neurons, groups)


def masks(record: PruningMasks | ExpertMasks, mixtures: Sequence[int] = ()) -> pd.DataFrame:
    """Return one row per unit; the column `kept` is True for a unit that stays.

    `mixtures` are the layers that have experts.
    """
    if isinstance(record, ExpertMasks):
        layers, experts = np.indices(record.experts.shape).reshape(2, -1)
        units = {"layer": np.array(mixtures)[layers], "unit": "expert", "index": experts}
        return pd.DataFrame(units | {"kept": record.experts.ravel()})
    return of_units({"kept": record.ffn}, {"kept": record.heads})


def modules(partition: Partition, statistics: ModuleStatistics, adapted: AdaptedScores | None = None) -> pd.DataFrame:
    """Return one row per module with its statistics and RASA's decision, ordered by layer and label."""
    values: dict[str, Any] = {
        "layer": partition.module_layer,
        "module": np.concatenate([np.arange(count) for count in partition.counts]),
        "size": statistics.size,
        "drift": statistics.drift,
        "score": statistics.score,
        "u_primary": statistics.u_primary,
        "u_auxiliary": statistics.u_auxiliary,
    }
    if adapted is not None:
        values |= {"adapted": adapted.adapted, "source": adapted.source}
    return pd.DataFrame(values)


def agreement(record: Agreement) -> pd.DataFrame:
    """Return one row per comparison and layer with the adjusted Rand index and the overlap."""
    comparisons, layers = record.ari.shape
    return pd.DataFrame(
        {
            "comparison": np.repeat(record.comparisons, layers),
            "layer": np.tile(np.arange(layers), comparisons),
            "ari": record.ari.ravel(),
            "overlap": record.overlap.ravel(),
        }
    )


def measured_perplexities(run: Run) -> pd.DataFrame:
    """Return one row per method and text with a measured perplexity, in the order of the study.

    Raises MissingResultError if none is measured.
    """
    from gprune.pipeline.running import sizes

    fields = ("text", "perplexity", "standard_error", "windows", "length")
    frame = _measurements_frame(run, stages.perplexity, run.study.evaluation.texts, fields)
    methods = list(dict.fromkeys(frame["method"]))
    values = sizes(run.results, methods) if methods else {}
    columns = ("retention", "parameters")
    return frame.assign(**{name: [values[name][method] for method in frame["method"]] for name in columns})


def measured_accuracies(run: Run) -> pd.DataFrame:
    """Return one row per method and task with a measured accuracy.

    Raises MissingResultError if the study has tasks and none is measured.
    """
    tasks = [task for task in run.study.evaluation.tasks if task in run.graph.inputs.tasks]
    fields = ("task", "acc", "acc_norm", "acc_error", "acc_norm_error", "samples", "chance", "version", "metric")
    return _measurements_frame(run, stages.accuracy, tasks, (*fields, "mean_tokens", "cut_share", "loop_share"))


def _measurements_frame(
    run: Run, declare: Callable[..., stages.Stage[Any]], items: Sequence[str], fields: tuple[str, ...]
) -> pd.DataFrame:
    """Return one row per method and item that is measured; `declare` returns the stage of a method and an item."""
    pairs = [(method, item) for method in run.study.methods for item in items]
    measured = [pair for pair in pairs if run.has(declare, *pair)]
    if pairs:
        run.require(measured, declare, *pairs[0])
    records = [(method, run.load(declare, method, item)) for method, item in measured]
    rows = [{"method": method} | {name: getattr(record, name) for name in fields} for method, record in records]
    return pd.DataFrame(rows, columns=["method", *fields])


class Masks(dict[str, pd.DataFrame]):
    """Masks of a run by method, as data frames with one row per unit; methods are in the order of the study.

    The key of a method without masks raises SettingsError if the run has no such method, StoreError if its masks are
    not computed yet.
    """

    def __init__(self, run: Run) -> None:
        """Read the masks that are computed."""
        self._run = run
        records = {method: run.find(stages.masks, name) for method, name in run.masks_of.items()}
        super().__init__({method: self._frame(record) for method, record in records.items() if record is not None})

    def _frame(self, record: PruningMasks | ExpertMasks) -> pd.DataFrame:
        is_of_experts = isinstance(record, ExpertMasks)
        return masks(record, self._run.load(stages.expert_shape).layers if is_of_experts else ())

    def __missing__(self, method: str) -> pd.DataFrame:
        """Return the masks of a method that were computed in the meantime; for errors see the class."""
        require_choice("method", method, tuple(self._run.masks_of))
        return self._frame(self._run.load(stages.masks, self._run.masks_of[method]))

    def __repr__(self) -> str:
        """Return the names of the methods."""
        return f"<masks of {', '.join(self)}>"
