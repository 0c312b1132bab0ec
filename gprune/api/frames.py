"""Results as data frames: one row a unit, a module or a measurement; docs/python.md says what each holds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from gprune.study.settings import require_choice

NEURON, GROUP = "neuron", "key/value group"
"""the kinds of units that are kept or removed"""


def drift(found: RankDrift) -> pd.DataFrame:
    """One row a neuron."""
    values = {
        "drift": found.magnitude,
        "signed_drift": found.signed,
        "resample_drift_primary": found.resample_primary,
        "resample_drift_auxiliary": found.resample_auxiliary,
        "half_drift": found.half,
    }
    return of_neurons(values)


def of_neurons(values: Mapping[str, Array]) -> pd.DataFrame:
    """One row a neuron, in order of layer and neuron.

    `values` are (layers, neurons) by the names of their columns.
    """
    layers, neurons = next(iter(values.values())).shape
    places = {"layer": np.repeat(np.arange(layers), neurons), "neuron": np.tile(np.arange(neurons), layers)}
    return pd.DataFrame(places | {name: array.ravel() for name, array in values.items()})


def of_units(neurons: Mapping[str, Array], groups: Mapping[str, Array]) -> pd.DataFrame:
    """One row a unit: all neurons, then all key/value groups, each in order of layer and index.

    `neurons` are (layers, neurons), `groups` (layers, key/value groups), by the names of their columns.
    """
    parts = []
    for unit, values in ((NEURON, neurons), (GROUP, groups)):
        part = of_neurons(values).rename(columns={"neuron": "index"})
        part.insert(1, "unit", unit)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def scores(primary: UnitScores, auxiliary: UnitScores, adapted: Array | None) -> pd.DataFrame:
    """One row a unit, with its importance on either text and after RASA, if (layers, neurons) are given."""
    neurons = {"primary": primary.ffn, "auxiliary": auxiliary.ffn}
    groups = {"primary": primary.heads, "auxiliary": auxiliary.heads}
    if adapted is not None:
        neurons["adapted"], groups["adapted"] = adapted, np.full(primary.heads.shape, np.nan)
    return of_units(neurons, groups)


def masks(found: PruningMasks) -> pd.DataFrame:
    """One row a unit, and whether it is kept."""
    return of_units({"kept": found.ffn}, {"kept": found.heads})


def modules(partition: Partition, statistics: ModuleStatistics, adapted: AdaptedScores | None = None) -> pd.DataFrame:
    """One row a module, in order of layer and label."""
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


def agreement(found: Agreement) -> pd.DataFrame:
    """One row a comparison and layer."""
    comparisons, layers = found.ari.shape
    return pd.DataFrame(
        {
            "comparison": np.repeat(found.comparisons, layers),
            "layer": np.tile(np.arange(layers), comparisons),
            "ari": found.ari.ravel(),
            "overlap": found.overlap.ravel(),
        }
    )


def measured_perplexities(run: Run) -> pd.DataFrame:
    """One row a method and text that is there, both in the order of the study.

    Raises MissingResultError where none is.
    """
    from gprune.pipeline.summary import sizes

    fields = ("text", "perplexity", "standard_error", "windows", "length")
    frame = _measured(run, stages.perplexity, run.study.evaluation.texts, fields)
    methods = list(dict.fromkeys(frame["method"]))
    known = sizes(run.results, methods) if methods else {}
    columns = ("retention", "parameters")
    return frame.assign(**{name: [known[name][one] for one in frame["method"]] for name in columns})


def measured_accuracies(run: Run) -> pd.DataFrame:
    """One row a method and task that is there.

    Raises MissingResultError where none is and the study, or what it was measured on since, has tasks.
    """
    tasks = [task for task in run.measured.tasks if task in run.graph.inputs.tasks]
    fields = ("task", "acc", "acc_norm", "acc_error", "acc_norm_error", "samples", "chance", "version", "metric")
    return _measured(run, stages.accuracy, tasks, fields)


def _measured(
    run: Run, declared: Callable[..., stages.Stage[Any]], items: Sequence[str], fields: tuple[str, ...]
) -> pd.DataFrame:
    """One row a method and text or task whose result is there, with some fields of it."""
    pairs = [(method, item) for method in run.study.methods for item in items]
    there = [pair for pair in pairs if run.has(declared, *pair)]
    if pairs:
        run.require(there, declared, *pairs[0])
    found = [(method, run.load(declared, method, item)) for method, item in there]
    rows = [{"method": method} | {name: getattr(one, name) for name in fields} for method, one in found]
    return pd.DataFrame(rows, columns=["method", *fields])


class Masks(Mapping[str, pd.DataFrame]):
    """The masks of a run's methods; a name that is none of them is said so, with those that are."""

    def __init__(self, loaded: Run) -> None:
        """Binds a run; nothing is read."""
        self._loaded = loaded
        self._cutting = loaded.cutting

    def __iter__(self) -> Iterator[str]:
        """The methods whose masks are there, in the order of the study."""
        return (name for name, masks in self._cutting.items() if self._loaded.has(stages.masks, masks))

    def __len__(self) -> int:
        """How many there are."""
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        """Whether the masks of a method are there."""
        return name in list(self)

    def __getitem__(self, name: str) -> pd.DataFrame:
        """One row a unit, and whether it is kept.

        Raises SettingsError where the run has no such method, StoreError where it has not come that far.
        """
        require_choice("method", name, tuple(self._cutting))
        return masks(self._loaded.load(stages.masks, self._cutting[name]))

    def get(self, name: str, default: Any = None) -> Any:
        """The frame of a method whose masks are there, or what stands for it."""
        return self[name] if name in self else default

    def __repr__(self) -> str:
        """The methods."""
        return f"<masks of {', '.join(self)}>"
