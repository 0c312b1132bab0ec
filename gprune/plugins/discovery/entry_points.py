"""Which metrics and methods other packages bring, read from their entry points without importing any.

    [project.entry-points."gprune.metrics"]      name of the metric = "module:NAME"
    [project.entry-points."gprune.methods"]      name of the method = "module:NAME"

Whatever is wrong with one is a sentence about that one. The working directory is not looked at, and so
metadata that somebody has put into a folder of files is none.
"""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path
from threading import Lock
from typing import TypeVar

from gprune.plugins.discovery.declaration import Kind, Plugin, declared, require_name
from gprune.plugins.discovery.sources import Source, source_of
from gprune.system import safe_parsing
from gprune.system.errors import PluginError

T = TypeVar("T")


class Table(Mapping[str, T]):
    """What is known of each name; the pages of several people read it at the same time."""

    def __init__(
        self,
        items: Mapping[str, T],
        complete: Callable[[], object] = lambda: None,
        told: Callable[[], Mapping[str, T]] = dict,
    ) -> None:
        """Begins with some items; `complete` is called before anything is said of others, and adds those.

        `told` gives what holds for whoever asks and for nobody else: it stands before an item of its name.
        """
        self._items = dict(items)
        self._complete, self._told = complete, told
        self._adding = Lock()

    def __getitem__(self, name: str) -> T:
        """The one of a name."""
        told = self._told()
        if name in told:
            return told[name]
        if name not in self._items:
            self._complete()
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        """Names in order."""
        self._complete()
        return iter({**self._items, **self._told()})

    def __len__(self) -> int:
        """How many there are."""
        return sum(1 for _ in self)

    def add(self, name: str, item: T) -> None:
        """Puts one at the end, unless there is one of its name: in a new dictionary, for those at work."""
        with self._adding:
            self._items = {**self._items, name: self._items.get(name, item)}


GROUPS: dict[str, Kind] = {"gprune.metrics": "metric", "gprune.methods": "method"}
_REFERENCE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*:\s*([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class Installed:
    """A plug-in that can be imported where that is wanted."""

    plugin: Plugin
    module: str
    attribute: str
    source: Source

    def digest(self) -> str:
        """What enters the keys of all that it computes: package, version and content.

        Raises PluginError where its files cannot be read.
        """
        return f"{self.plugin.distribution} {self.plugin.version} {self.source.content()}"


@dataclass(frozen=True, slots=True)
class Fault:
    """A plug-in that cannot be used."""

    kind: Kind
    name: str
    """as its entry point has it, quoted where that is no name; empty where that cannot be read"""
    distribution: str
    reason: str

    @property
    def words(self) -> str:
        """The whole sentence."""
        what = f"the {self.kind} {self.name} of {self.distribution}" if self.name else self.distribution
        return safe_parsing.sentence(f"{what} is left out: {self.reason}")


@dataclass(frozen=True, slots=True)
class Found:
    """What the packages of this environment bring."""

    installed: tuple[Installed, ...]
    faults: tuple[Fault, ...]


def found(metrics: Collection[str], methods: Collection[str]) -> Found:
    """Looks through the metadata of all installed packages; both are the names of the built-in ones."""
    installed: list[Installed] = []
    faults: list[Fault] = []
    for distribution, entries in _brought(faults):
        for entry in entries:
            kind = GROUPS[entry.group]
            try:
                with _metadata_read():
                    installed.append(_one(distribution, entries, entry, kind))
            except PluginError as error:
                faults.append(Fault(kind, _shown(entry.name), _name(distribution), str(error)))
    installed.sort(key=lambda one: (one.plugin.kind, one.plugin.name, one.plugin.distribution))
    reasons = {index: _clash(one, installed, metrics, methods) for index, one in enumerate(installed)}
    for plugin, reason in zip((one.plugin for one in installed), reasons.values(), strict=True):
        faults += [Fault(plugin.kind, plugin.name, plugin.distribution, reason)] if reason else []
    good = tuple(one for index, one in enumerate(installed) if not reasons[index])
    return Found(good, tuple(faults))


@contextmanager
def _metadata_read() -> Iterator[None]:
    """Makes one PluginError of whatever damaged metadata lead to: one package must not end the program."""
    try:
        yield
    except PluginError:
        raise
    except Exception as error:
        words = safe_parsing.sentence(f"{type(error).__name__}: {error}", 120)
        raise PluginError(f"its metadata cannot be read ({words}): install it again") from error


def _brought(faults: list[Fault]) -> Iterator[tuple[Distribution, list[EntryPoint]]]:
    """The packages that bring something, each once: of two of a name the first on the path."""
    seen = set()
    for distribution in distributions(path=_path()):
        try:
            with _metadata_read():
                entries = _entries(distribution)
                name = _name(distribution) if entries else ""
        except PluginError as error:
            faults.append(Fault("metric", "", "a package", str(error)))
            continue
        if entries and name not in seen:
            seen.add(name)
            yield distribution, entries


def _entries(distribution: Distribution) -> list[EntryPoint]:
    # most packages have none of ours, and parsing those of each takes longer
    text = distribution.read_text("entry_points.txt") or ""
    if not any(group in text for group in GROUPS):
        return []
    return [entry for entry in distribution.entry_points if entry.group in GROUPS]


def _path() -> list[str]:
    """Where packages are installed: the path without the working directory."""
    try:
        here = Path.cwd()
    except OSError:
        # it was deleted: nothing lies in it
        return [entry for entry in sys.path if Path(entry).is_absolute()]
    return [entry for entry in sys.path if entry and Path(entry).resolve() != here]


def _name(distribution: Distribution) -> str:
    name = distribution.metadata["Name"]
    return safe_parsing.sentence(str(name or "a package without a name"), 60)


def _one(distribution: Distribution, entries: list[EntryPoint], entry: EntryPoint, kind: Kind) -> Installed:
    require_name(entry.name)
    modules = [match[1] for other in entries if (match := _REFERENCE.fullmatch(other.value.strip()))]
    match = _REFERENCE.fullmatch(entry.value.strip())
    if match is None:
        shown = safe_parsing.quoted(entry.value)
        raise PluginError(f"its entry point must be written as package.module:NAME (got {shown})")
    source = source_of(distribution, modules)
    facts = declared(kind, source.module(match[1]), match[2])
    version = safe_parsing.sentence(str(distribution.version), 60)
    return Installed(Plugin(kind, entry.name, distribution=_name(distribution), version=version, **facts),
        match[1], match[2], source)  # fmt: skip


def _clash(one: Installed, others: Collection[Installed], metrics: Collection[str], methods: Collection[str]) -> str:
    """Why a plug-in cannot have its name or its metric; empty where it can."""
    plugin = one.plugin
    if plugin.name in metrics or plugin.name in methods:
        return "a built-in metric or method has this name: choose another"
    for other in (other.plugin for other in others if other is not one):
        same_kind = other.kind == plugin.kind and other.name == plugin.name
        # a metric brings a method of its own name, which its own package may replace
        brought = plugin.kind == "method" and other.kind == "metric" and other.name == plugin.name
        if same_kind or (brought and other.distribution != plugin.distribution):
            return f"{other.distribution} brings a {other.kind} of this name too: uninstall one of them"
    known = {other.plugin.name for other in others if other.plugin.kind == "metric"} | set(metrics)
    if plugin.metric and plugin.metric not in known:
        return f"it needs the metric {plugin.metric!r}, which is neither built in nor installed"
    return ""


def _shown(name: str) -> str:
    return name if name.isidentifier() and len(name) <= 60 else safe_parsing.quoted(name)
