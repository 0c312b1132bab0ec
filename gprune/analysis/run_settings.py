"""Find the settings in which runs differ, and group runs that differ only in their seed."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pandas as pd

from gprune.study import Study
from gprune.study.fields import documentation

_NAMES = ("name", "group", "text_names")
"""display names, which do not affect results"""
_NO_RESULT = (*_NAMES, "device", "methods", "seed")
"""fields in which the runs of a group may differ; a method's result does not depend on the other methods"""


_LAST_FIELDS = ("device", "offload", "evaluation.task_folder", "evaluation.batch", "calibration.batch")
"""fields that distinguish runs only if no other field does"""
MOST_LABELLED = 3
"""maximum number of settings in the label of a run"""


def distinguishing_settings(studies: Mapping[str, Study]) -> dict[str, dict[str, str]]:
    """Return for each study at most MOST_LABELLED formatted settings by dotted name that distinguish the studies."""
    settings_of = {name: flatten_settings(study) for name, study in studies.items()}
    selected, groups = list[str](), 1
    for field in differing(studies):
        split = len({tuple(settings[key] for key in (*selected, field)) for settings in settings_of.values()})
        if split > groups and len(selected) < MOST_LABELLED:
            selected, groups = [*selected, field], split
    return {name: {field: settings[field] for field in selected} for name, settings in settings_of.items()}


def differing(studies: Mapping[str, Study]) -> list[str]:
    """Return the dotted names of settings in which studies differ, by falling number of values."""
    all_settings = [flatten_settings(study) for study in studies.values()]
    fields = [field for field in next(iter(all_settings), {}) if field not in _NAMES]
    values = {field: len({settings[field] for settings in all_settings}) for field in fields}
    several = (field for field in fields if values[field] > 1)
    return sorted(several, key=lambda field: (field in _LAST_FIELDS, -values[field]))


@lru_cache(maxsize=2048)
def flatten_settings(study: Study) -> dict[str, str]:
    """Return all settings of a study as formatted text by dotted name."""
    fields: dict[str, str] = {}
    for name, value in study.to_dict().items():
        inner = {f"{name}.{field}": item for field, item in value.items()} if isinstance(value, dict) else {}
        fields |= {key: _words(item) for key, item in (inner or {name: value}).items()}
    return fields


def differences(studies: Mapping[str, Study]) -> pd.DataFrame:
    """Return a table of the settings in which studies differ, with one column per study and their documentation."""
    settings_of = {name: flatten_settings(study) for name, study in studies.items()}
    lines = []
    fields = [field for field in next(iter(settings_of.values()), {}) if field not in _NAMES]
    for field in fields:
        values = {name: settings[field] for name, settings in settings_of.items()}
        if len(set(values.values())) > 1:
            lines.append({"setting": field, **values, "meaning": documentation()[field]})
    return pd.DataFrame(lines)


def seed_groups(studies: Mapping[str, Study]) -> dict[str, tuple[str, int]]:
    """Return for each run a group key, equal for runs that differ only in their seed, and its seed."""
    groups = {}
    for run, study in studies.items():
        settings = {name: value for name, value in study.to_dict().items() if name not in _NO_RESULT}
        groups[run] = json.dumps(settings, sort_keys=True), study.seed
    return groups


def has_several_seeds(groups: Mapping[str, tuple[str, int]]) -> bool:
    """Return True if a group has more than one seed."""
    return len({group for group, _ in groups.values()}) < len(set(groups.values()))


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value in ("", None) else str(value)
