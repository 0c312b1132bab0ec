"""Table of pruning methods by name: how masks are decided, from which scores, with which repair and label.

The table has the methods in the paper's tables (section 4 and appendix) and controls that isolate the effect of each
part. Studies, results, tables and pages use the same names. METRICS and METHODS also contain registered plug-ins, whose
code is not imported here.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, cast

from gprune.plugins.registry import Installed, PluginInfo, find_plugins
from gprune.records.repairs import AUTO, COMPENSATION, REPAIR_BY_WORD, Repair, in_order
from gprune.study.settings import OwnRepair, RepairSettings
from gprune.system import safe_parsing
from gprune.system.errors import PluginError, SettingsError
from gprune.system.safe_parsing import not_one_of

TWFLAP = "twflap"
_METRICS = {"flap": "FLAP", "wanda_sp": "Wanda-sp", TWFLAP: "token-weighted FLAP"}
BUILT_IN_METRICS = tuple(_METRICS)
SCORINGS = {
    "single": "the primary text",
    "score_average": "the mean of both texts' scores",
    "rank_average": "the mean of both texts' ranks",
    "pooled": "both texts as one",
}
"""texts from which a baseline scores its units, by name (appendix, multi-dataset calibration)"""


@dataclass(frozen=True, slots=True)
class Method:
    """One pruning method."""

    name: str
    """name in studies and results"""
    label: str
    """name on pages and in tables"""
    masks: str
    """name of its masks; methods that differ only in repairs share masks"""
    decision: str
    """how the masks are decided: none, learned (a threshold per module), gated (a gate per unit), flap, uniform,
    sequential, fang, llm_pruner, osscar, slimllm, plugin, experts (experts instead of neurons), or chosen (selected by
    measurement from other methods)"""
    metric: str = ""
    """base metric of its scores; the study's metric if empty. For a method of experts, one of EXPERT_CRITERIA"""
    scoring: str = "single"
    """texts of its scores, a key of SCORINGS or, for a method of experts, of EXPERT_SCORINGS"""
    repairs: tuple[str, ...] = ()
    """repairs that belong to the method itself: names in records.REPAIRS"""
    fit: OwnRepair | None = None
    """settings of its own repair if that fits weights, else None"""
    control: bool = False
    """True for a control that isolates the effect of a part of another method"""
    modules: str = ""
    """modules of learned masks: layers, random or shuffled; the study's modules if empty"""
    adapts: bool = True
    """True if RASA adapts the scores of learned masks"""
    same_as: str = ""
    """name of masks that are equal by definition and share their key"""
    form_of: str = ""
    """the method of which this is a variant, such as the one with two texts or without repair"""
    plugin: PluginInfo | None = None
    """plug-in that provides its decision or its metric"""
    epochs: int = 1
    """multiplier of the study's epochs of sparsity learning"""
    scaled: bool = False
    """True if gates are learned together with scales and biases"""

    @property
    def learns(self) -> bool:
        """Return True if its masks are learned by training on both texts."""
        return self.decision in ("learned", "gated")

    @property
    def baseline(self) -> bool:
        """Return True for a competing published method: no control, variant, or method of this project."""
        return not (self.control or self.form_of or self.learns or self.decision in ("none", "chosen"))

    @property
    def layered(self) -> bool:
        """Return True if each layer is pruned after the layers below it, so that new masks need the model."""
        return self.decision in ("sequential", "osscar", "slimllm")

    @property
    def plugin_runs_model(self) -> bool:
        """Return True if code of another package runs the model."""
        return self.decision == "plugin" and self.plugin is not None and self.plugin.needs != "scores"

    @property
    def supports_equal_widths(self) -> bool:
        """Return True if the method can keep the same number of units in every layer (sparsity.widths equal)."""
        return self.decision not in ("llm_pruner", "slimllm", "plugin")

    @property
    def plugin_metric(self) -> str:
        """Return the plug-in metric for which this method was created; empty for other methods."""
        return self.name if self.plugin is not None and self.plugin.kind == "metric" else ""

    @property
    def plugin_id(self) -> str:
        """Return the id of the plug-in; empty for a built-in method."""
        return "" if self.plugin is None else self.plugin.id

    @property
    def changes(self) -> dict[str, str]:
        """Return the settings with which GPrune equals this control, as far as settings for its modules exist."""
        settings = {"modularization.kind": self.modules} if self.modules == "random" else {}
        return settings | ({} if self.adapts else {"reliability.selection": "none"})


RECOMMENDED = "recommended"
"""name of the method whose masks and repair are selected together by measurement"""
_SCORING_LABELS = {"score_average": "score average", "rank_average": "rank average", "pooled": "pooled"}


def _variants(name: str, label: str, decision: str, *repairs: str) -> list[Method]:
    """Return the multi-dataset variants of a baseline."""
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


def _refitted_method(name: str, label: str, repair: Literal["affine", "least_squares"], **settings: Any) -> Method:
    """Return a method that fits each layer's kept weights to its own inputs on the primary text."""
    fit = OwnRepair(repair, "primary", target="own_inputs", **settings)
    return Method(name, label, name, name, name, repairs=(repair,), fit=fit)


def _learned_method(name: str, label: str, modules: str = "") -> Method:
    """Return a control of GPrune with the same training, without RASA and with other modules."""
    return Method(name, label, name, "learned", control=True, modules=modules, adapts=False)


def _uniform(metric: str, label: str, same_as: str = "") -> Method:
    """Return a control of a metric: scores on the primary text, one ratio in every layer, no training."""
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
        _refitted_method("osscar", "OSSCAR", "least_squares", damping=0.01, whole=True),
        _refitted_method("slimllm", "SlimLLM", "affine", damping=0.0),
        _uniform("flap", "FLAP"),
        # Wanda-sp without its layer-by-layer pass already has one ratio in every layer
        _uniform("wanda_sp", "Wanda-sp", same_as="wanda_sp_dense"),
        _learned_method("msl_layers", "MSL, one module a layer", "layers"),
        _learned_method("msl_random", "MSL, random modules", "random"),
        _learned_method("msl_shuffled", "MSL, shuffled modules", "shuffled"),
        _learned_method("gprune_no_rasa", "GPrune, no RASA"),
        Method(RECOMMENDED, "Recommended recipe", RECOMMENDED, "chosen"),
    )
}
BUILT_IN = tuple(_BUILT_IN)
"""names of the built-in methods"""
_PLUGIN_METRICS: dict[str, str] = {}
_PLUGIN_METHODS: dict[str, Method] = {}
EXPERT_CRITERIA = {
    "frequency": "Frequency",
    "reap": "REAP",
    "routed_norm": "Routed norm",
    "man": "MAN",
    "random": "Random experts",
}
"""labels of the criteria by which experts of a mixture-of-experts model are scored"""
EXPERT_SCORINGS = {
    "single": "",
    "auxiliary": " (auxiliary)",
    "score_average": " (average)",
    "adapted": " (adapted)",
}
"""texts from which experts are scored, with the suffix of the label: A, B, the mean of both, or A adapted by RASA"""


def _expert_method(criterion: str, scoring: str) -> Method:
    name = f"experts_{criterion}" + ("" if scoring == "single" else f"_{scoring}")
    form_of = "" if scoring == "single" else f"experts_{criterion}"
    label = EXPERT_CRITERIA[criterion] + EXPERT_SCORINGS[scoring]
    return Method(name, label, name, "experts", criterion, scoring, control=criterion == "random", form_of=form_of)


EXPERT_METHODS = {
    method.name: method
    for method in (
        _expert_method(criterion, scoring)
        for criterion in EXPERT_CRITERIA
        for scoring in EXPERT_SCORINGS
        if criterion != "random" or scoring == "single"
    )
}
"""methods that prune the experts of mixture-of-experts models, by name; a study has these or those of METHODS"""
METRICS: Mapping[str, str] = ChainMap(_PLUGIN_METRICS, _METRICS)
"""labels of importance metrics by name: built in, and of registered plug-ins"""
METHODS: Mapping[str, Method] = ChainMap(_PLUGIN_METHODS, _BUILT_IN)
"""methods by name: built in, and of registered plug-ins"""
ALL_METHODS: Mapping[str, Method] = ChainMap(_PLUGIN_METHODS, _BUILT_IN, EXPERT_METHODS)
"""the methods of METHODS and of EXPERT_METHODS"""
PLUGINS: dict[str, PluginInfo] = {}
"""registered plug-ins by id: installed, or named in the record of a run"""

CONTROLS = tuple(name for name, method in _BUILT_IN.items() if method.control)
"""names of the controls, which are not compared by default"""

DEFAULT = ("dense", "gprune", "flap", "flap_no_bias", "wanda_sp")
"""methods that a study compares by default"""


@cache
def installed_plugins() -> Installed:
    """Return the plug-ins of this environment, found once per process, and register them."""
    installation = find_plugins(BUILT_IN_METRICS, (*BUILT_IN, *EXPERT_METHODS))
    register(installation.plugins.values(), replaces=True)
    return installation


def register(plugins: Iterable[PluginInfo], replaces: bool = False) -> None:
    """Add plug-ins to the tables; existing entries with the same name stay unless `replaces` is set."""
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
    """Return the method of a plug-in; for a metric, the method that prunes by its scores."""
    name, label = plugin.name, plugin.label
    if plugin.kind == "metric":
        return Method(name, label, name, plugin.allocation, name, plugin=plugin)
    repairs = (COMPENSATION,) if plugin.compensated else ()
    return Method(name, label, name, "plugin", plugin.metric, repairs=repairs, plugin=plugin)


def methods_of(plugins: Iterable[PluginInfo]) -> dict[str, Method]:
    """Return the methods of plug-ins by name: declared methods, then methods of metrics."""
    methods: dict[str, Method] = {}
    for plugin in sorted(plugins, key=lambda plugin: plugin.kind == "metric"):
        methods.setdefault(plugin.name, method_of(plugin))
    return methods


def of_masks(masks: str, methods: Mapping[str, Method] = METHODS) -> Method:
    """Return the method with masks of this name. Raises SettingsError if there is none."""
    method = next((method for method in methods.values() if method.masks == masks), None)
    if method is None:
        raise SettingsError(f"no method has masks called {masks!r}")
    return method


def with_controls(methods: Sequence[str]) -> tuple[str, ...]:
    """Return the methods, followed by the missing controls."""
    return tuple(dict.fromkeys((*methods, *CONTROLS)))


def repairs_of(method: Method, study: Any) -> tuple[Repair, ...]:
    """Return the repairs of a method in a study: its own repairs, or those that the study sets for all methods.

    AUTO represents a repair that is selected by measurement.
    """
    if method.decision == "none":
        return ()
    if method.decision == "chosen":
        return (AUTO,)
    settings: RepairSettings = study.repair
    scaled = (REPAIR_BY_WORD["scales"],) if settings.scaled else ()
    if settings.base != "own":
        # the word `none` names no repair
        return (*(REPAIR_BY_WORD[word] for word in (settings.base,) if word in REPAIR_BY_WORD), *scaled)
    return (*own_repairs(method, study), *scaled)


def own_repairs(method: Method, study: Any) -> tuple[Repair, ...]:
    """Return the repairs that belong to a method itself."""
    compensated = method.learns and study.sparsity.bias_compensation
    return in_order((*method.repairs, *((COMPENSATION,) if compensated else ())))


def fit_of(method: Method, study: Any) -> RepairSettings:
    """Return the settings of the repair that fits a method's weights: its own, or the study's."""
    chosen: RepairSettings = study.repair
    if chosen.base == "own" and method.fit is not None:
        return method.fit
    return replace(chosen, kind=cast(Any, chosen.base)) if chosen.scaled else chosen


def recorded_plugins(plugins: object) -> tuple[PluginInfo, ...]:
    """Register and return the plug-ins in the recorded inputs of a run; malformed values are skipped."""
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
    """Register the plug-ins in the record of a run, so that its study can be read without installing them."""
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
    """Raise SettingsError if there is no such metric or method; `field` is metric, methods or choice.masks."""
    names: Mapping[str, Any] = METRICS if field == "metric" else METHODS
    if name in names or (field == "methods" and name in EXPERT_METHODS):
        return
    # this call registers the installed plug-ins, so the name may be known afterwards
    faults = installed_plugins().faults
    if name in names:
        return
    fault = next((fault for fault in faults if fault.name == name), None)
    if fault is not None:
        raise SettingsError(f"{field} names {safe_parsing.quote(name)}, but {fault.message}")
    available = metric_choices() if field == "metric" else choices()
    available = tuple(EXPERT_METHODS) if name.startswith("experts_") else available
    raise SettingsError(not_one_of(field, name, available, "if another package brings it, install that package"))


def plugins_of(metric: str, methods: Sequence[str]) -> tuple[PluginInfo, ...]:
    """Return the plug-ins that a study with this metric and these methods uses.

    Raises SettingsError if one is not installed.
    """
    if metric in _METRICS and not set(methods) - set(BUILT_IN):
        return ()
    available = installed_plugins().plugins
    entries = [METHODS[name] for name in methods if name in METHODS]
    ids = [f"metric.{name}" for name in (metric, *(entry.metric for entry in entries))]
    ids += [entry.plugin_id for entry in entries]
    for plugin in (PLUGINS[id] for id in ids if id in PLUGINS and id not in available):
        raise SettingsError(
            f"{plugin.description} is not installed here: install {plugin.distribution}, or choose another "
            f"{plugin.kind}"
        )
    return tuple(available[id] for id in dict.fromkeys(ids) if id in available)
