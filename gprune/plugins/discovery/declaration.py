"""Which plug-ins are there, as data: what is known of one without running any of its code.

The label and the facts that the graph of a study needs stand in the plug-in's source, as the arguments of
its `Metric(...)` or `Method(...)`. They are read from the text of the file, so that the app's process, which
must stay free of other people's code and of torch, never imports it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from gprune.system import safe_parsing
from gprune.system.errors import PluginError

Kind = Literal["metric", "method"]
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
LABEL = re.compile(r"(?!.*\bwww\.)[^\W_](?:[^\W_]|[ .,+/()'’-])*", re.IGNORECASE)
"""nothing that a chart or a page would take for markup, a symbol's name or an address"""
LONGEST_NAME, LONGEST_LABEL = 40, 60
MOST_SOURCE = 2**20
"""bytes of a source file that is looked at"""
CHOICES = {
    "allocation": ("flap", "uniform"),
    "needs": ("scores", "model", "both"),
    "texts": ("primary", "both"),
}
"""facts that are one of a few words; the first is the default"""
_CLASSES = {"metric": "Metric", "method": "Method"}
_FACTS = {"metric": ("label", "allocation"), "method": ("label", "needs", "metric", "texts", "compensated")}


@dataclass(frozen=True, slots=True)
class Plugin:
    """One metric or method of another package, as its metadata and its source declare it."""

    kind: Kind
    name: str
    label: str
    distribution: str
    """the package that brings it, as pip names it"""
    version: str
    weighs: bool = False
    """of a metric: whether it looks at the weights"""
    allocation: str = "flap"
    """of a metric: see gprune.plugins.Metric"""
    needs: str = "scores"
    """of a method, as the following: see gprune.plugins.Method"""
    metric: str = ""
    texts: str = "primary"
    compensated: bool = False

    @property
    def place(self) -> str:
        """What tells it from all others: `metric.magnitude`."""
        return f"{self.kind}.{self.name}"

    @property
    def words(self) -> str:
        """How a sentence calls it."""
        return f"the {self.kind} {self.name} of {self.distribution} {self.version}"

    def to_plain(self) -> dict[str, str]:
        """As texts, for the record of a run."""
        values = {name: str(value) for name, value in asdict(self).items() if value not in (False, "")}
        return values | {name: "yes" for name in ("weighs", "compensated") if getattr(self, name)}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> Plugin:
        """Reads what `to_plain` has written, wherever it comes from; other fields are passed over.

        Raises PluginError where it says nothing that a plug-in can be.
        """
        known = {one.name for one in fields(cls)}
        found: dict[str, Any] = {name: value for name, value in values.items() if name in known}
        missing = {"kind", "name", "label", "distribution", "version"} - set(found)
        if missing or not all(isinstance(value, str) for value in found.values()):
            raise PluginError(f"the record of a plug-in lacks its {', '.join(sorted(missing)) or 'texts'}")
        if found["kind"] not in _CLASSES:
            raise PluginError(f"a plug-in is a metric or a method (got {safe_parsing.quoted(found['kind'])})")
        require_name(found["name"])
        found |= {name: found.get(name) == "yes" for name in ("weighs", "compensated")}
        require_facts(found)
        for name in ("distribution", "version"):
            found[name] = safe_parsing.sentence(found[name], LONGEST_LABEL)
        return cls(**found)


def require_name(name: str) -> None:
    """Raises PluginError where a plug-in cannot be called so."""
    if len(name) > LONGEST_NAME or not NAME.fullmatch(name):
        raise PluginError(
            f"the name {safe_parsing.quoted(name)} cannot be used: choose small letters, digits and single "
            f"underscores, at most {LONGEST_NAME}, as in magnitude_rows"
        )


def declared(kind: Kind, path: Path, attribute: str) -> dict[str, Any]:
    """The facts, fields of Plugin, that a metric's or method's source states, read from its text.

    `path` is the source file of the module that its entry point names, `attribute` the name in it. Raises
    PluginError where the file cannot be read, or does not state them in a form that can be.
    """
    wanted, file = _CLASSES[kind], path.name
    call = _call(_tree(path), attribute)
    name = "" if call is None else ast.unparse(call.func).rpartition(".")[2]
    if call is None or name != wanted:
        raise PluginError(
            f"{file} does not assign {attribute} = {wanted}(...) at its top level: what its entry point "
            "names must be assigned there, and by this call, because it is read without being run"
        )
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        raise PluginError(f"{attribute} in {file} must be given all its fields by name, as label='...'")
    given = {str(keyword.arg): keyword.value for keyword in call.keywords}
    found = {fact: _literal(given[fact], fact, file) for fact in _FACTS[kind] if fact in given}
    if "label" not in found:
        raise PluginError(f"{attribute} in {file} has no label: give it label='...'")
    if kind == "metric" and "weigh" in given:
        value = given["weigh"]
        found["weighs"] = not (isinstance(value, ast.Constant) and value.value is None)
    require_facts(found)
    return found


def _tree(path: Path) -> ast.Module:
    try:
        source = safe_parsing.contents(path, path.name, most=MOST_SOURCE)
        return ast.parse(source)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise PluginError(f"its source {path.name} cannot be read ({safe_parsing.sentence(error, 160)})") from error


def _call(tree: ast.Module, attribute: str) -> ast.Call | None:
    """The call that a name of a module is assigned; of several the last one, as when it runs."""
    found = None
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == attribute for target in targets):
            found = node.value
    return found if isinstance(found, ast.Call) else None


def _literal(node: ast.expr, fact: str, file: str) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    raise PluginError(
        f"{fact} in {file} is {safe_parsing.quoted(ast.unparse(node), 40)}: write its value out, because "
        "it is read without being run"
    )


def require_facts(found: Mapping[str, Any]) -> None:
    """Raises PluginError where a fact is not what it can be."""
    label = found["label"]
    if not isinstance(label, str) or len(label) > LONGEST_LABEL or not LABEL.fullmatch(label):
        shown = safe_parsing.quoted(label)
        raise PluginError(
            f"its label must be at most {LONGEST_LABEL} letters, digits, spaces and .,+/()'-, and no address "
            f"(got {shown})"
        )
    for fact, words in CHOICES.items():
        if found.get(fact, words[0]) not in words:
            shown = safe_parsing.quoted(found[fact])
            raise PluginError(f"its field {fact} must be one of {', '.join(words)} (got {shown})")
    metric = found.get("metric", "")
    if not isinstance(metric, str):
        raise PluginError(f"its field metric must be the name of a metric (got {safe_parsing.quoted(metric)})")
    if metric:
        require_name(metric)
    if not isinstance(found.get("compensated", False), bool):
        raise PluginError("its field compensated must be True or False")
