"""Lists of neurons under names: kept beside the runs, and taken elsewhere as a file.

    <cache>/neurons/<hash of the name>.json

A list names places, which any run may have or lack.
"""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

from gprune.store.named import Collection, name_of
from gprune.system.forms import After, Checked, Listed, Rule, shorter

MOST_NEURONS = 20_000
_MOST = 2**24


def _is_place(pair: Any) -> bool:
    return (
        isinstance(pair, list | tuple)
        and len(pair) == 2
        and all(type(part) is int and 0 <= part < _MOST for part in pair)
    )


_PLACE = Annotated[Listed[int], Rule("a pair of layer and neuron, from 0 on", _is_place, first=True)]
_ONCE = After(lambda places: tuple(dict.fromkeys(places)))


@dataclass(frozen=True, slots=True)
class NeuronList(Checked):
    """Neurons under a name."""

    TAKES: ClassVar = True
    LOOSE: ClassVar = True
    name: Annotated[str, name_of("a list")]
    """what people call it"""
    neurons: Annotated[Listed[_PLACE], shorter(MOST_NEURONS, "a list", "neurons"), _ONCE]
    """each once, in the order in which they were added"""


LISTS: Collection[NeuronList] = Collection(
    "neurons", "gprune-neurons", "lists", NeuronList, asdict, entries="lists", indent=None
)
