"""Every pruning method by name: whose decision it takes, from which text's scores, and what it is called.

The rows of the tables of section 4 and of the appendix, and controls that say what each part of them
brings. A study names the methods it compares; a result, a table and a page use the same names. What other
packages bring stands in the same tables, as data: none of their code is run here (see
gprune.plugins.discovery).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, cast

from gprune.plugins import discovery
from gprune.plugins.discovery import Fault, Installed, Plugin, Table
from gprune.records.repairs import AUTO, COMPENSATION, WORDS, Repair, in_order
from gprune.study.pruning_method import Method, method_of
from gprune.study.settings import OwnRepair, RepairSettings
from gprune.system import safe_parsing
from gprune.system.errors import PluginError, SettingsError
from gprune.system.nearest import not_one_of


def _look() -> None:
    """Has the tables below filled; see `faults`, whose type a checker knows only further down."""
    faults()


_METRICS = {"flap": "FLAP", "wanda_sp": "Wanda-sp", "twflap": "token-weighted FLAP"}
METRICS: Table[str] = Table(_METRICS, _look, lambda: _TOLD.get().metrics)
"""importance metrics by name, as people call them"""
BUILT_IN_METRICS = tuple(_METRICS)
SCORINGS = {
    "single": "the primary text",
    "score_average": "the mean of both texts' scores",
    "rank_average": "the mean of both texts' ranks",
    "pooled": "both texts as one",
}
"""from which text a baseline scores its units (appendix, multi-dataset calibration)"""


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
            "wanda_sp_dense",
            "Wanda-sp, dense statistics",
            "wanda_sp_dense",
            "uniform",
            "wanda_sp",
            form_of="wanda_sp",
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
METHODS: Table[Method] = Table(_BUILT_IN, _look, lambda: _TOLD.get().methods)
BUILT_IN = tuple(_BUILT_IN)
"""the methods of this project, whatever else is installed"""
PLUGINS: Table[Plugin] = Table({}, _look, lambda: _TOLD.get().plugins)
"""every metric and method of other packages, by place: installed, or told by the run at hand (`knowing`)"""
INSTALLED: Table[Installed] = Table({}, _look)
"""those that are installed and can be used, by place"""
_MOST_TOLD = 200
"""plug-ins of one run; no study names as many"""

CONTROLS = tuple(name for name, method in _BUILT_IN.items() if method.control)
"""what says whether a gain needs the modules, the adaptation and the learning; none is compared by default"""

DEFAULT = ("dense", "gprune", "flap", "flap_no_bias", "wanda_sp")
"""what a study compares unless it says otherwise"""


@cache
def faults() -> tuple[Fault, ...]:
    """Plug-ins that are installed and cannot be used, with the reason; the others are in the tables now.

    Called first, it reads the metadata of every installed package.
    """
    found = discovery.found(BUILT_IN_METRICS, BUILT_IN)
    # a method that is declared stands before the one that a metric of its name would bring
    for one in sorted(found.installed, key=lambda one: one.plugin.kind == "metric"):
        INSTALLED.add(one.plugin.place, one)
        adopt(one.plugin)
    return found.faults


def of_masks(masks: str) -> Method:
    """The method whose decision some masks are; SettingsError where no method has masks of this name."""
    found = next((method for method in METHODS.values() if method.masks == masks), None)
    if found is None:
        raise SettingsError(f"no method has masks called {masks!r}")
    return found


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
    """How weights are fitted to a method's masks: by its own settings, or by those of a study."""
    chosen: RepairSettings = study.repair
    if chosen.base == "own" and method.fit is not None:
        return method.fit
    return replace(chosen, kind=cast(Any, chosen.base)) if chosen.scaled else chosen


def adopt(plugin: Plugin) -> None:
    """Puts a plug-in that is installed into the tables."""
    PLUGINS.add(plugin.place, plugin)
    METHODS.add(plugin.name, method_of(plugin))
    if plugin.kind == "metric":
        METRICS.add(plugin.name, plugin.label)


@dataclass(frozen=True, slots=True)
class Told:
    """What runs say of plug-ins, so that they open without them; nothing changes it, see `knowing`."""

    plugins: Mapping[str, Plugin] = field(default_factory=dict)
    """by place"""
    methods: Mapping[str, Method] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    """labels by name"""

    def __or__(self, others: "Told") -> "Told":
        """This, and of others what this does not say."""
        more = [one for place, one in others.plugins.items() if place not in self.plugins]
        return _told_of((*self.plugins.values(), *more)) if more else self

    @property
    def absent(self) -> "Told":
        """Of this what no installed package brings."""
        return _told_of([one for place, one in self.plugins.items() if place not in INSTALLED])


def _told_of(plugins: Sequence[Plugin]) -> Told:
    # as for installed ones, a method stands before the one that a metric of its name would bring
    found = {one.place: one for one in sorted(plugins, key=lambda one: one.kind == "metric")}
    methods: dict[str, Method] = {}
    for one in found.values():
        methods.setdefault(one.name, method_of(one))
    return Told(found, methods, {one.name: one.label for one in found.values() if one.kind == "metric"})


_TOLD: ContextVar[Told] = ContextVar("told", default=Told())  # noqa: B039  (nothing changes it)


def told(plugins: object) -> Told:
    """What a run says of its plug-ins, by place, among its inputs; what is of another form is passed over.

    Such a plug-in has names and words, and can be chosen for no new run. None takes the name of what is built
    in.
    """
    found = []
    for values in plugins.values() if isinstance(plugins, Mapping) else ():
        try:
            plugin = Plugin.from_plain(values)
        except (PluginError, AttributeError, TypeError):
            continue
        if plugin.name not in (BUILT_IN_METRICS if plugin.kind == "metric" else BUILT_IN):
            found.append(plugin)
    return _told_of(found[:_MOST_TOLD])


def told_by(record: Mapping[str, Any]) -> Told:
    """What the record of a run says of its plug-ins; nothing where it says nothing of what it has read."""
    provenance = record.get("provenance")
    inputs = provenance.get("inputs") if isinstance(provenance, Mapping) else None
    return told(inputs.get("plugins") if isinstance(inputs, Mapping) else None)


@contextmanager
def knowing(one: Told) -> Iterator[None]:
    """Has the tables say what a run tells of plug-ins, in this block and thread, and to nobody else.

    It stands before what is installed under the same name now, and before what a block around this one knows.
    Also a decorator, for what is called later.
    """
    before = _TOLD.set(one | _TOLD.get())
    try:
        yield
    finally:
        _TOLD.reset(before)


def usable(name: str) -> bool:
    """Whether a method can run here: it is built in, or its plug-in is installed."""
    plugin = METHODS[name].plugin
    return plugin is None or plugin.place in INSTALLED


def choices() -> tuple[str, ...]:
    """The methods that a new study can name."""
    return tuple(filter(usable, METHODS))


def metric_choices() -> tuple[str, ...]:
    """The metrics that a new study can name."""
    return tuple(name for name in METRICS if name in BUILT_IN_METRICS or f"metric.{name}" in INSTALLED)


def require_known(field: str, name: str) -> None:
    """Checks that a study can name a metric or a method; `field` is metric, or methods.

    Raises SettingsError where nothing of this name is built in, installed, or told by the run at hand.
    """
    known: Mapping[str, Any] = METRICS if field == "metric" else METHODS
    if name in known:
        return
    names = metric_choices() if field == "metric" else choices()
    fault = next((one for one in faults() if one.name == name), None)
    if fault is not None:
        raise SettingsError(f"{field} names {safe_parsing.quoted(name)}, but {fault.words}")
    raise SettingsError(not_one_of(field, name, names, "if another package brings it, install that package"))


def plugins_of(metric: str, methods: Sequence[str]) -> tuple[Plugin, ...]:
    """The plug-ins that a study with this metric and these methods takes part in, each once."""
    known = [METHODS[name] for name in methods]
    metrics = {metric, *(method.metric for method in known)}
    places = [f"metric.{name}" for name in METRICS if name in metrics]
    places += [method.plugin.place for method in known if method.plugin is not None]
    return tuple(PLUGINS[place] for place in dict.fromkeys(places) if place in PLUGINS)


def installed(plugin: Plugin) -> Installed:
    """Where a plug-in is; PluginError where it is not installed."""
    if plugin.place not in INSTALLED:
        raise PluginError(
            f"{plugin.words} is not installed here: install {plugin.distribution}, or choose another {plugin.kind}"
        )
    return INSTALLED[plugin.place]
