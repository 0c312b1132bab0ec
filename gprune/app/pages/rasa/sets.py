"""Threshold sets under names: kept beside the runs, compared, and taken elsewhere as a file.

<cache>/thresholds/<hash of the name>.json
"""

from dataclasses import dataclass
from typing import Annotated, Any

from gprune.store.named import Collection, name_of
from gprune.study import ReliabilitySettings
from gprune.system.forms import Before, Form, checked

_FIELDS = ("drift_quantile", "score_quantile", "score_scale", "selection")


@checked
@dataclass(frozen=True, slots=True)
class ThresholdSet(Form):
    """A rule of RASA under a name."""

    name: Annotated[str, name_of("a threshold set")]
    """what people call it"""
    settings: ReliabilitySettings
    """the rule"""


def _nested(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    return {"name": values.get("name"), "settings": {name: values[name] for name in values if name != "name"}}


def _plain(one: ThresholdSet) -> dict[str, Any]:
    return {"name": one.name} | {field: getattr(one.settings, field) for field in _FIELDS}


_ONE = Annotated[ThresholdSet, Before(_nested)]
SETS: Collection[ThresholdSet] = Collection(
    "thresholds", "gprune-thresholds", "threshold sets", _ONE, _plain, entries="sets", finite=False
)
