"""What one session knows of its address: the values outside all widgets, and how they are written into it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import streamlit as st

from gprune.app.ui.text import said

_LONGEST = 80
"""characters of a value that a sentence repeats"""
T = TypeVar("T")
ALWAYS = ("run", "jobs_job")
"""in every address that has them: another person's newest run or job is another one"""


def written(value: Any) -> list[str]:
    """A value as the address writes it; nothing for an empty one, an empty entry for an empty list."""
    if isinstance(value, bool):
        return [str(int(value))]
    if isinstance(value, float):
        return [f"{value:.6g}"]
    if isinstance(value, (list, tuple)):
        return [str(item) for item in value] or [""]
    return [str(value)] if value not in ("", None) else []


def complaint(key: str, found: str, reason: str) -> str:
    """Why a value is not used, said by what follows `which`."""
    return said(f"The address has {key} = {found[:_LONGEST]}, which {reason}.")


def ambiguous(key: str, found: list[str]) -> str:
    """Of a key that has one value and was given several."""
    return said(f"The address has {key} {len(found)} times; the last, {found[-1][:_LONGEST]}, is used.")


def listed(options: Iterable[str]) -> str:
    """The names that are meant, at most eight."""
    names = [name for name in options if name]
    return " or ".join(names[:8]) + (" …" if len(names) > 8 else "")


@dataclass(slots=True)
class State:
    """What one session knows of its address."""

    values: dict[str, Any] = field(default_factory=dict)
    """canonical values by key"""
    seen: dict[str, list[str]] = field(default_factory=dict)
    """what the address was last seen to hold, by key"""
    arrived: dict[str, list[str]] = field(default_factory=dict)
    """what the address brought and nobody has read yet"""
    faults: dict[str, str] = field(default_factory=dict)
    """why what the address brought was not used, by key"""
    defaults: dict[str, dict[str, Any]] = field(default_factory=dict)
    """what each page has read when it was last drawn, by page and key: the default of each value"""
    called: dict[str, dict[str, str]] = field(default_factory=dict)
    """what the choices of each list were called when it was last drawn, by widget"""
    unclaimed: dict[str, str] = field(default_factory=dict)
    """what the address brought for `address.names` and nothing on the page is called, by key"""
    collecting: bool = False
    """whether a page is under way, whose values are written at its end, all at once"""
    page: str = ""
    """the place that is drawn, as the address calls it"""
    address: str = ""
    """the page that it is on"""
    resent: bool = False
    """whether the browser is told the address again: it does not follow a link to the page that it is on"""
    left: dict[str, str] = field(default_factory=dict)
    """the place that each page has shown last"""

    def noted(self, key: str, value: T, default: Any) -> T:
        """Remembers what a page has read; inside a fragment, which no page ends, it is written at once."""
        self.defaults.setdefault(self.page, {})[key] = default
        if not self.collecting:
            self.write()
        return value

    def wanted(self, defaults: Mapping[str, Any]) -> dict[str, list[str]]:
        """What an address is to hold of some values: those that are known and not their defaults."""
        found = {
            key: written(self.values[key])
            for key, default in defaults.items()
            if key in self.values and (key in ALWAYS or self.values[key] != default)
        }
        return {key: value for key, value in found.items() if value}

    def write(self) -> None:
        """Brings the address in line with what the page has read, if it is not."""
        wanted = self.wanted(self.defaults.get(self.page, {}))
        self.seen = wanted
        held = {key: st.query_params.get_all(key) for key in st.query_params}
        if wanted != held or self.resent:
            self.resent = False
            st.query_params.from_dict(wanted)


def current() -> State:
    """The state of the session that is being drawn."""
    found: State = st.session_state.setdefault("address_state", State())
    return found
