"""Panels: figures with their title, caption and table, built by named functions of a run; and the selected unit.

Pages, reports and the Python API call the same function, so they show the same panel.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, ParamSpec

import pandas as pd
import plotly.graph_objects as go

from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Array
from gprune.study.settings import require, require_whole
from gprune.system.errors import SettingsError

P = ParamSpec("P")
LAYER, MODULE, NEURON = KEYS = ("layer", "module", "neuron")


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected layer, and optionally a module or a neuron in it; all count from 0, and None means not selected."""

    layer: int | None = None
    module: int | None = None
    """within its layer"""
    neuron: int | None = None
    """within its layer"""

    def __bool__(self) -> bool:
        """Return True if anything is selected."""
        return self.layer is not None

    @property
    def words(self) -> str:
        """Return the selection as text: `layer 3 · module 5 · neuron 812`."""
        parts = zip(KEYS, (self.layer, self.module, self.neuron), strict=True)
        return " · ".join(f"{name} {value}" for name, value in parts if value is not None)


NOTHING = Selection()


def available_part(run: Run, selection: Selection) -> tuple[Selection, str]:
    """Return the part of a selection that exists in a run, and a description of the first part that does not, or ""."""
    shape = run.shape
    if not selection or shape is None:
        return Selection(), ""
    layer, module, neuron = selection.layer, selection.module, selection.neuron
    if layer is None or layer >= shape.layers:
        return Selection(), f"layer {layer}: its layers are 0 to {shape.layers - 1}"
    if neuron is not None and neuron >= shape.neurons:
        return Selection(layer), f"neuron {neuron}: a layer has {shape.neurons:,}"
    partition = run.find(stages.partition)
    if partition is None:
        return Selection(layer, None, neuron), ""
    if neuron is not None:
        # the module follows from the neuron, because another run may have divided the layer differently
        return Selection(layer, int(partition.labels[layer][neuron]), neuron), ""
    if module is not None and module >= partition.counts[layer]:
        return Selection(layer), f"module {module} in layer {layer}: it has {partition.counts[layer]}"
    return Selection(layer, module, neuron), ""


def module_labels(run: Run, layer: int) -> Array | None:
    """Return the (neurons,) modules of a layer, or None if the run has no modules yet."""
    partition = run.find(stages.partition)
    return None if partition is None else partition.labels[layer]


def parse_selection(run: Run, option: Any) -> Selection:
    """Return the selection of an option: a layer, or a sequence of layer, module and neuron, each possibly None.

    Raises SettingsError if the option has another form, or the run has no such layer, module or neuron.
    """
    parts = tuple(option) if isinstance(option, tuple | list) else (option,)
    is_valid = all(part is None or (isinstance(part, int) and part >= 0) for part in parts)
    rule = "a layer, or a sequence of layer, module and neuron, each of which may be None"
    require(is_valid and 1 <= len(parts) <= 3 and not isinstance(option, bool), "selected", option, rule)
    selection, missing = available_part(run, Selection(*parts))
    if missing:
        raise SettingsError(f"this run has no {missing}")
    return selection


@dataclass(frozen=True, slots=True)
class Call:
    """The call that reproduces a panel."""

    name: str
    """name of the figure"""
    options: Mapping[str, Any]
    """options that differ from their defaults"""


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """The content of a card; its words are Markdown, in which names from outside are escaped."""

    figure: go.Figure
    caption: str = ""
    """one line on how to read it"""
    action: str = ""
    """one line on what a click does, shown on pages and not in reports"""
    title: str = ""
    """the finding; empty for the heading of the card"""
    how: str = ""
    """longer explanation in the popover *How to read*"""
    alt: str = ""
    """the finding in words, for screen readers; empty for the caption"""
    table: Callable[[], pd.DataFrame] | None = None
    """returns the numbers behind the figure"""
    code: Call | None = None
    """the call that reproduces the panel; None if no function of a run does"""


OptionReader = Callable[[Run, Mapping[str, Any]], Iterable[dict[str, Any]]]
"""function that returns the options of each drawing of a figure on a page, from the run and the address by key"""


@dataclass(frozen=True, slots=True)
class PanelFunction(Generic[P]):
    """A function that makes a figure of a run, with the figure's card and options."""

    name: str
    """unique name of the figure"""
    card: str
    """key of the card that shows it"""
    heading: str
    """heading of the card until the finding is known"""
    make: Callable[P, Panel]
    """makes the panel from the run and the options"""
    options: Mapping[str, Any]
    """options with their defaults"""
    read_options: OptionReader
    """returns the options that the address of a page has set"""
    clicked: bool
    """whether marks of the figure can be clicked"""
    units: frozenset[str]
    """units of the runs that have the figure, see `Study.unit`"""

    def __call__(self, *args: P.args, **options: P.kwargs) -> Panel:
        """Make the panel of a run, the first argument."""
        drawn_panel = self.make(*args, **options)
        if self.clicked:
            # Plotly would fade the other marks after a click; the page marks the selection itself
            for trace in drawn_panel.figure.data:
                if trace.type in ("scatter", "scattergl", "bar"):
                    opacity = trace.marker.opacity
                    trace.unselected = {"marker": {"opacity": 1.0 if opacity is None else opacity}}
        # an option that begins with `_` follows from the others; a page passes it to avoid computing it again
        public_options = {option: value for option, value in options.items() if option[0] != "_"}
        changed = {option: value for option, value in public_options.items() if value != self.options[option]}
        return replace(drawn_panel, title=drawn_panel.title or self.heading, code=Call(self.name, changed))

    @property
    def about(self) -> str:
        """The first line of the docstring, or the name of the figure."""
        first = (inspect.getdoc(self.make) or self.name.replace("_", " ")).splitlines()[0]
        return first.rstrip(".")


OF_NEURONS, OF_EXPERTS = frozenset(["neuron"]), frozenset(["expert"])
OF_BOTH = OF_NEURONS | OF_EXPERTS
KNOWN: dict[str, PanelFunction[...]] = {}
"""every declared figure by name; a module adds its figures when it is imported"""


def panel(
    name: str,
    card: str,
    heading: str,
    *,
    clicked: bool = False,
    reads: Mapping[str, str] | OptionReader | None = None,
    group: Mapping[str, Any] | None = None,
    units: frozenset[str] = OF_NEURONS,
) -> Callable[[Callable[P, Panel]], PanelFunction[P]]:
    """Return a decorator that declares a figure: a function of a run, and of named options that have defaults.

    An option is a plain value, or `selected`, which is a selection. Parameters that begin with `_` are not options;
    `group` has the defaults of the options in `**`. `heading` is the title of the card until the finding is known.
    `units` are those of the runs that have the figure.
    `clicked` is True if marks of the figure can be clicked; figures with the option `selected` always can. `reads` maps
    each option to its key in the address, or is a function that returns the options.
    """

    def declare(make: Callable[P, Panel]) -> PanelFunction[P]:
        parameters = list(inspect.signature(make).parameters.values())[1:]
        keywords = [
            parameter
            for parameter in parameters
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.name[0] != "_"
        ]
        options = {parameter.name: parameter.default for parameter in keywords} | dict(group or {})
        read_options = reads if callable(reads) else _reader_of(reads or {})
        function = PanelFunction(
            name, card, heading, make, options, read_options, clicked or "selected" in options, units
        )
        KNOWN[name] = function
        return function

    return declare


def _reader_of(reads: Mapping[str, str]) -> OptionReader:
    """Return a function that reads options from their keys in the address."""

    def read_options(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        option_values = {option: values.get(key) for option, key in reads.items()}
        yield {option: value for option, value in option_values.items() if value not in (None, "")}

    return read_options


def index_or_middle(name: str, value: int | None, count: int) -> int:
    """Return the index `value`, or the middle one if it is None. Raises SettingsError if it is not below `count`."""
    if value is None:
        return count // 2
    require_whole(**{name: value})
    require(0 <= value < count, name, value, f"0 to {count - 1}")
    return value
