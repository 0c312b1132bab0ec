"""Every pruning method by name: whose decision it takes, from which text's scores, and its label.

The rows of the tables of section 4 and of the appendix, and controls that say what each part of them brings. A
study names the methods it compares; a result, a table and a page use the same names. Plug-ins are registered in
the same tables, without their code.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, cast

from gprune.plugins.registry import Installed, PluginInfo, find_plugins
from gprune.records.repairs import AUTO, COMPENSATION, WORDS, Repair, in_order
from gprune.study.settings import OwnRepair, RepairSettings
from gprune.system import safe_parsing
from gprune.system.errors import PluginError, SettingsError
from gprune.system.nearest import not_one_of

_METRICS = {"flap": "FLAP", "wanda_sp": "Wanda-sp", "twflap": "token-weighted FLAP"}
BUILT_IN_METRICS = tuple(_METRICS)
SCORINGS = {
    "single": "the primary text",
    "score_average": "the mean of both texts' scores",
    "rank_average": "the mean of both texts' ranks",
    "pooled": "both texts as one",
}
"""from which text a baseline scores its units (appendix, multi-dataset calibration)"""


@dataclass(frozen=True, slots=True)
class Method:
    """One pruning method."""

    name: str
    """as studies and results name it"""
    label: str
    """as pages and tables name it"""
    masks: str
    """the masks it uses; methods that differ in repairs only share them"""
    decision: str
    """how the masks are made: none, learned (a threshold a module), gated (a gate a unit), flap, uniform,
    sequential, fang, llm_pruner, osscar, slimllm, plugin, or chosen by measurement among those of others"""
    metric: str = ""
    """base metric of its scores; that of the study where empty"""
    scoring: str = "single"
    """from which text it scores, one of gprune.study.methods.SCORINGS"""
    repairs: tuple[str, ...] = ()
    """what it does to the weights that stay, whatever the study's settings say: names of records.REPAIRS"""
    fit: OwnRepair | None = None
    """how weights are fitted to its masks, where its repair does that"""
    control: bool = False
    """whether it is there to say what a part of another method brings, and is no rival of it"""
    modules: str = ""
    """modules of learned masks: the study's own where empty, or layers, random or shuffled"""
    adapts: bool = True
    """whether RASA takes part in learned masks"""
    same_as: str = ""
    """masks that are the same by definition, and share their key"""
    form_of: str = ""
    """the method that it is another form of: with two texts, without its repair, in one pass"""
    plugin: PluginInfo | None = None
    """what brings it, where that is another package: its decision, or its metric"""
    epochs: int = 1
    """how many times as many epochs it learns as the study's sparsity section says"""
    scaled: bool = False
    """whether its gates are learned together with scales and biases, as the study's scales section says"""

    @property
    def learns(self) -> bool:
        """Return True if its masks are learned by running the model on both texts, one budget at a time."""
        return self.decision in ("learned", "gated")

    @property
    def baseline(self) -> bool:
        """Return True if people would otherwise use it: no control, no other form of a method, and none of ours."""
        return not (self.control or self.form_of or self.learns or self.decision in ("none", "chosen"))

    @property
    def layered(self) -> bool:
        """Return True if each layer is decided above pruned ones, which takes the model for any other masks."""
        return self.decision in ("sequential", "osscar", "slimllm")

    @property
    def foreign(self) -> bool:
        """Return True if code of another package runs the model."""
        return self.decision == "plugin" and self.plugin is not None and self.plugin.needs != "scores"

    @property
    def levels(self) -> bool:
        """Return True if it can keep as many units in every layer (sparsity.widths equal)."""
        return self.decision not in ("llm_pruner", "slimllm", "plugin")

    @property
    def brings(self) -> str:
        """The metric of another package that this method prunes by alone; empty of all other methods."""
        return self.name if self.plugin is not None and self.plugin.kind == "metric" else ""

    @property
    def plugin_id(self) -> str:
        """Id of the plug-in; empty of a built-in method."""
        return "" if self.plugin is None else self.plugin.id

    @property
    def changes(self) -> dict[str, str]:
        """Settings under which GPrune itself is this control; modules that no setting names are left out."""
        settings = {"modularization.kind": self.modules} if self.modules == "random" else {}
        return settings | ({} if self.adapts else {"reliability.selection": "none"})


RECOMMENDED = "recommended"
"""the method whose masks and repair are chosen together, by measurement"""
_SCORING_LABELS = {"score_average": "score average", "rank_average": "rank average", "pooled": "pooled"}


def _variants(name: str, label: str, decision: str, *repairs: str) -> list[Method]:
    """The multi-dataset forms of a baseline; each is scored from statistics that are there already."""
    return [
        Method(
            f"{name}_{scoring}",
            f"{label}, {words}",
            f"{name}_{scoring}",
            decision,
            name,
            scoring,
            repairs,
            form_of=name,
        )
        for scoring, words in _SCORING_LABELS.items()
    ]


def _refitted(name: str, label: str, repair: Literal["affine", "least_squares"], **settings: Any) -> Method:
    """A method that fits each layer's kept weights to its own inputs, on the text that it is scored on."""
    fit = OwnRepair(repair, "primary", target="own_inputs", **settings)
    return Method(name, label, name, name, name, repairs=(repair,), fit=fit)


def _learned(name: str, label: str, modules: str = "") -> Method:
    """A control of GPrune: its supervision, texts and steps, without RASA and with other modules."""
    return Method(name, label, name, "learned", control=True, modules=modules, adapts=False)


def _uniform(metric: str, label: str, same_as: str = "") -> Method:
    """A control of a metric: its scores on the primary text, one ratio in every layer, nothing learned."""
    name = f"{metric}_uniform"
    return Method(name, f"{label}, one ratio", name, "uniform", metric, control=True, same_as=same_as)


_BUILT_IN = {
    method.name: method
    for method in (
        Method("dense", "dense", "dense", "none"),
        Method("gprune", "GPrune", "gprune", "learned"),
        Method("gates", "Gates", "gates", "gated"),
        Method("gates_double", "Gates, twice the steps", "gates_double", "gated", form_of="gates", epochs=2),
        Method("gates_scaled", "Gates with scales", "gates_scaled", "gated", form_of="gates", scaled=True),
        Method("llm_pruner", "LLM-Pruner", "llm_pruner", "llm_pruner", "llm_pruner"),
        Method("wanda_sp", "Wanda-sp", "wanda_sp", "sequential", "wanda_sp"),
        Method(
            "wanda_sp_dense", "Wanda-sp, dense statistics", "wanda_sp_dense", "uniform", "wanda_sp", form_of="wanda_sp"
        ),
        *_variants("wanda_sp", "Wanda-sp", "uniform"),
        Method("flap", "FLAP", "flap", "flap", "flap", repairs=(COMPENSATION,)),
        Method("flap_no_bias", "FLAP, no bias compensation", "flap", "flap", "flap", form_of="flap"),
        *_variants("flap", "FLAP", "flap", COMPENSATION),
        Method("fang", "FANG", "fang", "fang", "fang"),
        *_variants("fang", "FANG", "fang"),
        _refitted("osscar", "OSSCAR", "least_squares", damping=0.01, whole=True),
        _refitted("slimllm", "SlimLLM", "affine", damping=0.0),
        _uniform("flap", "FLAP"),
        # Wanda-sp without its layer-by-layer pass is one ratio in every layer already
        _uniform("wanda_sp", "Wanda-sp", same_as="wanda_sp_dense"),
        _learned("msl_layers", "MSL, one module a layer", "layers"),
        _learned("msl_random", "MSL, random modules", "random"),
        _learned("msl_shuffled", "MSL, shuffled modules", "shuffled"),
        _learned("gprune_no_rasa", "GPrune, no RASA"),
        Method(RECOMMENDED, "Recommended recipe", RECOMMENDED, "chosen"),
    )
}
BUILT_IN = tuple(_BUILT_IN)
"""the methods of this project"""
_PLUGIN_METRICS: dict[str, str] = {}
_PLUGIN_METHODS: dict[str, Method] = {}
METRICS: Mapping[str, str] = ChainMap(_PLUGIN_METRICS, _METRICS)
"""labels of importance metrics by name: built in, and of registered plug-ins"""
METHODS: Mapping[str, Method] = ChainMap(_PLUGIN_METHODS, _BUILT_IN)
"""methods by name: built in, and of registered plug-ins"""
PLUGINS: dict[str, PluginInfo] = {}
"""registered plug-ins by id: installed, or named in the record of a run"""

CONTROLS = tuple(name for name, method in _BUILT_IN.items() if method.control)
"""what says whether a gain needs the modules, the adaptation and the learning; none is compared by default"""

DEFAULT = ("dense", "gprune", "flap", "flap_no_bias", "wanda_sp")
"""what a study compares unless it says otherwise"""


@cache
def installed_plugins() -> Installed:
    """Return the plug-ins of this environment, found once per process, and register them."""
    installation = find_plugins(BUILT_IN_METRICS, BUILT_IN)
    register(installation.plugins.values(), replaces=True)
    return installation


def register(plugins: Iterable[PluginInfo], replaces: bool = False) -> None:
    """Add plug-ins to the tables; those of the same name stay unless it `replaces` them."""
    by_id = {plugin.id: plugin for plugin in plugins}
    metrics = {plugin.name: plugin.label for plugin in by_id.values() if plugin.kind == "metric"}
    tables: tuple[tuple[dict[str, Any], Mapping[str, Any]], ...] = (
        (PLUGINS, by_id),
        (_PLUGIN_METRICS, metrics),
        (_PLUGIN_METHODS, methods_of(by_id.values())),
    )
    for table, items in tables:
        table.update({name: item for name, item in items.items() if replaces or name not in table})


def method_of(plugin: PluginInfo) -> Method:
    """Return the method of a plug-in; of a metric, the one that prunes by its scores."""
    name, label = plugin.name, plugin.label
    if plugin.kind == "metric":
        return Method(name, label, name, plugin.allocation, name, plugin=plugin)
    repairs = (COMPENSATION,) if plugin.compensated else ()
    return Method(name, label, name, "plugin", plugin.metric, repairs=repairs, plugin=plugin)


def methods_of(plugins: Iterable[PluginInfo]) -> dict[str, Method]:
    """Return the methods of plug-ins by name: those declared, then those that metrics bring."""
    methods: dict[str, Method] = {}
    for plugin in sorted(plugins, key=lambda plugin: plugin.kind == "metric"):
        methods.setdefault(plugin.name, method_of(plugin))
    return methods


def of_masks(masks: str, methods: Mapping[str, Method] = METHODS) -> Method:
    """Return the method that decides some masks. Raises SettingsError if no method has masks of this name."""
    method = next((method for method in methods.values() if method.masks == masks), None)
    if method is None:
        raise SettingsError(f"no method has masks called {masks!r}")
    return method


def with_controls(methods: Sequence[str]) -> tuple[str, ...]:
    """Methods, and after them every control that is not among them."""
    return tuple(dict.fromkeys((*methods, *CONTROLS)))


def repairs_of(method: Method, study: Any) -> tuple[Repair, ...]:
    """The repairs of a method's kept weights: its own, or the one that a study gives every method.

    Where a repair is chosen, AUTO stands for it.
    """
    if method.decision == "none":
        return ()
    if method.decision == "chosen":
        return (AUTO,)
    chosen: RepairSettings = study.repair
    scaled = (WORDS["scales"],) if chosen.scaled else ()
    if chosen.base != "own":
        return (*(WORDS[word] for word in (chosen.base,) if word in WORDS), *scaled)
    return (*own_repairs(method, study), *scaled)


def own_repairs(method: Method, study: Any) -> tuple[Repair, ...]:
    """The repairs that a method has by itself."""
    switched = method.learns and study.sparsity.bias_compensation
    return in_order((*method.repairs, *((COMPENSATION,) if switched else ())))


def fit_of(method: Method, study: Any) -> RepairSettings:
    """Return the repair of a method's weights: its own, or that of a study."""
    chosen: RepairSettings = study.repair
    if chosen.base == "own" and method.fit is not None:
        return method.fit
    return replace(chosen, kind=cast(Any, chosen.base)) if chosen.scaled else chosen


def recorded_plugins(plugins: object) -> tuple[PluginInfo, ...]:
    """Return the plug-ins among the inputs of a run, and register them; values of another form are left out."""
    recorded = []
    for values in plugins.values() if isinstance(plugins, Mapping) else ():
        try:
            plugin = PluginInfo.from_record(values)
        except (PluginError, AttributeError, TypeError):
            continue
        if plugin.name not in _METRICS and plugin.name not in _BUILT_IN:
            recorded.append(plugin)
    metrics = {"", *_METRICS, *(plugin.name for plugin in recorded if plugin.kind == "metric")}
    recorded = [plugin for plugin in recorded if plugin.metric in metrics]
    register(recorded)
    return tuple(recorded)


def register_recorded(record: Mapping[str, Any]) -> None:
    """Register the plug-ins that the record of a run names, so that its study can be read without them."""
    provenance = record.get("provenance")
    inputs = provenance.get("inputs") if isinstance(provenance, Mapping) else None
    recorded_plugins(inputs.get("plugins") if isinstance(inputs, Mapping) else None)


def choices() -> tuple[str, ...]:
    """Return the methods that a new study can name."""
    plugins = installed_plugins().plugins
    return (*BUILT_IN, *(name for name, method in _PLUGIN_METHODS.items() if method.plugin_id in plugins))


def metric_choices() -> tuple[str, ...]:
    """Return the metrics that a new study can name."""
    return (*BUILT_IN_METRICS, *(p.name for p in installed_plugins().plugins.values() if p.kind == "metric"))


def require_known(field: str, name: str) -> None:
    """Raise SettingsError unless a study can name a metric or a method; `field` is metric, methods or choice.masks."""
    names: Mapping[str, Any] = METRICS if field == "metric" else METHODS
    if name in names:
        return
    faults = installed_plugins().faults
    if name in names:
        return
    fault = next((fault for fault in faults if fault.name == name), None)
    if fault is not None:
        raise SettingsError(f"{field} names {safe_parsing.quote(name)}, but {fault.message}")
    available = metric_choices() if field == "metric" else choices()
    raise SettingsError(not_one_of(field, name, available, "if another package brings it, install that package"))


def plugins_of(metric: str, methods: Sequence[str]) -> tuple[PluginInfo, ...]:
    """Return the plug-ins that a study with this metric and these methods uses.

    Raises SettingsError if one is not installed.
    """
    if metric in _METRICS and not set(methods) - set(BUILT_IN):
        return ()
    available = installed_plugins().plugins
    ids = [f"metric.{name}" for name in (metric, *(METHODS[name].metric for name in methods))]
    ids += [METHODS[name].plugin_id for name in methods]
    for plugin in (PLUGINS[id] for id in ids if id in PLUGINS and id not in available):
        raise SettingsError(
            f"{plugin.description} is not installed here: install {plugin.distribution}, or choose another "
            f"{plugin.kind}"
        )
    return tuple(available[id] for id in dict.fromkeys(ids) if id in available)
