"""Where the state of the pages lives: values outside all widgets, mirrored into the address.

Widgets, lines and presets are views of these values. A value changes when a person changes a view of it, or
when the address changes by itself (a link that was opened, the browser's Back). What a page has read and is
not its default is in its address afterwards, under stable names, so that a copied address shows the same
view. Streamlit's own `bind="query-params"` does less: a change replaces the entry of the browser's history,
so that Back leaves the page, a key has one widget only, and a value that cannot be used goes without a word.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import streamlit as st
from streamlit.runtime.scriptrunner_utils.script_run_context import ThreadState, get_script_run_ctx

from gprune.app.ui import page_names, url_session
from gprune.app.ui.page_names import TAB

T = TypeVar("T")
Options = Mapping[str, str] | Sequence[str]


def open_place(page: str, places: Sequence[str]) -> str:
    """Which place of a page is shown: as the address says where that changed by itself, else as was chosen.

    Args:
        page: the last part of the page's address.
        places: those of its tabs; the first is shown where none, or none of these, was asked for.
    """
    state, asked = url_session.current(), st.query_params.get_all(TAB)
    if page != state.address:
        # a link says which tab it leads to
        state.address, state.seen = page, {key: found for key, found in state.seen.items() if key != TAB}
        state.values.pop(TAB, None)
    elif asked != state.seen.get(TAB, []):
        state.resent = True
    if asked != state.seen.get(TAB, []):
        state.seen.pop(TAB, None)
        state.values.pop(TAB, None)
        wanted = asked[-1:]
    else:
        wanted = state.arrived.get(TAB) or [str(state.values.get(TAB))]
    return next((place for place in wanted[-1:] if place in places), places[0])


def begin(page: str) -> None:
    """Takes over what the address holds, without faults of another place; called before one is drawn."""
    state = url_session.current()
    if page != state.page:
        state.page, state.faults = page, {}
        # a link does not bring all: what the address never held on this page has not been taken back
        state.seen = {key: found for key, found in state.seen.items() if key in st.query_params}
    elif st.query_params or _by_history():
        # Back to a view in which something was not chosen yet
        for key in [key for key in state.seen if key not in st.query_params]:
            del state.seen[key]
            state.values.pop(key, None)
    for key in st.query_params:
        brought = st.query_params.get_all(key)
        if brought != state.seen.get(key):
            state.seen[key] = state.arrived[key] = brought
            state.values.pop(key, None)
    state.defaults[page], state.collecting = {}, True
    if page in page_names.PAGE_OF:
        state.left[page_names.PAGE_OF[page].url] = page


def _by_history() -> bool:
    """Whether the browser went back or forward, which an empty address alone does not say.

    Streamlit tells this nowhere else: with `sent_along`, the private part of it that the pages' frame reads.
    """
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def finish(slot: Any) -> None:
    """Writes what the page has read into the address, and into the slot what of it no page can use."""
    state = url_session.current()
    state.collecting = False
    for key, found in state.unclaimed.items():
        state.values.pop(key, None)
        if found:
            state.faults[key] = url_session.complaint(key, found, "this page does not have")
    state.unclaimed = {}
    state.write()
    for sentence in state.faults.values():
        slot.warning(sentence, icon=":material/link_off:")


def given(key: str) -> bool:
    """Whether a value was chosen, or came with the address."""
    return arrived(key) or url_session.current().values.get(key) not in (None, "")


def arrived(key: str) -> bool:
    """Whether the address has brought a value that nobody has read yet."""
    return key in url_session.current().arrived


def put(key: str, value: Any) -> None:
    """Sets a value; for callbacks of buttons, charts and components."""
    put_all({key: value})


def put_all(values: Mapping[str, Any]) -> None:
    """Sets several values as one step of the browser's history."""
    state = url_session.current()
    for key, value in values.items():
        state.values[key] = value
        state.faults.pop(key, None)
        state.arrived.pop(key, None)
    if not state.collecting:
        state.write()


def page() -> str:
    """The place that is drawn, as the address calls it."""
    return url_session.current().page


def in_fragment() -> bool:
    """Whether only a part of the page is being drawn."""
    return not url_session.current().collecting


def sent_along() -> bool:
    """For callbacks: whether nobody has moved the widget, and a part of the page without it is drawn anew.

    The browser sends all widgets along when the clock of a fragment ticks. One that Python has set, and of
    which the browser has not heard yet, seems changed then; taken for a choice it would undo the click.
    """
    context = get_script_run_ctx()
    drawn = (context.fragment_ids_this_run if context is not None else None) or []
    return bool(drawn) and ThreadState.get().fragment_id not in drawn


def link(place: str, shared: Iterable[str]) -> dict[str, list[str]]:
    """What the address of another place holds, as it was left, with the shared keys: for links to it."""
    state = url_session.current()
    known = {key: default for key, default in state.defaults.get(state.page, {}).items() if key in set(shared)}
    held = state.wanted(state.defaults.get(place, {}) | known)
    held.pop(TAB, None)
    return held | {key: [value] for key, value in page_names.tab(place).items()}


def last_place(page: page_names.Page) -> str:
    """The place of a page that was shown last; its first one where none was."""
    return url_session.current().left.get(page.url, page_names.first(page.url))


def number(key: str, default: float, low: float, high: float) -> float:
    """A number in [low, high]."""
    return _read(key, float(default), lambda found: _within(float(found), low, high), f"{low:g} to {high:g}")


def whole(key: str, default: int, low: int, high: int) -> int:
    """A whole number in [low, high]."""
    return _read(key, int(default), lambda found: _within(int(found), low, high), f"{low} to {high}")


def choice(key: str, options: Options, default: str) -> str:
    """One of the names of `options`."""
    return _read(key, default, lambda found: _member(str(found), options), url_session.listed(options))


def flag(key: str, default: bool = False) -> bool:
    """Yes or no; 1 or 0 in the address."""
    return _read(key, default, _truth, "0 or 1")


def several(key: str, options: Options, default: Iterable[str]) -> list[str]:
    """Some of the names of `options`, in the order in which they were chosen; unknown ones are left out."""
    state = url_session.current()
    arrived = state.arrived.pop(key, None)
    found = [name for name in (arrived or state.values.get(key, default)) if name]
    unknown = [name for name in found if name not in options]
    if arrived is not None and unknown:
        wanted = f"is not used here: {url_session.listed(options)} is meant"
        state.faults[key] = url_session.complaint(key, ", ".join(unknown), wanted)
    chosen = [name for name in dict.fromkeys(found) if name in options]
    if arrived is not None:
        state.values[key] = chosen
    return state.noted(key, chosen, list(default))


def index(key: str) -> int | None:
    """A whole number from 0, or None where there is none."""
    return _read(key, None, lambda found: _within(int(found), 0, math.inf), "a whole number from 0")


def text(key: str, default: str = "") -> str:
    """Any text; its reader checks it."""
    return _read(key, default, str, "text")


def names(key: str, value: str) -> bool:
    """Whether a text is just this value; one of an address that is no value asked for is told at the end."""
    state = url_session.current()
    if key in state.arrived:
        state.unclaimed[key] = state.arrived[key][-1]
    found = text(key) == value
    if found:
        state.unclaimed.pop(key, None)
    return found


def slider(label: str, key: str, default: T, low: T, high: T, step: T, **options: Any) -> T:
    """A slider for a number or whole number, whichever the default is."""
    widget: Any = st.slider
    bound = _bound(key, "slider", _numeric(key, default, low, high))
    return cast(T, widget(label, low, high, step=step, **bound, **options))


def number_field(label: str, key: str, default: T, low: T, high: T, step: T, **options: Any) -> T:
    """A field to type a number in; an empty one keeps the value."""
    value = _numeric(key, default, low, high)
    widget: Any = st.number_input
    # with None for its own value an emptied field is None, and not the least value
    typed = widget(label, low, high, None, step=step, **_bound(key, "number", value), **options)
    return value if typed is None else cast(T, typed)


def toggle(label: str, key: str, default: bool = False, **options: Any) -> bool:
    """A switch."""
    return bool(st.toggle(label, **_bound(key, "toggle", flag(key, default)), **options))


def segmented(label: str, choices: Options, key: str, default: str, **options: Any) -> str:
    """A row of alternatives of which one is chosen."""
    bound = _bound(key, "segmented", choice(key, choices, default), choices)
    return str(st.segmented_control(label, list(choices), **({"required": True} | bound | options)))


def selectbox(label: str, choices: Options, key: str, default: str, **options: Any) -> str:
    """A list of which one is chosen."""
    bound = _bound(key, "selectbox", choice(key, choices, default), choices)
    return str(st.selectbox(label, list(choices), **(bound | options)))


def radio(label: str, choices: Options, key: str, default: str, **options: Any) -> str:
    """Alternatives of which one is chosen, each with its dot."""
    bound = _bound(key, "radio", choice(key, choices, default), choices)
    return str(st.radio(label, list(choices), **(bound | options)))


def tabs(choices: Mapping[str, str], key: str, default: str) -> dict[str, Any]:
    """Tabs of which one is open; by the names of the choices, as containers that know whether they are."""
    name, shown = f"{key}_tabs", choices[choice(key, choices, default)]
    if st.session_state.get(name) != shown:
        st.session_state[name] = shown
    made = st.tabs(list(choices.values()), key=name, on_change=_take_tab, args=(key, name, choices))
    return dict(zip(choices, made, strict=True))


def text_field(label: str, key: str, longest: int, **options: Any) -> str:
    """A field to type a line of text in; what an address has beyond its length is cut off."""
    bound = _bound(key, "text", text(key)[:longest])
    return str(st.text_input(label, max_chars=longest, **bound, **options))


def multiselect(label: str, choices: Options, key: str, default: Iterable[str], **options: Any) -> list[str]:
    """A list of which any number is chosen."""
    bound = _bound(key, "multiselect", several(key, choices, default), choices)
    return list(st.multiselect(label, list(choices), **(bound | options)))


def _read(key: str, default: T, parse: Callable[[Any], T], wanted: str) -> T:
    state = url_session.current()
    arrived = state.arrived.pop(key, None)
    if arrived is not None:
        try:
            state.values[key] = parse(arrived[-1])
            state.faults.pop(key, None)
            if len(set(arrived)) > 1:
                state.faults[key] = url_session.ambiguous(key, arrived)
        except (ValueError, OverflowError):
            reason = f"is not used here: {wanted} is meant"
            state.faults[key] = url_session.complaint(key, arrived[-1], reason)
    try:
        # another run can have fewer layers or methods: its own default serves then, and the value is kept
        value = parse(state.values[key]) if state.values.get(key) is not None else default
    except (ValueError, OverflowError):
        value = default
    return state.noted(key, value, default)


def _within(value: T, low: Any, high: Any) -> T:
    if not low <= value <= high:
        raise ValueError(value)
    return value


def _member(value: str, options: Options) -> str:
    if value not in options:
        raise ValueError(value)
    return value


def _truth(found: Any) -> bool:
    if str(found) not in ("0", "1", "True", "False"):
        raise ValueError(found)
    return str(found) in ("1", "True")


def _numeric(key: str, default: Any, low: Any, high: Any) -> Any:
    if isinstance(default, int):
        return whole(key, default, low, high)
    return number(key, default, low, high)


def _bound(key: str, kind: str, value: Any, choices: Options | None = None) -> dict[str, Any]:
    """Lets the widget show the value, whoever has changed it, under the names that its choices have now."""
    name, called = f"{key}_{kind}", dict(choices) if isinstance(choices, Mapping) else {}
    state = url_session.current()
    before, state.called[name] = state.called.get(name, {}), called
    # the browser speaks of a choice by what it was called when it was last drawn
    renamed = any(called.get(one, words) != words for one, words in before.items())
    if renamed or st.session_state.get(name) != value or name not in st.session_state:
        st.session_state[name] = value
    bound: dict[str, Any] = {"key": name, "on_change": _take, "args": (key, name)}
    if choices is None:
        return bound
    return bound | {"format_func": choices.__getitem__ if isinstance(choices, Mapping) else str}


def _take_tab(key: str, name: str, choices: Mapping[str, str]) -> None:
    shown = st.session_state.get(name)
    if not sent_along():
        put(key, next((one for one, words in choices.items() if words == shown), ""))


def _take(key: str, name: str) -> None:
    value = st.session_state.get(name)
    if value is not None and not sent_along():
        put(key, value)
