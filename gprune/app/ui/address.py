"""The address: values of the pages, stored outside the widgets and mirrored into the query, and links between places.

A place is a tab of a page, or a page without tabs. Widgets, lines and presets are views of these values. A value
changes when a person changes a view of it, or when the address changes by itself (a link that was opened, the browser's
Back). Afterwards the address has each value that the page has read and that is not the default, so a copied address
shows the same view. Streamlit's own `bind="query-params"` does less: a change replaces the entry of the browser's
history, a key has only one widget, and a value that cannot be used is dropped silently.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar, cast

import streamlit as st

from gprune.app.ui import page_names
from gprune.app.ui.page_names import PAGE_OF, TAB
from gprune.app.ui.panel import KEYS
from gprune.app.ui.text import escape_error
from gprune.study import Study

T = TypeVar("T")
Options = Mapping[str, str] | Sequence[str]
RUN, COMPARED = "run", "cp_runs"
"""keys in the address: the run that is shown, and those that Compare shows"""
SHARED = (RUN, *KEYS)
"""keys whose values every link passes on"""
ALWAYS = (RUN, "jobs_job")
"""keys that are written even with their default value: another reader may have a newer run or job"""
EDIT = "Edit settings and restart"
"""label of the button that opens the launch form with the settings of a failed run"""
_LAUNCH = "to_launch_study"
"""session key: the arguments of `to_launch`"""
_QUOTED_CHARACTERS = 80
"""maximum number of characters of a value that a warning quotes"""
_MOST_OPTIONS = 8
"""maximum number of options that a warning lists"""


@dataclass(slots=True)
class AddressState:
    """The address of one session."""

    values: dict[str, Any] = field(default_factory=dict)
    """canonical values by key"""
    last_query: dict[str, list[str]] = field(default_factory=dict)
    """texts of the address when it was last read or written, by key"""
    unread: dict[str, list[str]] = field(default_factory=dict)
    """texts of the address that no page has read yet, by key"""
    warnings: dict[str, str] = field(default_factory=dict)
    """a sentence for each value of the address that cannot be used, by key"""
    defaults: dict[str, dict[str, Any]] = field(default_factory=dict)
    """the default of each value that a place read when it was last drawn, by place and key"""
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    """labels of the options of each list when it was last drawn, by widget"""
    is_drawing_page: bool = False
    """a page is being drawn; its values are written to the address at its end"""
    was_interrupted: bool = False
    """the last drawing of the page stopped before its end, so the address lacks values"""
    ignored_query: dict[str, list[str]] | None = None
    """an address that lacks the latest changes; any other address that the browser sends is the reader's choice"""
    place: str = ""
    """the place that is drawn"""
    url: str = ""
    """URL of its page"""
    must_resend: bool = False
    """write the address even if it is unchanged: the browser does not follow a link to its current page"""
    last_places: dict[str, str] = field(default_factory=dict)
    """the place that each page showed last, by URL"""
    changes: dict[str, Callable[[], object]] = field(default_factory=dict)
    """changes by widgets that are not redrawn yet, by widget"""

    def record_default(self, key: str, value: T, default: Any) -> T:
        """Record that a page has read a value with this default; in a fragment, write the address. Return the value."""
        self.defaults.setdefault(self.place, {})[key] = default
        if not self.is_drawing_page:
            self.write()
        return value

    def query(self, defaults: Mapping[str, Any]) -> dict[str, list[str]]:
        """Return the texts of the values that differ from their defaults, by key."""
        lists = {
            key: _to_query(self.values[key])
            for key, default in defaults.items()
            if key in self.values and (key in ALWAYS or self.values[key] != default)
        }
        return {key: texts for key, texts in lists.items() if texts}

    def write(self) -> None:
        """Write the values that the page has read into the address, if the address differs."""
        self.last_query = self.query(self.defaults.get(self.place, {}))
        if self.last_query != _sent_query() or self.must_resend:
            self.must_resend = False
            st.query_params.from_dict(self.last_query)


def _sent_query() -> dict[str, list[str]]:
    """Return the query that the browser sent, or the one that was written since, by key."""
    return {key: st.query_params.get_all(key) for key in st.query_params}


def _to_query(value: Any) -> list[str]:
    """Return the texts of a value in the address: none for an empty value, an empty text for an empty list."""
    if isinstance(value, bool):
        return [str(int(value))]
    if isinstance(value, float):
        return [f"{value:.6g}"]
    if isinstance(value, (list, tuple)):
        return [str(item) for item in value] or [""]
    return [str(value)] if value not in ("", None) else []


def current_state() -> AddressState:
    """Return the state of the session that is being drawn."""
    state: AddressState = st.session_state.setdefault("address_state", AddressState())
    return state


def open_place(page: str, places: Sequence[str]) -> str:
    """Return the place of a page to show: the one in the address if the reader followed a link, else the last one.

    Args:
        page: the last part of the page's address.
        places: the places of the page; the first is the default.
    """
    state, requested = current_state(), st.query_params.get_all(TAB)
    if state.ignored_query == _sent_query() and page == state.url:
        requested = state.last_query.get(TAB, [])
    if page != state.url:
        # a link names its tab, so the last tab of the page that was left does not count
        state.url, state.last_query = page, {key: texts for key, texts in state.last_query.items() if key != TAB}
        state.values.pop(TAB, None)
    elif requested != state.last_query.get(TAB, []):
        state.must_resend = True
    if requested != state.last_query.get(TAB, []):
        state.last_query.pop(TAB, None)
        state.values.pop(TAB, None)
        candidates = requested
    else:
        candidates = state.unread.get(TAB) or [str(state.values.get(TAB))]
    # if the address has several tabs, the last one counts
    return next((place for place in candidates[-1:] if place in places), places[0])


def read_address(place: str) -> None:
    """Read the values that the address has for a place, before the place is drawn."""
    apply_changes()
    state = current_state()
    if state.ignored_query == _sent_query() and place == state.place:
        state.last_query = _sent_query()
    elif place != state.place:
        state.place, state.warnings = place, {}
        # the link to this place may lack keys, which the reader has not removed
        state.last_query = {key: texts for key, texts in state.last_query.items() if key in st.query_params}
    else:
        # the reader went back to an address without these keys: their values become the defaults
        for key in [key for key in state.last_query if key not in st.query_params]:
            del state.last_query[key]
            state.values.pop(key, None)
    for key in st.query_params:
        texts = st.query_params.get_all(key)
        if texts != state.last_query.get(key):
            state.last_query[key] = state.unread[key] = texts
            state.values.pop(key, None)
    state.defaults[place], state.is_drawing_page, state.was_interrupted = {}, True, False
    if place in PAGE_OF:
        state.last_places[PAGE_OF[place].url] = place


@contextmanager
def drawing_page(place: str) -> Iterator[None]:
    """Read the address for the place that the block draws, and record if the block ends before `write_address`."""
    read_address(place)
    # get the state first: the session is not available after an interruption
    state = current_state()
    try:
        yield
    finally:
        state.is_drawing_page, state.was_interrupted = False, state.is_drawing_page


def write_address(slot: Any) -> None:
    """Write the values that the page has read into the address; show warnings about unusable values in `slot`."""
    state = current_state()
    state.is_drawing_page, state.ignored_query = False, None
    state.write()
    for sentence in state.warnings.values():
        slot.warning(sentence, icon=":material/link_off:")


def set_value(key: str, value: Any) -> None:
    """Set a value; for callbacks of buttons, charts and components."""
    set_values({key: value})


def set_values(values: Mapping[str, Any]) -> None:
    """Set several values as one step of the browser's history."""
    state = current_state()
    for key, value in values.items():
        state.values[key] = value
        state.warnings.pop(key, None)
        state.unread.pop(key, None)
    if state.was_interrupted:
        ignore_sent_address()
    elif not state.is_drawing_page:
        state.write()


def ignore_sent_address() -> None:
    """Keep the values, and ignore the address that the browser sent with this event; for callbacks.

    Until the browser knows of the last change, it sends the address from before that change.
    """
    current_state().ignored_query = _sent_query()


def current_place() -> str:
    """Return the place that is drawn."""
    return current_state().place


def in_fragment() -> bool:
    """Return True if only a fragment of the page is being drawn."""
    return not current_state().is_drawing_page


def defer_change(widget: str, action: Callable[[], object]) -> None:
    """Store the change by a widget's callback until the widget is redrawn.

    The browser sends the values of all widgets when the timer of a fragment fires. A value that Python has just
    set then looks changed by the user, because the browser has the old one; accepting it would undo the click.
    """
    current_state().changes[widget] = action


def apply_changes() -> None:
    """Apply the changes of all widgets, before a page is drawn."""
    changes = current_state().changes
    while changes:
        changes.pop(next(iter(changes)))()


def fragment(draw: Callable[..., None], every: float | None = None) -> Callable[..., None]:
    """Return `draw` as a Streamlit fragment, which is redrawn alone, and every `every` seconds if given."""

    @wraps(draw)
    def draw_fragment(*arguments: Any) -> None:
        try:
            draw(*arguments)
        finally:
            if in_fragment():
                # widgets outside the fragment have not changed
                current_state().changes.clear()

    return st.fragment(draw_fragment, run_every=every)


def read_number(key: str, default: float, low: float, high: float) -> float:
    """Read a number in [low, high]."""
    return _read(key, float(default), lambda text: _require_within(float(text), low, high), f"{low:g} to {high:g}")


def read_whole_number(key: str, default: int, low: int, high: int) -> int:
    """Read a whole number in [low, high]."""
    return _read(key, int(default), lambda text: _require_within(int(text), low, high), f"{low} to {high}")


def read_index(key: str) -> int | None:
    """Read a whole number from 0, or None if there is none."""
    return _read(key, None, lambda text: _require_within(int(text), 0, math.inf), "a whole number from 0")


def read_option(key: str, options: Options, default: str) -> str:
    """Read one of the names of `options`."""
    return _read(key, default, lambda text: _require_option(str(text), options), _join_options(options))


def read_flag(key: str, default: bool = False) -> bool:
    """Read yes or no; 1 or 0 in the address."""
    return _read(key, default, _parse_flag, "0 or 1")


def read_text(key: str, default: str = "") -> str:
    """Read a text without checking it."""
    return _read(key, default, str, "text")


def read_list(key: str, options: Options, default: Iterable[str]) -> list[str]:
    """Read a list of names of `options`, in the order of selection; unknown names are dropped with a warning."""
    state = current_state()
    texts = state.unread.pop(key, None)
    names = [name for name in (texts or state.values.get(key, default)) if name]
    chosen = [name for name in dict.fromkeys(names) if name in options]
    if texts is not None:
        state.values[key] = chosen
        if unknown := [name for name in names if name not in options]:
            state.warnings[key] = _describe_fault(key, ", ".join(unknown), _join_options(options))
    return state.record_default(key, chosen, list(default))


def _read(key: str, default: T, parse: Callable[[Any], T], rule: str) -> T:
    """Return the value of a key, or its default; warn of a text in the address that `parse` rejects, citing `rule`."""
    state = current_state()
    texts = state.unread.pop(key, None)
    if texts is not None:
        last = texts[-1]
        try:
            state.values[key] = parse(last)
            state.warnings.pop(key, None)
            if len(set(texts)) > 1:
                warning = f'The address has {key} {len(texts)} times. The last, "{last[:_QUOTED_CHARACTERS]}", is used.'
                state.warnings[key] = escape_error(warning)
        except (ValueError, OverflowError):
            state.warnings[key] = _describe_fault(key, last, rule)
    try:
        # another run can have fewer layers or methods: use its default, and keep the value for other runs
        value = parse(state.values[key]) if state.values.get(key) is not None else default
    except (ValueError, OverflowError):
        value = default
    return state.record_default(key, value, default)


def _describe_fault(key: str, value: str, rule: str) -> str:
    return escape_error(f'Unknown {key} "{value[:_QUOTED_CHARACTERS]}". Use {rule}.')


def _join_options(options: Iterable[str]) -> str:
    listed = [name for name in options if name]
    return f"one of: {', '.join(listed[:_MOST_OPTIONS])}{' …' if len(listed) > _MOST_OPTIONS else ''}"


def _require_within(value: T, low: Any, high: Any) -> T:
    if not low <= value <= high:
        raise ValueError(value)
    return value


def _require_option(value: str, options: Options) -> str:
    if value not in options:
        raise ValueError(value)
    return value


def _parse_flag(value: Any) -> bool:
    if str(value) not in ("0", "1", "True", "False"):
        raise ValueError(value)
    return str(value) in ("1", "True")


def slider(label: str, key: str, default: T, low: T, high: T, step: T, **options: Any) -> T:
    """Draw a slider for a number; the number has the type of its default, int or float."""
    widget: Any = st.slider
    bound = _bind(key, "slider", lambda: _read_any_number(key, default, low, high))
    return cast(T, widget(label, low, high, step=step, **bound, **options))


def number_field(label: str, key: str, default: T, low: T, high: T, step: T, **options: Any) -> T:
    """Draw a field to type a number in; an empty one keeps the value."""
    widget: Any = st.number_input
    bound = _bind(key, "number", lambda: _read_any_number(key, default, low, high))
    # with the default None, an emptied field returns None instead of the lowest value
    typed = widget(label, low, high, None, step=step, **bound, **options)
    return cast(T, _read_any_number(key, default, low, high) if typed is None else typed)


def toggle(label: str, key: str, default: bool = False, **options: Any) -> bool:
    """Draw a switch."""
    return bool(st.toggle(label, **_bind(key, "toggle", lambda: read_flag(key, default)), **options))


def segmented_control(label: str, choices: Options, key: str, default: str, **options: Any) -> str:
    """Draw a row of options to choose one from."""
    bound = _bind(key, "segmented", lambda: read_option(key, choices, default), choices)
    return str(st.segmented_control(label, list(choices), **({"required": True} | bound | options)))


def selectbox(label: str, choices: Options, key: str, default: str, **options: Any) -> str:
    """Draw a drop-down list to choose one option from."""
    bound = _bind(key, "selectbox", lambda: read_option(key, choices, default), choices)
    return str(st.selectbox(label, list(choices), **(bound | options)))


def radio(label: str, choices: Options, key: str, default: str, **options: Any) -> str:
    """Draw radio buttons."""
    bound = _bind(key, "radio", lambda: read_option(key, choices, default), choices)
    return str(st.radio(label, list(choices), **(bound | options)))


def multiselect(label: str, choices: Options, key: str, default: Iterable[str], **options: Any) -> list[str]:
    """Draw a drop-down list to choose any number of options from."""
    bound = _bind(key, "multiselect", lambda: read_list(key, choices, default), choices)
    return list(st.multiselect(label, list(choices), **(bound | options)))


def text_field(label: str, key: str, longest: int, **options: Any) -> str:
    """Draw a one-line text field; text of the address beyond `longest` characters is cut off."""
    bound = _bind(key, "text", lambda: read_text(key)[:longest])
    return str(st.text_input(label, max_chars=longest, **bound, **options))


def tabs(choices: Mapping[str, str], key: str, default: str) -> dict[str, Any]:
    """Draw tabs; return their containers by name, each with a flag for whether it is open."""
    widget, open_label = f"{key}_tabs", choices[read_option(key, choices, default)]
    if st.session_state.get(widget) != open_label:
        st.session_state[widget] = open_label
    names = {label: name for name, label in choices.items()}
    containers = st.tabs(list(names), key=widget, on_change=_store_change, args=(key, widget, names))
    return dict(zip(choices, containers, strict=True))


def _read_any_number(key: str, default: Any, low: Any, high: Any) -> Any:
    return (read_whole_number if isinstance(default, int) else read_number)(key, default, low, high)


def _bind(key: str, kind: str, read: Callable[[], Any], choices: Options | None = None) -> dict[str, Any]:
    """Set a widget to the value of a key; return the keyword arguments that connect the widget with the key."""
    widget, labels = f"{key}_{kind}", dict(choices) if isinstance(choices, Mapping) else {}
    state = current_state()
    if widget in state.changes:
        state.changes.pop(widget)()
    value = read()
    last_labels, state.labels[widget] = state.labels.get(widget, {}), labels
    # the browser identifies an option by its label, so a widget with changed labels is set again
    are_changed = any(labels.get(name, label) != label for name, label in last_labels.items())
    if are_changed or st.session_state.get(widget) != value or widget not in st.session_state:
        st.session_state[widget] = value
    bound: dict[str, Any] = {"key": widget, "on_change": _store_change, "args": (key, widget)}
    if choices is None:
        return bound
    return bound | {"format_func": choices.__getitem__ if isinstance(choices, Mapping) else str}


def _store_change(key: str, widget: str, names: Mapping[str, str] | None = None) -> None:
    """Set a key to the new value of its widget; `names` has the values by label for a widget that shows labels."""
    value = st.session_state.get(widget)
    if value is not None:
        defer_change(widget, lambda: set_value(key, value if names is None else names.get(value, "")))


def show(places: Mapping[str, Callable[[], None]]) -> None:
    """Draw the tabs of a page and the content of the open one; the content of the others is not computed.

    Args:
        places: the function that draws each place of the page, in the order of its tabs; a single place has no tab.
    """
    first = next(iter(places))
    labels = PAGE_OF[first].places
    if len(labels) == 1:
        places[first]()
        return
    containers, place = tabs(labels, TAB, first), current_place()
    with containers[place]:
        places[place]()


def link_query(place: str, shared: Iterable[str] = SHARED) -> dict[str, list[str]]:
    """Return the query of a link to another place: its values when it was last drawn, and the shared keys."""
    state = current_state()
    defaults = {key: default for key, default in state.defaults.get(state.place, {}).items() if key in set(shared)}
    query = state.query(state.defaults.get(place, {}) | defaults)
    query.pop(TAB, None)
    return query | {key: [value] for key, value in page_names.tab(place).items()}


def last_place(page: page_names.Page) -> str:
    """Return the place of a page that was shown last; its first place if none was shown."""
    return current_state().last_places.get(page.url, page_names.first_place(page.url))


def link(place: str, label: str, icon: str | None = None, run: str = "", **look: Any) -> None:
    """Draw a link to a place with the query of `link_query`, optionally for another run."""
    query = link_query(place) | ({RUN: run} if run else {})
    st.page_link(PAGE_OF[place].file, label=label, icon=icon, query_params=query or None, **look)


def open_page(place: str, query: Mapping[str, list[str]] | None = None) -> None:
    """Open a place, as a link does, with further values of the query."""
    st.switch_page(PAGE_OF[place].file, query_params=link_query(place) | dict(query or {}))


def compare_runs(names: Iterable[str]) -> None:
    """Open the page Compare with runs side by side."""
    runs = list(dict.fromkeys(names))
    set_value(COMPARED, runs)
    open_page("compare", {COMPARED: runs})


def to_launch(study: Study, source: str) -> None:
    """Open the launch form with a study's settings; `source` begins the form's sentence on their origin."""
    st.session_state[_LAUNCH] = study, source
    open_page("launch")


def sent_to_launch() -> tuple[Study, str] | None:
    """Return the arguments of the last `to_launch` and forget them; None if there are none."""
    arguments: tuple[Study, str] | None = st.session_state.pop(_LAUNCH, None)
    return arguments
