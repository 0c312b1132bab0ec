"""What can be selected in a run: a layer, a module in it, a neuron in it."""

from dataclasses import dataclass
from typing import Any

from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Array
from gprune.study.settings import require
from gprune.system.errors import SettingsError

LAYER, MODULE, NEURON = KEYS = ("layer", "module", "neuron")


@dataclass(frozen=True, slots=True)
class Selection:
    """What is selected; each part needs the layer, and all are counted from 0."""

    layer: int | None = None
    module: int | None = None
    """within its layer"""
    neuron: int | None = None
    """within its layer"""

    def __bool__(self) -> bool:
        """Whether anything is selected."""
        return self.layer is not None

    @property
    def words(self) -> str:
        """For people: `layer 3 · module 5 · neuron 812`."""
        parts = zip(KEYS, (self.layer, self.module, self.neuron), strict=True)
        return " · ".join(f"{name} {value}" for name, value in parts if value is not None)


NOTHING = Selection()


def there(run: Run, wanted: Selection) -> tuple[Selection, str]:
    """What of a selection a run has, and the first part that it lacks."""
    shape = run.shape
    if not wanted or shape is None:
        return Selection(), ""
    layer, module, neuron = wanted.layer, wanted.module, wanted.neuron
    if layer is None or layer >= shape.layers:
        return Selection(), f"layer {layer}: its layers are 0 to {shape.layers - 1}"
    if neuron is not None and neuron >= shape.neurons:
        return Selection(layer), f"neuron {neuron}: a layer has {shape.neurons:,}"
    partition = run.find(stages.partition)
    if partition is None:
        return Selection(layer, None, neuron), ""
    if neuron is not None:
        # a neuron names its module, which another run may have cut otherwise
        return Selection(layer, int(partition.labels[layer][neuron]), neuron), ""
    if module is not None and module >= partition.counts[layer]:
        return Selection(layer), f"module {module} in layer {layer}: it has {partition.counts[layer]}"
    return Selection(layer, module, neuron), ""


def module_labels(run: Run, layer: int) -> Array | None:
    """Return the (neurons,) modules of a layer; None where the run has no modules yet."""
    partition = run.find(stages.partition)
    return None if partition is None else partition.labels[layer]


def given(run: Run, option: Any) -> Selection:
    """A selection from what a person gives: a layer, or layer, module and neuron, None for none of a kind.

    Raises SettingsError where it is no selection, or the run has no such layer, module or neuron.
    """
    parts = tuple(option) if isinstance(option, tuple | list) else (option,)
    whole = all(part is None or (isinstance(part, int) and part >= 0) for part in parts)
    rule = "a layer, or layer, module and neuron, None for none of a kind"
    require(whole and 1 <= len(parts) <= 3 and not isinstance(option, bool), "selected", option, rule)
    found, lacking = there(run, Selection(*parts))
    if lacking:
        raise SettingsError(f"this run has no {lacking}")
    return found
