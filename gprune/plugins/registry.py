"""Metrics and methods that other packages declare as entry points (docs/plugins.md).

    [project.entry-points."gprune.metrics"]      name of the metric = "module:NAME"
    [project.entry-points."gprune.methods"]      name of the method = "module:NAME"

Commands that compute or validate import the plug-ins. The app's process never imports them, but asks a child process
for their names, labels and other fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import Distribution, EntryPoint, entry_points
from threading import Event
from typing import Annotated, Any, Literal, cast

from gprune.plugins import Method, Metric
from gprune.system import installation
from gprune.system.errors import GpruneError, PluginError, UnreadableError
from gprune.system.forms import LooseForm, Rule, validate_form
from gprune.system.safe_parsing import quote, sentence

Kind = Literal["metric", "method"]
GROUPS: dict[str, Kind] = {"gprune.metrics": "metric", "gprune.methods": "method"}
"""kind of the plug-ins by entry-point group"""
IN_APP = Event()
"""set in the app's process, which imports no plug-in"""
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_LABEL = re.compile(r"[^\W_](?:[^\W_]|[ .,+/()'’-])*")
Name = Annotated[str, Rule("lower-case letters, digits and single underscores", lambda key: bool(_NAME.fullmatch(key)))]
Label = Annotated[str, Rule("letters, digits, spaces and .,+/()'-", lambda label: bool(_LABEL.fullmatch(label)))]


@validate_form
@dataclass(frozen=True, slots=True)
class PluginInfo(LooseForm):
    """The declaration of a plug-in without its code. Raises GpruneError if a field is not valid."""

    kind: Kind
    name: Name
    label: Label
    distribution: str
    version: str
    digest: str = ""
    """identity in result keys: distribution, version and, for an editable install, a hash of its files"""
    weighs: bool = False
    """for a metric: True if it has a `weigh`, which reads the weights"""
    allocation: Literal["flap", "uniform"] = "flap"
    """for a metric: see gprune.plugins.Metric"""
    needs: Literal["scores", "model", "both"] = "scores"
    """for a method, like the fields below: see gprune.plugins.Method"""
    metric: str = ""
    texts: Literal["primary", "both"] = "primary"
    compensated: bool = False

    @property
    def id(self) -> str:
        """Return kind and name in the form `metric.magnitude`."""
        return f"{self.kind}.{self.name}"

    @property
    def description(self) -> str:
        """Return name and origin, for messages."""
        return f"the {self.kind} {self.name} of {self.distribution} {self.version}"

    def to_record(self) -> dict[str, str]:
        """Return the non-empty fields as text, for the record of a run."""
        values = {name: value for name, value in asdict(self).items() if value not in (False, "")}
        return {name: "yes" if value is True else value for name, value in values.items()}

    @classmethod
    def from_record(cls, values: Mapping[str, Any]) -> PluginInfo:
        """Return the plug-in in a result of `to_record`. Raises PluginError if the values are not valid."""
        flags = {name: values.get(name) == "yes" for name in ("weighs", "compensated")}
        return cls.parse({**values, **flags}, PluginError)


@dataclass(frozen=True, slots=True)
class Fault:
    """A plug-in that cannot be used."""

    name: str
    """name of the plug-in; empty if the app's child process could not list the plug-ins"""
    message: str
    """one sentence"""


@dataclass(frozen=True, slots=True)
class Installed:
    """The plug-ins of this environment, by id."""

    plugins: Mapping[str, PluginInfo] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    code: Mapping[str, Any] = field(default_factory=dict)
    """Metric or Method objects by id; empty in the app's process"""

    def to_json(self) -> str:
        """Return the plug-ins without their code on one line."""
        plugins = [plugin.to_record() for plugin in self.plugins.values()]
        return json.dumps({"plugins": plugins, "faults": [asdict(fault) for fault in self.faults]})


def find_plugins(built_in_metrics: Collection[str], built_in_methods: Collection[str]) -> Installed:
    """Import and return the plug-ins of this environment; in the app's process a child process lists them instead."""
    points = [point for group in GROUPS for point in entry_points(group=group)]
    if not points:
        return Installed()
    return _list_plugins() if IN_APP.is_set() else _import_plugins(points, {*built_in_metrics}, {*built_in_methods})


def describe(code: Any, name: str, distribution: str, version: str, digest: str = "") -> PluginInfo:
    """Return the description of a Metric or a Method. Raises GpruneError if a field is not valid."""
    kind: Kind = "metric" if hasattr(code, "weigh") else "method"
    names = ("allocation",) if kind == "metric" else ("needs", "metric", "texts", "compensated")
    facts = {key: getattr(code, key) for key in names}
    weighs = kind == "metric" and code.weigh is not None
    return PluginInfo(kind, name, code.label, distribution, version, digest, weighs=weighs, **facts)


def _import_plugins(points: list[EntryPoint], metrics: set[str], methods: set[str]) -> Installed:
    # plug-ins import numpy and other libraries, which a study without plug-ins does not need
    from gprune.store.provenance import identify_distribution

    plugins: dict[str, PluginInfo] = {}
    code: dict[str, Any] = {}
    faults: list[Fault] = []
    # metrics come first, because a method may name one
    for point in points:
        kind, distribution = GROUPS[point.group], cast(Distribution, point.dist)
        try:
            digest = identify_distribution(distribution, GROUPS)
            value = _import_plugin(point, kind)
            plugin = describe(value, point.name, distribution.name, distribution.version, digest)
            _require_free(plugin, plugins, metrics, methods)
        except (GpruneError, OSError) as error:
            subject = f"the {kind} {point.name} of {distribution.name}"
            faults.append(Fault(point.name, sentence(f"{subject} is left out: {error}")))
            continue
        plugins[plugin.id], code[plugin.id] = plugin, value
    return Installed(plugins, tuple(faults), code)


def _import_plugin(point: EntryPoint, kind: Kind) -> Any:
    """Return the Metric or Method of an entry point. Raises PluginError if it cannot be imported or is neither."""
    expected = Metric if kind == "metric" else Method
    try:
        value = point.load()
    except Exception as error:
        raise PluginError(f"importing it failed ({sentence(f'{type(error).__name__}: {error}', 140)})") from error
    if not isinstance(value, expected):
        raise PluginError(f"{point.value} is {quote(value)}, not a gprune.plugins.{expected.__name__}")
    return value


def _require_free(plugin: PluginInfo, plugins: Mapping[str, PluginInfo], metrics: set[str], methods: set[str]) -> None:
    """Raise PluginError if the name of a plug-in is already used, or its metric does not exist."""
    if plugin.name in metrics | methods:
        raise PluginError("a built-in metric or method has this name: choose another")
    for rival in plugins.values():
        # a metric provides a method of the same name, which its own package may replace
        if rival.name == plugin.name and rival.distribution != plugin.distribution:
            raise PluginError(f"{rival.distribution} has a {rival.kind} of this name too: uninstall one of them")
    if plugin.metric and plugin.metric not in metrics and f"metric.{plugin.metric}" not in plugins:
        raise PluginError(f"it needs the metric {plugin.metric!r}, which is neither built in nor installed")


def _list_plugins() -> Installed:
    """Return the plug-ins listed by `gprune plugins --json` in a child process."""
    try:
        values = installation.ask_command("plugins", "--json")
    except UnreadableError as error:
        return Installed(faults=(Fault("", f"every plug-in is left out: {error}"),))
    plugins = [PluginInfo.from_record(record) for record in values["plugins"]]
    return Installed({plugin.id: plugin for plugin in plugins}, tuple(Fault(**fault) for fault in values["faults"]))
