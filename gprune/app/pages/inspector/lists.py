"""Lists of neurons under names: kept beside the runs, and taken elsewhere as a file.

    <cache>/neurons/<hash of the name>.json

A list names places, which any run may have or lack.
"""

from dataclasses import asdict, dataclass
from typing import Annotated

from gprune.store.named import Collection, name_of
from gprune.system.forms import Listed, LooseForm, Rule, checked, shorter

MOST_NEURONS = 20_000
_MOST = 2**24


def _is_place(pair: tuple[int, ...]) -> bool:
    return len(pair) == 2 and all(0 <= part < _MOST for part in pair)


_PLACE = Annotated[Listed[int], Rule("a pair of layer and neuron, from 0 on", _is_place)]


@checked
@dataclass(frozen=True, slots=True)
class NeuronList(LooseForm):
    """Neurons under a name."""

    name: Annotated[str, name_of("a list")]
    """what people call it"""
    neurons: Annotated[Listed[_PLACE], shorter(MOST_NEURONS, "a list", "neurons")]
    """each once, in the order in which they were added"""

    def __post_init__(self) -> None:
        """Drop repeated neurons."""
        object.__setattr__(self, "neurons", tuple(dict.fromkeys(self.neurons)))


LISTS: Collection[NeuronList] = Collection(
    "neurons", "gprune-neurons", "lists", NeuronList, asdict, entries="lists", indent=None
)
