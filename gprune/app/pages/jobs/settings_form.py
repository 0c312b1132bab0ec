"""Widgets made from the fields of a study, with the fields' own documentation as their help."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

import streamlit as st

from gprune.study import Study
from gprune.study.fields import documentation as documentation

SECTIONS = {
    "calibration": "Calibration",
    "contexts": "Contexts (token-weighted FLAP, FANG)",
    "baselines": "Baselines",
    "modularization": "Modules (BCM)",
    "reliability": "Score adaptation (RASA)",
    "sparsity": "Sparsity learning (MSL)",
    "gates": "Gates of single units",
    "repair": "Repair of the kept weights: what it is fitted to",
    "scales": "Learned scales",
    "choice": "Choice by measurement (repair auto, recommended recipe)",
    "recovery": "Recovery: training after the repair (LoRA)",
    "evaluation": "Evaluation",
}


def fields(section: str) -> dict[str, tuple[Any, Any]]:
    """Type and default of every field of a section, by name."""
    kind = typing.get_type_hints(Study)[section]
    hints, defaults = typing.get_type_hints(kind), kind()
    names = [field.name for field in dataclasses.fields(kind)]
    return {name: (hints[name], getattr(defaults, name)) for name in names}


def section(name: str, leave_out: tuple[str, ...], key: str, start: Study | None = None) -> dict[str, Any]:
    """Draws fields of a section, as `start` has them; those that differ from the default, by dotted name."""
    changed: dict[str, Any] = {}
    with st.grid(3, min_column_width=220):
        for field, (hint, default) in fields(name).items():
            if field in leave_out:
                continue
            dotted = f"{name}.{field}"
            value = widget(
                field.replace("_", " ").capitalize(),
                hint,
                default if start is None else getattr(getattr(start, name), field),
                documentation().get(dotted, ""),
                f"{key}_{dotted}",
            )
            if value != default:
                changed[dotted] = value
    return changed


def begins(start: Study, leave_out: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """What `section` returns of every section where nobody has touched a field."""
    return {
        f"{name}.{field}": value
        for name in SECTIONS
        for field, (_, default) in fields(name).items()
        if field not in leave_out.get(name, ()) and (value := getattr(getattr(start, name), field)) != default
    }


def held(dotted: str, value: Any) -> Any:
    """What the widget of a field holds where the field has a value."""
    section_, _, name = dotted.partition(".")
    hint, _ = fields(section_)[name]
    if typing.get_origin(hint) is tuple:
        return ", ".join(map(str, value))
    return float(value) if hint is float else value


def widget(label: str, hint: Any, default: Any, words: str, key: str) -> Any:
    """The widget that fits a field's type."""
    shared: dict[str, Any] = {"help": words or None, "key": key}
    if typing.get_origin(hint) is Literal:
        options = list(typing.get_args(hint))
        return st.selectbox(label, options, options.index(default), **shared)
    if hint is bool:
        return st.toggle(label, default, **shared)
    if typing.get_origin(hint) is tuple:
        return _numbers(st.text_input(label, ", ".join(str(item) for item in default), **shared))
    optional = isinstance(hint, types.UnionType)
    if hint is int or optional:
        value = st.number_input(label, value=default, step=1, placeholder="all" if optional else None, **shared)
        return None if value is None else int(value)
    if hint is float:
        return float(st.number_input(label, value=float(default), step=0.01, format="%.4g", **shared) or 0.0)
    return st.text_input(label, str(default), **shared).strip()


def _numbers(typed: str) -> list[Any] | tuple[int, ...]:
    """Whole numbers separated by commas; what is no number stays text, for the study to refuse."""
    parts = [part.strip() for part in typed.split(",") if part.strip()]
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else list(parts)
