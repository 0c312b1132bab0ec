"""Public names of modules that lie elsewhere: both names are one module, so `except` and `is` hold."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.abc import Loader


def lead(places: Mapping[str, str]) -> None:
    """Lets modules be imported by their public dotted names, of each its own, at no cost before."""
    sys.meta_path.insert(0, _Leading(dict(places)))  # type: ignore[arg-type]


class _Leading:
    """Finds a module, and what lies in it, at its own place."""

    def __init__(self, places: dict[str, str]) -> None:
        self.places = places

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for public, own in self.places.items():
            if fullname == public or fullname.startswith(f"{public}."):
                found = importlib.util.find_spec(own + fullname.removeprefix(public))
                if found is None:
                    return None
                folders = found.submodule_search_locations
                loader = cast("Loader", _Same(found.name))
                spec = ModuleSpec(fullname, loader, is_package=folders is not None)
                spec.submodule_search_locations = folders
                return spec
        return None


class _Same:
    """Gives a module that is imported by its own name."""

    def __init__(self, own: str) -> None:
        self.own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.own)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # the import system has just written the public name into it
        module.__spec__ = self.spec
