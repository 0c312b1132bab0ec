"""Imports a plug-in, in the process that computes and nowhere else.

Whatever its code raises becomes one sentence that names it, so that all other methods go on.
"""

import importlib
import importlib.util
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, TypeVar

from gprune.plugins.discovery.declaration import CHOICES, Plugin
from gprune.plugins.discovery.entry_points import Installed
from gprune.plugins.interface import Method, Metric
from gprune.system import safe_parsing
from gprune.system.errors import Cancelled, PluginError

R = TypeVar("R")
_CLASSES: dict[str, type] = {"metric": Metric, "method": Method}
_imported: dict[str, str] = {}
"""the digest under which the packages of this process were imported, by name"""


def load(installed: Installed, digest: str) -> Any:
    """The `Metric` or `Method` of a plug-in; results are kept under the digest of its content.

    Raises PluginError where it is not what it was when the run began, cannot be imported, or is not what its
    metadata and source say.
    """
    plugin = installed.plugin
    try:
        _require_same(installed, digest)
        installed.source.require_unchanged()
        _require_own(installed)
    except PluginError as error:
        raise PluginError(f"{plugin.words}: {error}") from error
    module = called(plugin, "importing it", importlib.import_module, installed.module)
    made = getattr(module, installed.attribute, None)
    wanted = _CLASSES[plugin.kind]
    if not isinstance(made, wanted):
        raise PluginError(
            f"{plugin.words}: {installed.module}:{installed.attribute} is {safe_parsing.quoted(made)}, not a "
            f"gprune.plugins.{wanted.__name__}"
        )
    _require_declared(plugin, made)
    return made


def _require_same(installed: Installed, digest: str) -> None:
    name = installed.plugin.distribution
    if installed.digest() != digest:
        raise PluginError("it was changed while the run was going on: start the run again")
    if _imported.setdefault(name, digest) != digest:
        raise PluginError("it was changed after this process had imported it: start Python again")


def _require_own(installed: Installed) -> None:
    """Checks that what would be imported is what was hashed, and nothing before it on the path."""
    wanted, place = installed.source.module(installed.module), _imported_from(installed.module)
    if place and Path(place).resolve() == wanted.resolve():
        return
    shown = safe_parsing.quoted(place) if place else "nowhere"
    raise PluginError(
        f"its module {installed.module} would be imported from {shown}, and it is installed as {wanted}: "
        "remove what stands before it on the path"
    )


def _imported_from(module: str) -> str:
    """The file of a module, or of what hides it; found without importing the packages that it lies in.

    Several folders may share a package without an __init__.py, so that its own name does not tell.
    """
    name, *inner = module.split(".")
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return ""
    for part in inner:
        if spec is None or spec.submodule_search_locations is None:
            break
        name, around = f"{name}.{part}", spec
        spec = PathFinder.find_spec(name, list(around.submodule_search_locations or ()))
        if spec is None:
            return around.origin or ""
    return "" if spec is None else spec.origin or ""


def _require_declared(plugin: Plugin, made: Any) -> None:
    """Checks that what its source says is what it is when it has run."""
    facts = ("label", *(name for name in (*CHOICES, "metric", "compensated") if hasattr(made, name)))
    for name in facts:
        if getattr(made, name) != getattr(plugin, name):
            raise PluginError(
                f"{plugin.words}: its source says {name}={getattr(plugin, name)!r}, and it is "
                f"{getattr(made, name)!r} when it runs: write it out where it is declared, once"
            )
    if plugin.kind == "metric" and (made.weigh is not None) != plugin.weighs:
        raise PluginError(f"{plugin.words}: weigh is not the same in its source and when it runs")


def called(plugin: Plugin, what: str, function: Callable[..., R], *arguments: Any) -> R:
    """Calls a plug-in's code; `what` it does is for the message.

    Raises PluginError where it raised something; memory that runs out and a stop are passed on.
    """
    try:
        return function(*arguments)
    except (MemoryError, Cancelled, PluginError):
        raise
    except (Exception, SystemExit) as error:
        words = safe_parsing.sentence(f"{type(error).__name__}: {error}", 140)
        raise PluginError(f"{plugin.words} failed in {what} ({words})") from error
