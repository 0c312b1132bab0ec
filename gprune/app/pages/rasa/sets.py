"""Threshold sets under names: kept beside the runs, compared, and taken elsewhere as a file.

<cache>/thresholds/<hash of the name>.json
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from gprune.store.named import Collection, name_of
from gprune.study import ReliabilitySettings
from gprune.system.forms import After, Checked, Table

_FIELDS = ("drift_quantile", "score_quantile", "score_scale", "selection")


@dataclass(frozen=True, slots=True)
class ThresholdSet(Checked):
    """A rule of RASA under a name."""

    TAKES: ClassVar = True
    name: Annotated[str, name_of("a threshold set")]
    """what people call it"""
    settings: ReliabilitySettings
    """the rule"""


def _made(values: dict[str, Any]) -> ThresholdSet:
    return ThresholdSet(values["name"], ReliabilitySettings(**{name: values[name] for name in _FIELDS}))


def _plain(one: ThresholdSet) -> dict[str, Any]:
    return {"name": one.name} | {field: getattr(one.settings, field) for field in _FIELDS}


_ONE = Annotated[dict, Table(dict.fromkeys(("name", *_FIELDS), Any), ("name", *_FIELDS), None), After(_made)]
SETS: Collection[ThresholdSet] = Collection(
    "thresholds", "gprune-thresholds", "threshold sets", _ONE, _plain, entries="sets", finite=False
)
